//! The mysqld of a database member. The model of the server survives a kill of the member. The product's management of the server does not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use binlog_format::gtid::GtidSet;
use binlog_store::{Durability, VerifyAtStart};
use bytes::Bytes;
use consensus::{Program, Timers};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use member::settings::{
    ExternalMysqld, HookSettings, LogSettings, MemberEntry, MysqlMode, MysqlSettings,
    PasswordSource, RaftSettings, RegionsSettings, Settings,
};
use member::status::ClientAddresses;
use member::{ConvertedMysqld, MysqldBeside, Reached, RingHandle, connect_options};
use mysql_link::{ConnectOptions, Dialer, ServerVersion, TlsMode};
use mysqld_controller::CommittedLog;
use mysqld_model::{Account, FindServer, LostTail, Mysqld, MysqldOptions, ReplicaSource, Rights};
use mysqld_server::events::EventsWanted;
use mysqld_server::supervisor::{
    ExternalServer, Found, Identity, Mark, ProcessId, ServerCommand, SupervisorError,
};
use mysqld_server::{ReplicationSource, SourceTls};
use raft_types::{MAX_TRANSACTION_BYTES, MemberKind};
use tempfile::TempDir;
use testkit::disk::Survival;
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::member::clock::{self, Clock, ClockRate};
use crate::member::directory::Directory;
use crate::member::process_setup::ProcessSetup;
use crate::mutation::Mutation;
use crate::record::Record;
use crate::shared::Shared;

/// The member's account at the server.
const ACCOUNT: &str = "witness";
/// `mysql.fence_after`: how long clients may use a primary while its member does not serve.
const FENCE_AFTER: Duration = Duration::from_secs(3);
/// `mysql.demote_after`: how long a leader's mysqld may be unable to be the primary before the leadership is transferred.
const DEMOTE_AFTER: Duration = Duration::from_secs(5);

/// A file and its contents.
type KeptFile = (PathBuf, Vec<u8>);

/// The host of a database member: the server, its data directory, and the member's own files except the log.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) mysqld: Mysqld,
    clock: Arc<HostClock>,
    folder: Arc<TempDir>,
    /// How long the server needs to start.
    start_takes: Duration,
    /// The binlog files as the last process left them, if a mutation keeps their tail.
    kept: Option<Shared<Vec<KeptFile>>>,
    record: Record,
}

impl Host {
    /// Creates a host. Its server is not running.
    ///
    /// # Errors
    /// A temporary folder cannot be created.
    pub(crate) fn new(
        number: u64,
        rate: ClockRate,
        start_takes: Duration,
        donors: FindServer,
        copy_takes: Duration,
        mutation: Option<Mutation>,
        record: &Record,
    ) -> io::Result<Self> {
        let folder = in_memory()?;
        std::fs::create_dir(folder.path().join("member"))?;
        let clock = Arc::new(HostClock {
            rate,
            record: record.clone(),
            process: Shared::default(),
        });
        let told = clock.clone();
        let mut options = MysqldOptions::new(
            folder.path().join("mysqld"),
            Uuid::from_u128(0xda7a_0000_0000_4000_8000_0000_0000_0000 + u128::from(number)),
            u32::try_from(number).unwrap_or(u32::MAX),
            Arc::new(move || told.now()),
        );
        options.donors = donors;
        options.copy_takes = copy_takes;
        options.waits_for_acks = mutation != Some(Mutation::AnswerBeforeTheAck);
        options
            .accounts
            .push(Account::new(ACCOUNT, "", Rights::Member));
        Ok(Self {
            mysqld: Mysqld::new(options).map_err(io::Error::other)?,
            clock,
            folder: Arc::new(folder),
            start_takes,
            kept: (mutation == Some(Mutation::KeepTheTail)).then(Shared::default),
            record: record.clone(),
        })
    }

    /// Cuts the host's power: the server ends, and its disk may lose data that is not synced.
    pub(crate) fn lose_power(&self, survival: Survival) {
        let lost = match survival {
            Survival::Nothing => LostTail {
                binlog_bytes: u64::MAX,
                engine_commits: usize::MAX,
            },
            Survival::Everything => LostTail::default(),
            Survival::Seeded(seed) => LostTail {
                binlog_bytes: seed % 2_000,
                engine_commits: usize::try_from(seed >> 32).unwrap_or(0) % 8,
            },
        };
        if let Err(why) = self.mysqld.cut_power(lost) {
            self.record
                .note(&format!("the binlog cannot be cut: {why}"));
        }
    }

