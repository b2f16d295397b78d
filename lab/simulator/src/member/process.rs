//! A member's process. It starts from a disk, and runs step by step. When it is killed, it ends immediately with all its tasks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use binlog_store::{
    BinlogStore, Durability, LogHandle, MetaStore, OpenError, StoreOptions, WriterMode,
};
use consensus::log_probe::{LogProbe, MemberNetwork};
use consensus::{AppliedFloor, Fault, Leadership, MemberCalls, MemberConfig, Program, StartError};
use member::protocol::{Provisioned, Refusal};
use member::status::MysqlView;
use member::{MysqldBeside, RingHandle};
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use proxy::{Counted, Proxying, RouteTable};
use raft_types::{LogId, MemberId, OpId, OwnLog};
use ring_admin::{Member, RingState};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::{Damage, Event, OpenedLog, Seen};
use crate::member::admin_calls::AdminCall;
use crate::member::answering::Answering;
use crate::member::asking::{Asking, OpenFailure, Parts};
use crate::member::clock::Clock;
use crate::member::directory::Directory;
use crate::member::disk_pace::DiskWork;
use crate::member::mysqld::Host;
use crate::member::neighbours::{AskedDonor, DonorCall};
use crate::member::process_setup::{ProcessSetup, Surroundings};
use crate::member::unsynced_meta::UnsyncedMeta;
use crate::member::waiting::{FirstMembers, Waiting};
use crate::member::watched_log::{Watch, WatchedLog};
use crate::member::watched_starts::WatchedStarts;
use crate::member::{asking, broken_movers, clients, file_repair};
use crate::mutation::Mutation;
use crate::network::{Message, MessageQueue, Outbound, PendingCalls, Reception, Relayed, Relaying};
use crate::record::Record;
use crate::tick::Tick;

/// The leadership and the commit index of a member, for the world.
#[derive(Debug, Clone)]
pub(crate) struct Outline {
    pub(crate) leadership: Leadership,
    pub(crate) committed: Option<OpId>,
}

/// A started process.
pub(crate) enum Started {
    /// The member takes part in the ring.
    Up(Box<Process>),
    /// The member asks the other members first.
    Asking(Box<Asking>),
    /// The member has no ring yet.
    Waiting(Box<Waiting>),
}

/// A running process of a member that takes part in the ring.
pub(crate) struct Process {
    runtime: Runtime,
    clock: Clock,
    member: Member,
    log: LogHandle,
    reception: Reception,
    commits: watch::Receiver<Option<OpId>>,
    record: Record,
    id: MemberId,
    /// The last committed entry that was recorded.
    told: Option<OpId>,
    /// Why openraft stopped. A separate task sets this.
    fault: watch::Receiver<Option<Fault>>,
    /// The member's server, with its management.
    local_mysqld: Option<(Host, MysqldBeside)>,
    /// True if the member was asked to stop and has left the ring.
    left: Arc<AtomicBool>,
    /// Answers admin calls, if the run simulates them.
    answering: Option<Answering>,
}

/// The member's directory on its disk.
const DATA_DIR: &str = "data";

