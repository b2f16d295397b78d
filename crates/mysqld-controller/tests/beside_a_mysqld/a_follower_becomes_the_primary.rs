//! A mysqld that follows: obstacles that must not prevent its promotion, and data that the promotion must not lose.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use mysql_link::{Connection, DumpError, DumpOptions, ReplicationStream, Secret};
use mysqld_controller::apply::FollowOptions;
use mysqld_controller::status::{RoleState, RoleStatus, WaitingFor};
use mysqld_controller::watch::{WatchOptions, Watcher};
use mysqld_server::sessions::backup_lock::backup_under_way;
use mysqld_server::standing::StandingFile;
use mysqld_server::{ReplicationSource, SourceTls};
use raft_types::{MemberId, Term};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::primary::{
    Controlled, LIMIT, Running, connect, controller_options, eventually, ingest_options, launch,
    requirements,
};
use crate::ring_in_memory::{Leadership, MemoryRing};

const TERM: Term = Term(2);

/// A server that has all of the ring's log and follows it.
struct Follower {
    server: Mysqld,
    ring: Arc<MemoryRing>,
    role: watch::Receiver<RoleStatus>,
    ingest: Running,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    _member_dir: tempfile::TempDir,
}

impl Follower {
    async fn start(adjust: impl FnOnce(&mut FollowOptions)) -> Result<Self> {
        Self::of(launch(&[])?, adjust).await
    }

    async fn of(server: Mysqld, adjust: impl FnOnce(&mut FollowOptions)) -> Result<Self> {
        let follower = Self::begin(server, adjust)?;
        follower.is(|state| *state == RoleState::Following).await?;
        Ok(follower)
    }

    /// Prepares a follower on a server that may never begin to follow.
    fn begin(server: Mysqld, adjust: impl FnOnce(&mut FollowOptions)) -> Result<Self> {
        let ring = MemoryRing::new();
        ring.invent(&server.client().gtid_executed()?);
        ring.set_leadership(Leadership::Elsewhere(MemberId(2)));
        Self::begin_in(ring, server, adjust)
    }

    fn begin_in(
        ring: Arc<MemoryRing>,
        server: Mysqld,
        adjust: impl FnOnce(&mut FollowOptions),
    ) -> Result<Self> {
        let account = connect(&server.socket());
        let ingest = Running::start(&ring, ingest_options(&server));
        let mut watching = WatchOptions::new(account.clone(), requirements());
        watching.interval = Duration::from_millis(200);
        let (watcher, reports) = Watcher::new(watching, ingest.status.clone(), ingest.readiness());
        let member_dir = tempfile::tempdir()?;
        let mut follow = FollowOptions::new(account.clone(), member_dir.path());
        adjust(&mut follow);
        let mut options = controller_options(account);
        options.apply = Some(follow);
        let Controlled {
            controller,
            mut status,
            ..
        } = Controlled::new(&ring, options, &reports, &ingest);
        let role = status.role.take().expect("it is applied to");
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn(watcher.run(stop.clone())),
            tokio::spawn(controller.run(stop.clone())),
        ];
        Ok(Self {
            server,
            ring,
            role,
            ingest,
            stop,
            tasks,
            _member_dir: member_dir,
        })
    }

    async fn is_stopped_because(&self, what: &str) -> Result<()> {
        let stopped =
            self.is(|state| matches!(state, RoleState::Stopped { cause } if cause.contains(what)));
        stopped.await.map(|_| ())
    }

    /// Returns whether the replica threads that follow the ring run.
    fn threads_run(&self) -> Result<bool> {
        let running = "SELECT COUNT(*) FROM performance_schema.replication_applier_status WHERE channel_name = 'witness' AND \
             service_state = 'ON'";
        Ok(self.server.client().value(running)? == "1")
    }

    async fn is(&self, what: impl Fn(&RoleState) -> bool) -> Result<RoleState> {
        let mut watched = self.role.clone();
        let reached = watched.wait_for(|role| what(&role.state));
        match tokio::time::timeout(LIMIT, reached).await {
            Ok(role) => Ok(role?.state.clone()),
            Err(_) => anyhow::bail!("it is {:?}", *self.role.borrow()),
        }
    }

    fn binlog_files(&self) -> Result<String> {
        self.server
            .client()
            .value("SELECT COUNT(*) FROM performance_schema.file_instances WHERE FILE_NAME REGEXP 'binlog.[0-9]+$'")
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        for task in self.tasks {
            task.await?;
        }
        self.ingest.stop().await
    }
}

