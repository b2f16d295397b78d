//! Waiting commits while the acknowledging member, the primary or the quorum fails and returns. Also primaries that do not belong to the
//! ring.

use anyhow::{Context, Result};
use binlog_format::gtid::{Gtid, GtidSet};
use mysql_link::{Connection, server_code};
use mysqld_controller::ingest::IngestState;
use mysqld_controller::watch::{WatchOptions, Watcher};
use raft_types::Term;
use std::time::Duration;
use testkit::mysqld::Mysqld;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::primary::{
    A_WHILE, LIMIT, Running, connect, eventually, finish, ingest_options, launch, requirements,
    still_waits, visible,
};
use crate::ring_in_memory::{Leadership, MemoryRing};

const TERM: Term = Term(2);

async fn attached(server: &Mysqld) -> Result<(std::sync::Arc<MemoryRing>, Running)> {
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(server));
    ingest.attached().await?;
    eventually("the ring has what was there", || {
        Ok(ring.gtids() == server.client().gtid_executed()?)
    })
    .await?;
    Ok((ring, ingest))
}

/// The acknowledging member dies, and commits wait. A new one attaches. It releases commits that the ring has committed in the meantime,
/// and not a transaction that is only in the log.
#[tokio::test(flavor = "multi_thread")]
async fn an_acker_that_comes_back_releases_what_waits_in_mysqld() -> Result<()> {
    let server = launch(&[])?;
    let (ring, ingest) = attached(&server).await?;
    ring.set_commits_at_once(false);
    let before = ring.last_index().expect("entries");
    let first = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    eventually("the first is proposed", || {
        Ok(ring.last_index() == Some(before + 1))
    })
    .await?;
    let mut second = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (2, '')")?;
    eventually("the second is proposed", || {
        Ok(ring.last_index() == Some(before + 2))
    })
    .await?;
    ingest.stop().await?;
    // The ACK for the first transaction is lost.
    ring.commit_up_to(before + 1);
    let mut third = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (3, '')")?;
    still_waits(&mut third).await?;

    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    eventually("the third is proposed", || {
        Ok(ring.last_index() == Some(before + 3))
    })
    .await?;
    // The log of this attachment is not committed completely, so even the first transaction must wait.
    still_waits(&mut second).await?;
    still_waits(&mut third).await?;
    ring.commit_up_to(before + 2);
    finish(first).await?;
    // The second and third transactions queued after the first, so they are one commit group in mysqld, and wait for the ACK of the group's
    // last transaction.
    still_waits(&mut second).await?;
    still_waits(&mut third).await?;
    ring.commit_up_to(before + 3);
    finish(second).await?;
    finish(third).await?;
    // These two transactions, and the ones before them.
    assert_eq!(ingest.figures.view(Instant::now()).known_total, 3);
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    ingest.stop().await
}

/// A transaction is in the log, and an earlier one is not. The ACK for the later one would also release the earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_log_is_not_acknowledged_to_mysqld() -> Result<()> {
    let server = launch(&[])?;
    let (ring, ingest) = attached(&server).await?;
    ring.set_commits_at_once(false);
    let before = ring.last_index().expect("entries");
    let mut first = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    eventually("the first is proposed", || {
        Ok(ring.last_index() == Some(before + 1))
    })
    .await?;
    let missing: Gtid = *ring.sequence().last().expect("the first");
    let mut second = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (2, '')")?;
    eventually("the second is proposed", || {
        Ok(ring.last_index() == Some(before + 2))
    })
    .await?;
    ingest.stop().await?;
    ring.forget(&missing);
    ring.commit_up_to(before + 2);

    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    eventually("the first is proposed again", || {
        Ok(ring.sequence().last() == Some(&missing))
    })
    .await?;
    still_waits(&mut first).await?;
    still_waits(&mut second).await?;
    assert!(!visible(&server, 1)? && !visible(&server, 2)?);
    ring.commit_up_to(u64::MAX);
    finish(first).await?;
    finish(second).await?;
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_restarts_is_attached_to_again() -> Result<()> {
    let mut server = launch(&[])?;
    let (ring, mut ingest) = attached(&server).await?;
    finish(
        server
            .client()
            .start_sql("INSERT INTO d.t VALUES (1, '')")?,
    )
    .await?;
    server.kill()?;
    let cause = ingest.failed().await?;
    assert!(!cause.is_empty());
    server.start()?;
    ingest.attached().await?;
    // The values of `SET GLOBAL` are lost at a restart, and set again.
    assert_eq!(
        server.client().variable("rpl_semi_sync_source_enabled")?,
        "1"
    );
    assert_eq!(
        server.client().variable("rpl_semi_sync_source_timeout")?,
        "1000000000000000000"
    );
    finish(
        server
            .client()
            .start_sql("INSERT INTO d.t VALUES (2, '')")?,
    )
    .await?;
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    assert_eq!(ingest.figures.view(Instant::now()).attachments_total, 2);
    ingest.stop().await
}

