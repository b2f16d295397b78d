//! The administration of a ring by one of its members: its membership and rules, the requests of operators and leader tasks that change
//! them, and the parts of the member that these requests need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use raft_types::{MemberId, MemberRecord, OpId};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::election::elections::Elections;
use crate::engine;
use crate::engine::RoleSnapshot;
use crate::engine::handle::EngineHandle;
use crate::formats;
use crate::formats::keeping::Formats;
use crate::history::notes::Notes;
use crate::log_room::rooms::Rooms;
use crate::member::config::MemberConfig;
use crate::purge_floor::{PurgeFloor, purge_floor};
use crate::quorum::{RingRules, VoterSets, policy};
use crate::reconfiguration::membership_step::{MembershipStep, MoveError};
use crate::reconfiguration::pinned_primary::Primacy;
use crate::reconfiguration::{membership_step, pinned_primary};
use crate::ring_view::RingView;
use crate::transfer::failed_targets::FailedTargets;
use crate::transfer::mysqld::{DatabaseSlot, WriterSlot};

/// What the tasks of one member share to administer the ring.
#[derive(Debug)]
pub(crate) struct Administration {
    pub(crate) engine: Arc<EngineHandle>,
    pub(crate) elections: Arc<Elections>,
    /// The rules of this member's file, which apply where the log has none.
    configured: RingRules,
    pub(crate) failed_targets: FailedTargets,
    /// Held by a task that changes the members, the quorum or the leader, from its decision to the end of the change.
    pub(crate) reconfiguration_lock: AsyncMutex<()>,
    /// Wakes the task that keeps connections when a member calls that had none to this one.
    pub(crate) arrived: Notify,
    pub(crate) writer: WriterSlot,
    pub(crate) database: DatabaseSlot,
    pub(crate) rooms: Rooms,
    /// Events that wait for the ring's history.
    pub(crate) notes: Notes,
    pub(crate) formats: Formats,
}

impl Administration {
    pub(crate) fn new(elections: Arc<Elections>, config: &MemberConfig) -> Self {
        Self {
            engine: elections.engine.clone(),
            elections,
            configured: config.rules.clone(),
            failed_targets: FailedTargets::default(),
            reconfiguration_lock: AsyncMutex::new(()),
            arrived: Notify::new(),
            writer: WriterSlot::default(),
            database: DatabaseSlot::default(),
            rooms: Rooms::default(),
            notes: Notes::default(),
            formats: Formats::new(config.program.clone()),
        }
    }

    /// What the leadership of a role means for the member's own mysqld.
    pub(crate) fn primacy(&self, role: &RoleSnapshot) -> Primacy {
        let nodes = role.membership.membership().nodes().collect::<Vec<_>>();
        let records = nodes.iter().map(|(id, record)| (**id, *record));
        let stands_in = self.elections.interim_term.asks_in(role.term);
        pinned_primary::primacy(
            self.engine.id,
            self.elections.assess(role),
            stands_in,
            records,
        )
    }

    /// The current ring.
    pub(crate) fn ring_view(&self) -> RingView {
        let role = self.engine.role();
        let progress = engine::progress(&self.engine.raft);
        RingView {
            stands_in: self.elections.interim_term.asks_in(role.term),
            ..RingView::new(self.engine.id, &role, &progress)
        }
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> RingRules {
        let role = engine::role(&self.engine.raft);
        let records = role.membership.membership().nodes();
        policy::in_force(records.map(|(_, record)| record), &self.configured)
    }

    /// The members of a membership that follows that of `role`, before any change to them.
    pub(crate) fn members_to_be(&self, role: &RoleSnapshot) -> BTreeMap<MemberId, MemberRecord> {
        let nodes = role.membership.membership().nodes();
        let mut members = nodes.map(|(id, record)| (*id, record.clone())).collect();
        policy::carry_on(&mut members, &self.configured);
        formats::carry_on(&mut members);
        members
    }

    /// Changes only the voter sets, in the present leadership. The caller holds the reconfiguration lock.
    pub(crate) async fn move_quorum(&self, sets: VoterSets) -> Result<(), MoveError> {
        let role = self.engine.role();
        let members = self.members_to_be(&role);
        let moved = self.append_membership(&role, sets, members).await?;
        tracing::info!(op_id = %moved, "the quorum has moved");
        Ok(())
    }

    /// Appends a membership that follows that of `role`, in its leadership, and waits for the commit. The caller holds the
    /// reconfiguration lock.
    pub(crate) async fn append_membership(
        &self,
        role: &RoleSnapshot,
        sets: VoterSets,
        members: BTreeMap<MemberId, MemberRecord>,
    ) -> Result<OpId, MoveError> {
        let step = MembershipStep {
            term: role.term,
            sets,
            members,
            base: (*role.membership).clone(),
        };
        membership_step::append(
            &self.engine.raft,
            step,
            self.engine.timers.longest_election(),
        )
        .await
    }

    /// Up to where the ring no longer needs the log; none where this member does not serve as the leader.
    pub(crate) fn purge_floor(&self, absent_after: Duration) -> Option<PurgeFloor> {
        let term = self.elections.leadership().serving_term()?;
        let led_for = self.elections.tenure.led_for(term, Instant::now());
        Some(purge_floor(&self.ring_view(), led_for, absent_after))
    }
}
