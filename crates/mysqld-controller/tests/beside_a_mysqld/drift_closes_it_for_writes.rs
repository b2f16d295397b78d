//! Watcher, controller and ingest on a real mysqld: what opens the primary for writes, what closes it, and what the member reports.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use binlog_format::gtid::GtidSet;
use mysql_link::{Connection, DumpOptions, ReplicationStream};
use mysqld_controller::ControllerOptions;
use mysqld_controller::ProtectionStart;
use mysqld_controller::status::{WriteFenceState, WriteFenceStatus};
use mysqld_controller::watch::{Protection, WatchOptions, WatchReport, Watcher};
use mysqld_server::conversion;
use mysqld_server::events::{EventScheduler, EventsWanted};
use mysqld_server::settings::{Check, Requirements};
use mysqld_server::supervisor::ServerCommand;
use mysqld_server::tail_trim::TailTrimOptions;
use raft_types::{MemberId, Term};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::primary::{
    Controlled, LIMIT, Running, connect, controller_options, eventually, finish, ingest_options,
    launch, requirements, still_waits,
};
use crate::ring_in_memory::{Leadership, MemoryRing};

const TERM: Term = Term(2);

struct Member {
    ring: Arc<MemoryRing>,
    ingest: Running,
    reports: watch::Receiver<WatchReport>,
    write_fence: watch::Receiver<WriteFenceStatus>,
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    transferring: watch::Sender<bool>,
}

impl Member {
    fn start(server: &Mysqld, requirements: Requirements) -> Self {
        Self::start_patient(server, requirements, Duration::from_millis(500))
    }

    fn start_patient(server: &Mysqld, requirements: Requirements, patience: Duration) -> Self {
        Self::start_looking(server, requirements, patience, Duration::from_millis(200))
    }

    /// Starts a member whose watcher observes at each `interval`.
    fn start_looking(
        server: &Mysqld,
        requirements: Requirements,
        patience: Duration,
        interval: Duration,
    ) -> Self {
        Self::start_with(server, requirements, interval, |options| {
            options.fence_after = patience;
        })
    }

    fn start_with(
        server: &Mysqld,
        requirements: Requirements,
        interval: Duration,
        adjust: impl FnOnce(&mut ControllerOptions),
    ) -> Self {
        let ring = MemoryRing::new();
        let mut options = ingest_options(server);
        options.requirements = requirements.clone();
        let ingest = Running::start(&ring, options);
        let mut watching = WatchOptions::new(connect(&server.socket()), requirements);
        watching.interval = interval;
        let (watcher, reports) = Watcher::new(watching, ingest.status.clone(), ingest.readiness());
        let mut options = controller_options(connect(&server.socket()));
        adjust(&mut options);
        let Controlled {
            controller,
            status,
            transferring,
        } = Controlled::new(&ring, options, &reports, &ingest);
        let stop = CancellationToken::new();
        let tasks = vec![
            tokio::spawn(watcher.run(stop.clone())),
            tokio::spawn(controller.run(stop.clone())),
        ];
        Self {
            ring,
            ingest,
            reports,
            write_fence: status.write_fence,
            stop,
            tasks,
            transferring,
        }
    }

    async fn write_fence_is(
        &self,
        what: impl Fn(&WriteFenceState) -> bool,
    ) -> Result<WriteFenceState> {
        let mut write_fence = self.write_fence.clone();
        let reached =
            tokio::time::timeout(LIMIT, write_fence.wait_for(|status| what(&status.state))).await;
        match reached {
            Ok(status) => Ok(status?.state.clone()),
            Err(_) => anyhow::bail!(
                "the write fence is {:?}, {:?}",
                *self.write_fence.borrow(),
                *self.reports.borrow()
            ),
        }
    }

    async fn opens(&self) -> Result<()> {
        self.write_fence_is(|state| *state == WriteFenceState::Open)
            .await
            .map(|_| ())
    }

    async fn closes(&self, because: &str) -> Result<()> {
        self.write_fence_is(
            |state| matches!(state, WriteFenceState::Closed { why } if why.contains(because)),
        )
        .await
        .map(|_| ())
    }