/// A backup may run for hours on the server to be promoted, so the promotion ends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_does_not_keep_a_follower_from_being_the_primary() -> Result<()> {
    let follower = Follower::start(|_| {}).await?;
    let account = connect(&follower.server.socket());
    let backup = "LOCK INSTANCE FOR BACKUP; SELECT SLEEP(1000)";
    let backup = follower.server.client().start_sql(backup)?;
    let deadline = tokio::time::Instant::now() + LIMIT;
    let mut session = Connection::open(&account).await?;
    while backup_under_way(&mut session).await.is_none() {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "no backup is seen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    follower.ring.set_leadership(Leadership::Serving(TERM));
    follower.is(|state| *state == RoleState::Primary).await?;
    let ended = tokio::task::spawn_blocking(move || backup.finish(LIMIT)).await?;
    assert!(ended.is_err(), "the backup continues");
    follower.end().await
}

/// If no session may be killed, the promotion is retried, and no attempt leaves a binlog file.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_may_not_be_killed_is_named_and_no_file_is_begun_meanwhile() -> Result<()> {
    let follower = Follower::start(|options| options.kill_after = None).await?;
    let before = follower.binlog_files()?;
    let backup = "LOCK INSTANCE FOR BACKUP; SELECT SLEEP(1000)";
    let backup = follower.server.client().start_sql(backup)?;
    let locked =
        "SELECT COUNT(*) FROM performance_schema.metadata_locks WHERE OBJECT_TYPE = 'BACKUP LOCK'";
    eventually("the backup has its lock", || {
        Ok(follower.server.client().value(locked)? == "1")
    })
    .await?;
    follower.ring.set_leadership(Leadership::Serving(TERM));
    let waits = follower
        .is(|state| matches!(state, RoleState::Waiting { what: WaitingFor::Step(what) } if what.contains("LOCK INSTANCE FOR BACKUP")));
    waits.await?;
    // Time for more attempts.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(follower.binlog_files()?, before);
    let session = follower
        .server
        .client()
        .value("SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_INFO LIKE 'SELECT SLEEP%'")?;
    follower.server.client().sql(&format!("KILL {session}"))?;
    follower.is(|state| *state == RoleState::Primary).await?;
    drop(backup);
    follower.end().await
}

/// Opens an idle session of `program` that has run these statements.
async fn idle(server: &Mysqld, program: &str, statements: &[&str]) -> Result<Connection> {
    let mut account = connect(&server.socket());
    account.program_name = program.to_owned();
    account.timeouts.statement = LIMIT * 3;
    let mut session = Connection::open(&account).await?;
    for statement in statements {
        session.execute(*statement).await?;
    }
    Ok(session)
}

/// Runs a statement that mysqld attributes to the applier.
async fn applied(server: &Mysqld, statement: &'static str) -> Result<JoinHandle<bool>> {
    let first = ["SET sql_log_bin = 0", "BEGIN"];
    let mut session = idle(server, "witness-applier", &first).await?;
    Ok(tokio::spawn(async move {
        let done = session.execute(statement).await;
        let _ = session.execute("ROLLBACK").await;
        done.is_ok()
    }))
}

