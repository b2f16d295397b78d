//! State that the tasks of one member share: its engine, number and timers, and the leadership
//! transfer in progress.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use raft_types::{LogId, MemberId, MemberRecord, OpId};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::election::campaign::Campaigning;
use crate::election::dead_leader::DeadLeader;
use crate::election::early_election::Attempt;
use crate::election::put_back::{Memory, OwnPast};
use crate::election::stand_in::StandIn;
use crate::election::vote_gate::Withheld;
use crate::engine;
use crate::engine::{Engine, Fault, RoleSnapshot};
use crate::formats;
use crate::formats::keeping::Formats;
use crate::history::noting::Notes;
use crate::lacking::{Lack, Lacking};
use crate::lease::contacts::{Contacts, LastHeard, QuorumContact};
use crate::lease::leadership::{Leadership, Observation, Tenure, Term, assess, is_quiet};
use crate::log_room::rooms::Rooms;
use crate::member::config::{MemberConfig, Timers};
use crate::member::essential_tasks::FirstFault;
use crate::purge_floor::{PurgeFloor, purge_floor};
use crate::quorum::{RingRules, VoterSets, policy};
use crate::reconfiguration::membership_step::{MembershipStep, MoveError};
use crate::reconfiguration::pinned_primary::Primacy;
use crate::reconfiguration::{membership_step, pinned_primary};
use crate::ring_view::RingView;
use crate::state_machine::CommitMark;
use crate::transfer::failed_targets::FailedTargets;
use crate::transfer::mysqld::{DatabaseSlot, WriterSlot};

/// A leader that is silent for this many leases is no longer named.
const SILENT: u32 = 2;

/// A leadership transfer that was started in the engine. It cannot be revoked: the engine
/// takes no more entries in that term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartedTransfer {
    pub(crate) term: Term,
    pub(crate) to: MemberId,
}

/// State that the tasks of one member share.
#[derive(Debug)]
pub(crate) struct MemberCore {
    pub(crate) raft: Engine,
    pub(crate) id: MemberId,
    pub(crate) timers: Timers,
    /// The rules of this member's file, which apply where the log has none.
    configured: RingRules,
    pub(crate) mark: CommitMark,
    pub(crate) contacts: Contacts,
    /// Held by the task that changes the stored notes for the next election.
    pub(crate) noting: AsyncMutex<()>,
    pub(crate) campaigning: Campaigning,
    pub(crate) heard: LastHeard,
    lacking: Lacking,
    pub(crate) dead_leader: DeadLeader,
    /// How far the other members have come.
    pub(crate) memory: Memory,
    /// What this member has detected about itself.
    pub(crate) past: OwnPast,
    /// Held by the task that doubts the log's end, or settles that doubt.
    pub(crate) doubting: AsyncMutex<()>,
    /// Wakes the task that settles it.
    pub(crate) doubted: Notify,
    pub(crate) early_attempt: Attempt,
    /// The term in which this member is the interim leader.
    pub(crate) stand_in: StandIn,
    /// Why this member stopped its engine itself.
    pub(crate) failed: OnceLock<Fault>,
    /// Why it has stopped.
    pub(crate) fault: FirstFault,
    /// How long it has been serving.
    pub(crate) tenure: Tenure,
    /// How long it has been leading, with a quorum or without.
    leading: Tenure,
    started_transfer: Mutex<Option<StartedTransfer>>,
    pub(crate) failed_targets: FailedTargets,
    /// Held by a task that changes the members, the quorum or the leader, from its decision to the end of the change.
    pub(crate) reconfiguration_lock: AsyncMutex<()>,
    /// Wakes the observer when a transfer starts, or a voter's lease becomes known.
    pub(crate) transfer_started: Notify,
    /// Wakes the task that keeps connections when a member calls that had none to this one.
    pub(crate) arrived: Notify,
    pub(crate) writer: WriterSlot,
    pub(crate) database: DatabaseSlot,
    pub(crate) rooms: Rooms,
    /// Events that wait for the ring's history.
    pub(crate) notes: Notes,
    pub(crate) formats: Formats,
}

