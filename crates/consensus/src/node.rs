//! A member's node in the Raft cluster: what its tasks, the answers to other members, and the administration of the ring share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use openraft::raft::AppendEntriesRequest;
use raft_types::{
    FormatMismatch, FormatVersion, HistoryEntry, MemberId, OpId, Program, StoredMembership,
    TypeConfig,
};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::calls::{DatabaseState, MemberCalls};
use crate::config::Timers;
use crate::election::elections::Elections;
use crate::engine::handle::EngineHandle;
use crate::engine::{Engine, Fault, ProgressSnapshot, RoleSnapshot};
use crate::failed_targets::FailedTargets;
use crate::lease::leadership::{Leadership, NotServing};
use crate::log_room::Rooms;
use crate::primacy::Primacy;
use crate::purge_floor::{PurgeFloor, purge_floor};
use crate::ring_view::RingView;
use crate::{engine, primacy};

/// One member's running Raft, without its proposals and tasks: those are in [`crate::RaftMember`].
pub struct RaftNode {
    pub(crate) engine: Arc<EngineHandle>,
    pub(crate) elections: Arc<Elections>,
    pub(crate) administrator: Arc<dyn Administrator>,
    /// The program that it runs, for other members.
    pub(crate) program: Program,
    /// Targets to which the leadership could not be transferred.
    pub failed_targets: FailedTargets,
    pub(crate) rooms: Arc<Rooms>,
    /// Wakes the task that keeps connections when a member calls that had none to this one.
    pub(crate) arrived: Notify,
}

impl RaftNode {
    /// The number under which it takes part in the ring.
    pub fn id(&self) -> MemberId {
        self.engine.id
    }

    /// Its heartbeats and elections.
    pub fn timers(&self) -> Timers {
        self.engine.timers
    }

    /// The calls to other members.
    pub fn calls(&self) -> &Arc<dyn MemberCalls> {
        &self.engine.calls
    }

    /// The engine itself. A membership changed through it bypasses every rule of this crate.
    pub fn engine(&self) -> &Engine {
        &self.engine.raft
    }

    /// The current role. A leader that has been silent for two leases is not named.
    pub fn role(&self) -> RoleSnapshot {
        self.engine.role()
    }

    /// Waits until the engine's role is as `wanted`.
    ///
    /// # Errors
    /// The engine has stopped before.
    pub async fn role_when(
        &self,
        wanted: impl Fn(&RoleSnapshot) -> bool,
    ) -> Result<RoleSnapshot, Fault> {
        engine::role_when(&self.engine.raft, wanted).await
    }

    /// The log and, on a leader, the others' progress.
    pub fn progress(&self) -> ProgressSnapshot {
        engine::progress(&self.engine.raft)
    }

    /// Up to where the log is committed, as far as this member knows; never decreases.
    pub fn committed(&self) -> watch::Receiver<Option<OpId>> {
        self.engine.mark.subscribe()
    }

    /// The current leadership.
    pub fn leadership(&self) -> Leadership {
        self.elections.leadership()
    }

    /// The leadership for a role that was just read.
    pub fn leadership_in(&self, role: &RoleSnapshot) -> Leadership {
        self.elections.assess(role)
    }

    /// Checks that this member is no leader without the right to serve.
    ///
    /// # Errors
    /// Why it does not serve.
    pub fn ensure_serving(&self) -> Result<(), NotServing> {
        self.leadership().not_serving().map_or(Ok(()), Err)
    }

    /// The current ring.
    pub fn ring_view(&self) -> RingView {
        self.ring_view_in(&self.role())
    }

    /// The ring for a role that was just read.
    pub fn ring_view_in(&self, role: &RoleSnapshot) -> RingView {
        RingView {
            is_interim: self.elections.interim_term.asks_in(role.term),
            lease: self.engine.timers.lease,
            ..RingView::new(self.engine.id, role, &self.progress())
        }
    }

    /// What the leadership of a role means for the member's own mysqld.
    pub(crate) fn primacy(&self, role: &RoleSnapshot) -> Primacy {
        let nodes = role.membership.membership().nodes();
        let records: Vec<_> = nodes.map(|(id, record)| (*id, record)).collect();
        let is_interim = self.elections.interim_term.asks_in(role.term);
        let leadership = self.elections.assess(role);
        primacy::primacy(self.engine.id, leadership, is_interim, &records)
    }

    /// Up to where the ring no longer needs the log; none where this member does not serve as the leader.
    pub(crate) fn purge_floor(&self, absent_after: Duration) -> Option<PurgeFloor> {
        let term = self.elections.leadership().serving_term()?;
        let led_for = self.elections.tenure.led_for(term, Instant::now());
        Some(purge_floor(&self.ring_view(), led_for, absent_after))
    }

    /// Whether the end of its log may lack acknowledged entries.
    pub fn doubts_its_log(&self) -> bool {
        self.elections.campaigning.gate.needed().is_some()
    }

    /// The entry that the ring is known to have committed and its log lacks. It votes for no log that ends earlier.
    pub fn elects_from(&self) -> Option<OpId> {
        self.elections.campaigning.gate.committed()
    }

    /// Waits until a lease is over that this member may have promised before its start.
    pub async fn promise_is_over(&self) {
        self.elections.campaigning.promise_is_over().await;
    }
}

// What a member's Raft needs of the administration of its ring, which is in a crate above this one: the formats of the log, and answers
// about the member's mysqld and the ring's history.

/// Why a member cannot use data of a format.
#[derive(Debug, Error)]
pub enum FormatError {
    /// This program does not support it.
    #[error("the ring has gone on to {0}")]
    Unsupported(#[from] FormatMismatch),
    /// Its data directory could not record the format.
    #[error("the data directory cannot be raised to format {format}: {error}")]
    Directory {
        /// The format to be recorded.
        format: FormatVersion,
        /// The error of the write.
        error: io::Error,
    },
}

/// The administration of a ring by one of its members.
pub trait Administrator: Send + Sync + 'static {
    /// Checks the newest membership of the log, before anything is started over that log.
    ///
    /// # Errors
    /// The ring uses a format that this program does not support.
    fn check(&self, membership: &StoredMembership) -> Result<(), FormatMismatch>;

    /// Receives the newest membership of the log when it may have changed, before the leadership under it is published.
    fn note_membership(&self, membership: &StoredMembership);

    /// Prepares the data directory for a log that begins with this membership.
    ///
    /// # Errors
    /// [`FormatError`]; the log must stay as it is then.
    fn prepare_for(&self, membership: &StoredMembership) -> Result<(), FormatError>;

    /// Prepares the data directory for a leader's entries; false refuses them.
    fn accept_entries(&self, request: &AppendEntriesRequest<TypeConfig>) -> bool;

    /// Records why this member accepts no entries, as text, until it accepts some.
    fn entries_refused(&self, why: &str);

    /// The cost of a promotion of this member, after a primary of this version; `None` without a mysqld.
    fn database_state(&self, primary: Option<String>) -> BoxFuture<'_, Option<DatabaseState>>;

    /// Keeps events that another member has recorded until the ring's history has them.
    fn keep_events(&self, entries: Vec<HistoryEntry>);
}
