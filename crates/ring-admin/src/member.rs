//! One member of a ring: its Raft, the administration of the ring by it, and the requests of operators.

use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use consensus::quorum::{QuorumHealth, RingRules, region_quorums};
use consensus::{
    AppliedFloor, DatabaseState, Greeting, HistoryEntry, HistoryEvent, Leadership, MemberCalls,
    MemberConfig, MockElection, Named, Question, RaftMember, RingPause, StartError,
};
use openraft::RaftNetworkFactory;
use openraft::network::NetSnapshot;
use openraft::storage::RaftLogStorage;
use raft_types::{
    FileStarts, FormatRange, FormatVersion, MemberId, MemberRecord, OfferedStart, OpId, TypeConfig,
};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::administration::{Administration, LocalState};
use crate::bootstrap::BootstrapError;
use crate::formats;
use crate::history;
use crate::identity::IdentityBook;
use crate::leader_tasks::LeaderTask;
use crate::members::ReconfigurationError;
use crate::mysqld::{Database, Writer};
use crate::pause::{PauseError, PauseRequest};
use crate::promotion::{
    Promoted, PromotionCause, PromotionError, PromotionProgress, PromotionRefusal,
};
use crate::repair_plan;
use crate::repair_plan::{MemberEvidence, RepairPlan, RepairRefusal};
use crate::scheduled_switchover::ScheduledSwitchover;
use crate::status::{MemberStatus, explain};
use crate::target::NoTarget;
use crate::updates::{Amendment, RecordChange, RulesChange};
use crate::{
    bootstrap, leader_tasks, member_tasks, members, mysqld, pause, promotion, scheduled_switchover,
    target, updates,
};

/// A handle on one running member; clones share it. It is the member's [`RaftMember`] with the administration of the ring.
#[derive(Debug, Clone)]
pub struct Member(Arc<RunningMember>);

struct RunningMember {
    raft: RaftMember,
    admin: Arc<Administration>,
    leader_task: watch::Receiver<Option<LeaderTask>>,
    tasks: [AbortHandle; 3],
}

impl Member {
    /// Starts a member over its log. `floor` is the end up to which the log is known to be committed; `starts` is
    /// the same log as a sequence of files with which another member's log may begin.
    ///
    /// # Errors
    /// [`StartError`] when the configuration cannot work, or the log cannot be read, or is of a later version.
    pub async fn start<L, N>(
        config: MemberConfig,
        log: L,
        network: N,
        calls: Arc<dyn MemberCalls>,
        floor: AppliedFloor,
        starts: Arc<dyn FileStarts>,
    ) -> Result<Self, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
        N: RaftNetworkFactory<TypeConfig>,
        N::Network: NetSnapshot<TypeConfig, SnapshotData = OfferedStart>,
    {
        let local = Arc::new(LocalState::new(config.program.clone()));
        let raft = RaftMember::start(config, log, network, calls, floor, starts, local.clone());
        Ok(Self::over(raft.await?, local))
    }

    /// Starts the tasks that administer the ring; none can be missing.
    fn over(raft: RaftMember, local: Arc<LocalState>) -> Self {
        let admin = Arc::new(Administration::new(&raft, local));
        let (publish_leader_task, leader_task) = watch::channel(None);
        let leading = leader_tasks::run(admin.clone(), raft.leadership(), publish_leader_task);
        let history = member_tasks::write_down(admin.clone());
        let programs = member_tasks::ask_for_programs(admin.clone());
        let tasks = [
            tokio::spawn(raft.essential("writing the history down", history)),
            tokio::spawn(raft.essential("asking for programs", programs)),
            tokio::spawn(raft.essential("the leader's own tasks", leading)),
        ];
        Self(Arc::new(RunningMember {
            tasks: tasks.map(|task| task.abort_handle()),
            raft,
            admin,
            leader_task,
        }))
    }

