//! The supervisor with a real mysqld, which it initialises, starts, kills, adopts and stops.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError};
use mysqld_controller::ingest::IngestOptions;
use mysqld_server::supervisor::{
    ProcessId, ServerCommand, StartGuard, Supervisor, SupervisorHandle, SupervisorOptions,
    SupervisorState,
};
use raft_types::Term;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};
use tokio::task::JoinHandle;

use crate::primary::{A_WHILE, LIMIT, Running, eventually, requirements};
use crate::ring_in_memory::{Leadership, MemoryRing};

/// The files of a supervised mysqld. Processes that still use them when the test ends are killed.
pub(crate) struct Home {
    folder: TempDir,
    user: &'static str,
}

impl Home {
    /// Creates the files without a data directory.
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("sv-").tempdir()?;
        Ok(Self { folder, user: "w" })
    }

    /// Creates the files with an initialised data directory, which has only the account root.
    pub(crate) fn with_data() -> Result<Self> {
        let mut home = Self::new()?;
        home.user = "root";
        let options = MysqldOptions {
            data_dir: Some(home.path("data")),
            ..MysqldOptions::default()
        };
        Mysqld::prepare(&MysqlTree::require(), options)?;
        Ok(home)
    }

    pub(crate) fn options(&self, extra: &[&str]) -> SupervisorOptions {
        let tree = MysqlTree::require();
        let words = tree.words(&tree.mysqld);
        let mut extra_args = tree.server_options();
        if rustix::process::geteuid().is_root() {
            extra_args.push("--user=root".to_owned());
        }
        extra_args.extend(
            [
                "--mysqlx=OFF",
                "--secure-file-priv=",
                "--skip-networking",
                "--server-id=1",
            ]
            .map(str::to_owned),
        );
        extra_args.push("--innodb-redo-log-capacity=16M".to_owned());
        extra_args.extend(extra.iter().map(|arg| (*arg).to_owned()));
        let server = ServerCommand {
            command: words
                .into_iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            data_dir: self.path("data"),
            socket: self.path("sock"),
            port: None,
            pid_file: self.path("pid"),
            error_log: self.path("log.err"),
            extra_args,
        };
        let mut options = SupervisorOptions::new(server, self.account());
        options.may_initialise = true;
        options.retry = (Duration::from_millis(100), Duration::from_millis(500));
        options
    }

    /// Returns the member's account. Its password contains quotes, to test the statements that create the account.
    pub(crate) fn account(&self) -> ConnectOptions {
        let password = if self.user == "root" {
            ""
        } else {
            "it's \\secret"
        };
        ConnectOptions::new(Endpoint::unix(self.path("sock")), self.user, password)
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let options = self.account();
        let deadline = Instant::now() + LIMIT;
        loop {
            match Connection::open(&options).await {
                Ok(connection) => return Ok(connection),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let wanted = format!("--datadir={}", self.path("data").display());
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let ours = arguments
                .split(|byte| *byte == 0)
                .any(|argument| argument == wanted.as_bytes());
            if ours
                && let Some(pid) = entry
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse().ok())
            {
                let _ = signal(ProcessId(pid), Signal::KILL);
            }
        }
    }
}

pub(crate) fn signal(id: ProcessId, signal: Signal) -> Result<()> {
    Ok(kill_process(
        Pid::from_raw(id.0).context("no pid")?,
        signal,
    )?)
}

fn lives(id: ProcessId) -> bool {
    Pid::from_raw(id.0).is_some_and(|pid| test_kill_process(pid).is_ok())
}

pub(crate) struct Supervised {
    pub(crate) handle: SupervisorHandle,
    task: JoinHandle<()>,
}

impl Supervised {
    pub(crate) fn start(options: SupervisorOptions) -> Self {
        let (supervisor, handle) = Supervisor::new(options);
        let task = tokio::spawn(supervisor.run());
        Self { handle, task }
    }

    pub(crate) fn start_guarded(options: SupervisorOptions, guard: Arc<dyn StartGuard>) -> Self {
        let (mut supervisor, handle) = Supervisor::new(options);
        supervisor.guard = Some(guard);
        let task = tokio::spawn(supervisor.run());
        Self { handle, task }
    }

