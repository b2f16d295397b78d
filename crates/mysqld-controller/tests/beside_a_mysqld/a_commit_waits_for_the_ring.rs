//! Ingest between a real mysqld and a ring in memory that commits when the test requests it.

use anyhow::{Result, ensure};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::TransactionFramer;
use binlog_format::gtid::GtidSet;
use mysql_link::{Connection, DumpOptions, ReplicationStream};
use mysqld_controller::ingest::IngestState;
use mysqld_server::settings::native_grants;
use raft_types::{AppEntry, MAX_TRANSACTION_BYTES, Term};
use testkit::mysqld::Mysqld;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::primary::{
    A_WHILE, Running, connect, eventually, finish, ingest_options, launch, still_waits, visible,
};
use crate::ring_in_memory::{Leadership, MemoryRing};

const TERM: Term = Term(2);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_by_mysqld_before_the_ring_commits() -> Result<()> {
    let server = launch(&[])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    eventually("the ring has what was there before", || {
        Ok(ring.gtids() == server.client().gtid_executed()?)
    })
    .await?;

    ring.set_commits_at_once(false);
    let before = ring.last_index().expect("entries");
    let mut first = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    eventually("the first is in the log", || {
        Ok(ring.last_index() == Some(before + 1))
    })
    .await?;
    let mut second = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (2, '')")?;
    let mut third = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (3, '')")?;
    eventually("all three are in the log", || {
        Ok(ring.last_index() == Some(before + 3))
    })
    .await?;
    still_waits(&mut first).await?;
    for id in 1..=3 {
        assert!(
            !visible(&server, id)?,
            "{id} is visible before the ring has it"
        );
    }
    let age = ingest.figures.view(Instant::now()).oldest_unacknowledged;
    assert!(age.is_some_and(|age| age >= A_WHILE), "{age:?}");

    ring.commit_up_to(before + 1);
    finish(first).await?;
    still_waits(&mut second).await?;
    still_waits(&mut third).await?;
    // One ACK releases both transactions.
    let acks = ingest.figures.view(Instant::now()).acks_total;
    ring.commit_up_to(before + 3);
    finish(second).await?;
    finish(third).await?;
    assert!(visible(&server, 2)? && visible(&server, 3)?);
    let figures = ingest.figures.view(Instant::now());
    assert!(figures.acks_total <= acks + 2);
    assert_eq!(figures.oldest_unacknowledged, None);
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    assert_eq!(
        server.client().status("Rpl_semi_sync_source_no_tx")?,
        "0",
        "a commit completed without an ACK"
    );
    ingest.stop().await
}

/// A stock replica, which acknowledges everything that it receives.
async fn other_replica(server: &Mysqld, server_id: u32) -> Result<JoinHandle<Result<()>>> {
    let connection = Connection::open(&connect(&server.socket())).await?;
    let uuid = Uuid::from_u128(server_id.into());
    let have = server.client().gtid_executed()?.parse()?;
    let options = DumpOptions::new(server_id, uuid, have);
    let dump = ReplicationStream::start(connection, &options).await?;
    Ok(tokio::spawn(acknowledge_all(dump)))
}

async fn acknowledge_all(mut dump: ReplicationStream) -> Result<()> {
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, MAX_TRANSACTION_BYTES);
    loop {
        let event = dump.next().await?;
        framer.push(&event.event)?;
        if event.ack_wanted {
            dump.ack(framer.position()).await?;
        }
    }
}

const ACKS: &str = "rpl_semi_sync_source_wait_for_replica_count";

