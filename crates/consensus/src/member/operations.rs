//! Operators' commands to a member, and the queries that precede them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use openraft::metrics::WaitError;
use raft_types::{
    FilePart, FormatRange, MemberId, MemberRecord, Membership, OpId, Term, TypeConfig,
};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::calls::DatabaseState;
use crate::calls::{Answer, CallError, Greeting, Question};
use crate::election::mock_election::MockElection;
use crate::engine;
use crate::engine::Fault;
use crate::formats;
use crate::history;
use crate::history::notes::entry_now;
use crate::history::{HistoryEntry, HistoryEvent, Named, noting};
use crate::member::Member;
use crate::purge_floor::PurgeFloor;
use crate::quorum::{PolicyGap, QuorumPolicy, RingRules, policy};
use crate::reconfiguration::members::ReconfigurationError;
use crate::reconfiguration::pause::{PauseError, PauseRequest};
use crate::reconfiguration::pinned_primary::RingPause;
use crate::reconfiguration::promotion::{
    Promoted, PromotionCause, PromotionError, PromotionProgress, PromotionRefusal,
};
use crate::reconfiguration::scheduled_switchover::ScheduledSwitchover;
use crate::reconfiguration::updates::{Amendment, RecordChange, RulesChange};
use crate::reconfiguration::{members, pause, promotion, scheduled_switchover, updates};
use crate::repair::forced_membership::{ForceError, first_term, force_membership};
use crate::repair::plan;
use crate::repair::plan::{MemberEvidence, RepairPlan, RepairRefusal};
use crate::transfer::leadership_transfer::{TransferError, TransferOutcome};
use crate::transfer::mysqld::{Database, Writer};
use crate::transfer::{fitness, leadership_transfer, target};

/// The engine builds one mark at a time and ignores an order for another in the meantime: it is repeated after this.
const MARK_PATIENCE: Duration = Duration::from_secs(1);

impl Member {
    /// Transfers the leadership to a voter and waits for the outcome, at most four leases.
    ///
    /// # Errors
    /// [`TransferError`]: refused with nothing changed, or no member leads yet.
    pub async fn transfer_leader(&self, to: MemberId) -> Result<TransferOutcome, TransferError> {
        leadership_transfer::transfer(&self.0.admin, &self.0.calls, to).await
    }

    /// Promotes a database member of this or another region on an operator's order, and waits for the end. `progress` shows
    /// the current step. The promotion continues when this call is dropped. While failover is paused, the primary's place
    /// is the target's from then on.
    ///
    /// # Errors
    /// [`PromotionError`]; it describes the resulting state of the ring.
    pub async fn promote(
        &self,
        to: MemberId,
        progress: watch::Sender<PromotionProgress>,
    ) -> Result<Promoted, PromotionError> {
        self.promoted(to, PromotionCause::Ordered, progress, || true)
            .await
    }

    /// The same for a reason of this member's own, which may pass. It is aborted if it is no longer `needed` when
    /// clients would first notice it, and refused while failover is paused.
    ///
    /// # Errors
    /// [`PromotionError`]; it describes the resulting state of the ring.
    pub async fn promote_while(
        &self,
        to: MemberId,
        progress: watch::Sender<PromotionProgress>,
        needed: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Promoted, PromotionError> {
        self.promoted(to, PromotionCause::Automatic, progress, needed)
            .await
    }

    async fn promoted(
        &self,
        to: MemberId,
        cause: PromotionCause,
        progress: watch::Sender<PromotionProgress>,
        needed: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Promoted, PromotionError> {
        let (admin, calls) = (self.0.admin.clone(), self.0.calls.clone());
        let promoting = tokio::spawn(async move {
            promotion::promote(&admin, &calls, to, cause, &progress, &needed).await
        });
        promoting
            .await
            .unwrap_or_else(|error| Err(PromotionError::Unknown(error.to_string())))
    }

    /// Sets the writer to this member's log, which is paused before a deliberate leadership transfer. Called once.
    pub fn set_writer(&self, writer: Arc<dyn Writer>) {
        self.0.admin.writer.set(writer);
    }

    /// Transfers the leadership to a suitable member, in this region or another, because this member is about to stop.
    ///
    /// # Errors
    /// [`PromotionError`] when no member is suitable, failover is paused, or the promotion did not complete.
    pub async fn give_leadership_away(&self) -> Result<Promoted, PromotionError> {
        let (target, _) = self
            .transfer_target()
            .await
            .map_err(PromotionRefusal::NoTarget)?;
        self.promote_while(target, watch::Sender::default(), || true)
            .await
    }

    /// Pauses failover, or changes the terms of the current pause: no member becomes the primary by itself, except the primary
    /// at the start of the pause. Committed when this returns.
    ///
    /// # Errors
    /// [`PauseError`].
    pub async fn pause(&self, request: &PauseRequest) -> Result<(RingPause, OpId), PauseError> {
        pause::pause(&self.0.admin, request).await
    }

    /// Schedules a switchover to a database member; replaces one that may be scheduled. Committed when this returns.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn schedule_switchover(
        &self,
        scheduled: &ScheduledSwitchover,
    ) -> Result<OpId, ReconfigurationError> {
        scheduled_switchover::schedule(&self.0.admin, scheduled, pause::now()).await
    }

    /// Cancels the scheduled switchover and returns it. Committed when this returns.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn cancel_switchover(
        &self,
        by: &str,
    ) -> Result<(ScheduledSwitchover, OpId), ReconfigurationError> {
        scheduled_switchover::cancel(&self.0.admin, by).await
    }