    /// All that an operator may ask about this member's Raft.
    pub fn status(&self) -> MemberStatus {
        let RunningMember { raft, admin, .. } = &*self.0;
        let node = &admin.node;
        let role = node.role();
        let ring_view = node.ring_view_in(&role);
        let rules = admin.rules();
        let leadership = node.leadership_in(&role);
        let timers = node.timers();
        let lease = timers.lease;
        let quorum = ring_view.leads.then(|| {
            QuorumHealth::judge(role.voter_sets(), |id| {
                ring_view.member(id).is_some_and(|peer| peer.answers(lease))
            })
        });
        MemberStatus {
            ring: raft.config().ring,
            member: raft.id(),
            leadership,
            not_serving: match leadership {
                Leadership::LeaderNotServing { why, .. } => Some(why.to_string()),
                _ => None,
            },
            term: role.term,
            committed: *raft.committed().borrow(),
            purged: node.progress().purged,
            explanation: explain(&ring_view, &rules, lease),
            regions: match ring_view.leads {
                true => region_quorums(&ring_view, lease),
                false => Vec::new(),
            },
            rules,
            pause: ring_view.pause(),
            ring_view,
            quorum_cause: quorum
                .as_ref()
                .filter(|quorum| !quorum.ok)
                .map(QuorumHealth::to_string),
            quorum,
            proposals_bytes: raft.proposals_bytes(),
            stays_out_of_elections: raft.stays_out_of_elections(),
            put_back: raft.put_back(),
            timers,
            formats: admin.local.formats.status(&role.membership),
            leader_task: self.0.leader_task.borrow().clone(),
            fault: raft.fault_now(),
        }
    }

