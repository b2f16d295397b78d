//! One ring member's Raft: started over a log and a network, then used for proposals and observation until it is shut
//! down. A handle; clones are the same member. It runs until [`Member::shutdown`], also without a handle.

pub(crate) mod administration;
pub(crate) mod config;
mod essential_tasks;
pub(crate) mod explain;
mod operations;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::RaftNetworkFactory;
use openraft::network::NetSnapshot;
use openraft::storage::RaftLogStorage;
use raft_types::{
    AppEntry, CommittedLeaderId, DoubtedTail, ElectionNotes, FileStarts, FormatMismatch,
    FormatVersion, LogIntake, MAX_TRANSACTION_BYTES, MemberId, MemberRecord, OfferedStart, OpId,
    ProposalResponder, ProposalSequence, Refusal, Term, TypeConfig,
};
use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::bootstrap::identity::IdentityBook;
use crate::calls::MemberCalls;
use crate::calls::inbound::Inbound;
use crate::election::campaign::{Campaigning, first_turn};
use crate::election::counted_votes::CountedVotes;
use crate::election::elections::Elections;
use crate::election::interim_term::InterimTerm;
use crate::election::put_back::{Memory, OwnPast, PutBack};
use crate::election::vote_gate::ElectionGate;
use crate::election::{doubted_tail, early_election, greetings};
use crate::engine;
use crate::engine::any_log::AnyLog;
use crate::engine::handle::EngineHandle;
use crate::engine::network::{AnyNetwork, EngineNetwork};
use crate::engine::{Engine, Fault};
use crate::formats;
use crate::history::noting;
use crate::lease::contacts::Contacts;
use crate::lease::leadership::Leadership;
use crate::lease::observer;
use crate::lease::promise::Promise;
use crate::log_room::asking;
use crate::member::administration::Administration;
use crate::member::config::{ConfigError, MemberConfig};
use crate::member::essential_tasks::{essential, supervise};
use crate::member::explain::{MemberStatus, explain};
pub use crate::member::operations::{BootstrapError, PurgeError};
use crate::proposal::{InFlight, ProposalTicket, ProposeError};
use crate::quorum::{QuorumHealth, region_quorums};
use crate::reconfiguration::leader_tasks;
use crate::reconfiguration::leader_tasks::LeaderTask;
use crate::reconfiguration::pinned_primary::Primacy;
use crate::ring_view::RingView;
use crate::state_machine::{AppliedFloor, CommitMark, CommitStateMachine, PurgeGoal};

/// A handle on one running member; clones share it.
#[derive(Debug, Clone)]
pub struct Member(Arc<Running>);

struct Running {
    config: MemberConfig,
    engine: Arc<EngineHandle>,
    elections: Arc<Elections>,
    admin: Arc<Administration>,
    calls: Arc<dyn MemberCalls>,
    starts: Arc<dyn FileStarts>,
    purge_goal: PurgeGoal,
    proposals: Arc<Semaphore>,
    /// Held by a proposer until the engine has the entry, so that no other overtakes one that waits for room.
    turn: AsyncMutex<()>,
    leadership: watch::Receiver<Leadership>,
    primacy: watch::Receiver<Primacy>,
    leader_task: watch::Receiver<Option<LeaderTask>>,
    tasks: [AbortHandle; 11],
}