impl MemberCore {
    pub(crate) fn new(
        raft: Engine,
        config: &MemberConfig,
        mark: CommitMark,
        contacts: Contacts,
        campaigning: Campaigning,
        memory: Memory,
        past: OwnPast,
    ) -> Self {
        Self {
            memory,
            past,
            doubting: AsyncMutex::default(),
            doubted: Notify::new(),
            raft,
            contacts,
            noting: AsyncMutex::default(),
            campaigning,
            id: config.id,
            timers: config.timers,
            configured: config.rules.clone(),
            mark,
            heard: LastHeard::never(),
            lacking: Lacking::new(config.timers.lease * SILENT),
            dead_leader: DeadLeader::default(),
            early_attempt: Attempt::default(),
            stand_in: StandIn::default(),
            tenure: Tenure::default(),
            leading: Tenure::default(),
            reconfiguration_lock: AsyncMutex::new(()),
            failed: OnceLock::new(),
            fault: FirstFault::default(),
            started_transfer: Mutex::new(None),
            failed_targets: FailedTargets::default(),
            transfer_started: Notify::new(),
            arrived: Notify::new(),
            writer: WriterSlot::default(),
            database: DatabaseSlot::default(),
            rooms: Rooms::default(),
            notes: Notes::default(),
            formats: Formats::new(config.program.clone()),
        }
    }

    /// The current role. A leader that has been silent for two leases is no longer named: by then others
    /// may have elected another.
    pub(crate) fn role(&self) -> RoleSnapshot {
        let mut role = engine::role(&self.raft);
        let silent = !self.heard.within(self.timers.lease * SILENT);
        role.leader = role.leader.filter(|&leader| leader == self.id || !silent);
        role
    }

    /// Why a candidate whose log ends there gets no vote; `None`: ask the engine.
    pub(crate) fn withholds(&self, candidate: MemberId, end: Option<OpId>) -> Option<Withheld> {
        let role = engine::role(&self.raft);
        let record = role.membership.membership().get_node(&candidate);
        let lacks = record.and_then(|record| {
            self.memory
                .lacks(candidate, record.incarnation, role.term.0, end)
        });
        let put_back = lacks.map(|known| Withheld::PutBack { known });
        self.campaigning.gate.withholds(end).or(put_back)
    }

    /// The current leadership.
    pub(crate) fn leadership(&self) -> Leadership {
        self.assess(&self.role())
    }

    /// A leader reports up to where the log is committed.
    pub(crate) fn told_committed(&self, committed: Option<LogId>) {
        let committed = committed.map(OpId::from);
        self.lacking.told(committed, self.mark.get());
    }

    /// For how long this member has lacked entries that the ring has committed; none where that is unknown.
    pub(crate) fn lacks_commits_for(&self) -> Option<Duration> {
        let role = self.role();
        if role.state == openraft::ServerState::Leader {
            return Some(Duration::ZERO);
        }
        match self.lacking.lack(self.mark.get()) {
            Lack::For(lack) => Some(lack),
            Lack::Unknown => None,
            // As far as reported: no later report has arrived for a moment.
            Lack::Nothing => role.leader.map(|_| Duration::ZERO),
        }
    }

    /// Returns an error with the reason why a leader does not serve.
    pub(crate) fn ensure_serving(&self) -> Result<(), String> {
        match self.leadership() {
            Leadership::LeaderNotServing { why, .. } => Err(why.to_string()),
            _ => Ok(()),
        }
    }