/// Each holder of a lock that the applier waits for is killed, and no other session.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_locked_what_the_applier_waits_for_is_killed_and_nobody_else() -> Result<()> {
    let follower =
        Follower::start(|options| options.kill_after = Some(Duration::from_secs(3))).await?;
    let server = &follower.server;
    server.client().sql(
        "SET sql_log_bin = 0; CREATE TABLE d.a (i INT PRIMARY KEY); CREATE TABLE d.b (i INT PRIMARY KEY); CREATE TABLE d.c LIKE d.b; \
         CREATE TABLE d.e LIKE d.b; CREATE TABLE d.f LIKE d.b; CREATE TABLE d.g LIKE d.b; INSERT INTO d.b VALUES (1), (2)",
    )?;
    let reader = async |statements: &[&str]| idle(server, "reader", statements).await;
    let in_the_way = [
        (
            reader(&["BEGIN", "SELECT * FROM d.a"]).await?,
            "ALTER TABLE d.a ADD j INT",
        ),
        (
            reader(&["BEGIN", "SELECT * FROM d.b WHERE i = 1 FOR SHARE"]).await?,
            "DELETE FROM d.b WHERE i = 1",
        ),
        (
            reader(&["LOCK TABLES d.c READ"]).await?,
            "INSERT INTO d.c VALUES (1)",
        ),
        (
            reader(&["FLUSH TABLES d.e FOR EXPORT"]).await?,
            "INSERT INTO d.e VALUES (1)",
        ),
    ];
    // Sessions that lock other rows, use a compatible lock mode or a named lock, and one of the member's own.
    let bystanders = [
        reader(&["BEGIN", "SELECT * FROM d.b WHERE i = 2 FOR SHARE"]).await?,
        reader(&["BEGIN", "SELECT * FROM d.c"]).await?,
        reader(&["DO GET_LOCK('applier', 1)"]).await?,
        idle(server, "witness-ingest", &["BEGIN", "SELECT * FROM d.g"]).await?,
    ];
    let mut own = applied(server, "ALTER TABLE d.g ADD j INT").await?;
    let mut waiting = Vec::new();
    for (_, statement) in &in_the_way {
        waiting.push(applied(server, statement).await?);
    }
    // The ring has a transaction that never arrives, so the promotion stays incomplete.
    follower
        .ring
        .invent("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1");
    tokio::time::sleep(Duration::from_secs(4)).await;
    anyhow::ensure!(
        waiting.iter().all(|waiting| !waiting.is_finished()),
        "killed while it follows"
    );
    follower.ring.set_leadership(Leadership::Serving(TERM));
    let mut role = follower.role.clone();
    let named = role.wait_for(|role| role.held_up.by.len() == in_the_way.len());
    let words = tokio::time::timeout(LIMIT, named)
        .await??
        .held_up
        .by
        .join("\n");
    for named in [
        "table d.a: `ALTER TABLE d.a ADD j INT`",
        "rows of d.b: `DELETE FROM d.b",
        "table d.c",
        "table d.e",
        "`root`@`localhost`",
    ] {
        anyhow::ensure!(words.contains(named), "{words}");
    }
    for waiting in waiting {
        anyhow::ensure!(
            tokio::time::timeout(LIMIT, waiting).await??,
            "it was not applied"
        );
    }
    for (mut killed, statement) in in_the_way {
        anyhow::ensure!(killed.query("SELECT 1").await.is_err(), "{statement}");
    }
    anyhow::ensure!(!own.is_finished(), "the member's own session was killed");
    for mut bystander in bystanders {
        bystander.query("SELECT 1").await?;
        bystander.close().await;
    }
    anyhow::ensure!(
        tokio::time::timeout(LIMIT, &mut own).await??,
        "it was not applied"
    );
    // A session that waits for a table delays a lock of all tables, so this lock is tested last.
    for (wide, statement) in [
        ("FLUSH TABLES WITH READ LOCK", "INSERT INTO d.f VALUES (1)"),
        ("LOCK INSTANCE FOR BACKUP", "CREATE TABLE d.h LIKE d.f"),
    ] {
        let mut killed = reader(&[wide]).await?;
        let waiting = applied(server, statement).await?;
        anyhow::ensure!(tokio::time::timeout(LIMIT, waiting).await??, "{wide}");
        anyhow::ensure!(killed.query("SELECT 1").await.is_err(), "{wide}");
    }
    follower.end().await
}

/// The next transaction of the log.
const NEXT: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1";