impl Process {
    /// Starts a process. Reads the whole log, and records its contents.
    pub(crate) fn start(
        setup: &ProcessSetup,
        queue: &MessageQueue,
        record: &Record,
        now: Tick,
        damage: Damage,
    ) -> Result<Started, OpenFailure> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(|error| OpenFailure::Disk(error.to_string()))?;
        let setup = &setup.in_its_ring();
        if let Some(directory) = &setup.directory
            && !Self::has_come(&runtime, setup, directory, record)?
        {
            let around = Surroundings::new(setup, record, runtime, now);
            let waiting = Waiting::new(around, directory, queue);
            return Ok(Started::Waiting(Box::new(waiting)));
        }
        let (store, has_a_log) = Self::open_and_report(&runtime, setup, record, damage)?;
        let pending = PendingCalls::new(setup.id, queue.clone(), setup.disk.clone());
        let taking_part = Self::take_part(setup.clone(), store, pending.clone(), record.clone());
        if setup.returns && has_a_log {
            let around = Surroundings::new(setup, record, runtime, now);
            let asking = Asking::new(around, pending, taking_part);
            return Ok(Started::Asking(Box::new(asking)));
        }
        let parts = runtime.block_on(taking_part)?;
        let around = Surroundings::new(setup, record, runtime, now);
        Ok(Started::Up(Box::new(Self::up(around, parts))))
    }

    /// Returns whether the member belongs to a ring. If the member was stopped while it bootstrapped the ring, the log shows whether the
    /// first entry was written.
    fn has_come(
        runtime: &Runtime,
        setup: &ProcessSetup,
        directory: &Directory,
        record: &Record,
    ) -> Result<bool, OpenFailure> {
        match directory.state() {
            RingState::Belongs { .. } => return Ok(true),
            RingState::Fresh => return Ok(false),
            RingState::Bootstrapping { .. } => {}
        }
        let (store, found) = runtime.block_on(Self::open(setup, record))?;
        let has_begun = found.floor.is_some() || !found.entries.is_empty();
        drop(store);
        setup.disk.restart_process();
        if has_begun {
            directory.has_bootstrapped();
        }
        Ok(has_begun)
    }

    /// Opens the log and records its contents. Returns whether the log has entries.
    fn open_and_report(
        runtime: &Runtime,
        setup: &ProcessSetup,
        record: &Record,
        damage: Damage,
    ) -> Result<(BinlogStore, bool), OpenFailure> {
        let opened = runtime.block_on(Self::open(setup, record));
        let (store, log) = opened.inspect_err(|failure| {
            if let OpenFailure::Refused(why) = failure {
                record.saw(&Event::RefusedToOpen {
                    member: setup.id,
                    why: why.clone(),
                    damage,
                });
            }
        })?;
        let has_a_log = log.floor.is_some() || !log.entries.is_empty();
        record.saw(&Event::Opened {
            member: setup.id,
            log,
            damage,
        });
        Ok((store, has_a_log))
    }

    /// Continues the process of a member that has joined its ring.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub(super) fn enter(
        mut around: Surroundings,
        queue: MessageQueue,
        first_members: FirstMembers,
    ) -> Result<Self, OpenFailure> {
        around.setup = around.setup.in_its_ring();
        let (setup, record) = (around.setup.clone(), around.record.clone());
        let (store, _) = Self::open_and_report(&around.runtime, &setup, &record, Damage::None)?;
        let pending = PendingCalls::new(setup.id, queue, setup.disk.clone());
        let directory = setup.directory.clone();
        let taking_part = Self::take_part(setup, store, pending, record.clone());
        let parts = around.runtime.block_on(taking_part)?;
        let process = Self::up(around, parts);
        if let (Some(members), Some(directory)) = (first_members, directory) {
            process.spawn(|member| async move {
                match member.bootstrap(members).await {
                    Ok(()) => directory.has_bootstrapped(),
                    Err(error) => record.note(&format!("the ring was not made: {error}")),
                }
            });
        }
        Ok(process)
    }

    /// Creates the process of a member that takes part.
    pub(super) fn up(around: Surroundings, parts: Parts) -> Self {
        let Surroundings {
            setup,
            record,
            runtime,
            clock,
        } = around;
        let Parts {
            member,
            log,
            reception,
            returning,
        } = parts;
        let fault = runtime.block_on(watch_fault(member.clone()));
        runtime.spawn(watch_accusations(member.clone(), record.clone()));
        if let Some(returning) = returning {
            runtime.spawn(returning.campaign_when_known(member.clone()));
        }
        let local_mysqld = setup.host.clone().map(|host| {
            host.runs_on(Some(clock));
            let ring = RingHandle {
                member: member.clone(),
                log: log.clone(),
            };
            let begun = runtime.block_on(async { host.look_after(&setup, ring) });
            begun.map(|looked_after| (host, looked_after))
        });
        let local_mysqld = local_mysqld.transpose().unwrap_or_else(|error| {
            record.saw(&Event::Panicked {
                member: setup.id,
                words: format!("mysqld cannot be managed: {error}"),
            });
            None
        });
        let answering = setup.directory.as_ref().map(|directory| {
            let local_mysqld = local_mysqld.as_ref().map(|(_, own)| own.clone());
            let mut answering = Answering::new(&setup, directory);
            answering.takes_part = Some((member.clone(), local_mysqld));
            answering
        });
        let commits = member.committed();
        if setup.mutation == Some(Mutation::NarrowWithoutTheBarrier) {
            runtime.spawn(broken_movers::narrow(member.clone()));
        }
        if setup.mutation == Some(Mutation::BelieveTheFile) {
            let file = setup.rules.clone();
            runtime.spawn(broken_movers::believe(member.clone(), file));
        }
        if let Some(wanted) = setup.file_repair {
            let (log, record) = (log.clone(), record.clone());
            runtime.spawn(file_repair::repair(member.clone(), log, record, wanted));
        }
        let id = setup.id;
        runtime.spawn(clients::serve(setup, member.clone(), record.clone()));
        Self {
            clock,
            answering,
            local_mysqld,
            commits,
            member,
            log,
            reception,
            record,
            id,
            told: None,
            fault,
            runtime,
            left: Arc::default(),
        }
    }

    /// Opens the log and reads all of it.
    async fn open(
        setup: &ProcessSetup,
        record: &Record,
    ) -> Result<(BinlogStore, OpenedLog), OpenFailure> {
        let off_or = |failure| off_or(setup, failure);
        let usual = StoreOptions::new(DATA_DIR, setup.ring);
        let options = StoreOptions {
            queue_bytes: setup.queue_bytes.unwrap_or(usual.queue_bytes),
            writer: WriterMode::Stepped,
            cache_bytes: setup.log.cache_bytes,
            read_batch_bytes: setup.log.read_batch_bytes,
            disk_reserve_bytes: setup.log.disk_reserve_bytes,
            origin: setup.origin(),
            // With one boot id for all starts, the log is never in doubt after a power cut, so that the mutation is not hidden.
            boot_id: Some("the same after each power cut".to_owned()),
            durability: match setup.mutation {
                Some(Mutation::AcknowledgeBeforeTheDisk) => Durability::Os,
                _ => Durability::Fsync,
            },
            ..usual
        };
        let meta: Arc<dyn MetaStore> = match setup.mutation {
            Some(Mutation::SkipTheMetadataSync) => Arc::new(UnsyncedMeta(setup.disk.meta())),
            _ => setup.disk.meta(),
        };
        let opened = BinlogStore::open(options, setup.disk.file_system(), meta);
        let (mut store, report) = opened.map_err(|error| off_or(open_failure(&error)))?;
        record.note(&format!("member {} opens its log: {report}", setup.id));
        let found = read_log(&mut store).await;
        let found = found.map_err(|error| off_or(OpenFailure::Refused(error.to_string())))?;
        Ok((store, found))
    }

    /// Starts the member with its log, after it has asked whether the ring continued without the end of the log.
    async fn take_part(
        setup: ProcessSetup,
        mut store: BinlogStore,
        pending: PendingCalls,
        record: Record,
    ) -> Result<Parts, OpenFailure> {
        let off_or = |failure| off_or(&setup, failure);
        let log = store.handle();
        let outbound = Outbound::new(pending.clone(), &setup.timers, setup.mutation);
        let routes = RouteTable::new(
            setup.id,
            &setup.record,
            setup.proxies.clone(),
            setup.timers.lease,
        );
        let own: Arc<dyn OwnLog> = Arc::new(log.clone());
        let transport = setup.transport.as_ref();
        let ends = transport.map(|transport| transport.begin(&setup, own.clone()));
        let calls: Arc<dyn MemberCalls> = match &ends {
            Some(ends) => Arc::new(ends.network.clone()),
            None => Arc::new(outbound.port()),
        };
        let watch = Watch {
            member: setup.id,
            record,
            disk: setup.disk.clone(),
        };
        let returning = match setup.returns {
            true => {
                let back = asking::come_back(&mut store, calls.clone(), &watch).await;
                Some(back.map_err(|error| off_or(OpenFailure::Disk(error.to_string())))?)
            }
            false => None,
        };
        let over = Over {
            setup: &setup,
            store,
            watch,
            calls,
        };
        let started = match &ends {
            Some(ends) => {
                let network = ends.network.clone();
                let sessions = ends.network.clone();
                over.start(Proxying::new(network, sessions, routes.clone()))
                    .await
            }
            None => {
                let sessions = outbound.clone();
                over.start(Proxying::new(outbound.port(), sessions, routes.clone()))
                    .await
            }
        };
        let member = started.map_err(|error| off_or(OpenFailure::Disk(error.to_string())))?;
        let ring = member.inbound();
        routes.know_the_ring(Arc::new(move |member| ring.record(member)));
        if let Some(ends) = ends {
            let taken = ends.take_calls(&setup, &member, own.clone(), routes.clone());
            taken.map_err(|error| off_or(OpenFailure::Disk(error.to_string())))?;
        }
        let waits_in_front = !matches!(
            setup.mutation,
            Some(Mutation::ProposeWithoutRoom | Mutation::WaitInTheLoop)
        );
        if waits_in_front {
            member.take_in_by(Arc::new(log.clone()));
        }
        let relaying = Relaying {
            own: setup.id,
            log: own,
            outbound,
            routes,
            mutation: setup.mutation,
        };
        let reception = Reception {
            pending,
            member: member.clone(),
            inbound: member.inbound(),
            relaying,
        };
        Ok(Parts {
            member,
            log,
            reception,
            returning,
        })
    }

    /// Runs the process until `now`.
    pub(crate) fn run_until(&mut self, now: Tick) {
        let until = self.clock.at(now);
        self.runtime
            .block_on(async { tokio::time::sleep_until(until).await });
        self.report_commits();
    }

    /// Resumes a paused process. Its clock has advanced during the pause.
    pub(crate) fn resume(&mut self, now: Tick) {
        let until = self.clock.at(now);
        self.runtime.block_on(async {
            let missed = until.saturating_duration_since(Instant::now());
            tokio::time::advance(missed).await;
        });
    }

    /// Delivers a message to the process.
    pub(crate) fn deliver(&self, message: Message) {
        let _inside = self.runtime.enter();
        self.reception.deliver(message);
    }

    /// Records the newly committed entries, as this member reads them.
    fn report_commits(&mut self) {
        if !self.reception.pending.alive() || !self.commits.has_changed().unwrap_or(false) {
            return;
        }
        let Some(mark) = *self.commits.borrow_and_update() else {
            return;
        };
        let first = self.log.bounds().map_or(0, |(first, _)| first.index);
        let start = self.told.map_or(0, |told| told.index + 1).max(first);
        if start > mark.index {
            return;
        }
        let mut reader = self.log.reader();
        let read = reader.try_get_log_entries(start..=mark.index);
        match self.runtime.block_on(read) {
            Ok(entries) => {
                let entries: Vec<Seen> = entries.iter().map(Seen::of).collect();
                self.told = Some(mark);
                self.record.saw(&Event::Committed {
                    member: self.id,
                    entries,
                });
            }
            // The disk fails at the moment. The entries are recorded when they can be read.
            Err(error) => {
                self.commits.mark_changed();
                self.record.note(&format!(
                    "member {} cannot read its committed entries: {error}",
                    self.id
                ));
            }
        }
    }

    /// Calls a function with the member, within the runtime. The function must not wait.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Member) -> T) -> T {
        let _inside = self.runtime.enter();
        look(&self.member)
    }

    /// Starts a task in the process.
    pub(crate) fn spawn<F>(&self, task: impl FnOnce(Member) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.runtime.spawn(task(self.member.clone()));
    }

    /// Returns the leadership and the commit index of the member.
    pub(crate) fn outline(&self) -> Outline {
        self.with(|member| Outline {
            leadership: member.leadership_now(),
            committed: *member.committed().borrow(),
        })
    }

    /// Returns the sessions that this member serves as a proxy.
    pub(crate) fn relayed(&self) -> Vec<Relayed> {
        self.reception.pending.relayed()
    }

    /// Returns the traffic that this member has sent, by route.
    pub(crate) fn traffic(&self) -> Counted {
        self.reception.relaying.routes.traffic().counted()
    }

    /// Returns the member's view of its server.
    pub(crate) fn mysqld(&self) -> Option<MysqlView> {
        let _inside = self.runtime.enter();
        let (_, local_mysqld) = self.local_mysqld.as_ref()?;
        Some(local_mysqld.view())
    }

    pub(crate) fn log(&self) -> &LogHandle {
        &self.log
    }

    /// Returns why openraft stopped, if it did.
    pub(crate) fn stopped(&self) -> Option<Fault> {
        self.fault.borrow().clone()
    }

    /// Clones a donor's data to the member's server, as an operator's command does. `theirs` is the donor's view of its server. `tell`
    /// receives the result, unless the process ends first.
    pub(crate) fn provision(
        &self,
        donor: AskedDonor,
        theirs: Option<MysqlView>,
        force: bool,
        tell: impl FnOnce(Result<Provisioned, Refusal>) + Send + 'static,
    ) {
        if let Some((_, local_mysqld)) = &self.local_mysqld {
            let local_mysqld = local_mysqld.clone();
            self.runtime.spawn(async move {
                tell(local_mysqld.provision(&donor, theirs.as_ref(), force).await);
            });
        }
    }

    /// Answers a recipient that wants to clone the data of this member's server.
    pub(crate) fn answer_recipient(&self, call: DonorCall) {
        if let Some((host, local_mysqld)) = &self.local_mysqld
            && let Ok(connect) = host.connect()
        {
            self.runtime
                .spawn(call.answer(local_mysqld.clone(), connect));
        }
    }

    /// Answers an admin call.
    pub(crate) fn answer(&self, call: AdminCall) {
        if let Some(answering) = self.answering.clone() {
            self.runtime.spawn(answering.answer(call.question));
        }
    }

    /// Begins to leave the ring, as the product does when it is asked to stop. Only for a member with a server.
    pub(crate) fn leave(&self) {
        let Some((_, local_mysqld)) = &self.local_mysqld else {
            return;
        };
        let (local_mysqld, left) = (local_mysqld.clone(), self.left.clone());
        self.runtime.spawn(async move {
            local_mysqld.stop().await;
            left.store(true, Ordering::Relaxed);
        });
    }

    /// Returns whether the member has left the ring, so that the process can end.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Shuts the process down gracefully.
    pub(crate) fn shut_down(self) {
        let member = self.member.clone();
        self.runtime.block_on(async {
            let _ = tokio::time::timeout(Duration::from_secs(5), member.shutdown()).await;
        });
        let _ = self.log.close();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some((host, _)) = &self.local_mysqld {
            host.runs_on(None);
        }
        self.record.carried(&self.traffic());
        let (bad_reads, repaired) = (self.log.stats(), self.log.scrub_progress());
        self.record
            .read_badly(bad_reads.read_failures, repaired.repaired);
    }
}