    /// The leadership for a role that was just read.
    pub(crate) fn assess(&self, role: &RoleSnapshot) -> Leadership {
        let transfer = self
            .started_transfer()
            .filter(|started| started.term == role.term);
        let quorum = self.quorum(role);
        let seen = Observation {
            role: role.state,
            term: role.term,
            leader: role.leader,
            committed: self.mark.get(),
            quorum_age: quorum.map(|quorum| quorum.age),
            alone: role.is_alone(self.id),
            another_alone: role.another_alone(self.id, self.mark.get()),
            transferring_to: transfer.map(|started| started.to),
        };
        assess(
            &seen,
            quorum.map_or(self.timers.lease, |quorum| quorum.lease),
        )
    }

    /// What the leadership of a role means for the member's own mysqld.
    pub(crate) fn primacy(&self, role: &RoleSnapshot) -> Primacy {
        let nodes = role.membership.membership().nodes().collect::<Vec<_>>();
        let records = nodes.iter().map(|(id, record)| (**id, *record));
        let stands_in = self.stand_in.asks_in(role.term);
        pinned_primary::primacy(self.id, self.assess(role), stands_in, records)
    }

    /// The basis of this leader's lease.
    pub(crate) fn quorum(&self, role: &RoleSnapshot) -> Option<QuorumContact> {
        self.contacts
            .quorum(self.id, role.term, role.voter_sets(), self.timers.lease)
    }

    /// Lets others elect a leader where this one has lost its quorum; `leads`: whether this member leads others at all. While
    /// they vote, it does not campaign: its log may be the longest, and its entries may still reach no other member.
    pub(crate) fn keep_quiet_without_a_quorum(&self, role: &RoleSnapshot, leads: bool) {
        let led_for = || self.leading.led_for(role.term, Instant::now());
        let silent = leads.then(|| self.quorum(role).map_or_else(led_for, |quorum| quorum.age));
        let quiet = silent.is_some_and(|silent| is_quiet(silent, self.timers.lease));
        let was_quiet = self.contacts.keep_quiet(quiet);
        if was_quiet && !leads {
            let pause = self.timers.longest_election() * 2;
            self.campaigning.give_way(&self.raft, pause);
        }
    }

    /// When this leader's lease ends if no more heartbeats are answered; none without a lease.
    pub(crate) fn lease_end(&self, role: &RoleSnapshot) -> Option<Instant> {
        let quorum = self.quorum(role)?;
        let left = quorum.lease.checked_sub(quorum.age);
        Some(Instant::now() + left.unwrap_or_default())
    }

    /// The current ring.
    pub(crate) fn ring_view(&self) -> RingView {
        let role = self.role();
        let progress = engine::progress(&self.raft);
        RingView {
            stands_in: self.stand_in.asks_in(role.term),
            ..RingView::new(self.id, &role, &progress)
        }
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> RingRules {
        let role = engine::role(&self.raft);
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
        let role = self.role();
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
        membership_step::append(&self.raft, step, self.timers.longest_election()).await
    }

    /// Up to where the ring no longer needs the log; none where this member does not serve as the leader.
    pub(crate) fn purge_floor(&self, absent_after: Duration) -> Option<PurgeFloor> {
        let term = self.leadership().serving_term()?;
        let led_for = self.tenure.led_for(term, Instant::now());
        Some(purge_floor(&self.ring_view(), led_for, absent_after))
    }

    /// Up to where the ring's log is committed now; none where this member does not serve as the leader.
    pub(crate) fn committed_now(&self) -> Option<Option<OpId>> {
        self.leadership().serving_term()?;
        Some(self.mark.get())
    }

    pub(crate) fn started_transfer(&self) -> Option<StartedTransfer> {
        *self.lock()
    }

    /// Records the start of a transfer, unless one started in this term already.
    pub(crate) fn claim_transfer(&self, transfer: StartedTransfer) -> Result<(), StartedTransfer> {
        let mut started = self.lock();
        match *started {
            Some(earlier) if earlier.term == transfer.term => Err(earlier),
            _ => {
                *started = Some(transfer);
                Ok(())
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<StartedTransfer>> {
        // The value is replaced as a whole, so a panic elsewhere cannot have left half of one.
        self.started_transfer
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
