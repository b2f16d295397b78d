//! The state of a member in elections, and as a leader after an election. It records the other members' votes, logs and leases, and the
//! conditions of the member's own campaigns. The leadership follows from this state.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::ServerState;
use raft_types::{LogId, MemberId, OpId, Term, lock};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::Instant;

use crate::election::campaign::Campaigning;
use crate::election::counted_votes::InterimTerm;
use crate::election::leader_exit::{EarlyAttempt, LeaderExit};
use crate::election::restored_directory::{OwnPast, Recorded};
use crate::election::vote_gate::Withheld;
use crate::engine::handle::{EngineHandle, SILENT};
use crate::engine::{self, RoleSnapshot};
use crate::lacking::{Lack, Reports};
use crate::lease::contacts::{Contacts, QuorumContact};
use crate::lease::leadership::{Leadership, Observation, Tenure, assess, is_quiet};

/// A leadership transfer that was started in the engine. It cannot be revoked, because the engine accepts no more entries in that term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StartedTransfer {
    pub(crate) term: Term,
    pub(crate) to: MemberId,
}

/// The state of elections and leadership that the tasks of one member share.
pub(crate) struct Elections {
    pub(crate) engine: Arc<EngineHandle>,
    pub(crate) contacts: Contacts,
    /// Held by the task that changes the stored notes for the next election.
    pub(crate) noting: AsyncMutex<()>,
    pub(crate) campaigning: Campaigning,
    /// The entries that leaders have reported as committed.
    pub(crate) lacking: Mutex<Reports>,
    pub(crate) leader_exit: LeaderExit,
    /// The recorded state of the other members.
    pub(crate) memory: Recorded,
    /// The findings of this member about its own data directory.
    pub(crate) past: OwnPast,
    /// Held by the task that starts or settles a doubt about the log's end.
    pub(crate) doubting: AsyncMutex<()>,
    /// Wakes the task that settles a doubt.
    pub(crate) doubted: Notify,
    pub(crate) early_attempt: EarlyAttempt,
    pub(crate) interim_term: InterimTerm,
    /// How long this member has been serving as the leader.
    pub(crate) tenure: Tenure,
    /// How long this member has been leading, with a quorum or without.
    pub(crate) leading: Tenure,
    pub(crate) started_transfer: Mutex<Option<StartedTransfer>>,
    /// Wakes the observer when a transfer starts, or a voter's lease becomes known.
    pub(crate) transfer_started: Notify,
}

impl Elections {
    /// Returns why a candidate gets no vote if its log ends at `end`; `None` if the engine decides.
    pub(crate) fn withholds(&self, candidate: MemberId, end: Option<OpId>) -> Option<Withheld> {
        let role = engine::role(&self.engine.raft);
        let record = role.membership.membership().get_node(&candidate);
        let lacks = record.and_then(|record| {
            self.memory
                .lacks(candidate, record.incarnation, role.term.0, end)
        });
        let gate = &self.campaigning.gate;
        gate.withholds(end)
            .or(lacks.map(Withheld::RestoredDirectory))
    }

    /// The current leadership.
    pub(crate) fn leadership(&self) -> Leadership {
        self.assess(&self.engine.role())
    }

    /// Records that a leader reports up to where the log is committed.
    pub(crate) fn told_committed(&self, committed: Option<LogId>) {
        let (committed, own) = (committed.map(OpId::from), self.engine.mark.get());
        let silence = self.engine.timers.lease * SILENT;
        lock(&self.lacking).told(committed, own, Instant::now(), silence);
    }

    /// Returns how long this member has lacked entries that the ring has committed; `None` if that is unknown.
    pub(crate) fn lacks_commits_for(&self) -> Option<Duration> {
        let role = self.engine.role();
        if role.state == ServerState::Leader {
            return Some(Duration::ZERO);
        }
        let own = self.engine.mark.get();
        let lack = lock(&self.lacking).lack(own, Instant::now());
        match lack {
            Lack::For(lack) => Some(lack),
            Lack::Unknown => None,
            // The member has all reported entries. Later reports may be on the way.
            Lack::Nothing => role.leader.map(|_| Duration::ZERO),
        }
    }

    /// Returns the leadership of a role that was just read.
    pub(crate) fn assess(&self, role: &RoleSnapshot) -> Leadership {
        let transfer = self
            .started_transfer()
            .filter(|started| started.term == role.term);
        let quorum = self.quorum(role);
        let seen = Observation {
            role: role.state,
            term: role.term,
            leader: role.leader,
            committed: self.engine.mark.get(),
            quorum_age: quorum.map(|quorum| quorum.age),
            alone: role.is_alone(self.engine.id),
            another_alone: role.another_alone(self.engine.id, self.engine.mark.get()),
            transferring_to: transfer.map(|started| started.to),
        };
        assess(
            &seen,
            quorum.map_or(self.engine.timers.lease, |quorum| quorum.lease),
        )
    }

    /// Returns the quorum's last answer, on which this leader's lease depends.
    pub(crate) fn quorum(&self, role: &RoleSnapshot) -> Option<QuorumContact> {
        self.contacts.quorum(
            self.engine.id,
            role.term,
            role.voter_sets(),
            self.engine.timers.lease,
        )
    }

    /// Sends no heartbeats for a time if this leader has lost its quorum, so that the others can elect a leader. `leads` is true if this
    /// member leads other members. While they vote, this member does not campaign: its log may be the longest, while its entries still
    /// reach no other member.
    pub(crate) fn keep_quiet_without_a_quorum(&self, role: &RoleSnapshot, leads: bool) {
        let led_for = || self.leading.led_for(role.term, Instant::now());
        let silent = leads.then(|| self.quorum(role).map_or_else(led_for, |quorum| quorum.age));
        let quiet = silent.is_some_and(|silent| is_quiet(silent, self.engine.timers.lease));
        let was_quiet = self.contacts.keep_quiet(quiet);
        if was_quiet && !leads {
            let pause = self.engine.timers.longest_election() * 2;
            self.campaigning.yield_to_another(&self.engine.raft, pause);
        }
    }

    /// Returns the end of this leader's lease if no more heartbeats are answered; `None` without a lease.
    pub(crate) fn lease_end(&self, role: &RoleSnapshot) -> Option<Instant> {
        let quorum = self.quorum(role)?;
        let left = quorum.lease.checked_sub(quorum.age);
        Some(Instant::now() + left.unwrap_or_default())
    }

    /// Returns up to where the ring's log is committed now; `None` if this member does not serve as the leader.
    pub(crate) fn committed_now(&self) -> Option<Option<OpId>> {
        self.leadership().serving_term()?;
        Some(self.engine.mark.get())
    }

    pub(crate) fn started_transfer(&self) -> Option<StartedTransfer> {
        *lock(&self.started_transfer)
    }

    /// Records the start of a transfer. If another transfer was started in the same term, returns that one as an error.
    pub(crate) fn claim_transfer(&self, transfer: StartedTransfer) -> Result<(), StartedTransfer> {
        let mut started = lock(&self.started_transfer);
        match *started {
            Some(earlier) if earlier.term == transfer.term => Err(earlier),
            _ => {
                *started = Some(transfer);
                Ok(())
            }
        }
    }
}
