//! What happens to waiting commits when the acker, the primary or the quorum goes away and comes
//! back; and primaries that do not belong to the ring.

use std::time::Instant;

use anyhow::Result;
use binlog_format::gtid::{Gtid, GtidSet};
use mysql_role::LeaderTerm;
use mysql_role::ingest::IngestState;
use testkit::mysqld::Mysqld;

use crate::primary::{Running, eventually, finish, ingest_options, launch, still_waits, visible};
use crate::ring_in_memory::{Leadership, MemoryRing};

const TERM: LeaderTerm = LeaderTerm(2);

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

/// The acker dies; commits wait. Another one comes: what the ring committed meanwhile is released,
/// what it has not committed is not, although its GTID is in the log.
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
    // The ACK for the first is lost this way.
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
    // The log as it was at this attachment is not committed as a whole: even the first has to wait.
    still_waits(&mut second).await?;
    still_waits(&mut third).await?;
    ring.commit_up_to(before + 2);
    finish(first).await?;
    // The second and the third queued up behind the first, so they are one group to mysqld, and wait
    // for the ACK of its last one.
    still_waits(&mut second).await?;
    still_waits(&mut third).await?;
    ring.commit_up_to(before + 3);
    finish(second).await?;
    finish(third).await?;
    assert_eq!(ingest.figures.view(Instant::now()).known_total, 2);
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    ingest.stop().await
}

/// A transaction is in the log while one before it is not: the ACK of the one must not cover the other.
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
    // What it was told with SET GLOBAL is lost at a restart, and set again.
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

/// A crash with commits that wait: recovery commits what stands in the binlog, the ring has a part of it.
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
    ingest.failed().await?;
    server.start()?;
    // The proposal of the attachment before is not decided: it could still come to nothing.
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
        "it stays attached, so that commits go on at once"
    );
    ring.set_commits_at_once(true);
    finish(waiting).await?;
    ring.set_leadership(Leadership::Serving(TERM));
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
        cause.contains("the primary lacks aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-3"),
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
        cause.contains(&format!("the ring lacks {purged}")),
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