    /// Ends the pause of failover and returns it. Committed when this returns.
    ///
    /// # Errors
    /// [`PauseError`].
    pub async fn resume(&self, by: &str) -> Result<(RingPause, OpId), PauseError> {
        pause::resume(&self.0.admin, by).await
    }

    /// Sets the source for what a promotion of this member would cost its mysqld. Called once.
    pub fn set_database(&self, database: Arc<dyn Database>) {
        self.0.admin.database.set(database);
    }

    /// The member that should get the leadership if this one transfers it, and its mysqld's state. All candidates are asked
    /// first, concurrently.
    ///
    /// # Errors
    /// Why no member can lead, as text.
    pub async fn transfer_target(&self) -> Result<(MemberId, Option<DatabaseState>), String> {
        let admin = &self.0.admin;
        let mut said = fitness::ask(admin, &self.0.calls, &admin.ring_view()).await;
        let view = admin.ring_view();
        let failed = admin.failed_targets.standings(Instant::now());
        let target = target::choose(
            &view,
            &admin.rules(),
            admin.engine.timers.lease,
            &failed,
            &said,
        )?;
        Ok((target, said.remove(&target)))
    }

    /// Asks a database member, which may be this one, what a promotion of it would cost. Nothing without an answer.
    pub async fn database_state(&self, of: MemberId) -> Option<DatabaseState> {
        fitness::ask_one(&self.0.admin, &self.0.calls, of).await
    }

    /// Asks a member whether its voters would elect it now. Changes nothing.
    ///
    /// # Errors
    /// [`PromotionRefusal`] when it could not lead anyway, or could not be asked.
    pub async fn mock_election(&self, to: MemberId) -> Result<MockElection, PromotionRefusal> {
        promotion::mock_election(&self.0.admin, &self.0.calls, to).await
    }

    /// Whether the ring could add this member. Changes nothing.
    ///
    /// # Errors
    /// The [`ReconfigurationError`] that [`Member::add_member`] would return.
    pub fn check_new_member(
        &self,
        id: MemberId,
        record: &MemberRecord,
    ) -> Result<(), ReconfigurationError> {
        members::check_add(&self.0.admin.ring_view(), id, record)
    }

    /// Whether a new member that supports these formats could take part in the ring. Changes nothing.
    ///
    /// # Errors
    /// [`ReconfigurationError::Format`].
    pub fn check_new_member_speaks(&self, speaks: FormatRange) -> Result<(), ReconfigurationError> {
        formats::check_newcomer(self.ring_format(), speaks).map_err(ReconfigurationError::Format)
    }

    /// Checks for the refusals of [`Member::remove_member`], and changes nothing.
    ///
    /// # Errors
    /// [`ReconfigurationError`], as that would return it.
    pub fn check_removal(&self, id: MemberId) -> Result<(), ReconfigurationError> {
        let admin = &self.0.admin;
        let view = members::leading_view(admin)?;
        members::check_remove(&view, id, &admin.rules(), admin.engine.timers.lease)
    }