/// Opens a client's session that owns the GTID of the next transaction.
async fn owner(server: &Mysqld) -> Result<Connection> {
    let set = format!("SET gtid_next = '{NEXT}'");
    idle(server, "reports", &[&set, "BEGIN"]).await
}

/// mysqld applies the transaction with an owned GTID in no other session, and reports no lock.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_a_gtid_of_the_log_is_named_and_killed_at_the_limit() -> Result<()> {
    let follower =
        Follower::start(|options| options.kill_after = Some(Duration::from_secs(3))).await?;
    let mut owner = owner(&follower.server).await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    anyhow::ensure!(
        follower.role.borrow().held_up.by.is_empty(),
        "named before the log has the transaction"
    );
    follower.ring.invent(NEXT);
    let mut role = follower.role.clone();
    let named = role.wait_for(|role| {
        let mut words = role.held_up.by.iter();
        words.any(|words| words.contains(&format!("owns the GTID {NEXT}: ")))
    });
    tokio::time::timeout(LIMIT, named).await??;
    owner.query("SELECT 1").await?;
    follower.ring.set_leadership(Leadership::Serving(TERM));
    let deadline = tokio::time::Instant::now() + LIMIT;
    while owner.query("SELECT 1").await.is_ok() {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "it is not killed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let applied = format!("SET gtid_next = '{NEXT}'; BEGIN; COMMIT");
    follower.server.client().sql(&applied)?;
    follower.is(|state| *state == RoleState::Primary).await?;
    follower.end().await
}

/// Regression: after a restart of a former follower's member, an owned GTID counted as a commit that waits for its ACK.
#[tokio::test(flavor = "multi_thread")]
async fn an_owned_gtid_of_the_log_does_not_count_as_executed_at_a_former_follower() -> Result<()> {
    let server = launch(&[])?;
    let mut owner = owner(&server).await?;
    let ring = MemoryRing::new();
    ring.invent(&server.client().gtid_executed()?);
    ring.invent(NEXT);
    ring.set_leadership(Leadership::Serving(TERM));
    let member_dir = tempfile::tempdir()?;
    let standing = r#"{"is": "following"}"#;
    std::fs::write(member_dir.path().join("mysqld-standing.json"), standing)?;
    let follower = Follower::begin_in(ring, server, |options| {
        options.standing = StandingFile::of(member_dir.path());
        options.kill_after = None;
    })?;
    follower
        .is(|state| matches!(state, RoleState::CatchingUp { lacks: 1 }))
        .await?;
    owner.execute("COMMIT").await?;
    follower.is(|state| *state == RoleState::Primary).await?;
    follower.end().await
}

/// Replica threads also write under `super_read_only`, and the ring would not notice that.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_is_not_the_members_is_stopped_at_a_follower() -> Result<()> {
    let options = MysqldOptions::with_server_id(77);
    let source = Mysqld::launch_with(&MysqlTree::require(), options)?;
    source.client().create_replication_user()?;
    let server = launch(&[])?;
    server.replicate_from(&source, false)?;
    let client = server.client();
    client.wait_for_gtids(&source.client().gtid_executed()?, LIMIT)?;
    let follower = Follower::of(server, |_| {}).await?;
    let runs = "SELECT COUNT(*) FROM performance_schema.replication_applier_status WHERE service_state = 'ON'";
    anyhow::ensure!(client.value(runs)? == "0", "it runs at a follower");
    source.client().sql("CREATE SCHEMA errant")?;
    client.sql("STOP REPLICA; START REPLICA IO_THREAD")?;
    let stopped = "SELECT COUNT(*) FROM performance_schema.replication_connection_status WHERE service_state <> 'OFF'";
    eventually("what is started is stopped", || {
        Ok(client.value(stopped)? == "0")
    })
    .await?;
    let came = client
        .value("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'errant'")?;
    anyhow::ensure!(came == "0", "it wrote at a follower");
    follower.end().await
}