    /// Returns the server as conversions use it, with its management, if any.
    ///
    /// # Errors
    /// A file named in the settings cannot be read.
    pub(super) fn converted(
        &self,
        setup: &ProcessSetup,
        directory: &Directory,
        local_mysqld: Option<MysqldBeside>,
    ) -> io::Result<ConvertedMysqld> {
        Ok(ConvertedMysqld {
            config: Arc::new(self.settings(setup, self.mysql())),
            connect: self.connect()?,
            book: directory.book.clone(),
            beside: local_mysqld,
        })
    }

    /// Returns whether the server is unmanaged: the member has no ring yet, or was ordered to leave the server alone.
    pub(crate) fn is_left_alone(&self, setup: &ProcessSetup) -> bool {
        let Some(directory) = &setup.directory else {
            return false;
        };
        if directory.ring().is_none() {
            return true;
        }
        let converted = self.converted(setup, directory, None);
        // If this is unknown, the server counts as unmanaged.
        converted
            .and_then(|converted| converted.is_left_alone())
            .unwrap_or(true)
    }

    /// Starts the server as an unmanaged server, as the host's service manager does.
    pub(crate) fn start_plainly(&self, is_primary: bool, semi_sync: bool) {
        let words = option_file(is_primary, semi_sync, &self.log_bin());
        let started = self.mysqld.start(&words);
        if let Err(why) = started {
            self.record.note(&format!("a server does not start: {why}"));
        }
    }

    /// Returns how long the server needs to start.
    pub(crate) fn start_takes(&self) -> Duration {
        self.start_takes
    }

    pub(crate) fn member_dir(&self) -> PathBuf {
        self.folder.path().join("member")
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("mysqld")
    }

    fn log_bin(&self) -> String {
        self.data_dir().join("binlog").display().to_string()
    }

    /// Sets the clock of the member's process. `None`: the process has ended.
    pub(super) fn runs_on(&self, clock: Option<Clock>) {
        self.clock.runs_on(clock);
    }

    /// Begins to manage the server, in tasks of the current runtime.
    ///
    /// # Errors
    /// A file of the member cannot be read.
    pub(super) fn look_after(
        &self,
        setup: &ProcessSetup,
        ring: RingHandle,
    ) -> io::Result<MysqldBeside> {
        let mysql = self.mysql();
        let connect = self.connect()?;
        let settings = Arc::new(self.settings(setup, mysql.clone()));
        let reached = Reached {
            connect,
            owner: Arc::new(self.clone()),
            native: Some(ReplicationSource {
                host: "127.0.0.1".to_owned(),
                port: 3307,
                user: ACCOUNT.to_owned(),
                password: "".into(),
                tls: SourceTls::Off,
            }),
            origin: setup.origin(),
            member: (setup.id, setup.record.incarnation),
        };
        let threads = self.mysqld.clone();
        let source = Arc::new(OwnLog(ring.clone()));
        tokio::spawn(async move { threads.run_replica_threads(source).await });
        MysqldBeside::begin(&settings, &mysql, reached, ring)
    }

    /// Returns how the member connects to the server.
    ///
    /// # Errors
    /// A file named in the settings cannot be read.
    pub(crate) fn connect(&self) -> io::Result<ConnectOptions> {
        Ok(ConnectOptions {
            dialer: Dialer::new(Arc::new(self.mysqld.clone())),
            ..connect_options(&self.mysql())?
        })
    }

    /// Returns the arguments with which a member starts its server. In a real host, the service manager's configuration contains them.
    fn command_line(&self) -> Vec<String> {
        let command = ServerCommand {
            command: Vec::new(),
            data_dir: self.data_dir(),
            socket: self.member_dir().join("mysqld.sock"),
            port: Some(3306),
            pid_file: self.member_dir().join("mysqld.pid"),
            error_log: self.member_dir().join("mysqld.err"),
            extra_args: vec![format!("--log-bin={}", self.log_bin())],
        };
        command.words(ServerVersion::new(9, 7, 4))
    }