/// mysqld crashes while commits wait. Recovery commits all transactions in the binlog, and the ring has only some of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_crashes_while_commits_wait() -> Result<()> {
    let mut server = launch(&[])?;
    let (ring, mut ingest) = attached(&server).await?;
    ring.set_commits_at_once(false);
    let before = ring.last_index().expect("entries");
    let waiting = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    eventually("it is proposed", || {
        Ok(ring.last_index() == Some(before + 1))
    })
    .await?;
    server.kill()?;
    drop(waiting);
    server.start()?;
    // A proposal of the previous attachment has no outcome yet, and could still fail.
    ingest
        .reaches(|state| matches!(state, IngestState::Settling { proposals: 1 }))
        .await?;
    ring.set_commits_at_once(true);
    ingest.attached().await?;
    assert!(visible(&server, 1)?);
    finish(
        server
            .client()
            .start_sql("INSERT INTO d.t VALUES (2, '')")?,
    )
    .await?;
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_quorum_keeps_mysqld_waiting() -> Result<()> {
    let server = launch(&[])?;
    let (ring, mut ingest) = attached(&server).await?;
    ring.set_commits_at_once(false);
    ring.set_leadership(Leadership::Silent(TERM));
    let mut waiting = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    still_waits(&mut waiting).await?;
    assert!(
        ingest.status.borrow().is_attached(),
        "it stays attached, so that commits continue immediately"
    );
    ring.set_commits_at_once(true);
    ring.set_leadership(Leadership::Serving(TERM));
    finish(waiting).await?;
    ingest.attached().await?;
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_of_another_history_is_refused() -> Result<()> {
    let server = launch(&[])?;
    let client = server.client();
    let ring = MemoryRing::new();
    ring.invent("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-3");
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    let cause = ingest.failed().await?;
    assert!(
        cause.contains(
            "mysqld lacks committed transactions aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-3"
        ),
        "{cause}"
    );
    ingest.stop().await?;

    client.sql(
        "FLUSH BINARY LOGS; PURGE BINARY LOGS TO 'binlog.000002'; INSERT INTO d.t VALUES (1, '')",
    )?;
    let purged: GtidSet = client.variable("gtid_purged")?.parse()?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    let cause = ingest.failed().await?;
    assert!(
        cause.contains(&format!("mysqld has purged binlogs with {purged}")),
        "{cause}"
    );
    assert!(ring.entries().is_empty());
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_blocks_an_attachment_to_mysqld_is_named() -> Result<()> {
    let server = launch(&["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    let cause = ingest.failed().await?;
    assert!(
        cause.contains("gtid_mode is OFF") && cause.contains("SET PERSIST gtid_mode = ON"),
        "{cause}"
    );
    ingest.stop().await?;

    server
        .client()
        .sql("CREATE USER poor IDENTIFIED BY 'x'; GRANT REPLICATION CLIENT ON *.* TO poor")?;
    let mut options = ingest_options(&server);
    options.connect.user = "poor".to_owned();
    options.connect.password = "x".into();
    let mut ingest = Running::start(&ring, options.clone());
    let cause = ingest.failed().await?;
    assert!(
        cause.contains("GRANT REPLICATION SLAVE ON *.* TO 'poor'@'%'"),
        "{cause}"
    );
    ingest.stop().await?;

    options.connect.password = "wrong".into();
    let mut ingest = Running::start(&ring, options);
    let cause = ingest.failed().await?;
    assert!(cause.contains("refuses user `poor`"), "{cause}");
    ingest.stop().await
}

/// mysqld begins a new file only when no commit of a storage engine waits, and holds the binlog's lock until then. No step on the path to
/// an ACK may need that lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_wants_to_rotate_while_commits_wait_is_attached_to() -> Result<()> {
    let server = launch(&[])?;
    let (ring, ingest) = attached(&server).await?;
    ring.set_commits_at_once(false);
    let before = ring.last_index().expect("entries");
    let mut commit = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    eventually("it is proposed", || {
        Ok(ring.last_index() == Some(before + 1))
    })
    .await?;
    ingest.stop().await?;
    let mut rotation = server.client().start_sql("FLUSH BINARY LOGS")?;
    still_waits(&mut commit).await?;
    still_waits(&mut rotation).await?;

    ring.set_commits_at_once(true);
    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    finish(commit).await?;
    finish(rotation).await?;
    finish(
        server
            .client()
            .start_sql("INSERT INTO d.t VALUES (2, '')")?,
    )
    .await?;
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    ingest.stop().await
}

/// `FLUSH BINARY LOGS` does not wait for transactions that are not prepared in a storage engine, and the new file's previous GTIDs omit
/// these waiting transactions. A dump that begins in the new file skips them, and the next ACK would release them.
async fn what_waits_in_a_file_that_was_ended_comes(before: &str, waiting: &str) -> Result<()> {
    let server = launch(&[])?;
    let client = server.client();
    client.sql("CREATE TABLE d.m (id INT) ENGINE = MyISAM")?;
    let (ring, ingest) = attached(&server).await?;
    finish(client.start_sql(before)?).await?;
    ingest.stop().await?;
    let executed = client.gtid_executed()?;
    let mut waits = client.start_sql(waiting)?;
    eventually("it waits", || {
        Ok(!client.variable("gtid_owned")?.is_empty())
    })
    .await?;
    for _ in 0..2 {
        finish(client.start_sql("FLUSH BINARY LOGS")?).await?;
    }
    still_waits(&mut waits).await?;
    assert_eq!(client.gtid_executed()?, executed);

    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    finish(waits).await?;
    finish(client.start_sql("INSERT INTO d.t VALUES (2, '')")?).await?;
    assert_eq!(ring.gtids(), client.gtid_executed()?);
    assert_eq!(ingest.figures.view(Instant::now()).attachments_total, 1);
    ingest.stop().await
}

const PREPARED: &str = "XA START 'x'; INSERT INTO d.t VALUES (1, ''); XA END 'x'; XA PREPARE 'x'";

#[tokio::test(flavor = "multi_thread")]
async fn an_xa_commit_in_a_file_that_mysqld_has_ended_comes() -> Result<()> {
    what_waits_in_a_file_that_was_ended_comes(PREPARED, "XA COMMIT 'x'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_xa_rollback_in_a_file_that_mysqld_has_ended_comes() -> Result<()> {
    what_waits_in_a_file_that_was_ended_comes(PREPARED, "XA ROLLBACK 'x'").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_myisam_in_a_file_that_mysqld_has_ended_comes() -> Result<()> {
    let before = "INSERT INTO d.t VALUES (1, '')";
    what_waits_in_a_file_that_was_ended_comes(before, "INSERT INTO d.m VALUES (1)").await
}

/// mysqld skips a waiting transaction, because no earlier file exists. It is never acknowledged, and neither are later transactions.
#[tokio::test(flavor = "multi_thread")]
async fn what_mysqld_passes_over_is_not_let_through() -> Result<()> {
    let server = launch(&[])?;
    let client = server.client();
    client.sql("CREATE TABLE d.m (id INT) ENGINE = MyISAM")?;
    let (ring, ingest) = attached(&server).await?;
    ingest.stop().await?;
    client.sql("FLUSH BINARY LOGS")?;
    let executed = client.gtid_executed()?;
    // The dump of a member that has just died keeps the file until the dump ends.
    eventually("the file is purged", || {
        client.sql("PURGE BINARY LOGS TO 'binlog.000002'")?;
        Ok(client.variable("gtid_purged")? == executed)
    })
    .await?;
    let mut waits = client.start_sql("INSERT INTO d.m VALUES (1)")?;
    eventually("it waits", || {
        Ok(!client.variable("gtid_owned")?.is_empty())
    })
    .await?;
    finish(client.start_sql("FLUSH BINARY LOGS")?).await?;

    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    let mut newer = client.start_sql("INSERT INTO d.t VALUES (2, '')")?;
    let cause = ingest.failed().await?;
    assert!(
        cause.contains("mysqld did not send") && cause.contains(&client.variable("server_uuid")?),
        "{cause}"
    );
    still_waits(&mut waits).await?;
    still_waits(&mut newer).await?;
    assert_eq!(client.gtid_executed()?, executed);
    assert_eq!(ring.gtids(), executed);
    ingest.stop().await
}

/// After `RESET BINARY LOGS AND GTIDS`, mysqld numbers from 1 again. A new primary then assigns all GTIDs of the ring again.
#[tokio::test(flavor = "multi_thread")]
async fn gtids_that_mysqld_gives_again_are_not_the_rings() -> Result<()> {
    let server = launch(&[])?;
    let (ring, mut ingest) = attached(&server).await?;
    let client = server.client();
    // The dump is in the second file, whose number no longer exists after the reset.
    client.sql("FLUSH BINARY LOGS; INSERT INTO d.t VALUES (9, '')")?;
    assert_eq!(ring.sequence().len(), 3);
    client.sql("RESET BINARY LOGS AND GTIDS")?;
    ingest.failed().await?;
    let mut waiting = Vec::new();
    for id in 1..=3 {
        waiting.push(client.start_sql(&format!("INSERT INTO d.t VALUES ({id}, '')"))?);
    }
    let wait_sessions = || client.status("Rpl_semi_sync_source_wait_sessions");
    eventually("one waits", || Ok(wait_sessions()? != "0")).await?;
    ingest
        .reaches(|state| matches!(state, IngestState::Failed { cause } if cause.contains("mysqld has given")))
        .await?;
    for pending in &mut waiting {
        still_waits(pending).await?;
    }
    assert_eq!(ring.sequence().len(), 3);
    ingest.stop().await
}

/// Commits hang and clients use all connections. The acknowledging member must be able to log in nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_without_a_free_connection_is_attached_to() -> Result<()> {
    let server = launch(&["--max-connections=10"])?;
    server
        .client()
        .sql("CREATE USER client; GRANT ALL ON d.* TO client")?;
    let (ring, ingest) = attached(&server).await?;
    ingest.stop().await?;
    let mut client = connect(&server.socket());
    client.user = "client".to_owned();
    let gone = || Ok(server.client().status("Rpl_semi_sync_source_clients")? == "0");
    eventually("mysqld sees the acker go", gone).await?;
    let mut clients = Vec::new();
    let refused = loop {
        let mut connection = match Connection::open(&client).await {
            Ok(connection) => connection,
            Err(error) => break error,
        };
        let insert = format!("INSERT INTO d.t VALUES ({}, '')", clients.len());
        clients.push(tokio::spawn(async move {
            connection.query_within(&insert, LIMIT).await.map(|_| ())
        }));
    };
    assert_eq!(
        refused.server_code(),
        Some(server_code::TOO_MANY_CONNECTIONS)
    );
    assert!(clients.len() >= 8, "{}", clients.len());

    let mut ingest = Running::start(&ring, ingest_options(&server));
    let mut options = WatchOptions::new(connect(&server.socket()), requirements());
    options.interval = Duration::from_millis(100);
    let (watcher, _reports) = Watcher::new(options, ingest.status.clone(), ingest.readiness());
    let stop = CancellationToken::new();
    let watching = tokio::spawn(watcher.run(stop.clone()));
    ingest.attached().await?;
    for client in clients {
        client.await??;
    }
    stop.cancel();
    watching.await?;
    ingest.stop().await
}

/// A ring is created on a primary with earlier transactions. Commits wait only after the ring has these transactions.
#[tokio::test(flavor = "multi_thread")]
async fn the_past_of_a_mysqld_comes_in_before_its_commits_wait() -> Result<()> {
    let server = launch(&[])?;
    let client = server.client();
    let past: String = (0..50)
        .map(|id| format!("INSERT INTO d.t VALUES ({id}, '');"))
        .collect();
    client.sql(&past)?;
    let ring = MemoryRing::new();
    ring.set_commits_at_once(false);
    ring.set_leadership(Leadership::Serving(TERM));
    let mut options = ingest_options(&server);
    // Only a part of the earlier transactions fits into the in-flight limit.
    options.in_flight_bytes = 4096;
    let mut ingest = Running::start(&ring, options);
    ingest
        .reaches(|state| *state == IngestState::CatchingUp)
        .await?;
    tokio::time::sleep(A_WHILE).await;
    assert!(
        ring.sequence().len() < 20,
        "what is in flight is not bounded"
    );
    assert_eq!(client.variable("rpl_semi_sync_source_enabled")?, "0");
    finish(client.start_sql("INSERT INTO d.t VALUES (100, '')")?).await?;
    ring.set_commits_at_once(true);
    ingest.attached().await?;
    assert_eq!(client.variable("rpl_semi_sync_source_enabled")?, "1");
    finish(client.start_sql("INSERT INTO d.t VALUES (101, '')")?).await?;
    assert_eq!(ring.gtids(), client.gtid_executed()?);
    ingest.stop().await
}

/// No login succeeds while `CREATE USER` waits. If a dump breaks then, an existing session starts it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_that_breaks_while_nobody_can_log_in_comes_back() -> Result<()> {
    let server = launch(&[])?;
    // With an account that has only the required privileges, more statements hang than with all privileges.
    server.client().sql(
        "CREATE USER w IDENTIFIED BY 'w'; GRANT REPLICATION SLAVE, REPLICATION CLIENT, SYSTEM_VARIABLES_ADMIN, \
         CONNECTION_ADMIN ON *.* TO w; GRANT SELECT ON performance_schema.* TO w",
    )?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut options = ingest_options(&server);
    options.connect.user = "w".to_owned();
    options.connect.password = "w".into();
    let mut ingest = Running::start(&ring, options);
    ingest.attached().await?;
    let sessions = |like: &str| {
        format!(
            "SELECT IF(COUNT(*) = 2, MIN(t.processlist_id), '') FROM performance_schema.session_connect_attrs a \
             JOIN performance_schema.threads t ON t.processlist_id = a.processlist_id WHERE attr_name = 'program_name' \
             AND attr_value = '{like}'"
        )
    };
    eventually("a session for each dump is kept in reserve", || {
        Ok(!server
            .client()
            .value(&sessions("witness-reserve"))?
            .is_empty())
    })
    .await?;
    let dump = server.client().value(&sessions("witness-ingest"))?;
    let mut early = Connection::open(&connect(&server.socket())).await?;

    ring.set_commits_at_once(false);
    let before = ring.last_index().expect("entries");
    let waiting = server.client().start_sql("CREATE USER late")?;
    eventually("it is proposed", || {
        Ok(ring.last_index() == Some(before + 1))
    })
    .await?;
    let broke = Instant::now();
    early.execute(&format!("KILL {dump}")).await?;
    ingest.failed().await?;
    ring.set_commits_at_once(true);
    let ended = finish(waiting).await;
    ended.with_context(|| format!("{:?}", *ingest.status.borrow()))?;
    println!(
        "the statement ended {:?} after the dump broke",
        broke.elapsed()
    );
    ingest.attached().await?;
    assert_eq!(ingest.figures.view(Instant::now()).attachments_total, 2);
    finish(
        server
            .client()
            .start_sql("INSERT INTO d.t VALUES (1, '')")?,
    )
    .await?;
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    ingest.stop().await
}