/// Starts a server on which an applier has run before.
fn with_the_applier_s_row() -> Result<Mysqld> {
    let server = launch(&[])?;
    server.client().sql(
        "SET sql_log_bin = 0; CREATE DATABASE witness_applier; CREATE TABLE witness_applier.checkpoint (id TINYINT UNSIGNED NOT NULL \
         PRIMARY KEY, n BIGINT UNSIGNED NOT NULL, gtids MEDIUMTEXT CHARACTER SET ascii NOT NULL); \
         INSERT INTO witness_applier.checkpoint VALUES (1, 1, '')",
    )?;
    Ok(server)
}

const LOCKED: &str = "SELECT * FROM witness_applier.checkpoint WHERE id = 1 FOR UPDATE";

/// One of the member's own sessions locks the applier's checkpoint row, which each batch writes. The session is found like other lock
/// holders, and reported once it has held the row for long. It is not killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_the_member_that_keeps_the_applier_s_row_is_named() -> Result<()> {
    let follower = Follower::of(with_the_applier_s_row()?, |options| {
        options.kill_after = Some(Duration::from_secs(1));
        options.own_after = Duration::from_secs(6);
    })
    .await?;
    let server = &follower.server;
    eventually("the applier has begun", || {
        let number = "SELECT n FROM witness_applier.checkpoint";
        Ok(server.client().value(number)? != "1")
    })
    .await?;
    let mut own = idle(server, "witness-lost", &["BEGIN", LOCKED]).await?;
    let began = tokio::time::Instant::now();
    let waiting = applied(
        server,
        "UPDATE witness_applier.checkpoint SET n = 0 WHERE id = 1",
    )
    .await?;
    follower
        .ring
        .invent("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1");
    follower.ring.set_leadership(Leadership::Serving(TERM));
    let mut role = follower.role.clone();
    let named = role.wait_for(|role| !role.held_up.by.is_empty());
    let words = tokio::time::timeout(LIMIT, named)
        .await??
        .held_up
        .by
        .join("\n");
    anyhow::ensure!(
        began.elapsed() > Duration::from_secs(5),
        "a batch has it for a moment, too"
    );
    let session = format!(
        "session {} of `root`@`localhost` has locked rows of witness_applier.checkpoint",
        own.id()
    );
    anyhow::ensure!(
        words.contains(&session) && words.contains("the member's own"),
        "{words}"
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    own.query("SELECT 1").await?;
    own.execute("ROLLBACK").await?;
    anyhow::ensure!(
        tokio::time::timeout(LIMIT, waiting).await??,
        "it was not applied"
    );
    follower.end().await
}

/// The applier begins by writing its checkpoint row, and its lag is unknown at that time.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_keeps_the_applier_from_beginning_is_named() -> Result<()> {
    let server = with_the_applier_s_row()?;
    let mut reader = idle(&server, "reports", &["BEGIN", LOCKED]).await?;
    let follower = Follower::begin(server, |_| {})?;
    let mut role = follower.role.clone();
    let named = role.wait_for(|role| !role.held_up.by.is_empty());
    let words = tokio::time::timeout(LIMIT, named)
        .await??
        .held_up
        .by
        .join("\n");
    let session = format!(
        "session {} of `root`@`localhost` has locked rows of witness_applier.checkpoint",
        reader.id()
    );
    anyhow::ensure!(words.contains(&session), "{words}");
    reader.query("SELECT 1").await?;
    reader.execute("ROLLBACK").await?;
    let free = role.wait_for(|role| role.held_up.by.is_empty());
    tokio::time::timeout(LIMIT, free).await??;
    follower.end().await
}

/// `FLUSH TABLES WITH READ LOCK` does not prevent opening a follower that has caught up, but would block every write afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_global_read_lock_is_gone_before_a_follower_is_the_primary() -> Result<()> {
    let follower = Follower::start(|_| {}).await?;
    let mut backup = idle(&follower.server, "backup", &["FLUSH TABLES WITH READ LOCK"]).await?;
    let mut session = Connection::open(&connect(&follower.server.socket())).await?;
    let seen = backup_under_way(&mut session).await.unwrap_or_default();
    anyhow::ensure!(seen.contains("FLUSH TABLES WITH READ LOCK"), "{seen}");
    follower.ring.set_leadership(Leadership::Serving(TERM));
    follower.is(|state| *state == RoleState::Primary).await?;
    anyhow::ensure!(backup.query("SELECT 1").await.is_err(), "it is locked");
    follower.end().await
}