    fn mysql(&self) -> MysqlSettings {
        MysqlSettings {
            mode: MysqlMode::External,
            host: "127.0.0.1".to_owned(),
            port: 3306,
            socket: Some(self.member_dir().join("mysqld.sock")),
            user: ACCOUNT.to_owned(),
            password: PasswordSource::Given(String::new()),
            tls: TlsMode::Disabled,
            tls_ca_file: None,
            tls_certificate: None,
            public_key_file: None,
            mysqld: Vec::new(),
            datadir: Some(self.data_dir()),
            extra_args: Vec::new(),
            external: Some(ExternalMysqld {
                start: Vec::new(),
                stop: Vec::new(),
                kill: Vec::new(),
                log_bin: self.log_bin(),
                pid_file: None,
            }),
            initialize: false,
            server_id: None,
            server_uuid: None,
            manage_settings: true,
            accept_unproven: false,
            max_transaction_bytes: 1023 << 20,
            apply_workers: Some(4),
            native: true,
            events: EventsWanted::default(),
            demote_after: Some(DEMOTE_AFTER),
            fence_after: FENCE_AFTER,
            kill_statements_after: None,
        }
    }

    fn settings(&self, setup: &ProcessSetup, mysql: MysqlSettings) -> Settings {
        let own = MemberEntry {
            id: setup.id,
            name: setup.record.name.clone(),
            region: setup.record.region.clone(),
            kind: MemberKind::Database,
            votes: setup.record.votes,
            priority: setup.record.priority,
            address: setup.record.address.clone(),
        };
        let Timers {
            heartbeat, lease, ..
        } = setup.timers;
        Settings {
            data_dir: self.member_dir(),
            ring_name: "simulated".to_owned(),
            listen: own.address.clone(),
            members: vec![own.clone()],
            own,
            log: LogSettings {
                durability: Durability::Fsync,
                // Simulated members order rotations themselves.
                max_file_bytes: u64::MAX,
                cache_bytes: setup.log.cache_bytes,
                queue_bytes: 64 << 20,
                verify: VerifyAtStart::All,
                scrub_rate: None,
                disk_limit_bytes: None,
                disk_reserve_bytes: 0,
                keep_for: None,
                keep_bytes: None,
                absent_after: Duration::MAX,
            },
            raft: RaftSettings {
                heartbeat,
                lease,
                proposals_bytes: 64 << 20,
            },
            rules: setup.rules.clone(),
            regions: RegionsSettings {
                proxy: setup.proxies.clone(),
                far: transport::FarOptions::default(),
            },
            tls: None,
            mysql: Some(mysql),
            binlog_server: None,
            archive: None,
            hooks: HookSettings {
                on_primary: Vec::new(),
                on_demoted: Vec::new(),
                on_primary_changed: Vec::new(),
                timeout: Duration::from_secs(1),
            },
            client_addresses: ClientAddresses::default(),
            program: Program::this(),
        }
    }
}

/// Returns the options of an unmanaged server, which is the primary or a read-only replica. With semi-sync, the primary's commits wait for
/// a replica's ACK.
fn option_file(is_primary: bool, semi_sync: bool, log_bin: &str) -> Vec<String> {
    let mut words = vec![format!("--log-bin={log_bin}")];
    let mut add = |options: &[&str]| words.extend(options.iter().map(|&word| word.to_owned()));
    match (is_primary, semi_sync) {
        (true, true) => add(&[
            "--plugin-load-add=semisync_source.so",
            "--rpl-semi-sync-source-enabled=ON",
            "--rpl-semi-sync-source-timeout=1000000000000000000",
        ]),
        (false, true) => add(&[
            "--plugin-load-add=semisync_replica.so",
            "--rpl-semi-sync-replica-enabled=ON",
        ]),
        (_, false) => {}
    }
    if !is_primary {
        add(&["--super-read-only=ON"]);
    }
    words
}

/// The prefix of the name of a host's folder. The rest of the name differs in each run.
const FOLDER: &str = "simulated-";
const DRAWN: usize = 6;

/// Removes the part of folder names that differs in each run, so that the messages of a seed are reproducible.
pub(crate) fn without_folder_names(words: &str) -> String {
    let mut parts = words.split(FOLDER);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, part| {
        said + "simulated" + part.get(DRAWN..).unwrap_or_default()
    })
}

/// Creates a host's folder in memory, so that a run does not wait for a disk. The model decides which contents of a file survive a power
/// loss.
fn in_memory() -> io::Result<TempDir> {
    let own = folder_of_this_process();
    fs::create_dir_all(&own)?;
    let mut folder = tempfile::Builder::new();
    folder.prefix(FOLDER).rand_bytes(DRAWN).tempdir_in(own)
}