/// Why a member could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration is refused before the engine starts.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its log or its network could not be opened.
    #[error("the consensus engine did not start: {0}")]
    Engine(#[from] Fault),
    /// The lease that the member promises to leaders cannot be stored.
    #[error("the lease of this member cannot be stored with its vote: {0}")]
    Promise(#[source] io::Error),
    /// The ring uses a later format that this program does not support.
    #[error("the ring's log is in {0}; nothing was changed")]
    Format(FormatMismatch),
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
        let (log, network) = (AnyLog::new(log), AnyNetwork::new(network));
        Self::start_over(config, log, network, calls, floor, starts).await
    }

    /// Boxed here, because a future is compiled where it is polled: an `async fn` would be compiled into every program that starts
    /// members, with all that it starts.
    fn start_over(
        config: MemberConfig,
        log: AnyLog,
        network: AnyNetwork,
        calls: Arc<dyn MemberCalls>,
        floor: AppliedFloor,
        starts: Arc<dyn FileStarts>,
    ) -> BoxFuture<'static, Result<Self, StartError>> {
        async move {
            // All promises of an earlier process were made before this.
            let begun = Instant::now();
            let gate = ElectionGate::new(starts.doubted_tail().as_ref());
            if let Some(committed) = starts.election_notes().elects_from {
                gate.told(committed);
            }
            let engine_config = config.engine()?;
            let mark = CommitMark::new(floor.last_applied.map(OpId::from));
            let purge_goal = PurgeGoal::default();
            let state_machine =
                CommitStateMachine::new(floor, mark.clone(), starts.clone(), purge_goal.clone());
            let contacts = Contacts::default();
            let memory = Memory::default();
            let interim_term = InterimTerm::default();
            let votes = CountedVotes::new(config.id, memory.clone(), interim_term.clone());
            let network = EngineNetwork::new(network, contacts.clone(), votes);
            let raft = Engine::new(config.id, engine_config, network, log, state_machine)
                .await
                .map_err(Fault::from)?;

            // It answers after it has read its log.
            let is_new = !raft.is_initialized().await.map_err(Fault::from)?;
            let found = formats::of_membership(&engine::role(&raft).membership);
            let speaks = config.program.formats;
            if found > speaks.newest() {
                // Its task reports its own failure, and has not started anything.
                let _ = raft.shutdown().await;
                return Err(StartError::Format(FormatMismatch { found, speaks }));
            }
            let notes = starts.election_notes();
            let term = engine::role(&raft).term;
            let promise = Promise::new(config.timers.lease, &notes, term, is_new);
            let longest = promise.longest();
            if notes.promised != Some(longest) {
                let promised = Some(longest);
                let noted = starts.note_elections(ElectionNotes { promised, ..notes });
                noted.await.map_err(StartError::Promise)?;
            }
            let campaigning = Campaigning::new(begun, promise, is_new, gate);
            let past = OwnPast::new(starts.doubted_tail());
            let engine = Arc::new(EngineHandle::new(raft, config.id, config.timers, mark));
            let elections = Arc::new(Elections::new(
                engine.clone(),
                contacts,
                campaigning,
                memory,
                past,
                interim_term,
            ));
            let admin = Arc::new(Administration::new(elections.clone(), &config));
            let (publish_leadership, leadership) =
                watch::channel(Leadership::Follower { leader: None });
            let (publish_primacy, primacy) = watch::channel(Primacy::NONE);
            let published = observer::Published {
                leadership: publish_leadership,
                primacy: publish_primacy,
            };
            let (publish_leader_task, leader_task) = watch::channel(None);
            let tasks = spawn_tasks(
                &admin,
                &calls,
                &starts,
                published,
                leadership.clone(),
                publish_leader_task,
            );
            Ok(Self(Arc::new(Running {
                proposals: Arc::new(Semaphore::new(config.bounds.proposals_bytes as usize)),
                turn: AsyncMutex::default(),
                config,
                engine,
                elections,
                admin,
                calls,
                starts,
                purge_goal,
                leadership,
                primacy,
                leader_task,
                tasks,
            })))
        }
        .boxed()
    }

    /// Proposes an entry that depends on none before it: see [`Member::propose_behind`].
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

    /// Proposes an entry in the leadership of `term`. It is refused, on the ticket, when that is over, and when an earlier one of the
    /// same sequence was refused.
    /// Consecutive calls put their entries into the log in that order, without waiting for
    /// the previous commit. Waits while the proposals in flight are at their bound, and while this member's own log
    /// has no more room in memory for pending writes.
    ///
    /// # Errors
    /// [`ProposeError`] when the entry was not proposed at all; then no later entry of the sequence may be proposed either.
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
            return Ok(refused(Refusal::NotLeader { leader }));
        }
        let bytes = bytes_of(&entry);
        let rooms = &self.0.admin.rooms;
        let _turn = self.0.turn.lock().await;
        if matches!(entry, AppEntry::Transaction(_)) {
            let sets = || self.0.engine.role().voter_sets().to_vec();
            rooms.check(self.0.config.id, term, sets, bytes)?;
        }
        if let Some(log) = rooms.own() {
            log.queue_room(bytes).await;
        }
        let share = self.0.proposals.clone().acquire_many_owned(share).await;
        // Closed by `shutdown` only.
        let share = share.map_err(|_| Fault::Stopped)?;
        let (in_flight, ticket) = InFlight::new(
            term,
            self.0.engine.mark.clone(),
            (share, rooms.propose(bytes)),
            sequence.clone(),
            self.0.leadership.clone(),
        );
        // Last: the engine merges entries that wait for it together, and judges them at one moment.
        if sequence.is_broken() {
            return Ok(refused(Refusal::Behind));
        }
        self.raft()
            .write(entry)
            .with_leader(CommittedLeaderId::new(term.0))
            .responder(ProposalResponder::new(in_flight))
            .await
            .map_err(Fault::from)?;
        Ok(ticket)
    }

    /// The part of the proposals bound that an entry takes.
    fn share_of(&self, entry: &AppEntry) -> Result<u32, ProposeError> {
        let bytes = bytes_of(entry);
        if bytes > MAX_TRANSACTION_BYTES {
            return Err(ProposeError::TooLarge {
                bytes,
                limit: MAX_TRANSACTION_BYTES,
            });
        }
        let bound = self.0.config.bounds.proposals_bytes;
        Ok(u32::try_from(bytes)
            .unwrap_or(bound)
            .clamp(SMALLEST_SHARE, bound))
    }

    /// Up to where the log is committed, as far as this member knows; never decreases.
    pub fn committed(&self) -> watch::Receiver<Option<OpId>> {
        self.0.engine.mark.subscribe()
    }

    /// For how long this member has lacked entries that the ring has committed, by its leader's reports, to within a heartbeat.
    /// Nothing where that is unknown: while no leader calls, and after a start until all entries committed by then are here.
    pub fn lacks_commits_for(&self) -> Option<Duration> {
        self.0.elections.lacks_commits_for()
    }

    /// The leadership on which this member may rely. It stays current without a reader.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.clone()
    }

    /// The leadership at this moment, for an answer that must not be older than the question.
    pub fn leadership_now(&self) -> Leadership {
        self.0.elections.leadership()
    }

    /// When this leader's lease ends if no more heartbeats are answered; none where it does not lead or is the only voter.
    pub fn lease_end(&self) -> Option<Instant> {
        self.0.elections.lease_end(&self.0.engine.role())
    }

    /// The location of the primary, on which the member's own mysqld may rely. It stays current without a reader.
    pub fn primacy(&self) -> watch::Receiver<Primacy> {
        self.0.primacy.clone()
    }

    /// [`Member::primacy`] at this moment.
    pub fn primacy_now(&self) -> Primacy {
        self.0.admin.primacy(&self.0.engine.role())
    }

    /// All that an operator may ask about this member's Raft.
    pub fn status(&self) -> MemberStatus {
        let Running { config, admin, .. } = &*self.0;
        let role = admin.engine.role();
        let progress = engine::progress(&admin.engine.raft);
        let ring_view = RingView::new(admin.engine.id, &role, &progress);
        let rules = admin.rules();
        let leadership = admin.elections.assess(&role);
        let lease = admin.engine.timers.lease;
        let quorum = ring_view.leads.then(|| {
            QuorumHealth::judge(role.voter_sets(), |id| {
                ring_view.member(id).is_some_and(|peer| peer.answers(lease))
            })
        });
        let available = self.0.proposals.available_permits() as u64;
        MemberStatus {
            ring: config.ring,
            member: config.id,
            leadership,
            not_serving: match leadership {
                Leadership::LeaderNotServing { why, .. } => Some(why.to_string()),
                _ => None,
            },
            term: role.term,
            committed: admin.engine.mark.get(),
            purged: progress.purged,
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
            proposals_bytes: u64::from(config.bounds.proposals_bytes).saturating_sub(available),
            stays_out_of_elections: self.stays_out_of_elections(),
            put_back: self.put_back(),
            timers: admin.engine.timers,
            formats: admin.formats.status(&role.membership),
            leader_task: self.0.leader_task.borrow().clone(),
            fault: self.0.engine.fault.now(),
        }
    }

    /// Whether this member may campaign by itself, once a lease after its start is over. In both cases it votes and can be given the
    /// leadership. It never campaigns while the end of its log is in doubt, whatever is set here.
    pub fn set_campaigning(&self, allowed: bool) {
        self.0.elections.campaigning.allow(self.raft(), allowed);
    }

    /// Others have committed this: any candidate must have it to get this member's vote, and this member campaigns once it has it.
    pub(crate) fn elects_from(&self, committed: OpId) {
        self.0.elections.campaigning.told(committed, self.raft());
    }

    /// Why this member takes part in no election at the moment.
    pub fn stays_out_of_elections(&self) -> Option<String> {
        self.0
            .elections
            .campaigning
            .gate
            .stays_out()
            .map(|why| why.to_string())
    }

    /// Its data directory was restored, as [`FileStarts::note_doubt`] recorded before its start; reported to the others.
    pub(crate) fn was_put_back(&self, found: PutBack, doubt: DoubtedTail) {
        self.0.elections.past.found(found, doubt);
    }

    /// The members whose data directories were restored to an earlier state, as far as reported to this one, itself included. Each
    /// until it is restarted.
    pub fn put_back(&self) -> BTreeMap<MemberId, PutBack> {
        let admin = &self.0.admin;
        let own = admin
            .elections
            .past
            .put_back()
            .map(|found| (admin.engine.id, found));
        let role = engine::role(&admin.engine.raft);
        let others = role.membership.membership().nodes();
        let others = others.filter_map(|(id, record)| {
            Some((
                *id,
                admin.elections.memory.put_back(*id, record.incarnation)?,
            ))
        });
        own.into_iter().chain(others).collect()
    }

    /// From now on no proposals and no leader's entries are accepted for which this log has no room. Called once, directly
    /// after the start, with the log over which the member was started.
    pub fn take_in_by(&self, log: Arc<dyn LogIntake>) {
        self.0.admin.rooms.ask(log);
    }

    /// From now on the ring's formats are stored in this data directory before data in them is written there.
    /// Calls to other members use the ring's format. Called once, directly after the start.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn keep_formats_in(&self, book: &Arc<IdentityBook>) -> io::Result<()> {
        let admin = &self.0.admin;
        admin.formats.keep_in(book.clone());
        admin.formats.note_ring(&admin.engine.role().membership);
        book.raise(self.ring_format())
    }

    /// The ring's format by this member's log: the newest one that may be used. Code that needs a newer format than the
    /// first checks this.
    pub fn ring_format(&self) -> FormatVersion {
        formats::of_membership(&self.0.engine.role().membership)
    }

    /// Whether this member's log has no room for transactions, while a majority of each voter set is not known to lack it: then
    /// another member should lead.
    pub fn is_full_alone(&self) -> bool {
        let admin = &self.0.admin;
        let role = admin.engine.role();
        let term = admin.elections.assess(&role).serving_term();
        term.is_some_and(|term| {
            admin
                .rooms
                .only_here(admin.engine.id, term, role.voter_sets())
        })
    }

    /// The receiving end, for the transport's server.
    pub fn inbound(&self) -> Inbound {
        Inbound::new(
            self.0.admin.clone(),
            self.0.calls.clone(),
            self.0.starts.clone(),
        )
    }

    /// Waits until the engine has stopped, and returns why: a failed log storage, a panic, a shutdown.
    pub async fn fault(&self) -> Fault {
        self.0.engine.fault.wait().await
    }

    /// Runs a task without which this member must not continue: if it panics, the engine stops, and [`Self::fault`] returns that.
    pub fn essential(
        &self,
        what: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        essential(self.0.engine.clone(), what, task.boxed())
    }

    /// Stops the member. Acknowledged entries stay durable; the outcome of proposals in flight becomes unknown.
    pub async fn shutdown(&self) {
        self.0.proposals.close();
        // Its task reports its own failure, which `fault` returns as well.
        let _ = self.raft().shutdown().await;
        self.fault().await;
    }

    /// All other members of the ring, by this member's membership.
    pub fn others(&self) -> BTreeMap<MemberId, MemberRecord> {
        let role = self.0.engine.role();
        let members = role.membership.membership().nodes();
        let others = members.filter(|(id, _)| **id != self.id());
        others.map(|(id, record)| (*id, record.clone())).collect()
    }

    /// Waits until [`Self::others`] differs from `known`.
    pub async fn others_change(&self, known: &BTreeMap<MemberId, MemberRecord>) {
        let admin = &self.0.admin;
        if engine::role_when(&admin.engine.raft, |_| self.others() != *known)
            .await
            .is_err()
        {
            // No more changes.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until a member calls that had no connection to this one, so that this one may have none to it either. One task waits
    /// at a time; calls since its last wait count.
    pub async fn another_arrives(&self) {
        self.0.admin.arrived.notified().await;
    }

    /// The number under which it takes part in the ring.
    pub fn id(&self) -> MemberId {
        self.0.config.id
    }

    /// The engine itself, for measurements and for the simulator, which breaks it on purpose. A membership
    /// changed through it bypasses every rule of this crate.
    pub fn engine(&self) -> &openraft::Raft<TypeConfig, CommitStateMachine> {
        self.raft()
    }

    fn raft(&self) -> &Engine {
        &self.0.engine.raft
    }
}

/// Starts the member's tasks; none can be missing.
fn spawn_tasks(
    admin: &Arc<Administration>,
    calls: &Arc<dyn MemberCalls>,
    starts: &Arc<dyn FileStarts>,
    published: observer::Published,
    leadership: watch::Receiver<Leadership>,
    leader_task: watch::Sender<Option<LeaderTask>>,
) -> [AbortHandle; 11] {
    let (engine, elections) = (&admin.engine, &admin.elections);
    let stewarding = leader_tasks::run(admin.clone(), calls.clone(), leadership, leader_task);
    let settling = doubted_tail::settle(elections.clone(), calls.clone(), starts.clone());
    let greeting = greetings::go_round(elections.clone(), calls.clone(), starts.clone());
    let programs = formats::raising::ask_around(admin.clone(), calls.clone());
    let rooms = asking::ask_around(admin.clone(), calls.clone());
    let history = noting::write_down(admin.clone(), calls.clone());
    let leader_exit = early_election::watch(elections.clone(), calls.clone());
    let tasks: [(&'static str, BoxFuture<'static, ()>); 11] = [
        ("waking elections", wake(elections.clone()).boxed()),
        (
            "catching up",
            catch_up(elections.clone(), starts.clone()).boxed(),
        ),
        (
            "observing the engine",
            observer::observe(admin.clone(), published).boxed(),
        ),
        ("supervising the engine", supervise(engine.clone()).boxed()),
        ("asking for the room in logs", rooms.boxed()),
        ("writing the history down", history.boxed()),
        ("asking for programs", programs.boxed()),
        ("the leader's own tasks", stewarding.boxed()),
        ("settling the log's end", settling.boxed()),
        ("greeting the others", greeting.boxed()),
        ("watching for a dead leader", leader_exit.boxed()),
    ];
    tasks.map(|(what, task)| tokio::spawn(essential(engine.clone(), what, task)).abort_handle())
}

/// Lets the member take part in elections again once its log has what others have reported as committed. Until then the reported end is
/// stored: after a restart without contact, members that a repair gave up would elect one of themselves.
async fn catch_up(elections: Arc<Elections>, starts: Arc<dyn FileStarts>) {
    loop {
        elections.campaigning.gate.is_told().await;
        loop {
            let elects_from = elections.campaigning.gate.committed();
            let change = |notes: &mut ElectionNotes| notes.elects_from = elects_from;
            if let Err(error) = greetings::note(&elections, &*starts, change).await {
                tracing::error!(%error, "the entry that others have committed cannot be stored; a restart forgets it");
            }
            if elects_from.is_none() {
                break;
            }
            let end = doubted_tail::log_end(&elections.engine.raft, elections.engine.id).await;
            let Some(end) = end else {
                // The engine has stopped.
                return;
            };
            elections
                .campaigning
                .goes_to(end.last, &elections.engine.raft);
            tokio::time::sleep(elections.engine.timers.heartbeat / 2).await;
        }
    }
}

/// Lets a started member campaign when its first turn comes, and after each turn to which it yielded.
async fn wake(elections: Arc<Elections>) {
    let turn = first_turn(
        &elections.engine.role(),
        elections.engine.id,
        &elections.engine.timers,
    );
    elections
        .campaigning
        .wake(&elections.engine.raft, turn)
        .await;
    elections
        .campaigning
        .take_turns(&elections.engine.raft)
        .await;
}

fn bytes_of(entry: &AppEntry) -> u64 {
    match entry {
        AppEntry::Transaction(payload) => payload.bytes().len() as u64,
        AppEntry::Rotate(rotate) => rotate.format_description.len() as u64,
    }
}

/// The smallest entry's share of the proposals bound: it costs more memory than its bytes.
const SMALLEST_SHARE: u32 = 1024;

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("config", &self.config)
            .field("leadership", &*self.leadership.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