    pub(crate) async fn reaches(
        &self,
        what: impl Fn(&SupervisorState) -> bool,
    ) -> Result<SupervisorState> {
        let mut status = self.handle.status();
        let reached =
            tokio::time::timeout(2 * LIMIT, status.wait_for(|status| what(&status.state))).await;
        match reached {
            Ok(status) => Ok(status?.state.clone()),
            Err(_) => anyhow::bail!("{:?}", *self.handle.status().borrow()),
        }
    }

    pub(crate) async fn runs(&self) -> Result<(ProcessId, bool)> {
        match self
            .reaches(|state| matches!(state, SupervisorState::Running { .. }))
            .await?
        {
            SupervisorState::Running { pid, adopted } => Ok((pid, adopted)),
            other => anyhow::bail!("{other:?}"),
        }
    }

    async fn fails(&self) -> Result<String> {
        match self
            .reaches(|state| matches!(state, SupervisorState::Failed { .. }))
            .await?
        {
            SupervisorState::Failed { cause } => Ok(cause),
            other => anyhow::bail!("{other:?}"),
        }
    }

    pub(crate) async fn stop(self) -> Result<()> {
        tokio::time::timeout(2 * LIMIT, self.handle.stop()).await?;
        Ok(self.task.await?)
    }
}

async fn variable(connection: &mut Connection, name: &str) -> Result<String> {
    let result = connection.query(&format!("SELECT @@GLOBAL.{name}")).await?;
    Ok(result
        .first()
        .and_then(|row| row.text_at(0))
        .context("a value")?
        .to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_from_nothing_to_its_stop() -> Result<()> {
    let home = Home::new()?;
    // An operator's options do not override those that the ring requires.
    let supervised = Supervised::start(home.options(&["--super-read-only=OFF", "--sync-binlog=0"]));
    supervised
        .reaches(|state| *state == SupervisorState::Initialising)
        .await?;
    let (first, adopted) = supervised.runs().await?;
    ensure!(!adopted);
    let mut connection = home.connect().await?;
    for (name, value) in [
        ("super_read_only", "1"),
        ("sync_binlog", "1"),
        ("gtid_mode", "ON"),
        ("rpl_semi_sync_source_enabled", "1"),
        ("rpl_semi_sync_source_timeout", "1000000000000000000"),
        ("rpl_semi_sync_source_wait_point", "AFTER_SYNC"),
        ("gtid_executed", ""),
    ] {
        assert_eq!(variable(&mut connection, name).await?, value, "{name}");
    }
    let skips = connection
        .query("SHOW GLOBAL VARIABLES LIKE 'skip_replica_start'")
        .await?;
    assert_eq!(skips.first().and_then(|row| row.text_at(1)), Some("ON"));
    // The member applies every statement of an administrator, so its account needs all privileges.
    let grants = connection.query("SHOW GRANTS").await?;
    let mut grants = grants.rows.iter().filter_map(|row| row.text_at(0));
    assert!(grants.any(|grant| grant.starts_with("GRANT PROXY ON ``@``")));
    assert!(
        !home.path("pid.init.sql").exists(),
        "the file with the password is still there"
    );

    signal(first, Signal::KILL)?;
    let cause = supervised.fails().await?;
    assert!(cause.contains("signal: 9"), "{cause}");
    let (second, _) = supervised.runs().await?;
    assert_ne!(first, second);
    home.connect().await?;
    assert_eq!(supervised.handle.status().borrow().starts, 2);
    supervised.stop().await?;
    assert!(!lives(second));
    let log = fs::read_to_string(home.path("log.err"))?;
    assert!(
        log.contains("Shutdown complete"),
        "it was not asked to stop"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_outlives_its_member_is_adopted() -> Result<()> {
    let home = Home::with_data()?;
    let before = Supervised::start(home.options(&[]));
    let (pid, _) = before.runs().await?;
    // The member is killed while its mysqld still starts, before a pid file exists.
    before.task.abort();
    ensure!(before.task.await.is_err_and(|error| error.is_cancelled()));

    let after = Supervised::start(home.options(&[]));
    assert_eq!(after.runs().await?, (pid, true));
    home.connect().await?;
    assert_eq!(after.handle.status().borrow().starts, 0);
    // The supervisor also detects the end of an adopted mysqld.
    signal(pid, Signal::KILL)?;
    after.fails().await?;
    let (next, adopted) = after.runs().await?;
    ensure!(next != pid && !adopted);
    home.connect().await?;

    after.handle.leave().await;
    assert!(lives(next));
    let last = Supervised::start(home.options(&[]));
    assert_eq!(last.runs().await?, (next, true));
    last.stop().await?;
    // This process is the parent, and must detect the end too.
    eventually("it is gone", || Ok(!lives(next))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_whose_commits_wait_is_killed_rather_than_asked() -> Result<()> {
    let home = Home::with_data()?;
    let mut options = home.options(&[]);
    options.drain_limit = Duration::from_secs(2);
    let supervised = Supervised::start(options);
    supervised.runs().await?;
    let mut root = home.connect().await?;
    root.execute("SET GLOBAL read_only = OFF").await?;
    // No member acknowledges the commit.
    let waiting = tokio::spawn(async move {
        let commit = root
            .query_within("CREATE DATABASE nobody_acknowledged", 2 * LIMIT)
            .await;
        commit.map(|_| ())
    });
    tokio::time::sleep(A_WHILE).await;
    let began = Instant::now();
    supervised.stop().await?;
    assert!(began.elapsed() >= Duration::from_secs(2));
    let outcome = waiting.await?;
    assert!(
        matches!(outcome, Err(LinkError::Closed { .. })),
        "a commit succeeded without an ACK: {outcome:?}"
    );
    let log = fs::read_to_string(home.path("log.err"))?;
    assert!(!log.contains("Shutdown complete"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_finish_before_a_mysqld_is_asked_to_stop() -> Result<()> {
    let home = Home::with_data()?;
    let supervised = Supervised::start(home.options(&[]));
    supervised.runs().await?;
    let mut root = home.connect().await?;
    let ring = MemoryRing::new();
    ring.set_commits_at_once(false);
    ring.set_leadership(Leadership::Serving(Term(1)));
    let mut ingest = Running::start(&ring, IngestOptions::new(home.account(), requirements()));
    ingest.attached().await?;
    root.execute("SET GLOBAL read_only = OFF").await?;
    let waiting = tokio::spawn(async move {
        root.query_within("CREATE DATABASE acknowledged", LIMIT)
            .await
    });
    eventually("it is proposed", || Ok(!ring.sequence().is_empty())).await?;
    let late = Arc::clone(&ring);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        late.set_commits_at_once(true);
    });
    supervised.stop().await?;
    waiting.await??;
    let log = fs::read_to_string(home.path("log.err"))?;
    assert!(log.contains("Shutdown complete"), "it was killed");
    ingest.stop().await
}

/// Regression: an idle session delayed mysqld's stop by ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_idle_clients() -> Result<()> {
    let home = Home::with_data()?;
    let supervised = Supervised::start(home.options(&[]));
    supervised.runs().await?;
    let _idle = home.connect().await?;
    let log = home.path("log.err");
    supervised.stop().await?;
    let told = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    ensure!(!told.contains("Forcing close of thread"), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_does_not_start_is_explained() -> Result<()> {
    let home = Home::new()?;
    let mut options = home.options(&[]);
    options.may_initialise = false;
    let refused = Supervised::start(options);
    let cause = refused.fails().await?;
    assert!(cause.contains("mysql.initialize"), "{cause}");
    refused.stop().await?;

    // A partial initialisation, left by a killed member.
    fs::create_dir(home.path("data"))?;
    fs::write(home.path("data/.witness-initialising"), "")?;
    fs::write(home.path("data/ibdata1"), "half")?;
    let supervised = Supervised::start(home.options(&[]));
    supervised.runs().await?;
    home.connect().await?;
    supervised.stop().await?;

    let supervised = Supervised::start(home.options(&["--no-such-option=1"]));
    let cause = supervised.fails().await?;
    assert!(cause.contains("no-such-option"), "{cause}");
    supervised.stop().await?;

    let mut options = home.options(&[]);
    options.server.command = vec![Path::new("/no/such/mysqld").display().to_string()];
    let supervised = Supervised::start(options);
    let cause = supervised.fails().await?;
    assert!(cause.contains("/no/such/mysqld"), "{cause}");
    supervised.stop().await
}

/// mysqld was killed while InnoDB's redo log was disabled. The first error in its log is the cause, and four more follow.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_cannot_be_started_gets_a_new_data_directory() -> Result<()> {
    let home = Home::with_data()?;
    let mut options = home.options(&[]);
    options.may_initialise = false;
    let supervised = Supervised::start(options);
    let (first, _) = supervised.runs().await?;
    let mut connection = home.connect().await?;
    let disable = "ALTER INSTANCE DISABLE INNODB REDO_LOG";
    connection.execute(disable).await?;
    signal(first, Signal::KILL)?;
    let shows_cause = |state: &SupervisorState| match state {
        SupervisorState::Failed { cause } => cause.contains("MY-013598"),
        _ => false,
    };
    supervised.reaches(shows_cause).await?;

    ensure!(supervised.handle.initialise_new_data());
    let initialises = |state: &SupervisorState| *state == SupervisorState::Initialising;
    supervised.reaches(initialises).await?;
    supervised.runs().await?;
    home.connect().await?;
    let mut kept = Vec::new();
    for entry in fs::read_dir(home.folder.path())? {
        let entry = entry?;
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("data.unusable-")
        {
            kept.push(entry.path());
        }
    }
    ensure!(
        kept.len() == 1 && kept[0].join("ibdata1").exists(),
        "{kept:?}"
    );
    supervised.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_initialisation_of_mysqld_can_be_broken_off() -> Result<()> {
    let home = Home::new()?;
    let supervised = Supervised::start(home.options(&[]));
    supervised
        .reaches(|state| *state == SupervisorState::Initialising)
        .await?;
    eventually("it has begun", || Ok(home.path("data/ibdata1").exists())).await?;
    supervised.stop().await?;
    assert!(home.path("data/.witness-initialising").exists());
    assert!(!home.path("pid.init.sql").exists());
    Ok(())
}

/// Values persisted before the ring existed, or while the member did not run. mysqld prefers them to its command line.
pub(crate) const PERSIST: &str = "SET PERSIST super_read_only = OFF; SET PERSIST read_only = OFF; \
     SET PERSIST rpl_semi_sync_source_enabled = OFF; SET PERSIST sync_binlog = 0; SET PERSIST_ONLY skip_replica_start = OFF; \
     SET PERSIST max_connections = 77";

pub(crate) async fn persist(home: &Home) -> Result<()> {
    let mut connection = home.connect().await?;
    for statement in PERSIST.split("; ") {
        connection.execute(statement).await?;
    }
    connection.close().await;
    Ok(())
}

/// Checks that writes are blocked, commits wait, and other persisted values are in force.
pub(crate) async fn boots_closed(home: &Home) -> Result<()> {
    let mut connection = home.connect().await?;
    for (name, value) in [
        ("super_read_only", "1"),
        ("read_only", "1"),
        ("rpl_semi_sync_source_enabled", "1"),
        ("sync_binlog", "1"),
        ("skip_replica_start", "1"),
        ("max_connections", "77"),
    ] {
        let found = variable(&mut connection, name).await?;
        ensure!(found == value, "{name} is {found}");
    }
    let persisted =
        "SELECT GROUP_CONCAT(variable_name) FROM performance_schema.persisted_variables";
    let persisted = connection.query(persisted).await?;
    let left = persisted.first().and_then(|row| row.text_at(0));
    ensure!(left == Some("max_connections"), "{left:?} is persisted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_boots_closed_whatever_is_persisted() -> Result<()> {
    let home = Home::with_data()?;
    // This option file replaces `--no-defaults`, which would disable all persisted values.
    fs::write(home.path("my.cnf"), "[mysqld]\n")?;
    let file = format!("--defaults-file={}", home.path("my.cnf").display());
    let supervised = Supervised::start(home.options(&[&file]));
    let (first, _) = supervised.runs().await?;
    persist(&home).await?;
    supervised.handle.kill_and_restart();
    supervised
        .reaches(|state| matches!(state, SupervisorState::Running { pid, .. } if *pid != first))
        .await?;
    boots_closed(&home).await?;
    ensure!(supervised.handle.status().borrow().warning.is_none());
    supervised.stop().await
}