/// The parts from which a member is started.
struct Over<'a> {
    setup: &'a ProcessSetup,
    store: BinlogStore,
    watch: Watch,
    calls: Arc<dyn MemberCalls>,
}

impl Over<'_> {
    async fn start(self, network: impl MemberNetwork) -> Result<Member, StartError> {
        let (setup, calls, mutation) = (self.setup, self.calls, self.setup.mutation);
        let log = self.store.handle();
        let config = MemberConfig {
            timers: setup.timers,
            rules: setup.rules.clone(),
            program: match &setup.transport {
                Some(transport) => transport.program(setup.mutation),
                None => Program::this(),
            },
            ..MemberConfig::new(setup.ring, setup.id, setup.record.kind)
        };
        let (last_applied, membership) = log.applied_at_open();
        let floor = AppliedFloor {
            last_applied: last_applied.map(LogId::from),
            membership,
        };
        let work = DiskWork::new(log.clone(), setup.pace.clone());
        let starts = Arc::new(WatchedStarts {
            log: log.clone(),
            watch: self.watch.clone(),
            work: work.clone(),
            mutation,
        });
        let watched = WatchedLog {
            store: self.store,
            watch: self.watch,
            work,
            mutation,
        };
        match setup.searches_itself {
            true => {
                let network = LogProbe::new(network, Arc::new(log), &setup.timers);
                Member::start(config, watched, network, calls, floor, starts).await
            }
            false => Member::start(config, watched, network, calls, floor, starts).await,
        }
    }
}