/// Makes the follower use replica threads, with a source that does not exist.
fn by_replica_threads(options: &mut FollowOptions) {
    options.retry = Duration::from_millis(200);
    options.native = Some(ReplicationSource {
        host: "127.0.0.1".to_owned(),
        port: 1,
        user: "replica".to_owned(),
        password: Secret::new("password"),
        tls: SourceTls::Off,
    });
}

/// A server whose replica threads filter would be complete by its GTIDs, and would be promoted.
#[tokio::test(flavor = "multi_thread")]
async fn replica_threads_with_a_filter_do_not_follow() -> Result<()> {
    let server = launch(&[
        "--replicate-wild-ignore-table=d.%",
        "--replica-exec-mode=IDEMPOTENT",
    ])?;
    let follower = Follower::begin(server, by_replica_threads)?;
    follower
        .is_stopped_because("replicate-wild-ignore-table=d.%")
        .await?;
    assert!(!follower.threads_run()?);
    let client = follower.server.client();
    client.sql("CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ()")?;
    let follows =
        || Ok(follower.threads_run()? && client.variable("replica_exec_mode")? == "STRICT");
    eventually("it follows, and passes over nothing", follows).await?;
    // The replica threads also stop if they get a filter while they run.
    client.sql(
        "STOP REPLICA SQL_THREAD FOR CHANNEL 'witness'; CHANGE REPLICATION FILTER REPLICATE_DO_DB = (e) FOR CHANNEL 'witness'; \
         START REPLICA SQL_THREAD FOR CHANNEL 'witness'",
    )?;
    follower
        .is(|state| matches!(state, RoleState::Stopped { .. }))
        .await?;
    // The channel is created again, without the filter.
    eventually("it follows again", || follower.threads_run()).await?;
    follower.end().await
}

/// A server that skips errors follows neither by replica threads nor by the applier, whose statements skip rows in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_skips_errors_does_not_follow() -> Result<()> {
    let by_the_applier = |options: &mut FollowOptions| options.retry = Duration::from_millis(200);
    for adjust in [by_replica_threads, by_the_applier] {
        let server = launch(&["--replica-skip-errors=1032,1062"])?;
        let follower = Follower::begin(server, adjust)?;
        follower
            .is_stopped_because("replica_skip_errors=1032,1062")
            .await?;
        follower.end().await?;
    }
    Ok(())
}

/// A reader that is connected before the server follows could write once the server is the primary.
#[tokio::test(flavor = "multi_thread")]
async fn no_session_of_a_follower_goes_on_logging_statements() -> Result<()> {
    let server = launch(&["--binlog-format=STATEMENT"])?;
    let mut account = connect(&server.socket());
    account.program_name = "reader".to_owned();
    let mut reader = Connection::open(&account).await?;
    reader.query("SELECT 1").await?;
    let follower = Follower::begin(server, |_| {})?;
    follower.is(|state| *state == RoleState::Following).await?;
    assert!(reader.query("SELECT 1").await.is_err(), "it is connected");
    let mut reader = Connection::open(&account).await?;
    let format = reader.query("SELECT @@SESSION.binlog_format").await?;
    assert_eq!(format.first().and_then(|row| row.text_at(0)), Some("ROW"));
    follower.end().await
}

/// A binlog file names GTIDs whose rows are only in InnoDB, so its redo log must be durable.
#[tokio::test(flavor = "multi_thread")]
async fn a_followers_redo_log_is_forced_whatever_it_was_set_to() -> Result<()> {
    let follower = Follower::start(|_| {}).await?;
    let client = follower.server.client();
    let forced = || Ok(client.variable("innodb_flush_log_at_trx_commit")? == "1");
    client.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2")?;
    eventually("the redo log is forced again", forced).await?;
    follower.end().await
}

