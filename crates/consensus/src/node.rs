//! A member's node in the Raft cluster: the part that is shared by its tasks, its answers to other members, and the administration of the
//! ring.

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

/// One member's running Raft, without its proposals and tasks, which are in [`crate::RaftMember`].
pub struct RaftNode {
    pub(crate) engine: Arc<EngineHandle>,
    pub(crate) elections: Arc<Elections>,
    pub(crate) administrator: Arc<dyn Administrator>,
    /// The version of the running program, as reported to other members.
    pub(crate) program: Program,
    /// Targets to which the leadership could not be transferred.
    pub failed_targets: FailedTargets,
    pub(crate) rooms: Arc<Rooms>,
    /// Wakes the task that keeps connections, when a member without a connection to this one calls.
    pub(crate) arrived: Notify,
}

impl RaftNode {
    /// Returns the member's number in the ring.
    pub fn id(&self) -> MemberId {
        self.engine.id
    }

    /// Returns the timers of heartbeats and elections.
    pub fn timers(&self) -> Timers {
        self.engine.timers
    }

    /// Returns the client for calls to other members.
    pub fn calls(&self) -> &Arc<dyn MemberCalls> {
        &self.engine.calls
    }

    /// Returns the engine itself. A membership that is changed through the engine bypasses every rule of this crate.
    pub fn engine(&self) -> &Engine {
        &self.engine.raft
    }

    /// Returns the current role. A leader that has been silent for two leases is not included.
    pub fn role(&self) -> RoleSnapshot {
        self.engine.role()
    }

    /// Waits until `wanted` is true for the engine's role.
    ///
    /// # Errors
    /// The engine stops before that.
    pub async fn role_when(
        &self,
        wanted: impl Fn(&RoleSnapshot) -> bool,
    ) -> Result<RoleSnapshot, Fault> {
        engine::role_when(&self.engine.raft, wanted).await
    }

    /// Returns the state of the log and, on a leader, the progress of the other members.
    pub fn progress(&self) -> ProgressSnapshot {
        engine::progress(&self.engine.raft)
    }

    /// Returns the last entry that this member has recorded as committed; never decreases.
    pub fn committed(&self) -> watch::Receiver<Option<OpId>> {
        self.engine.mark.subscribe()
    }

    /// The current leadership.
    pub fn leadership(&self) -> Leadership {
        self.elections.leadership()
    }

    /// Returns the leadership of a role that was just read.
    pub fn leadership_in(&self, role: &RoleSnapshot) -> Leadership {
        self.elections.assess(role)
    }

    /// Checks that this member is not a leader without the right to serve; a follower passes.
    ///
    /// # Errors
    /// Why the leader does not serve.
    pub fn ensure_serving(&self) -> Result<(), NotServing> {
        self.leadership().not_serving().map_or(Ok(()), Err)
    }

    /// Returns this member's current view of the ring.
    pub fn ring_view(&self) -> RingView {
        self.ring_view_in(&self.role())
    }

    /// Returns this member's view of the ring, for a role that was just read.
    pub fn ring_view_in(&self, role: &RoleSnapshot) -> RingView {
        RingView {
            is_interim: self.elections.interim_term.asks_in(role.term),
            lease: self.engine.timers.lease,
            ..RingView::new(self.engine.id, role, &self.progress())
        }
    }

    /// Returns the consequences of a role for the member's own mysqld.
    pub(crate) fn primacy(&self, role: &RoleSnapshot) -> Primacy {
        let nodes = role.membership.membership().nodes();
        let records: Vec<_> = nodes.map(|(id, record)| (*id, record)).collect();
        let is_interim = self.elections.interim_term.asks_in(role.term);
        let leadership = self.elections.assess(role);
        primacy::primacy(self.engine.id, leadership, is_interim, &records)
    }

    /// Returns up to where the ring no longer needs the log; `None` if this member does not serve as the leader.
    pub(crate) fn purge_floor(&self, absent_after: Duration) -> Option<PurgeFloor> {
        let term = self.elections.leadership().serving_term()?;
        let led_for = self.elections.tenure.led_for(term, Instant::now());
        Some(purge_floor(&self.ring_view(), led_for, absent_after))
    }

    /// Returns true if the end of this member's log may lack acknowledged entries.
    pub fn doubts_its_log(&self) -> bool {
        self.elections.campaigning.gate.needed().is_some()
    }

    /// Returns the entry that the ring is known to have committed and this member's log lacks. The member does not vote for a log that ends
    /// before this entry.
    pub fn elects_from(&self) -> Option<OpId> {
        self.elections.campaigning.gate.committed()
    }

    /// Waits until a lease that this member may have promised before its start is over.
    pub async fn promise_is_over(&self) {
        self.elections.campaigning.promise_is_over().await;
    }
}

// The functions that a member's Raft needs from the administration of its ring, which is in a higher crate. They are about the formats of
// the log, the member's mysqld and the ring's history.

/// Why a member cannot use a format.
#[derive(Debug, Error)]
pub enum FormatError {
    /// This program does not support the format.
    #[error("the ring has gone on to {0}")]
    Unsupported(#[from] FormatMismatch),
    /// The data directory could not record the format.
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
    /// Checks the newest membership of the log before anything is started over the log.
    ///
    /// # Errors
    /// The ring uses a format that this program does not support.
    fn check(&self, membership: &StoredMembership) -> Result<(), FormatMismatch>;

    /// Receives the newest membership of the log when it may have changed, before the resulting leadership is published.
    fn note_membership(&self, membership: &StoredMembership);

    /// Prepares the data directory for a log that begins with this membership.
    ///
    /// # Errors
    /// [`FormatError`]. The log must then stay unchanged.
    fn prepare_for(&self, membership: &StoredMembership) -> Result<(), FormatError>;

    /// Prepares the data directory for a leader's entries. Returns false if they must be refused.
    fn accept_entries(&self, request: &AppendEntriesRequest<TypeConfig>) -> bool;

    /// Records why this member accepts no entries, until it accepts entries again.
    fn entries_refused(&self, why: &str);

    /// Returns the cost of a promotion of this member after a primary of version `primary`; `None` without a mysqld.
    fn database_state(&self, primary: Option<String>) -> BoxFuture<'_, Option<DatabaseState>>;

    /// Keeps events that another member has recorded, until the ring's history has them.
    fn keep_events(&self, entries: Vec<HistoryEntry>);
}