    /// Adds a member. It receives the log, and its vote when it is caught up and its region's turn comes. `speaks` are the formats
    /// of its program. A member with unknown formats is added too, and does not take part in what it cannot read.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn add_member(
        &self,
        id: MemberId,
        record: MemberRecord,
        speaks: Option<FormatRange>,
        by: &str,
    ) -> Result<OpId, ReconfigurationError> {
        members::add(&self.0.admin, id, record, speaks, by).await
    }

    /// Changes a member's record in the log, except its identity. With `dry_run`, only returns the result.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn update_member(
        &self,
        id: MemberId,
        change: &RecordChange,
        dry_run: bool,
        by: &str,
    ) -> Result<Amendment<MemberRecord>, ReconfigurationError> {
        let done = updates::update_member(&self.0.admin, id, change, dry_run, by).await?;
        if done.entry.is_some() {
            // The engine keeps its clients for as long as it leads. They follow the newest record under which any task has
            // called the member.
            let (calls, record) = (self.0.calls.clone(), done.after.clone());
            let deadline = self.0.engine.timers.lease;
            tokio::spawn(async move {
                let question = Question::Greeting(Greeting::default());
                drop(calls.ask(id, &record, question, deadline).await);
            });
        }
        Ok(done)
    }

    /// Changes the rules of the ring. With `dry_run`, only returns the result.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn set_rules(
        &self,
        change: &RulesChange,
        dry_run: bool,
        by: &str,
    ) -> Result<Amendment<RingRules>, ReconfigurationError> {
        updates::set_rules(&self.0.admin, change, dry_run, by).await
    }

    /// Removes a member. Its data directory can no longer be used in this ring.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn remove_member(
        &self,
        id: MemberId,
        by: &str,
    ) -> Result<OpId, ReconfigurationError> {
        members::remove(&self.0.admin, id, by).await
    }

    /// What this member can report when a quorum may be lost permanently.
    pub async fn evidence(&self) -> MemberEvidence {
        let admin = &self.0.admin;
        let serves = admin
            .elections
            .leadership()
            .serving_term()
            .map(|_| admin.engine.id);
        let followed = admin
            .engine
            .role()
            .leader
            .filter(|leader| *leader != admin.engine.id);
        let leader = match (serves, followed) {
            (None, Some(leader)) => {
                let (calls, view) = (&*self.0.calls, admin.ring_view());
                let may_lead =
                    plan::has_quorum(calls, &view, leader, admin.engine.timers.heartbeat);
                may_lead.await.then_some(leader)
            }
            _ => serves,
        };
        MemberEvidence::of(&admin.elections, leader).await
    }

    /// Carries out the repair of a lost quorum, of which this member is the survivor: it continues alone, and its leader tasks
    /// restore the policy. `accepted` names the last entry after which a loss is accepted. `clock` is the time on this
    /// machine, from which the repair gets its term.
    ///
    /// # Errors
    /// [`RepairRefusal`]; nothing is changed then.
    pub async fn repair_quorum(
        &self,
        plan: &RepairPlan,
        accepted: Option<OpId>,
        clock: SystemTime,
        by: &str,
    ) -> Result<OpId, RepairRefusal> {
        plan::accept(plan, accepted)?;
        if let Some(leader) = self.evidence().await.leader {
            let witness = self.id();
            return Err(RepairRefusal::Led { leader, witness });
        }
        // It campaigns next, and does not know the leader yet if it was just started.
        self.0.elections.campaigning.promise_is_over().await;
        let view = self.0.admin.ring_view();
        let patience = self.0.engine.timers.heartbeat;
        let asked = Instant::now();
        plan::still_applies(&*self.0.calls, &view, plan, patience).await?;
        let survivor = view.member(self.id());
        let survivor = survivor.map(|own| Named::of(own.id, &own.record));
        let survivor = survivor.ok_or(RepairRefusal::Changed(self.id()))?;
        let log_end = plan.log_end;
        let event = HistoryEvent::Repaired { survivor, log_end };
        let entry = entry_now(&self.0.engine, by, event);
        plan::carry_out(&self.0.engine, plan, asked, clock, entry).await
    }
}

// The ring's history by its log.

impl Member {
    /// The last events of the ring, oldest first, by this member's log.
    pub fn history(&self) -> Vec<HistoryEntry> {
        let role = self.0.engine.role();
        let records = role.membership.membership().nodes();
        history::read(records.map(|(_, record)| record))
    }

    /// Records an event for the ring's history. It is appended when there is a leader, after pending client
    /// entries, and is lost if this process ends before.
    pub fn note(&self, by: &str, event: HistoryEvent) {
        let entry = entry_now(&self.0.engine, by, event);
        self.0.admin.notes.take(vec![entry]);
    }

    /// Hands recorded events to the leader as far as possible within `patience`: for a member that is about to stop.
    pub async fn hand_notes_on(&self, patience: Duration) {
        let handed = noting::hand_on(&self.0.admin, &self.0.calls, patience);
        match tokio::time::timeout(patience, handed).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                tracing::info!(%why, "the ring's history lacks what this member noted last")
            }
            Err(_) => tracing::info!("the ring's history lacks what this member noted last"),
        }
    }

    /// How long ago this member received a call from another member as the leader; nothing where there was none since its start.
    pub fn heard_leader_ago(&self) -> Option<Duration> {
        self.0.engine.heard.age()
    }

    /// A member as named in the log.
    pub fn named(&self, id: MemberId) -> Option<Named> {
        let role = self.0.engine.role();
        let record = role.membership.get_node(&id)?;
        Some(Named::of(id, record))
    }
}