#[tokio::test(flavor = "multi_thread")]
async fn other_semi_sync_replicas_of_mysqld_release_no_commit() -> Result<()> {
    let server = launch(&[])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    ring.set_commits_at_once(false);
    let before = ring.last_index().expect("entries");
    let mut waiting = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    let proposed = || Ok(ring.last_index() == Some(before + 1));
    eventually("it is proposed", proposed).await?;
    let first = other_replica(&server, 4002).await?;
    still_waits(&mut waiting).await?;
    ensure!(!first.is_finished());

    ring.set_leadership(Leadership::Over);
    let raised = || Ok(server.client().variable(ACKS)? == "1000");
    eventually("no replicas send so many ACKs", raised).await?;
    for server_id in 4003..4006 {
        other_replica(&server, server_id).await?;
    }
    still_waits(&mut waiting).await?;
    ensure!(!visible(&server, 1)?);
    let attached = || Ok(server.client().status("Rpl_semi_sync_source_clients")? == "4");
    eventually("only other replicas are attached", attached).await?;
    ensure!(!waiting.is_finished()?);

    ring.set_commits_at_once(true);
    ring.set_leadership(Leadership::Serving(Term(3)));
    ingest.attached().await?;
    finish(waiting).await?;
    ensure!(server.client().variable(ACKS)? == "2");
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_quorum_answers_no_replicas_of_mysqld_release_a_commit() -> Result<()> {
    let server = launch(&[])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    let acks_are =
        async |acks| eventually(acks, || Ok(server.client().variable(ACKS)? == acks)).await;
    acks_are("2").await?;
    ring.set_commits_at_once(false);
    ring.set_leadership(Leadership::Silent(TERM));
    acks_are("1000").await?;
    let mut waiting = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    for server_id in 4002..4005 {
        other_replica(&server, server_id).await?;
    }
    still_waits(&mut waiting).await?;
    ensure!(!visible(&server, 1)?);
    // Logins block from now on, and the number of ACKs is lowered nevertheless.
    let mut account = server.client().start_sql("CREATE USER other")?;
    still_waits(&mut account).await?;

    ring.set_leadership(Leadership::Serving(TERM));
    still_waits(&mut account).await?;
    ring.set_commits_at_once(true);
    finish(waiting).await?;
    finish(account).await?;
    acks_are("2").await?;
    ensure!(ring.gtids() == server.client().gtid_executed()?);
    ingest.stop().await
}

/// Without SUPER, a raised number of ACKs can be lowered only after the statement about accounts has ended.
#[tokio::test(flavor = "multi_thread")]
async fn without_super_a_mysqld_goes_on_behind_a_statement_about_accounts() -> Result<()> {
    let server = launch(&[])?;
    let account = format!(
        "CREATE USER member@localhost; {}",
        native_grants("member@localhost").join("; ")
    );
    server.client().sql(&account)?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut options = ingest_options(&server);
    options.connect.user = "member".to_owned();
    let mut ingest = Running::start(&ring, options);
    ingest.attached().await?;
    ring.set_commits_at_once(false);
    ring.set_leadership(Leadership::Silent(TERM));
    let mut account = server.client().start_sql("CREATE USER other")?;
    still_waits(&mut account).await?;
    ring.set_leadership(Leadership::Serving(TERM));
    ring.set_commits_at_once(true);
    finish(account).await?;
    ensure!(server.client().variable(ACKS)? == "2");
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sessions_of_mysqld_in_order_and_none_twice() -> Result<()> {
    const SESSIONS: u32 = 8;
    const EACH: u32 = 40;
    let server = launch(&[])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    let work: Vec<_> = (0..SESSIONS)
        .map(|session| {
            let inserts =
                (0..EACH).map(|i| format!("INSERT INTO d.t VALUES ({}, '');", session * EACH + i));
            server.client().start_sql(&inserts.collect::<String>())
        })
        .collect::<Result<_>>()?;
    for session in work {
        finish(session).await?;
    }
    assert_eq!(
        server.client().value("SELECT COUNT(*) FROM d.t")?,
        (SESSIONS * EACH).to_string()
    );
    let sequence = ring.sequence();
    assert!(
        sequence.is_sorted(),
        "the log is not in the order of the primary's binlog"
    );
    assert_eq!(ring.gtids(), server.client().gtid_executed()?);
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_compression_large_and_odd_transactions_of_mysqld() -> Result<()> {
    const LARGE: usize = 20 << 20;
    let server = launch(&["--max-allowed-packet=64M"])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut ingest = Running::start(&ring, ingest_options(&server));
    ingest.attached().await?;
    for statements in [
        "SET gtid_next = 'AUTOMATIC:blue'; INSERT INTO d.t VALUES (1, '')".to_owned(),
        "SET binlog_transaction_compression = ON; INSERT INTO d.t VALUES (2, REPEAT('c', 100000))".to_owned(),
        format!("INSERT INTO d.t VALUES (3, REPEAT('l', {LARGE}))"),
        format!("SET binlog_transaction_compression = ON; INSERT INTO d.t VALUES (4, REPEAT('l', {LARGE}))"),
        "CREATE TABLE d.other (id INT PRIMARY KEY) AS SELECT id FROM d.t; CREATE USER other".to_owned(),
        "XA START 'x'; INSERT INTO d.t VALUES (5, ''); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'".to_owned(),
        "XA START 'y'; INSERT INTO d.t VALUES (6, ''); XA END 'y'; XA COMMIT 'y' ONE PHASE".to_owned(),
        "SET gtid_next = 'aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:red:17'; BEGIN; COMMIT".to_owned(),
        "CREATE TABLE d.isam (id INT) ENGINE = MyISAM; INSERT INTO d.isam VALUES (1); FLUSH BINARY LOGS".to_owned(),
        "INSERT INTO d.t VALUES (7, '')".to_owned(),
    ] {
        finish(server.client().start_sql(&statements)?).await?;
    }
    let executed: GtidSet = server.client().gtid_executed()?.parse()?;
    assert!(executed.has_tags());
    eventually("the ring has all", || {
        Ok(ring.gtids() == executed.to_string())
    })
    .await?;
    let sizes: Vec<usize> = ring
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            AppEntry::Transaction(payload) => Some(payload.bytes().len()),
            AppEntry::Rotate(_) => None,
        })
        .collect();
    assert!(sizes.iter().any(|size| *size > LARGE), "{sizes:?}");
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_rotates_by_format_and_by_size_with_mysqld() -> Result<()> {
    let server = launch(&[])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut options = ingest_options(&server);
    // The ring in memory counts 100 bytes for each transaction.
    options.file_limits.bytes = 500;
    let mut ingest = Running::start(&ring, options);
    ingest.attached().await?;
    eventually("what was there came in", || Ok(ring.sequence().len() == 2)).await?;
    assert_eq!(
        ring.rotations(),
        1,
        "the primary's format is not the built-in one"
    );
    assert!(matches!(ring.entries().first(), Some(AppEntry::Rotate(_))));
    for id in 0..10 {
        insert(&server, id).await?;
    }
    // Twelve transactions in files of five.
    assert_eq!(ring.rotations(), 3);
    ingest.stop().await
}

async fn insert(server: &Mysqld, id: u32) -> Result<()> {
    let insert = format!("INSERT INTO d.t VALUES ({id}, '')");
    finish(server.client().start_sql(&insert)?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_log_ends_where_mysqld_numbers_its_transactions_anew() -> Result<()> {
    let mut server = launch(&[])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let attach = async |server: &Mysqld| {
        let mut ingest = Running::start(&ring, ingest_options(server));
        ingest.attached().await.map(|()| ingest)
    };
    let ingest = attach(&server).await?;
    insert(&server, 1).await?;
    // An empty file of the primary does not cause a new file of the ring.
    server
        .client()
        .sql("FLUSH BINARY LOGS; FLUSH BINARY LOGS")?;
    insert(&server, 2).await?;
    insert(&server, 3).await?;
    ingest.stop().await?;

    // The first attachment continues in the same file of the primary, the second one does not.
    let ingest = attach(&server).await?;
    insert(&server, 4).await?;
    ingest.stop().await?;
    server.client().sql("FLUSH BINARY LOGS")?;
    let mut ingest = attach(&server).await?;
    insert(&server, 5).await?;

    server.kill()?;
    ingest.failed().await?;
    server.start()?;
    ingest.attached().await?;
    insert(&server, 6).await?;
    insert(&server, 7).await?;
    let numbers = ring.sequence_numbers();
    assert_eq!(
        numbers,
        [vec![], vec![1, 2, 3], vec![1, 2, 3], vec![1], vec![1, 2]],
        "the first file is in another format"
    );
    ingest.stop().await
}

/// Positions in a file are 32 bits wide, so two transactions of 2 GiB must not be in one file.
#[tokio::test(flavor = "multi_thread")]
async fn large_transactions_get_into_files_of_their_own_although_the_disk_is_behind() -> Result<()>
{
    let server = launch(&[])?;
    let ring = MemoryRing::new();
    ring.set_leadership(Leadership::Serving(TERM));
    let mut options = ingest_options(&server);
    // The ring in memory counts 100 bytes for each transaction, like a disk that has not written the transaction yet.
    options.in_flight_bytes = 64 << 10;
    options.file_limits.bytes = 1 << 20;
    let mut ingest = Running::start(&ring, options);
    ingest.attached().await?;
    eventually("what was there came in", || {
        Ok(ring.gtids() == server.client().gtid_executed()?)
    })
    .await?;
    let before = ring.rotations();
    for id in 0..3 {
        let insert = format!("INSERT INTO d.large VALUES ({id}, REPEAT('a', 2 << 20))");
        let sql = match id {
            0 => format!("CREATE TABLE d.large (id INT PRIMARY KEY, b LONGBLOB); {insert}"),
            _ => insert,
        };
        finish(server.client().start_sql(&sql)?).await?;
    }
    finish(
        server
            .client()
            .start_sql("INSERT INTO d.t VALUES (1, '')")?,
    )
    .await?;
    assert_eq!(
        ring.rotations() - before,
        3,
        "a file begins after each of the three"
    );
    ingest.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_leadership_leaves_mysqld_without_ack() -> Result<()> {
    let server = launch(&[])?;
    let ring = MemoryRing::new();
    let mut ingest = Running::start(&ring, ingest_options(&server));
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(ingest.status.borrow().state, IngestState::Idle);
    ring.set_leadership(Leadership::Serving(TERM));
    ingest.attached().await?;
    eventually("what was there came in", || {
        Ok(ring.gtids() == server.client().gtid_executed()?)
    })
    .await?;
    ring.set_commits_at_once(false);
    let before = ring.sequence().len();
    let mut waiting = server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1, '')")?;
    eventually("it is proposed", || Ok(ring.sequence().len() == before + 1)).await?;
    ring.set_leadership(Leadership::Over);
    ingest.reaches(|state| *state == IngestState::Idle).await?;
    ring.set_commits_at_once(true);
    still_waits(&mut waiting).await?;
    assert!(!visible(&server, 1)?);
    eventually("mysqld sees us go", || {
        Ok(server.client().status("Rpl_semi_sync_source_clients")? == "0")
    })
    .await?;

    // The transaction is in the log, so the next leadership acknowledges it without proposing it again.
    ring.set_leadership(Leadership::Serving(Term(3)));
    ingest.attached().await?;
    finish(waiting).await?;
    assert_eq!(ring.sequence().len(), before + 1);
    // This transaction, and the one before it.
    assert_eq!(ingest.figures.view(Instant::now()).known_total, 2);
    ingest.stop().await
}