    async fn unprotected(&self, check: Check) -> Result<String> {
        let mut reports = self.reports.clone();
        let finding = |report: &WatchReport| match &report.protection {
            Protection::Unprotected { findings } => findings
                .iter()
                .find(|finding| finding.check == check)
                .map(ToString::to_string),
            _ => None,
        };
        let reached =
            tokio::time::timeout(LIMIT, reports.wait_for(|report| finding(report).is_some())).await;
        match reached {
            Ok(report) => Ok(finding(&*report?).unwrap_or_default()),
            Err(_) => anyhow::bail!("{:?}", *self.reports.borrow()),
        }
    }

    async fn protected(&self) -> Result<()> {
        let mut reports = self.reports.clone();
        let reached = reports.wait_for(|report| report.protection.is_protected());
        tokio::time::timeout(LIMIT, reached).await??;
        Ok(())
    }

    /// Ends the member as a kill does: nothing is closed, and no goodbye is sent.
    async fn kill(self) {
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            let _ = task.await;
        }
        self.ingest.kill().await;
    }

    async fn stop(self) -> Result<()> {
        self.stop.cancel();
        for task in self.tasks {
            tokio::time::timeout(LIMIT, task).await??;
        }
        self.ingest.stop().await
    }
}

fn read_only(server: &Mysqld) -> Result<(bool, bool)> {
    let on = |name: &str| Ok::<_, anyhow::Error>(server.client().variable(name)? == "1");
    Ok((on("read_only")?, on("super_read_only")?))
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_is_open_while_its_member_leads() -> Result<()> {
    let mut server = launch(&[])?;
    server.client().sql("SET GLOBAL super_read_only = ON")?;
    let member = Member::start(&server, requirements());
    member.closes("does not lead").await?;
    assert_eq!(read_only(&server)?, (true, true));

    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    member.protected().await?;
    assert_eq!(read_only(&server)?, (false, false));
    finish(
        server
            .client()
            .start_sql("INSERT INTO d.t VALUES (1, '')")?,
    )
    .await?;

    member.ring.set_leadership(Leadership::Over);
    member.closes("does not lead").await?;
    assert_eq!(read_only(&server)?, (true, true));

    // In this test, silence is tolerated for half a second, and then closes the server too.
    member.ring.set_leadership(Leadership::Serving(Term(3)));
    member.opens().await?;
    member.ring.set_leadership(Leadership::Silent(Term(3)));
    member.closes("no quorum").await?;
    member.ring.set_leadership(Leadership::Serving(Term(3)));
    member.opens().await?;

    // mysqld restarts: it boots closed, as under the supervisor, and is opened again.
    server.kill()?;
    server.add_arguments(["--super-read-only=ON"]);
    server.start()?;
    eventually("it is open again", || {
        Ok(read_only(&server)? == (false, false))
    })
    .await?;
    member.opens().await?;
    member.stop().await?;
    assert_eq!(
        read_only(&server)?,
        (true, true),
        "a member that stops leaves it closed"
    );
    Ok(())
}

/// Regression: an observation in progress during the attachment counted as one after the attachment, and fixed settings were not checked
/// before the next second.
#[tokio::test(flavor = "multi_thread")]
async fn mysqld_is_opened_without_waiting_for_the_next_look() -> Result<()> {
    let server = launch(&[])?;
    server.client().sql("SET GLOBAL super_read_only = ON")?;
    let never = Duration::from_secs(3600);
    let patience = Duration::from_millis(500);
    let member = Member::start_looking(&server, requirements(), patience, never);
    member.closes("does not lead").await?;
    for term in 2..12 {
        // A follower's settings.
        server.client().sql("SET GLOBAL sync_binlog = 0")?;
        let leadership = Leadership::Serving(Term(term));
        member.ring.set_leadership(leadership);
        member.opens().await?;
        member.ring.set_leadership(Leadership::Over);
        member.closes("does not lead").await?;
    }
    member.stop().await
}

/// Regression: a primary whose commits would not wait also got the grace period, which is meant for commits that wait while a member
/// restarts.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_starts_beside_an_unprotected_mysqld_closes_it_at_once() -> Result<()> {
    let patience = LIMIT * 3;
    let server = launch(&[])?;
    let member = Member::start_patient(&server, requirements(), patience);
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    member.protected().await?;

    // The member restarts without changes in between. The server stays open, whatever the member observes first.
    member.kill().await;
    let member = Member::start_patient(&server, requirements(), patience);
    member.protected().await?;
    let seen = member.reports.borrow().looked_at;
    eventually("it was observed twice more", || {
        Ok(member.reports.borrow().looked_at > seen + Duration::from_millis(400))
    })
    .await?;
    assert_eq!(member.write_fence.borrow().state, WriteFenceState::Open);
    assert_eq!(read_only(&server)?, (false, false));

    // Semi-sync is switched off while the member is down.
    member.kill().await;
    server
        .client()
        .sql("SET GLOBAL rpl_semi_sync_source_enabled = OFF")?;
    let member = Member::start_patient(&server, requirements(), patience);
    member.closes("without the ring").await?;
    assert_eq!(read_only(&server)?, (true, true));

    // The member leads again, fixes the settings, and opens the server.
    member.ring.set_leadership(Leadership::Serving(Term(3)));
    member.opens().await?;
    assert_eq!(read_only(&server)?, (false, false));
    member.stop().await
}