// How far the ring needs the log, and the removal of the rest.

/// Why the log was not purged.
#[derive(Debug, Error)]
pub enum PurgeError {
    /// Entries that are not committed and applied here are never purged.
    #[error("entries up to {upto} cannot be purged; only those up to {} are applied", match .applied {
        Some(applied) => applied.to_string(),
        None => "none".to_owned(),
    })]
    NotApplied {
        /// The last entry that was to be purged.
        upto: OpId,
        /// The last entry that is applied; nothing where none is.
        applied: Option<OpId>,
    },
    /// Inside a file, or within the file that is being written.
    #[error("entries up to {upto} cannot be purged: no file ends there; {}", match .next {
        Some(next) => format!("the next one that does ends with {next}"),
        None => "the files from there on are still needed".to_owned(),
    })]
    NotTheEndOfAFile {
        /// The last entry that was to be purged.
        upto: OpId,
        /// The first later entry that ends a file, where another file follows.
        next: Option<OpId>,
    },
    /// The log could not be read.
    #[error("the log cannot say where its files begin: {reason}")]
    Log {
        /// The error of the log storage, as it reported it.
        reason: String,
    },
    /// The consensus engine has stopped, so nothing was purged.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

impl Member {
    /// Up to where the ring no longer needs the log, by its leader's view. A member that did not
    /// answer the leader for `absent_after` holds nothing back.
    ///
    /// # Errors
    /// [`CallError`] when no leader is known, or it does not answer in time.
    pub async fn purge_floor(&self, absent_after: Duration) -> Result<PurgeFloor, CallError> {
        let admin = &self.0.admin;
        if let Some(floor) = admin.purge_floor(absent_after) {
            return Ok(floor);
        }
        match self
            .ask_leader(Question::PurgeFloor { absent_after })
            .await?
        {
            Answer::PurgeFloor(floor) => Ok(floor),
            other => Err(CallError(format!(
                "it gave an unexpected answer: {other:?}"
            ))),
        }
    }

    /// Lets the engine remove entries up to `upto` from the log, when they are not being sent to a follower.
    /// A file ends with `upto`, so that the log continues with a file with which another log can begin.
    ///
    /// # Errors
    /// [`PurgeError`] when they are not applied yet, or no file ends there.
    pub async fn purge(&self, upto: OpId) -> Result<(), PurgeError> {
        let applied = engine::progress(self.raft()).applied;
        if applied.is_none_or(|applied| applied.index < upto.index) {
            return Err(PurgeError::NotApplied { upto, applied });
        }
        let purged = engine::progress(self.raft()).purged;
        if purged.is_some_and(|purged| purged.index >= upto.index) {
            return Ok(());
        }
        let next = self.0.starts.first_start(Some(upto)).await;
        let next = next.map_err(|error| PurgeError::Log {
            reason: error.to_string(),
        })?;
        let next = next.map(|start| start.before);
        if next != Some(upto) {
            return Err(PurgeError::NotTheEndOfAFile { upto, next });
        }
        self.0.purge_goal.raise(upto);
        let trigger = self.raft().trigger();
        let reached = |seen: &openraft::RaftMetrics<TypeConfig>| {
            seen.snapshot.is_some_and(|at| at.index >= upto.index)
        };
        loop {
            trigger.snapshot().await.map_err(Fault::from)?;
            let marked = self.raft().wait(Some(MARK_PATIENCE));
            let marked = marked.metrics(reached, "the mark up to which the log may be purged");
            match marked.await {
                Ok(_) => break,
                Err(WaitError::Timeout(..)) => {}
                Err(WaitError::ShuttingDown) => return Err(Fault::Stopped.into()),
            }
        }
        trigger.purge_log(upto.index).await.map_err(Fault::from)?;
        Ok(())
    }
}

// Bootstrap of a ring by one of its members.