/// Returns the parent folder of all hosts of this process. Each process has its own, because a name that is already in use would cost
/// another draw from the seed.
fn folder_of_this_process() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let parent = Some(memory).filter(|memory| memory.is_dir());
    let parent = parent.unwrap_or_else(std::env::temp_dir);
    parent.join(format!("{FOLDER}{:0DRAWN$x}", std::process::id()))
}

/// Removes the folders of all hosts. At the end of a run a host may still use its folder, and killed processes leave theirs.
pub(crate) fn remove_folders() {
    drop(fs::remove_dir_all(folder_of_this_process()));
}

/// Starts and stops the server, as the host's service manager does.
impl ExternalServer for Host {
    fn start(&self) -> BoxFuture<'_, Result<(), SupervisorError>> {
        Box::pin(async {
            tokio::time::sleep(self.start_takes).await;
            self.put_tail_back();
            let started = self.mysqld.start(&self.command_line());
            started.map_err(SupervisorError::NotStarted)
        })
    }

    fn stop(&self, _: Duration) -> BoxFuture<'_, Result<(), SupervisorError>> {
        self.mysqld.terminate();
        std::future::ready(Ok(())).boxed()
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), SupervisorError>> {
        self.mysqld.kill();
        std::future::ready(Ok(())).boxed()
    }

    fn start_limit(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn find(&self, _: &Mark) -> Found {
        match self.process() {
            Some(id) => Found::Unknown(id),
            None => {
                self.keep_tail();
                Found::Nothing
            }
        }
    }

    fn identity(&self, id: ProcessId) -> Identity {
        Identity { id, began: None }
    }

    fn serves(&self, id: ProcessId, _: &Mark) -> bool {
        self.process() == Some(id)
    }

    fn ended(&self, id: ProcessId) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            while self.process() == Some(id) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
    }
}

/// Keeps the binlog's tail despite the trim, for a mutation.
impl Host {
    /// Saves the binlog files. Called after the end of the process, before the trim.
    fn keep_tail(&self) {
        let Some(kept) = &self.kept else {
            return;
        };
        let mut kept = kept.lock();
        if kept.is_empty() {
            let files = std::fs::read_dir(self.data_dir()).into_iter().flatten();
            let paths = files.flatten().map(|file| file.path());
            let binlog = paths.filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.starts_with("binlog.0"))
            });
            let read = binlog.filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?)));
            *kept = read.collect();
        }
    }

    fn put_tail_back(&self) {
        let Some(kept) = &self.kept else {
            return;
        };
        for (path, bytes) in kept.lock().drain(..) {
            if let Err(error) = std::fs::write(path, bytes) {
                self.record
                    .note(&format!("the tail cannot be restored: {error}"));
            }
        }
    }
}

impl Host {
    /// Returns the process id, which is different for each start.
    fn process(&self) -> Option<ProcessId> {
        let starts = i32::try_from(self.mysqld.starts()).unwrap_or(i32::MAX);
        self.mysqld.is_running().then_some(ProcessId(starts))
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

/// The member's committed log, as the source of the server's replica threads.
struct OwnLog(RingHandle);

impl ReplicaSource for OwnLog {
    fn open(&self, have: GtidSet) -> BoxStream<'static, Result<Bytes, String>> {
        use applier::source::Source;
        let log = self.0.committed_log(have, MAX_TRANSACTION_BYTES);
        stream::unfold(Some(log), |log| async {
            let mut log = log?;
            match log.next().await {
                Ok(Some(transaction)) => Some((Ok(transaction.payload), Some(log))),
                Ok(None) => None,
                Err(error) => Some((Err(error.to_string()), None)),
            }
        })
        .boxed()
    }
}

/// The host's clock. While the member's process runs, it is the clock of that process. Otherwise it continues at the same rate.
struct HostClock {
    rate: ClockRate,
    record: Record,
    process: Shared<Option<Clock>>,
}

impl HostClock {
    fn runs_on(&self, clock: Option<Clock>) {
        *self.process.lock() = clock;
    }

    /// Returns the time since the start of the world.
    fn now(&self) -> Duration {
        if let Some(clock) = clock::of_no_member() {
            return clock.since_the_beginning(Instant::now());
        }
        let process = *self.process.lock();
        match (process, Handle::try_current()) {
            (Some(clock), Ok(_)) => clock.since_the_beginning(Instant::now()),
            _ => self.rate.of(self.record.now().elapsed()),
        }
    }
}