/// Returns `Off` if the power was cut, otherwise `failure`.
fn off_or(setup: &ProcessSetup, failure: OpenFailure) -> OpenFailure {
    match setup.disk.is_off() {
        true => OpenFailure::Off,
        false => failure,
    }
}

/// Records the member's reports of a restored data directory.
async fn watch_accusations(member: Member, record: Record) {
    loop {
        for (member, found) in member.restored() {
            let words = found.to_string();
            record.saw(&Event::RestoredDirectory { member, words });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn watch_fault(member: Member) -> watch::Receiver<Option<Fault>> {
    let (publish, fault) = watch::channel(None);
    tokio::spawn(async move {
        let stopped = member.fault().await;
        publish.send_replace(Some(stopped));
    });
    fault
}

fn open_failure(error: &OpenError) -> OpenFailure {
    match error {
        OpenError::Io { .. } => OpenFailure::Disk(error.to_string()),
        refused => OpenFailure::Refused(refused.to_string()),
    }
}

async fn read_log(store: &mut BinlogStore) -> io::Result<OpenedLog> {
    let state = store.get_log_state().await?;
    let mut reader = store.reader();
    let vote = reader.read_vote().await?;
    let entries = reader.try_get_log_entries(0_u64..).await?;
    Ok(OpenedLog {
        floor: state.last_purged_log_id.map(OpId::from),
        entries: entries.iter().map(Seen::of).collect(),
        vote,
    })
}