/// Why a ring was not initialised.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// The log has entries, or the member voted.
    #[error("this member has a log already; a ring is initialised once, on an empty one")]
    NotPristine,
    /// This member is not in the list.
    #[error("member {0} is not among the members to begin with")]
    NotInList(MemberId),
    /// The bootstrapping member does not vote.
    #[error("member {0} does not vote, so it cannot create the ring; bootstrap a member that does")]
    DoesNotVote(MemberId),
    /// The bootstrapping member is in no quorum under the policy: no member that is in one would ever learn of the ring.
    #[error(
        "with policy {policy}, member {member} is in no quorum, so it cannot create the ring; bootstrap a voting member of those regions"
    )]
    OutsideTheQuorum {
        /// The member that was started with `--bootstrap`.
        member: MemberId,
        /// The policy of the new ring.
        policy: QuorumPolicy,
    },
    /// The policy needs voters that do not exist.
    #[error(transparent)]
    Policy(#[from] PolicyGap),
    /// The consensus engine has stopped, so the ring was not initialised.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

impl Member {
    /// Initialises the ring: all its members, and the voter sets of the policy with the leader in this member's
    /// region. Once in a ring's life, on one member; repeated if that stopped before the entry was on its disk.
    ///
    /// # Errors
    /// [`BootstrapError`]; the log is unchanged then.
    pub async fn bootstrap(
        &self,
        members: BTreeMap<MemberId, MemberRecord>,
    ) -> Result<(), BootstrapError> {
        let own = members.get(&self.id());
        let own = own.ok_or(BootstrapError::NotInList(self.id()))?;
        if !own.votes {
            return Err(BootstrapError::DoesNotVote(self.id()));
        }
        let rules = &self.0.config.rules;
        let sets = rules.voter_sets(&members, &own.region)?;
        if !sets.iter().any(|set| set.contains(&self.id())) {
            return Err(BootstrapError::OutsideTheQuorum {
                member: self.id(),
                policy: rules.policy.clone(),
            });
        }
        let term = first_term(self.raft()).await?;
        let term = term.ok_or(BootstrapError::NotPristine)?;
        // The sets contain only listed members, and none is empty.
        let mut members = members;
        policy::write(&mut members, rules);
        formats::write(&mut members, self.0.config.program.formats.oldest());
        let event = HistoryEvent::Bootstrapped {
            members: members.len(),
        };
        let made = HistoryEntry {
            term: Term(term),
            ..entry_now(&self.0.engine, "", event)
        };
        history::append(&mut members, &[made]);
        let membership = Membership::new(sets, members).map_err(|_| PolicyGap::NoVotersAtAll)?;
        match force_membership(self.raft(), membership, None, term).await {
            Ok(_) => Ok(()),
            Err(ForceError::Changed) => Err(BootstrapError::NotPristine),
            Err(ForceError::Stopped(fault)) => Err(fault.into()),
        }
    }
}

// Questions that only the leader can answer.

impl Member {
    /// Up to where the ring's log is committed, by its leader at some moment during this call. The own mark
    /// ([`Member::committed`]) may lag it.
    ///
    /// # Errors
    /// [`CallError`] when no leader is known, it does not serve, or it does not answer in time.
    pub async fn committed_in_ring(&self) -> Result<Option<OpId>, CallError> {
        if let Some(committed) = self.0.elections.committed_now() {
            return Ok(committed);
        }
        match self.ask_leader(Question::Committed).await? {
            Answer::Committed { up_to } => Ok(up_to),
            other => Err(CallError(format!(
                "it gave an unexpected answer: {other:?}"
            ))),
        }
    }

    /// A piece of a closed file of another member's log.
    ///
    /// # Errors
    /// [`CallError`] when it does not have that very file, or does not answer within `deadline`.
    pub async fn part_of_file(
        &self,
        of: MemberId,
        part: FilePart,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let role = self.0.engine.role();
        let record = role.membership.get_node(&of);
        let record = record.ok_or_else(|| CallError(format!("member {of} is gone")))?;
        let asked = self
            .0
            .calls
            .ask(of, record, Question::FilePart(part), deadline);
        match asked.await? {
            Answer::FilePart(bytes) => Ok(bytes.0),
            other => Err(CallError(format!(
                "it gave an unexpected answer: {other:?}"
            ))),
        }
    }

    /// Asks the leader, which is another member.
    pub(super) async fn ask_leader(&self, question: Question) -> Result<Answer, CallError> {
        let admin = &self.0.admin;
        let role = admin.engine.role();
        let leader = role.leader.filter(|leader| *leader != admin.engine.id);
        let known = leader.and_then(|leader| {
            let record = role.membership.get_node(&leader)?;
            Some((leader, record))
        });
        let Some((leader, record)) = known else {
            return Err(CallError("no leader is known".to_owned()));
        };
        let deadline = admin.engine.timers.lease;
        self.0.calls.ask(leader, record, question, deadline).await
    }
}