/// The queries before opening may take long. If the server has begun to follow in the meantime, its commits no longer wait, so it must stay
/// closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_leadership_that_ends_while_mysqld_is_being_opened_opens_nothing() -> Result<()> {
    let server = launch(&[])?;
    let folder = tempfile::tempdir()?;
    let asked = folder.path().join("asked");
    let script = format!("touch {}; sleep 2", asked.display());
    let command = ServerCommand {
        command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        data_dir: folder.path().to_owned(),
        socket: server.socket(),
        port: None,
        pid_file: folder.path().join("pid"),
        error_log: folder.path().join("log"),
        // With this option, the member runs the program to read the options in force, which takes long here.
        extra_args: vec!["--defaults-file=any".to_owned()],
    };
    let scheduler = EventScheduler::new(folder.path(), EventsWanted::AsMysqld, Some(command))?;
    let interval = Duration::from_millis(200);
    let member = Member::start_with(&server, requirements(), interval, |options| {
        options.write_fence.events = Some(scheduler);
    });
    let elsewhere = Leadership::Elsewhere(MemberId(4));
    member.ring.set_leadership(elsewhere);
    member.closes("member 4 leads").await?;

    member.ring.set_leadership(Leadership::Serving(TERM));
    eventually("it is asked how mysqld is started", || Ok(asked.exists())).await?;
    member
        .write_fence_is(|state| matches!(state, WriteFenceState::Opening))
        .await?;
    let mut write_fence = member.write_fence.clone();
    member.ring.set_leadership(elsewhere);
    let decided = write_fence.wait_for(|status| {
        matches!(
            status.state,
            WriteFenceState::Open | WriteFenceState::Closed { .. }
        )
    });
    let decided = tokio::time::timeout(LIMIT, decided).await??.state.clone();
    assert!(
        matches!(decided, WriteFenceState::Closed { .. }),
        "{decided:?}"
    );
    assert_eq!(read_only(&server)?, (true, true));
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_is_closed_at_once_when_another_database_member_leads() -> Result<()> {
    let server = launch(&[])?;
    let member = Member::start_patient(&server, requirements(), LIMIT * 3);
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    // A witness that leads for a short time closes nothing.
    member.ring.set_leadership(Leadership::Over);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(read_only(&server)?, (false, false));
    member
        .ring
        .set_leadership(Leadership::Elsewhere(MemberId(4)));
    member.closes("member 4 leads").await?;
    assert_eq!(read_only(&server)?, (true, true));
    member.ring.set_leadership(Leadership::Serving(Term(5)));
    member.opens().await?;
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_close_in_mysqld_stays_closed() -> Result<()> {
    let server = launch(&[])?;
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    server.client().sql("SET GLOBAL super_read_only = ON")?;
    member.closes("another session").await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(read_only(&server)?, (true, true));
    server.client().sql("SET GLOBAL read_only = OFF")?;
    member.opens().await?;
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_in_mysqld_is_closed_and_mended() -> Result<()> {
    let server = launch(&[])?;
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    for (drift, name, back) in [
        (
            "1000",
            "rpl_semi_sync_source_timeout",
            "1000000000000000000",
        ),
        ("0", "sync_binlog", "1"),
        ("OFF", "rpl_semi_sync_source_enabled", "1"),
        (
            "'AFTER_COMMIT'",
            "rpl_semi_sync_source_wait_point",
            "AFTER_SYNC",
        ),
    ] {
        member.opens().await?;
        let opened = member.write_fence.borrow().since;
        server
            .client()
            .sql(&format!("SET GLOBAL {name} = {drift}"))?;
        eventually(
            "it is fixed",
            || Ok(server.client().variable(name)? == back),
        )
        .await?;
        // If the server was closed in the meantime, its last opening is newer.
        let reopened = || {
            let write_fence = member.write_fence.borrow();
            Ok(write_fence.state == WriteFenceState::Open && write_fence.since > opened)
        };
        eventually("it was closed, and is open again", reopened).await?;
        assert_eq!(read_only(&server)?, (false, false));
    }
    member.stop().await
}

/// Only mysqld can read an encrypted binlog file after a crash. Encryption does not let a commit complete without the ring.
#[tokio::test(flavor = "multi_thread")]
async fn a_binlog_that_mysqld_is_told_to_encrypt_is_told_of_while_it_is() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let tree = MysqlTree::require().with_keyring(folder.path())?;
    let server = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?;
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    let advice = || {
        let report = member.reports.borrow();
        let server = report.server.as_ref();
        server.map_or(Vec::new(), |server| server.advice.clone())
    };
    ensure!(advice().is_empty());
    let encrypts = |whether| format!("SET GLOBAL binlog_encryption = {whether}");
    server.client().sql(&encrypts("ON"))?;
    eventually("it is reported", || Ok(!advice().is_empty())).await?;
    ensure!(
        advice()[0].contains("SET PERSIST binlog_encryption = OFF"),
        "{:?}",
        advice()
    );
    ensure!(member.write_fence.borrow().state == WriteFenceState::Open);
    server.client().sql(&encrypts("OFF"))?;
    eventually("it is no longer reported", || Ok(advice().is_empty())).await?;
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_mysqld_does_not_log_are_warned_of() -> Result<()> {
    let server = launch(&[])?;
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    let statements = "SET sql_log_bin = 0; INSERT INTO d.t VALUES (1, ''); SELECT SLEEP(8)";
    let session = server.client().start_sql(statements)?;
    let warned = |report: &WatchReport| {
        let mut advice = report.server.iter().flat_map(|server| &server.advice);
        advice.any(|advice| advice.contains("set sql_log_bin ran at this primary (1, now by root@"))
    };
    let mut reports = member.reports.clone();
    tokio::time::timeout(LIMIT, reports.wait_for(warned)).await??;
    finish(session).await?;
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reset_of_a_mysqld_has_taken_out_of_its_gtids_is_seen() -> Result<()> {
    let server = launch(&[])?;
    let member = Member::start(&server, requirements());
    let lost = || {
        let report = member.reports.borrow();
        let server = report.server.as_ref();
        server.map(|server| server.lost.to_string())
    };
    eventually("it is observed", || Ok(lost().as_deref() == Some(""))).await?;
    let executed = || anyhow::Ok(server.client().gtid_executed()?.parse::<GtidSet>()?);
    let before = executed()?;
    server.client().sql("RESET BINARY LOGS AND GTIDS")?;
    let expected = before.difference(&executed()?).to_string();
    ensure!(!expected.is_empty());
    eventually("lost GTIDs are reported", || {
        Ok(lost() == Some(expected.clone()))
    })
    .await?;
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_in_mysqld_is_only_told_when_settings_are_not_managed() -> Result<()> {
    let server = launch(&[])?;
    server.client().sql(
        "SET GLOBAL rpl_semi_sync_source_timeout = 10000; SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )?;
    let requirements = Requirements {
        manage_settings: false,
        ..requirements()
    };
    let member = Member::start(&server, requirements.clone());
    member.ring.set_leadership(Leadership::Serving(TERM));
    let told = member.unprotected(Check::SemiSyncTimeout).await?;
    assert!(
        told.contains("rpl_semi_sync_source_timeout is 10000 ms"),
        "{told}"
    );
    assert!(
        told.contains("SET PERSIST rpl_semi_sync_source_timeout = "),
        "{told}"
    );
    member.closes("without the ring").await?;
    assert_eq!(
        server.client().variable("rpl_semi_sync_source_timeout")?,
        "10000"
    );
    for (name, drift, check) in [
        ("sync_binlog", "0", Check::SyncBinlog),
        (
            "rpl_semi_sync_source_wait_point",
            "'AFTER_COMMIT'",
            Check::SemiSyncWaitPoint,
        ),
    ] {
        let before = server.client().variable(name)?;
        server
            .client()
            .sql(&format!("SET GLOBAL {name} = {drift}"))?;
        let told = member.unprotected(check).await?;
        assert!(told.contains(&format!("SET PERSIST {name} = ")), "{told}");
        server
            .client()
            .sql(&format!("SET GLOBAL {name} = '{before}'").replace("'1'", "1"))?;
    }
    // The operator runs the recommended statement.
    let cache = requirements.max_cache_bytes();
    server.client().sql(&format!(
        "SET GLOBAL rpl_semi_sync_source_timeout = 1000000000000000000; SET GLOBAL max_binlog_cache_size = {cache}; \
         SET GLOBAL max_binlog_stmt_cache_size = {cache}"
    ))?;
    member.opens().await?;
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_hang_in_mysqld_do_not_hang_the_member() -> Result<()> {
    let server = launch(&[])?;
    let cache = requirements().max_cache_bytes();
    server.client().sql(&format!(
        "SET GLOBAL rpl_semi_sync_source_timeout = 1000000000000000000; SET GLOBAL max_binlog_cache_size = {cache}; \
         SET GLOBAL max_binlog_stmt_cache_size = {cache}; SET GLOBAL rpl_semi_sync_source_enabled = ON"
    ))?;
    let member = Member::start(
        &server,
        Requirements {
            manage_settings: false,
            ..requirements()
        },
    );
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    eventually("all came in", || {
        Ok(member.ring.gtids() == server.client().gtid_executed()?)
    })
    .await?;
    member.ring.set_commits_at_once(false);
    let mut waiting = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    still_waits(&mut waiting).await?;

    server.client().sql("SET GLOBAL sync_binlog = 0")?;
    member.unprotected(Check::SyncBinlog).await?;
    // The close waits for the commit, gives up, and reports that.
    let stuck = member
        .write_fence_is(|state| matches!(state, WriteFenceState::NotClosed { .. }))
        .await?;
    let WriteFenceState::NotClosed {
        cause, stuck_in, ..
    } = stuck
    else {
        unreachable!()
    };
    assert!(cause.contains("restore a quorum"), "{cause}");
    let looked_at = member
        .reports
        .borrow()
        .server
        .as_ref()
        .map(|server| server.incarnation);
    ensure!(
        stuck_in.is_some() && stuck_in == looked_at,
        "{stuck_in:?} {looked_at:?}"
    );
    // The watcher continues in the meantime.
    let seen = member.reports.borrow().looked_at;
    eventually("it observes again", || {
        Ok(member.reports.borrow().looked_at > seen)
    })
    .await?;
    let waits = member
        .reports
        .borrow()
        .server
        .as_ref()
        .map(|server| server.waiting_sessions);
    ensure!(waits == Some(1), "{waits:?}");
    still_waits(&mut waiting).await?;

    // The quorum is back: the commit completes, the server is closed, and it opens when the setting is corrected.
    member.ring.set_commits_at_once(true);
    finish(waiting).await?;
    member.closes("without the ring").await?;
    server.client().sql("SET GLOBAL sync_binlog = 1")?;
    member.opens().await?;
    member.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_else_who_acknowledges_in_mysqld_is_found() -> Result<()> {
    let server = launch(&[])?;
    // The check between observations must find this, not the next observation.
    let (patience, next_look) = (Duration::from_millis(500), Duration::from_secs(40));
    let member = Member::start_looking(&server, requirements(), patience, next_look);
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    let stranger = Uuid::from_u128(0xbad);
    let connection = Connection::open(&connect(&server.socket())).await?;
    let options = DumpOptions::new(4002, stranger, server.client().gtid_executed()?.parse()?);
    let mut stream = ReplicationStream::start(connection, &options).await?;
    let told = member.unprotected(Check::ForeignAcker).await?;
    assert!(told.contains(&stranger.to_string()), "{told}");
    let ended = async { while stream.next().await.is_ok() {} };
    tokio::time::timeout(LIMIT, ended).await?;
    member.closes("without the ring").await?;
    let warned = |report: &WatchReport| {
        let server = report.server.as_ref();
        server.is_some_and(|server| {
            server
                .advice
                .iter()
                .any(|advice| advice.contains(&stranger.to_string()))
        })
    };
    tokio::time::timeout(LIMIT, member.reports.clone().wait_for(warned)).await??;
    member.stop().await?;
    // mysqld detects at its next heartbeat that the foreign replica is gone.
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    member.stop().await
}

/// Before a leadership transfer, all writes are blocked, and waiting commits are acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_switchover_closes_it_for_writes_and_its_end_opens_it() -> Result<()> {
    let server = launch(&[])?;
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    member.transferring.send_replace(true);
    member.closes("planned switchover").await?;
    assert_eq!(server.client().variable("super_read_only")?, "1");
    member.transferring.send_replace(false);
    member.opens().await?;
    server.client().sql("INSERT INTO d.t VALUES (1, 'x')")?;
    member.stop().await
}

/// The values were persisted before the ring existed. The running server is unaffected, but its next start would be open, with commits that
/// do not wait for the ring.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_persisted_against_the_ring_is_taken_out_of_a_mysqld_that_runs() -> Result<()> {
    let server = launch(&[])?;
    let persist = "SET PERSIST super_read_only = OFF; SET PERSIST rpl_semi_sync_source_timeout = 10000; \
                   SET PERSIST sync_binlog = 0; SET PERSIST max_connections = 77";
    server.client().sql(persist)?;
    let persisted = || {
        server.client().value(
            "SELECT GROUP_CONCAT(variable_name ORDER BY variable_name) FROM performance_schema.persisted_variables",
        )
    };
    let not_ours = Requirements {
        manage_settings: false,
        ..requirements()
    };
    let look = conversion::look(&connect(&server.socket()), &not_ours).await?;
    for name in ["super_read_only", "sync_binlog"] {
        let told =
            |obstacle: &String| obstacle.contains(&format!("RESET PERSIST IF EXISTS {name}"));
        ensure!(look.obstacles.iter().any(told), "{:?}", look.obstacles);
    }
    let look = conversion::look(&connect(&server.socket()), &requirements()).await?;
    let told = [
        "rpl_semi_sync_source_timeout is persisted as 10000",
        "super_read_only is persisted as OFF",
        "sync_binlog is persisted as 0",
    ];
    assert_eq!(look.to_be_reset, told);
    let all = "max_connections,rpl_semi_sync_source_timeout,super_read_only,sync_binlog";
    assert_eq!(persisted()?, all);
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    eventually("only what matters not is left", || {
        Ok(persisted()? == "max_connections")
    })
    .await?;
    member.opens().await?;
    // A value that only affects the next start does not close the server.
    let opened = member.write_fence.borrow().since;
    server.client().sql(
        "SET PERSIST super_read_only = OFF; SET PERSIST_ONLY rpl_semi_sync_source_enabled = OFF",
    )?;
    eventually("it is taken out again", || {
        Ok(persisted()? == "max_connections")
    })
    .await?;
    assert_eq!(member.write_fence.borrow().since, opened);
    member.stop().await
}

/// In mode `attach`, another program starts mysqld.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_start_of_a_mysqld_is_persisted_to_be_closed_until_it_leaves_the_ring()
-> Result<()> {
    let server = launch(&[])?;
    let member = Member::start(
        &server,
        Requirements {
            starts_elsewhere: true,
            ..requirements()
        },
    );
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    let persisted = || {
        server.client().value(
            "SELECT IFNULL(GROUP_CONCAT(variable_name, '=', variable_value ORDER BY variable_name), '') \
             FROM performance_schema.persisted_variables",
        )
    };
    let expected = "read_only=ON,rpl_semi_sync_source_enabled=ON,rpl_semi_sync_source_timeout=1000000000000000000,\
                    rpl_semi_sync_source_wait_for_replica_count=1000,rpl_semi_sync_source_wait_no_replica=ON,\
                    rpl_semi_sync_source_wait_point=AFTER_SYNC,super_read_only=ON";
    eventually("its start is persisted", || Ok(persisted()? == expected)).await?;
    ensure!(server.client().variable("super_read_only")? == "0");
    member.stop().await?;
    let obstacles = async || {
        let requirements = Requirements {
            starts_elsewhere: true,
            manage_settings: false,
            ..requirements()
        };
        let look = conversion::look(&connect(&server.socket()), &requirements).await?;
        anyhow::Ok(look.obstacles.join("\n"))
    };
    let of_start = "SET PERSIST_ONLY super_read_only = ON";
    let persisted_still = obstacles().await?;
    ensure!(!persisted_still.contains(of_start), "{persisted_still}");
    conversion::steps::release_primary(&connect(&server.socket())).await?;
    ensure!(persisted()?.is_empty(), "{}", persisted()?);
    // A member that does not change settings refuses a primary whose next start would be open.
    let refused = obstacles().await?;
    ensure!(refused.contains(of_start), "{refused}");
    Ok(())
}

/// In mode `attach` without persisted settings, clients commit before the member closes the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_was_open_for_writes_is_told_with_what_the_ring_lacked() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("at-start.sql");
    std::fs::write(&script, "SELECT 1;\n")?;
    let mut server = launch(&[&format!("--init-file={}", script.display())])?;
    let member = Member::start(&server, requirements());
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    let started_open = || {
        let report = member.reports.borrow();
        report
            .server
            .as_ref()
            .and_then(|server| server.started_open)
    };
    ensure!(started_open().is_none(), "it was open before the member");
    let lacked = || {
        member
            .ingest
            .figures
            .view(tokio::time::Instant::now())
            .not_in_ring_total
    };
    let before = lacked();
    std::fs::write(&script, "INSERT INTO d.t VALUES (41, 'a client');\n")?;
    server.restart()?;
    member.opens().await?;
    eventually("the open start is reported", || {
        Ok(started_open() == Some(2))
    })
    .await?;
    assert_eq!(lacked() - before, 1);
    member.stop().await
}

/// After `witness enable-raft`, a running statement delays the close, and all settings become correct in the meantime.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_a_long_statement_keeps_open_becomes_one_whose_crash_is_trimmed() -> Result<()>
{
    let server = launch(&["--log-bin=binlog"])?;
    server.client().sql("INSERT INTO d.t VALUES (1, '')")?;
    let before = server.binlog_files()?;
    let member_dir = tempfile::tempdir()?;
    let command = ServerCommand {
        command: vec!["mysqld".to_owned()],
        data_dir: server.data_dir().to_owned(),
        socket: server.socket(),
        port: None,
        pid_file: "pid".into(),
        error_log: "log.err".into(),
        extra_args: vec!["--log-bin=binlog".to_owned()],
    };
    let statement = "UPDATE d.t SET v = CONCAT(v, SLEEP(6))";
    let long = server.client().start_sql(statement)?;
    let runs =
        format!("SELECT COUNT(*) FROM performance_schema.processlist WHERE info = '{statement}'");
    eventually("it runs", || Ok(server.client().value(&runs)? == "1")).await?;
    let member = Member::start_with(
        &server,
        requirements(),
        Duration::from_millis(200),
        |options| {
            let trim = TailTrimOptions::new(member_dir.path().to_owned(), command);
            options.write_fence.protection_start = Some(ProtectionStart(trim));
        },
    );
    member.ring.set_leadership(Leadership::Serving(TERM));
    member.opens().await?;
    eventually("a file is begun in which all wait", || {
        Ok(server.binlog_files()?.len() > before.len()
            && member_dir.path().join("mysqld-start.json").exists())
    })
    .await?;
    ensure!(
        server.client().value(&runs)? == "1",
        "the statement is over, and shows nothing"
    );
    finish(long).await?;
    let record = std::fs::read_to_string(member_dir.path().join("mysqld-start.json"))?;
    let last = before.last().and_then(|file| file.file_name()?.to_str());
    ensure!(record.contains(last.context("a file")?), "{record}");
    member.opens().await?;
    member.stop().await
}
