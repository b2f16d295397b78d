//! Raft for one ring member. [`RaftMember`] is a handle: it is started over a log and a network, and used for proposals and observation
//! until the member is shut down. Clones of a handle are the same member. The member runs until [`RaftMember::shutdown`], even if all
//! handles are dropped.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::metrics::WaitError;
use openraft::storage::RaftLogStorage;
use raft_types::{
    AppEntry, CommittedLeaderId, DoubtedTail, ElectionNotes, FilePart, FileStarts, FormatMismatch,
    LogIntake, MAX_TRANSACTION_BYTES, MemberId, MemberRecord, OpId, ProposalResponder,
    ProposalSequence, Refusal, Term, TypeConfig,
};
use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::calls::inbound::Inbound;
use crate::calls::{Answer, CallError, MemberCalls, Question};
use crate::config::{ConfigError, MemberConfig};
use crate::election::campaign::{Campaigning, first_turn};
use crate::election::counted_votes::{CountedVotes, InterimTerm};
use crate::election::elections::Elections;
use crate::election::leader_exit::{EarlyAttempt, LeaderExit, LedTerm};
use crate::election::restored_directory::{OwnPast, Recorded, RestoredDirectory};
use crate::election::vote_gate::ElectionGate;
use crate::election::{doubted_tail, early_election, greetings};
use crate::engine::any_log::AnyLog;
use crate::engine::handle::{EngineHandle, FirstFault, LastHeard, essential, supervise};
use crate::engine::network::EngineNetwork;
use crate::engine::{Engine, Fault};
use crate::failed_targets::FailedTargets;
use crate::lease::contacts::Contacts;
use crate::lease::leadership::{Leadership, Tenure};
use crate::lease::observer;
use crate::lease::promise::Promise;
use crate::log_probe::MemberNetwork;
use crate::log_room::Rooms;
use crate::node::{Administrator, RaftNode};
use crate::primacy::Primacy;
use crate::proposal::{InFlight, ProposalTicket, ProposeError};
use crate::purge_floor::PurgeFloor;
use crate::state_machine::{AppliedFloor, CommitMark, CommitStateMachine, PurgeGoal};
use crate::transfer::TransferError;
use crate::{engine, log_room};

/// A handle on one running member; clones share it.
#[derive(Clone)]
pub struct RaftMember(Arc<RunningRaft>);

struct RunningRaft {
    config: MemberConfig,
    node: Arc<RaftNode>,
    purge_goal: PurgeGoal,
    proposals: Arc<Semaphore>,
    /// A proposer holds this lock until the engine has its entry. So no other proposer overtakes one that waits for room.
    turn: AsyncMutex<()>,
    leadership: watch::Receiver<Leadership>,
    primacy: watch::Receiver<Primacy>,
    /// The tasks are aborted when the last handle is dropped.
    _tasks: JoinSet<()>,
}