/// At the first use of a MEMORY table after a restart of the follower, mysqld empties the table in a transaction.
#[tokio::test(flavor = "multi_thread")]
async fn what_mysqld_does_about_a_table_in_memory_is_told_from_what_clients_have_written()
-> Result<()> {
    let mut server = launch(&[])?;
    server
        .client()
        .sql("CREATE TABLE d.m (i INT PRIMARY KEY) ENGINE = MEMORY; INSERT INTO d.m VALUES (1)")?;
    server.stop()?;
    server.start()?;
    let follower = Follower::of(server, |options| {
        options.tidy_every = Duration::from_millis(200);
    })
    .await?;
    follower.server.client().sql("SELECT COUNT(*) FROM d.m")?;
    let stopped = |state: &RoleState| matches!(state, RoleState::Stopped { .. });
    let RoleState::Stopped { cause } = follower.is(stopped).await? else {
        anyhow::bail!("it continues");
    };
    anyhow::ensure!(
        cause.contains("No client has written them") && cause.contains("`d`.`m`. At the primary"),
        "{cause}"
    );
    // Any other transaction is not attributed to a MEMORY table.
    follower
        .server
        .client()
        .sql("SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF; CREATE TABLE d.own (i INT PRIMARY KEY)")?;
    let other = |state: &RoleState| matches!(state, RoleState::Stopped { cause } if cause.contains("Clients may have been told"));
    follower.is(other).await?;
    follower.end().await
}

/// Starts a dump for a replica that has everything except `lacks`.
async fn dump_without(
    server: &Mysqld,
    lacks: &str,
) -> Result<Result<ReplicationStream, DumpError>> {
    let have = format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{lacks}')");
    let have = server.client().value(&have)?.parse()?;
    let options = DumpOptions {
        semi_sync: false,
        register: false,
        heartbeat: Duration::from_millis(200),
        ..DumpOptions::new(77, Uuid::from_u128(77), have)
    };
    let reader = idle(server, "a replica", &[]).await?;
    Ok(ReplicationStream::start(reader, &options).await)
}

/// For DDL, statements and XA, a follower's binlog has empty transactions. A replica would receive their GTIDs without their changes.
#[tokio::test(flavor = "multi_thread")]
async fn no_replica_gets_the_empty_transactions_of_a_follower() -> Result<()> {
    const DDL: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1";
    let follower = Follower::start(|_| {}).await?;
    let server = &follower.server;
    let mut attached = dump_without(server, "").await??;
    let ended = async { while attached.next().await.is_ok() {} };
    tokio::time::timeout(LIMIT, ended).await?;

    follower.ring.invent(DDL);
    server
        .client()
        .sql(&format!("SET gtid_next = '{DDL}'; BEGIN; COMMIT"))?;
    let purged = format!("SELECT GTID_SUBSET('{DDL}', @@GLOBAL.gtid_purged)");
    eventually("it is in no file", || {
        Ok(server.client().value(&purged)? == "1")
    })
    .await?;
    let refusal = match dump_without(server, DDL).await? {
        Ok(mut stream) => loop {
            if let Err(refusal) = stream.next().await {
                break refusal;
            }
        },
        Err(refusal) => refusal,
    };
    anyhow::ensure!(refusal.to_string().contains("purged"), "{refusal}");
    follower.end().await
}

/// mysqld keeps a binlog file that a dump reads, and does not report that.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_is_stuck_keeps_no_file_of_a_follower() -> Result<()> {
    let server = launch(&[])?;
    server.client().sql(
        "CREATE TABLE d.large (a LONGBLOB); INSERT INTO d.large VALUES (REPEAT('x', 20000000)); FLUSH BINARY LOGS",
    )?;
    let all = server.client().gtid_executed()?;
    let follower = Follower::of(server, |options| {
        options.tidy_every = Duration::from_secs(3600)
    })
    .await?;
    // This dump reads the first events, and no more.
    let stuck = dump_without(&follower.server, &all).await??;
    follower.ring.set_leadership(Leadership::Serving(TERM));
    follower.is(|state| *state == RoleState::Primary).await?;
    anyhow::ensure!(
        follower.binlog_files()? == "1",
        "{}",
        follower.binlog_files()?
    );
    drop(stuck);
    follower.end().await
}