    /// From now on the ring's formats are stored in this data directory before data in them is written there.
    /// Calls to other members use the ring's format. Called once, directly after the start.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn keep_formats_in(&self, book: &Arc<IdentityBook>) -> io::Result<()> {
        let formats = &self.0.admin.local.formats;
        formats.keep_in(book.clone());
        formats.note_ring(&self.node().role().membership);
        book.raise(self.ring_format())
    }

    /// The ring's format by this member's log: the newest one that may be used. Code that needs a newer format than the
    /// first checks this.
    pub fn ring_format(&self) -> FormatVersion {
        formats::of_membership(&self.node().role().membership)
    }

    /// Initialises the ring: all its members, and the voter sets of the policy with the leader in this member's
    /// region. Once in a ring's life, on one member; repeated if that stopped before the entry was on its disk.
    ///
    /// # Errors
    /// [`BootstrapError`]; the log is unchanged then.
    pub async fn bootstrap(
        &self,
        members: BTreeMap<MemberId, MemberRecord>,
    ) -> Result<(), BootstrapError> {
        bootstrap::bootstrap(&self.0.raft, members).await
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
        let admin = self.0.admin.clone();
        let promoting =
            tokio::spawn(
                async move { promotion::promote(&admin, to, cause, &progress, &needed).await },
            );
        promoting
            .await
            .unwrap_or_else(|error| Err(PromotionError::Unknown(error.to_string())))
    }

    /// Sets the writer to this member's log, which is paused before a deliberate leadership transfer. Called once.
    pub fn set_writer(&self, writer: Arc<dyn Writer>) {
        // A member has one writer for its lifetime.
        let _ = self.0.admin.writer.set(writer);
    }

    /// Transfers the leadership to a suitable member, in this region or another, because this member is about to stop.
    ///
    /// # Errors
    /// [`PromotionError`] when no member is suitable, failover is paused, or the promotion did not complete.
    pub async fn give_leadership_away(&self) -> Result<Promoted, PromotionError> {
        let target = self.transfer_target().await;
        let (target, _) = target.map_err(|why| PromotionRefusal::NoTarget(why.to_string()))?;
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
        // A member has one mysqld for its lifetime.
        let _ = self.0.admin.local.database.set(database);
    }

    /// The member that should get the leadership if this one transfers it, and its mysqld's state. All candidates are asked
    /// first, concurrently.
    ///
    /// # Errors
    /// Why no member can lead.
    pub async fn transfer_target(&self) -> Result<(MemberId, Option<DatabaseState>), NoTarget> {
        let Administration { node, local, .. } = &*self.0.admin;
        let view = node.ring_view();
        let mut reports = mysqld::ask(node, local.database_version(), &view).await;
        let failed = node.failed_targets().standings(Instant::now());
        let target = target::choose(
            &node.ring_view(),
            &self.0.admin.rules(),
            node.timers().lease,
            &failed,
            &reports,
        )?;
        Ok((target, reports.remove(&target)))
    }

    /// Asks a database member, which may be this one, what a promotion of it would cost. Nothing without an answer.
    pub async fn database_state(&self, of: MemberId) -> Option<DatabaseState> {
        self.0.admin.database_state(of).await
    }

    /// Asks a member whether its voters would elect it now. Changes nothing.
    ///
    /// # Errors
    /// [`PromotionRefusal`] when it could not lead anyway, or could not be asked.
    pub async fn mock_election(&self, to: MemberId) -> Result<MockElection, PromotionRefusal> {
        promotion::mock_election(&self.0.admin, to).await
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
        members::check_add(&self.node().ring_view(), id, record)
    }

    /// Whether a new member that supports these formats could take part in the ring. Changes nothing.
    ///
    /// # Errors
    /// [`ReconfigurationError::Format`].
    pub fn check_new_member_speaks(&self, speaks: FormatRange) -> Result<(), ReconfigurationError> {
        members::check_format(self.ring_format(), speaks)
    }

    /// Checks for the refusals of [`Member::remove_member`], and changes nothing.
    ///
    /// # Errors
    /// [`ReconfigurationError`], as that would return it.
    pub fn check_removal(&self, id: MemberId) -> Result<(), ReconfigurationError> {
        let admin = &self.0.admin;
        let view = members::leading_view(admin)?;
        members::check_remove(&view, id, &admin.rules(), admin.node.timers().lease)
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
            let (node, record) = (self.node().clone(), done.after.clone());
            tokio::spawn(async move {
                let question = Question::Greeting(Greeting::default());
                let deadline = node.timers().lease;
                drop(node.calls().ask(id, &record, question, deadline).await);
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
        MemberEvidence::of(self.node()).await
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
        repair_plan::accept(plan, accepted)?;
        if let Some(leader) = self.evidence().await.leader {
            let witness = self.id();
            return Err(RepairRefusal::Led { leader, witness });
        }
        let node = self.node();
        // It campaigns next, and does not know the leader yet if it was just started.
        node.promise_is_over().await;
        let view = node.ring_view();
        repair_plan::still_missing(node, &view, plan).await?;
        let survivor = view.member(self.id());
        let survivor = survivor.map(|own| Named::of(own.id, &own.record));
        let survivor = survivor.ok_or(RepairRefusal::Changed(self.id()))?;
        let log_end = plan.log_end;
        let event = HistoryEvent::Repaired { survivor, log_end };
        let entry = self.0.admin.entry_now(by, event);
        repair_plan::carry_out(node, plan, clock, entry).await
    }
}

// The ring's history by its log.

impl Member {
    /// The last events of the ring, oldest first, by this member's log.
    pub fn history(&self) -> Vec<HistoryEntry> {
        let role = self.node().role();
        let records = role.membership.membership().nodes();
        history::read(records.map(|(_, record)| record))
    }

    /// Records an event for the ring's history. It is appended when there is a leader, after pending client
    /// entries, and is lost if this process ends before.
    pub fn note(&self, by: &str, event: HistoryEvent) {
        let entry = self.0.admin.entry_now(by, event);
        self.0.admin.local.notes.take(vec![entry]);
    }

    /// Hands recorded events to the leader as far as possible within `patience`: for a member that is about to stop.
    pub async fn hand_notes_on(&self, patience: Duration) {
        let handed = member_tasks::hand_on(&self.0.admin, patience);
        match tokio::time::timeout(patience, handed).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                tracing::info!(%why, "the ring's history lacks what this member noted last")
            }
            Err(_) => tracing::info!("the ring's history lacks what this member noted last"),
        }
    }

    /// A member as named in the log.
    pub fn named(&self, id: MemberId) -> Option<Named> {
        let role = self.node().role();
        let record = role.membership.get_node(&id)?;
        Some(Named::of(id, record))
    }
}

impl Deref for Member {
    type Target = RaftMember;

    fn deref(&self) -> &RaftMember {
        &self.0.raft
    }
}

impl std::fmt::Debug for RunningMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.raft, f)
    }
}

impl Drop for RunningMember {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