/// Why a member could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration was refused before the engine was started.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The member's log or network could not be opened.
    #[error("the consensus engine did not start: {0}")]
    Engine(#[from] Fault),
    /// The lease that the member promises to leaders cannot be stored.
    #[error("the lease of this member cannot be stored with its vote: {0}")]
    Promise(#[source] io::Error),
    /// The ring uses a later format that this program does not support.
    #[error("the ring's log is in {0}; nothing was changed")]
    Format(FormatMismatch),
}

impl RaftMember {
    /// Starts a member over its log. The log is known to be committed up to `floor`. `starts` reads the same log as a sequence of files;
    /// another member's log may begin with one of these files.
    ///
    /// # Errors
    /// [`StartError`] when the configuration cannot work, or the log cannot be read, or is of a later version.
    pub async fn start(
        config: MemberConfig,
        log: impl RaftLogStorage<TypeConfig>,
        network: impl MemberNetwork,
        calls: Arc<dyn MemberCalls>,
        floor: AppliedFloor,
        starts: Arc<dyn FileStarts>,
        administrator: Arc<dyn Administrator>,
    ) -> Result<Self, StartError> {
        let (log, network) = (AnyLog::new(log), Arc::new(network));
        Self::start_over(config, log, network, calls, floor, starts, administrator).await
    }

    /// Boxed to compile faster: a future is compiled in the crate that polls it. An `async fn` would be compiled again in every program
    /// that starts members, with all the code it calls.
    fn start_over(
        config: MemberConfig,
        log: AnyLog,
        network: Arc<dyn MemberNetwork>,
        calls: Arc<dyn MemberCalls>,
        floor: AppliedFloor,
        starts: Arc<dyn FileStarts>,
        administrator: Arc<dyn Administrator>,
    ) -> BoxFuture<'static, Result<Self, StartError>> {
        async move {
            // An earlier process of this member made all its promises before this moment.
            let begun = Instant::now();
            let gate = ElectionGate::new(starts.doubted_tail().as_ref());
            let notes = starts.election_notes();
            if let Some(committed) = notes.elects_from {
                gate.told(committed);
            }
            let engine_config = config.engine()?;
            let mark = CommitMark::new(floor.last_applied.map(OpId::from));
            let purge_goal = PurgeGoal::default();
            let state_machine =
                CommitStateMachine::new(floor, mark.clone(), starts.clone(), purge_goal.clone());
            let contacts = Contacts::default();
            let memory = Recorded::default();
            let interim_term = InterimTerm::default();
            let network = EngineNetwork {
                inner: network,
                contacts: contacts.clone(),
                votes: CountedVotes::new(config.id, memory.clone(), interim_term.clone()),
            };
            let raft = Engine::new(config.id, engine_config, network, log, state_machine).await;
            let raft = raft.map_err(Fault::from)?;

            // The engine answers after it has read its log.
            let is_new = !raft.is_initialized().await.map_err(Fault::from)?;
            if let Err(mismatch) = administrator.check(&engine::role(&raft).membership) {
                // If the engine's task has failed, it reports that itself. It has not started anything.
                let _ = raft.shutdown().await;
                return Err(StartError::Format(mismatch));
            }
            let term = engine::role(&raft).term;
            let promise = Promise::new(config.timers.lease, &notes, term, is_new);
            let promised = Some(promise.longest);
            if notes.promised != promised {
                let noted = starts.note_elections(ElectionNotes { promised, ..notes });
                noted.await.map_err(StartError::Promise)?;
            }
            let campaigning = Campaigning::new(begun, promise, is_new, gate);
            let engine = Arc::new(EngineHandle {
                raft,
                id: config.id,
                timers: config.timers,
                mark,
                calls,
                starts,
                heard: LastHeard::default(),
                failed: OnceLock::new(),
                fault: FirstFault::default(),
            });
            let elections = Arc::new(Elections {
                engine: engine.clone(),
                contacts,
                noting: AsyncMutex::default(),
                campaigning,
                lacking: Mutex::default(),
                leader_exit: LeaderExit::default(),
                memory,
                past: OwnPast::new(engine.starts.doubted_tail()),
                doubting: AsyncMutex::default(),
                doubted: Notify::new(),
                early_attempt: EarlyAttempt::default(),
                interim_term,
                tenure: Tenure::default(),
                leading: Tenure::default(),
                started_transfer: Mutex::default(),
                transfer_started: Notify::new(),
            });
            let node = Arc::new(RaftNode {
                engine,
                elections,
                administrator,
                program: config.program.clone(),
                failed_targets: FailedTargets::default(),
                rooms: Arc::new(Rooms::default()),
                arrived: Notify::new(),
            });
            let (leaderships, leadership) = watch::channel(Primacy::NONE.leadership);
            let (primacies, primacy) = watch::channel(Primacy::NONE);
            Ok(Self(Arc::new(RunningRaft {
                proposals: Arc::new(Semaphore::new(config.bounds.proposals_bytes as usize)),
                turn: AsyncMutex::default(),
                config,
                _tasks: spawn_tasks(&node, leaderships, primacies),
                node,
                purge_goal,
                leadership,
                primacy,
            })))
        }
        .boxed()
    }

    /// Proposes an entry that does not depend on earlier proposals; otherwise as [`RaftMember::propose_behind`].
    ///
    /// # Errors
    /// [`ProposeError`] when the entry was not proposed at all.
    pub async fn propose(
        &self,
        entry: AppEntry,
        term: Term,
    ) -> Result<ProposalTicket, ProposeError> {
        let alone = ProposalSequence::default();
        self.propose_behind(entry, term, &alone).await
    }

    /// Proposes an entry in the leadership of `term`. Consecutive calls put their entries into the log in the order of the calls, without
    /// waiting for the previous commit. Waits while the proposals in flight are at their bound, and while this member's own log has no room
    /// in memory for more pending writes.
    ///
    /// The ticket reports a refusal if that leadership is over, or if an earlier entry of the same sequence was refused.
    ///
    /// # Errors
    /// [`ProposeError`] if the entry was not proposed. Then no later entry of the sequence may be proposed either.
    pub async fn propose_behind(
        &self,
        entry: AppEntry,
        term: Term,
        sequence: &ProposalSequence,
    ) -> Result<ProposalTicket, ProposeError> {
        let share = self.share_of(&entry)?;
        let refused = |refusal| {
            sequence.break_off();
            ProposalTicket::refused(term, refusal, self.0.leadership.clone())
        };
        let leadership = *self.0.leadership.borrow();
        if leadership.leading_term() != Some(term) {
            let leader = match leadership {
                Leadership::Follower { leader } => leader,
                _ => None,
            };
            return Ok(refused(Refusal::NotLeader(leader)));
        }
        let bytes = entry.body_length() as u64;
        let rooms = &self.0.node.rooms;
        let _turn = self.0.turn.lock().await;
        if matches!(entry, AppEntry::Transaction(_)) {
            let sets = || self.0.node.role().voter_sets().to_vec();
            rooms.check(self.0.config.id, term, sets, bytes)?;
        }
        if let Some(log) = rooms.own.get() {
            log.queue_room(bytes).await;
        }
        let share = self.0.proposals.clone().acquire_many_owned(share).await;
        // Only `shutdown` closes this semaphore.
        let share = share.map_err(|_| Fault::Stopped)?;
        let (in_flight, ticket) = InFlight::new(
            term,
            self.0.node.engine.mark.clone(),
            (share, rooms.propose(bytes)),
            sequence.clone(),
            self.0.leadership.clone(),
        );
        // This check comes last: the engine merges entries that wait for it, and decides about all of them at the same moment.
        if sequence.is_broken() {
            return Ok(refused(Refusal::AfterRefused));
        }
        self.raft()
            .write(entry)
            .with_leader(CommittedLeaderId::new(term.0))
            .responder(ProposalResponder::new(in_flight))
            .await
            .map_err(Fault::from)?;
        Ok(ticket)
    }

    /// Returns how many bytes of the proposals bound an entry takes.
    fn share_of(&self, entry: &AppEntry) -> Result<u32, ProposeError> {
        let bytes = entry.body_length() as u64;
        if bytes > MAX_TRANSACTION_BYTES {
            return Err(ProposeError::TooLarge(bytes));
        }
        let bound = self.0.config.bounds.proposals_bytes;
        Ok(u32::try_from(bytes)
            .unwrap_or(bound)
            .clamp(SMALLEST_SHARE, bound))
    }

    /// Returns the last entry that this member has recorded as committed; never decreases.
    pub fn committed(&self) -> watch::Receiver<Option<OpId>> {
        self.0.node.committed()
    }

    /// Returns how long this member has lacked entries that its leader reports as committed, accurate to a heartbeat. Returns `None` if
    /// that is unknown: while no leader calls, and after a start until the member has all entries that were committed by then.
    pub fn lacks_commits_for(&self) -> Option<Duration> {
        self.0.node.elections.lacks_commits_for()
    }

    /// Returns the leadership on which this member may rely. The channel is updated even if it is not read.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.clone()
    }

    /// Returns the leadership at this moment, for an answer that must not be older than its question.
    pub fn leadership_now(&self) -> Leadership {
        self.0.node.elections.leadership()
    }

    /// Returns the end of this leader's lease if no more heartbeats are answered. Returns `None` if this member does not lead, or is the
    /// only voter.
    pub fn lease_end(&self) -> Option<Instant> {
        self.0.node.elections.lease_end(&self.0.node.role())
    }

    /// Returns the location of the primary, on which the member's own mysqld may rely. The channel is updated even if it is not read.
    pub fn primacy(&self) -> watch::Receiver<Primacy> {
        self.0.primacy.clone()
    }

    /// [`RaftMember::primacy`] at this moment.
    pub fn primacy_now(&self) -> Primacy {
        self.0.node.primacy(&self.0.node.role())
    }

    /// Bytes of proposals that are not committed yet.
    pub fn proposals_bytes(&self) -> u64 {
        let available = self.0.proposals.available_permits() as u64;
        u64::from(self.0.config.bounds.proposals_bytes).saturating_sub(available)
    }

    /// Transfers the leadership to a voter and waits for the outcome, at most four leases.
    ///
    /// # Errors
    /// [`TransferError`]: refused with nothing changed, or no member leads yet.
    pub async fn transfer_leader(&self, to: MemberId) -> Result<LedTerm, TransferError> {
        self.0.node.transfer(to).await
    }

    /// Returns how long ago this member received a call from another member as the leader; `None` if it has received none since its start.
    pub fn heard_leader_ago(&self) -> Option<Duration> {
        self.0.node.engine.heard.age()
    }

    /// Sets whether this member may start an election itself; it never does before the end of the first lease after its start. In both
    /// cases it votes, and the leadership can be transferred to it. While the end of its log is in doubt, it does not campaign, whatever is
    /// set here.
    pub fn set_campaigning(&self, allowed: bool) {
        let campaigning = &self.0.node.elections.campaigning;
        campaigning.allow(self.raft(), allowed);
    }

    /// Records that other members have committed `committed`. A candidate must then have this entry to get this member's vote. This member
    /// campaigns again after it has the entry.
    pub fn elect_from(&self, committed: OpId) {
        let campaigning = &self.0.node.elections.campaigning;
        campaigning.change_gate(self.raft(), |gate| gate.told(committed));
    }

    /// Returns why this member takes part in no election at the moment; `None` if it takes part.
    pub fn stays_out_of_elections(&self) -> Option<String> {
        let gate = &self.0.node.elections.campaigning.gate;
        gate.stays_out().map(|why| why.to_string())
    }

    /// Records that the data directory was restored to an earlier state, as [`FileStarts::note_doubt`] recorded before the start. The
    /// member reports this to the others.
    pub fn was_restored(&self, found: RestoredDirectory, doubt: DoubtedTail) {
        self.0.node.elections.past.found(found, doubt);
    }

    /// Returns the members whose data directories were restored to an earlier state, as far as this member has received reports, itself
    /// included. A member is listed until it is restarted.
    pub fn restored(&self) -> BTreeMap<MemberId, RestoredDirectory> {
        let elections = &self.0.node.elections;
        let own = elections.past.restored().map(|found| (self.id(), found));
        let role = engine::role(self.raft());
        let others = role.membership.membership().nodes();
        let others = others.filter_map(|(id, record)| {
            Some((*id, elections.memory.restored(*id, record.incarnation)?))
        });
        own.into_iter().chain(others).collect()
    }

    /// Makes the member check the room in `log` from now on: it proposes no entries, and accepts no leader's entries, that do not fit.
    /// Called once, directly after the start, with the log over which the member was started.
    pub fn take_in_by(&self, log: Arc<dyn LogIntake>) {
        // The result is ignored, because a member has one log for its lifetime.
        let _ = self.0.node.rooms.own.set(log);
    }

    /// Returns true if this member's log has no room for transactions, and a majority of each voter set is not known to lack room. Another
    /// member should lead then.
    pub fn is_full_alone(&self) -> bool {
        let role = self.0.node.role();
        let term = self.0.node.leadership_in(&role).serving_term();
        let rooms = &self.0.node.rooms;
        term.is_some_and(|term| rooms.only_here(self.id(), term, role.voter_sets()))
    }

    /// Returns the receiving end of the member's calls, for the transport's server.
    pub fn inbound(&self) -> Inbound {
        Inbound(self.0.node.clone())
    }

    /// Waits until the engine has stopped, and returns why: a failed log storage, a panic, a shutdown.
    pub async fn fault(&self) -> Fault {
        self.0.node.engine.fault.wait().await
    }

    /// Runs an essential task. If it panics, the engine stops, and [`Self::fault`] returns the panic.
    pub fn essential(
        &self,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        essential(self.0.node.engine.clone(), what, task.boxed())
    }

    /// Stops the member. Acknowledged entries stay durable; the outcome of proposals in flight becomes unknown.
    pub async fn shutdown(&self) {
        self.0.proposals.close();
        // The engine's task reports its own failure, which `fault` returns as well.
        let _ = self.raft().shutdown().await;
        self.fault().await;
    }

    /// Returns all other members of the ring, according to this member's membership.
    pub fn others(&self) -> BTreeMap<MemberId, MemberRecord> {
        let role = self.0.node.role();
        let others = role.others(self.id());
        others.map(|(id, record)| (id, record.clone())).collect()
    }

    /// Waits until [`Self::others`] differs from `known`.
    pub async fn others_change(&self, known: &BTreeMap<MemberId, MemberRecord>) {
        let changed = self.0.node.role_when(|_| self.others() != *known);
        if changed.await.is_err() {
            // The engine has stopped, so there are no more changes.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until a call arrives from a member that had no connection to this one. This member may then have no connection to the caller
    /// either. Only one task may wait at a time. A call since its previous wait ends the wait immediately.
    pub async fn another_arrives(&self) {
        self.0.node.arrived.notified().await;
    }

    /// Returns the member's number in the ring.
    pub fn id(&self) -> MemberId {
        self.0.config.id
    }

    /// Returns the engine itself, for measurements and for the simulator, which breaks the engine on purpose. A membership that is changed
    /// through the engine bypasses every rule of this crate.
    pub fn engine(&self) -> &openraft::Raft<TypeConfig, CommitStateMachine> {
        self.raft()
    }

    /// Returns the part that the administration of the ring shares with this member.
    pub fn node(&self) -> &Arc<RaftNode> {
        &self.0.node
    }

    /// Returns the member's configuration.
    pub fn config(&self) -> &MemberConfig {
        &self.0.config
    }

    /// Returns why the engine stopped, or `None` while it runs.
    pub fn fault_now(&self) -> Option<Fault> {
        self.0.node.engine.fault.now()
    }

    fn raft(&self) -> &Engine {
        &self.0.node.engine.raft
    }
}

// Determines how much of its log the ring needs, and purges the rest.

/// The engine builds one mark at a time, and ignores a request for another mark in the meantime. So the request is repeated after this
/// time.
const MARK_PATIENCE: Duration = Duration::from_secs(1);

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
    /// The entry is in the middle of a file, or in the file that is being written.
    #[error("entries up to {upto} cannot be purged: no file ends there; {}", match .next {
        Some(next) => format!("the next one that does ends with {next}"),
        None => "the files from there on are still needed".to_owned(),
    })]
    NotTheEndOfAFile {
        /// The last entry that was to be purged.
        upto: OpId,
        /// The first later entry that ends a file and is followed by another file.
        next: Option<OpId>,
    },
    /// The log could not be read, with the error of the log storage as text.
    #[error("the log cannot say where its files begin: {0}")]
    Log(String),
    /// The consensus engine has stopped, so nothing was purged.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

impl RaftMember {
    /// Returns up to where the ring no longer needs the log, in its leader's view. A member that has not answered the leader for
    /// `absent_after` does not delay the purge.
    ///
    /// # Errors
    /// [`CallError`] when no leader is known, or it does not answer in time.
    pub async fn purge_floor(&self, absent_after: Duration) -> Result<PurgeFloor, CallError> {
        if let Some(floor) = self.0.node.purge_floor(absent_after) {
            return Ok(floor);
        }
        let question = Question::PurgeFloor { absent_after };
        match self.ask_leader(question).await? {
            Answer::PurgeFloor(floor) => Ok(floor),
            other => Err(other.unexpected()),
        }
    }

    /// Makes the engine remove the entries up to `upto` from the log, when they are not being sent to a follower. A file must end with
    /// `upto`. The log then begins with a whole file, with which another log can begin too.
    ///
    /// # Errors
    /// [`PurgeError`] if the entries are not applied yet, or no file ends with `upto`.
    pub async fn purge(&self, upto: OpId) -> Result<(), PurgeError> {
        let applied = engine::progress(self.raft()).applied;
        if applied.is_none_or(|applied| applied.index < upto.index) {
            return Err(PurgeError::NotApplied { upto, applied });
        }
        let purged = engine::progress(self.raft()).purged;
        if purged.is_some_and(|purged| purged.index >= upto.index) {
            return Ok(());
        }
        let next = self.0.node.engine.starts.first_start(Some(upto)).await;
        let next = next.map_err(|error| PurgeError::Log(error.to_string()))?;
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

// Questions for the leader. Only a leader can answer them.

impl RaftMember {
    /// Returns up to where the ring's log is committed, as its leader records it at some moment during this call. The own commit mark
    /// ([`RaftMember::committed`]) may lag.
    ///
    /// # Errors
    /// [`CallError`] when no leader is known, it does not serve, or it does not answer in time.
    pub async fn committed_in_ring(&self) -> Result<Option<OpId>, CallError> {
        if let Some(committed) = self.0.node.elections.committed_now() {
            return Ok(committed);
        }
        match self.ask_leader(Question::Committed).await? {
            Answer::Committed { up_to } => Ok(up_to),
            other => Err(other.unexpected()),
        }
    }

    /// Reads a piece of a closed file of another member's log.
    ///
    /// # Errors
    /// [`CallError`] if the other member does not have this file with the same content, or does not answer within `deadline`.
    pub async fn part_of_file(
        &self,
        of: MemberId,
        part: FilePart,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let role = self.0.node.role();
        let record = role.membership.get_node(&of);
        let record = record.ok_or_else(|| CallError(format!("member {of} is gone")))?;
        let calls = &self.0.node.engine.calls;
        let asked = calls.ask(of, record, Question::FilePart(part), deadline);
        match asked.await? {
            Answer::FilePart(bytes) => Ok(bytes.0),
            other => Err(other.unexpected()),
        }
    }

    /// Asks the leader a question; the leader is another member.
    async fn ask_leader(&self, question: Question) -> Result<Answer, CallError> {
        let node = &self.0.node;
        let role = node.role();
        let unknown = || CallError("no leader is known".to_owned());
        let (leader, record) = role.other_leader(node.id()).ok_or_else(unknown)?;
        let deadline = node.timers().lease;
        let calls = &node.engine.calls;
        calls.ask(leader, record, question, deadline).await
    }
}

/// Starts all tasks of the member. Each one is essential.
fn spawn_tasks(
    node: &Arc<RaftNode>,
    leaderships: watch::Sender<Leadership>,
    primacies: watch::Sender<Primacy>,
) -> JoinSet<()> {
    let (engine, elections) = (&node.engine, || node.elections.clone());
    let observing = observer::observe(node.clone(), leaderships, primacies);
    let settling = doubted_tail::settle(elections());
    let greeting = greetings::go_round(elections());
    let watching = early_election::watch(elections());
    let rooms = log_room::ask_voters(elections(), node.rooms.clone());
    let tasks: [(&'static str, BoxFuture<'static, ()>); 8] = [
        ("waking elections", wake(elections()).boxed()),
        ("catching up", catch_up(elections()).boxed()),
        ("observing the engine", observing.boxed()),
        ("supervising the engine", supervise(engine.clone()).boxed()),
        ("asking for the room in logs", rooms.boxed()),
        ("settling the log's end", settling.boxed()),
        ("greeting the others", greeting.boxed()),
        ("watching for a dead leader", watching.boxed()),
    ];
    let mut running = JoinSet::new();
    for (what, task) in tasks {
        running.spawn(essential(engine.clone(), what, task));
    }
    running
}

/// Lets the member take part in elections again after its log has the entries that others have reported as committed. Until then, the end
/// of the reported entries is stored. Without it, restarted members that a quorum repair gave up could elect one of themselves if they have
/// no contact to the others.
async fn catch_up(elections: Arc<Elections>) {
    let (engine, campaigning) = (&elections.engine, &elections.campaigning);
    loop {
        campaigning.gate.told.notified().await;
        loop {
            let elects_from = campaigning.gate.committed();
            let change = |notes: &mut ElectionNotes| notes.elects_from = elects_from;
            if let Err(error) = greetings::note(&elections, change).await {
                tracing::error!(%error, "the entry that others have committed cannot be stored; a restart forgets it");
            }
            if elects_from.is_none() {
                break;
            }
            let Some(end) = doubted_tail::log_end(&engine.raft, engine.id).await else {
                // The engine has stopped.
                return;
            };
            campaigning.change_gate(&engine.raft, |gate| gate.goes_to(end.last));
            tokio::time::sleep(engine.timers.heartbeat / 2).await;
        }
    }
}

/// Lets a started member campaign when its first turn comes, and again after each turn that it leaves to another candidate.
async fn wake(elections: Arc<Elections>) {
    let (engine, campaigning) = (&elections.engine, &elections.campaigning);
    let turn = first_turn(&engine.role(), engine.id, &engine.timers);
    campaigning.wake(&engine.raft, turn).await;
    campaigning.take_turns(&engine.raft).await;
}

/// The minimum share of the proposals bound in bytes, because a small entry costs more memory than its length.
const SMALLEST_SHARE: u32 = 1024;
