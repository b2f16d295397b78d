//! Nothing is cut if it is uncertain that a transaction waited for the ring and can be undone.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use mysql_link::{ConnectOptions, Endpoint};
use mysqld_controller::TailTrimError;
use mysqld_server::supervisor::StartGuard;
use mysqld_server::tail_trim::{NotUndone, Refusal};

use crate::crashing_server::{CrashingServer, LIMIT, event_borders, guard, transaction_starts};
use crate::ring_in_memory::{Leadership, MemoryRing};

const NOT_ATOMIC: &str = "the statement is not atomic";
const TABLE: &str = "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)";

/// Returns a server that crashed with one waiting transaction, after some transactions that the ring has.
async fn crashed_with(waiting: &str) -> Result<CrashingServer> {
    crashed_behind(TABLE, waiting).await
}

async fn crashed_behind(before: &str, waiting: &str) -> Result<CrashingServer> {
    let mut server = CrashingServer::start().await?;
    server.server.client().sql(before)?;
    let written = transaction_starts(&server.last_file()?)?.len();
    server.ring.set_commits_at_once(false);
    let pending = server.server.client().start_sql(waiting)?;
    server.transactions_in_file(written + 1).await?;
    server.crash().await?;
    drop(pending);
    Ok(server)
}

async fn refused(server: &CrashingServer, is: impl Fn(&TailTrimError) -> bool) -> Result<()> {
    let before = fs::read(server.last_file()?)?;
    let Err(cause) = server.guard().before_start().await else {
        anyhow::bail!("it is not refused");
    };
    ensure!(
        cause.downcast_ref::<TailTrimError>().is_some_and(is),
        "{cause}"
    );
    ensure!(fs::read(server.last_file()?)? == before && server.trimmed()?.is_empty());
    Ok(())
}

/// True if the error is that the effect of a statement remains, for this reason.
fn remains(error: &TailTrimError, because: &str) -> bool {
    let TailTrimError::Refused(Refusal::CannotBeUndone { reason, .. }) = error else {
        return false;
    };
    matches!(reason, NotUndone::Statement(why, _) if *why == because)
}

#[tokio::test]
async fn starts_are_refused_while_a_takeover_is_incomplete() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut guard = guard(&MemoryRing::new(), directory.path(), directory.path());
    guard.taking_over = Box::new(|| Ok(true));
    let refused = guard.before_start().await.err();
    let refused = refused
        .as_ref()
        .and_then(|error| error.downcast_ref::<TailTrimError>());
    ensure!(
        matches!(refused, Some(TailTrimError::TakingOver)),
        "{refused:?}"
    );
    ensure!(guard.may_start_itself());
    Ok(())
}

async fn left_alone(server: &mut CrashingServer) -> Result<()> {
    server.start_again().await?;
    ensure!(server.trimmed()?.is_empty());
    ensure!(
        server
            .server
            .client()
            .value("SELECT COUNT(*) FROM d.t WHERE id = 1")?
            == "1"
    );
    Ok(())
}

/// The ring's log is empty, so the ring has committed no transaction of mysqld's binlog.
#[tokio::test(flavor = "multi_thread")]
async fn a_ring_that_has_never_taken_anything_cuts_nothing() -> Result<()> {
    let mut server = crashed_with("INSERT INTO d.t VALUES (1)").await?;
    server.ring = MemoryRing::new();
    server
        .ring
        .set_leadership(Leadership::Serving(raft_types::Term(1)));
    left_alone(&mut server).await
}

/// A ring is created around a server with existing transactions. Those from before its first start by this member are not cut.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_the_member_is_not_cut() -> Result<()> {
    let mut server = crashed_with("INSERT INTO d.t VALUES (1)").await?;
    server.member_dir = tempfile::tempdir()?;
    left_alone(&mut server).await?;
    // From now on, commits wait for the ring, so the next waiting transaction is cut.
    server.ring.invent(&server.server.client().gtid_executed()?);
    server.lead().await?;
    server.ring.set_commits_at_once(false);
    let pending = server
        .server
        .client()
        .start_sql("INSERT INTO d.t VALUES (2)")?;
    server.transactions_in_file(1).await?;
    server.crash().await?;
    drop(pending);
    server.start_again().await?;
    ensure!(
        server
            .server
            .client()
            .value("SELECT GROUP_CONCAT(id) FROM d.t")?
            == "1"
    );
    ensure!(server.trimmed()?.len() == 1);
    Ok(())
}

/// Makes a commit wait, crashes the server, and checks that the transaction is cut. `crash` counts the crashes with a cut.
async fn what_waits_is_cut(server: &mut CrashingServer, crash: usize) -> Result<()> {
    server.ring.set_commits_at_once(false);
    let pending = server
        .server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1)")?;
    server.transactions_in_file(1).await?;
    server.crash().await?;
    drop(pending);
    server.start_again().await?;
    let rows = server.server.client().value("SELECT COUNT(*) FROM d.t")?;
    ensure!(rows == "0", "what waited came back");
    ensure!(server.trimmed()?.len() == crash);
    server.equals_the_ring()
}

/// After `witness enable-raft`, the server already runs when its member first acts on it.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_behind_the_first_opening_is_cut_and_what_was_before_stays() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    server.member_dir = tempfile::tempdir()?;
    server.server.client().sql(TABLE)?;
    server.is_about_to_be_opened().await?;
    let files = server.server.binlog_files()?;
    server.is_about_to_be_opened().await?;
    ensure!(
        server.server.binlog_files()? == files,
        "once is enough: {files:?}"
    );
    what_waits_is_cut(&mut server, 1).await
}

/// In mode `external` without `mysql.log_bin`, the member may expect another name of the binlog than the server's.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_is_cut_also_where_the_member_looks_for_another_binlog() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    server.member_dir = tempfile::tempdir()?;
    server.log_bin = "another";
    server.server.client().sql(TABLE)?;
    server.is_about_to_be_opened().await?;
    for crash in 1..=2 {
        let files = server.server.binlog_files()?.len();
        what_waits_is_cut(&mut server, crash).await?;
        ensure!(server.server.binlog_files()?.len() > files);
        server.lead().await?;
        server.is_about_to_be_opened().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_after_a_start_by_hand_is_not_cut() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    server.server.client().sql(TABLE)?;
    server.member_ends().await;
    server.server.restart()?;
    let unprotected = "SET GLOBAL rpl_semi_sync_source_enabled = OFF; INSERT INTO d.t VALUES (1)";
    server.server.client().sql(unprotected)?;
    server.crash().await?;
    left_alone(&mut server).await
}

/// When asked to stop, mysqld reports success to waiting clients, so these transactions are committed.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_stop_in_good_order_let_through_is_not_cut_and_needs_no_ring() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    server.server.client().sql(TABLE)?;
    server.ring.set_commits_at_once(false);
    let pending = server
        .server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1)")?;
    server.transactions_in_file(3).await?;
    server.member_ends().await;
    server.server.stop()?;
    drop(pending);
    server.ring.lose_uncommitted();
    server.ring.set_leadership(Leadership::Over);
    left_alone(&mut server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_server_waits_for_the_rings_word() -> Result<()> {
    let mut server = crashed_with("INSERT INTO d.t VALUES (1)").await?;
    server.ring.set_leadership(Leadership::Over);
    refused(&server, |error| {
        matches!(error, TailTrimError::Ring(_) | TailTrimError::NoAnswer)
    })
    .await?;
    server
        .ring
        .set_leadership(Leadership::Serving(raft_types::Term(2)));
    server.start_again().await?;
    server.equals_the_ring()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_recovery_does_not_undo_is_refused() -> Result<()> {
    let myisam = "CREATE TABLE d.m (id INT) ENGINE=MyISAM";
    let server = crashed_with(myisam).await?;
    refused(&server, |error| remains(error, NOT_ATOMIC)).await?;

    let mut server = CrashingServer::start().await?;
    let client = server.server.client();
    client.sql("CREATE DATABASE d; CREATE TABLE d.m (id INT) ENGINE=MyISAM")?;
    server.ring.set_commits_at_once(false);
    let pending = client.start_sql("INSERT INTO d.m VALUES (1)")?;
    server.transactions_in_file(3).await?;
    server.crash().await?;
    drop(pending);
    refused(&server, |error| {
        matches!(
            error,
            TailTrimError::Refused(Refusal::CannotBeUndone {
                reason: NotUndone::WithoutTransactions,
                ..
            })
        )
    })
    .await
}

/// Recovery rolls these statements back in the data dictionary, and does not restore their files.
#[tokio::test(flavor = "multi_thread")]
async fn statements_that_have_changed_files_are_refused() -> Result<()> {
    let because = "the statement has changed the files of its table";
    let partitioned = format!(
        "{TABLE}; ALTER TABLE d.t PARTITION BY HASH (id) PARTITIONS 2; INSERT INTO d.t VALUES (1)"
    );
    let row = format!("{TABLE}; INSERT INTO d.t VALUES (1)");
    for (before, waiting, gone) in [
        (&row, "ALTER TABLE d.t DISCARD TABLESPACE", "d/t.ibd"),
        (
            &partitioned,
            "ALTER TABLE d.t DISCARD PARTITION p1 TABLESPACE",
            "d/t#p#p1.ibd",
        ),
    ] {
        let server = crashed_behind(before, waiting).await?;
        ensure!(!server.server.data_dir().join(gone).exists(), "{gone}");
        refused(&server, |error| remains(error, because)).await?;
    }
    Ok(())
}

/// If tables of other engines exist, the files do not show whether the statement changed one.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_may_have_changed_a_table_of_another_engine_is_refused() -> Result<()> {
    let before = format!("{TABLE}; CREATE TABLE d.m (id INT) ENGINE=MyISAM");
    for waiting in [
        "DROP TABLE IF EXISTS d.m",
        "CREATE TABLE IF NOT EXISTS d.n LIKE d.m",
    ] {
        let server = crashed_behind(&before, waiting).await?;
        refused(&server, |error| remains(error, NOT_ATOMIC)).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_contradicts_the_ring_is_refused() -> Result<()> {
    let server = crashed_with("INSERT INTO d.t VALUES (1)").await?;
    let committed = server.ring.gtids();
    let file = OpenOptions::new().write(true).open(server.last_file()?)?;

    // The ring has the later transaction, and lacks the earlier one.
    let uuid = committed.split(':').next().unwrap_or_default();
    let other = MemoryRing::new();
    other.set_leadership(Leadership::Serving(raft_types::Term(1)));
    other.invent(&format!("{uuid}:1:3"));
    let guarded = guard(&other, server.server.data_dir(), server.member_dir.path());
    let found = guarded.before_start().await.err();
    let cause = found.as_ref();
    let cause = cause.and_then(|error| error.downcast_ref::<TailTrimError>());
    ensure!(
        matches!(
            cause,
            Some(TailTrimError::Refused(
                Refusal::CommittedBehindUncommitted { .. }
            ))
        ),
        "{found:?}"
    );

    // Flips one bit before the end of the file.
    let borders = event_borders(&server.last_file()?)?;
    let (inside, mut byte) = (borders[3].0 + 25, [0]);
    let bytes = fs::read(server.last_file()?)?;
    byte[0] = bytes[inside as usize] ^ 1;
    file.write_all_at(&byte, inside)?;
    refused(&server, |error| {
        matches!(error, TailTrimError::Refused(Refusal::Damaged { .. }))
    })
    .await?;
    file.write_all_at(&bytes, 0)?;

    file.write_all_at(&[0xfd], 0)?;
    refused(&server, |error| {
        matches!(error, TailTrimError::Refused(Refusal::Encrypted { .. }))
    })
    .await?;
    file.write_all_at(&bytes, 0)?;
    Ok(())
}

/// A power cut leaves such damage in data that were not synced yet: in the first event, or in a later one.
#[tokio::test(flavor = "multi_thread")]
async fn damage_in_what_nobody_acknowledged_goes_with_it() -> Result<()> {
    for behind_its_begin in [0, 2] {
        let mut server = crashed_with("INSERT INTO d.t VALUES (1)").await?;
        let path = server.last_file()?;
        let begins = transaction_starts(&path)?[2];
        let events = event_borders(&path)?;
        let first = events.iter().position(|(at, _)| *at == begins);
        let damaged = events[first.context("it begins with an event")? + behind_its_begin].0 + 20;
        let byte = fs::read(&path)?[damaged as usize] ^ 1;
        let file = OpenOptions::new().write(true).open(&path)?;
        file.write_all_at(&[byte], damaged)?;
        server.start_again().await?;
        server.equals_the_ring()?;
        ensure!(server.trimmed()?.len() == 1);
        ensure!(server.server.client().value("SELECT COUNT(*) FROM d.t")? == "0");
    }
    Ok(())
}

/// The server was started without the guard. Its recovered transaction is errant, and the waiting transactions follow that transaction.
#[tokio::test(flavor = "multi_thread")]
async fn what_follows_an_errant_transaction_is_refused_and_so_is_a_server_that_runs() -> Result<()>
{
    let mut server = crashed_with("INSERT INTO d.t VALUES (1)").await?;
    server.server.start()?;
    let executed = server.server.client().gtid_executed()?;
    fs::write(
        server.member_dir.path().join("mysqld-start.json"),
        before_the_last(&server)?,
    )?;
    let waiting = server
        .server
        .client()
        .start_sql("INSERT INTO d.t VALUES (2)")?;
    server.transactions_in_file(1).await?;
    refused(&server, |error| {
        matches!(
            error,
            TailTrimError::Refused(Refusal::ErrantInClosedFiles { .. })
        )
    })
    .await?;
    server.ring.invent(&executed);
    refused(&server, |error| {
        let runs = |error: &std::io::Error| error.to_string().contains("a mysqld runs on it");
        matches!(error, TailTrimError::Disk(_, error) if runs(error))
    })
    .await?;
    server.server.kill()?;
    drop(waiting);
    server.start_again().await?;
    server.equals_the_ring()
}

/// Returns a start record according to which the member's last start preceded the newest file.
fn before_the_last(server: &CrashingServer) -> Result<String> {
    let files = server.server.binlog_files()?;
    let index = server.server.data_dir().join("binlog.index");
    let last = &files[files.len() - 2];
    Ok(format!("{{\"index\": {index:?}, \"last_file\": {last:?}}}"))
}

/// A transaction was released without the ring. The engine has committed it, and has prepared the following transactions.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_mysqld_committed_without_the_ring_is_restored() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    server.server.client().sql(TABLE)?;
    server.ring.set_commits_at_once(false);
    let released = server
        .server
        .client()
        .start_sql("INSERT INTO d.t VALUES (1)")?;
    server.transactions_in_file(3).await?;
    server.member_ends().await;
    let waits = |whether: &str| {
        let set = format!("SET GLOBAL rpl_semi_sync_source_wait_no_replica = {whether}");
        server.server.client().sql(&set)
    };
    waits("OFF")?;
    tokio::task::spawn_blocking(move || released.finish(LIMIT)).await??;
    waits("ON")?;
    let waiting = server
        .server
        .client()
        .start_sql("INSERT INTO d.t VALUES (2)")?;
    server.transactions_in_file(4).await?;
    server.crash().await?;
    drop(waiting);

    server.start_again().await?;
    ensure!(server.trimmed()?.len() == 1);
    let rows = "SELECT CONCAT_WS(' ', GROUP_CONCAT(id), @@GLOBAL.gtid_purged = '') FROM d.t";
    ensure!(server.server.client().value(rows)? == "1 0");
    let connect = ConnectOptions::new(Endpoint::unix(server.server.socket()), "root", "");
    let Err(why) = server.guard().after_start(&connect).await else {
        anyhow::bail!("what the engine has is taken for cut off");
    };
    ensure!(
        why.to_string()
            .contains("committed in mysqld without the ring"),
        "{why}"
    );

    server.server.kill()?;
    server.start_again().await?;
    ensure!(server.server.client().value(rows)? == "1 1");
    let checked = server.guard().after_start(&connect).await;
    ensure!(checked.is_ok(), "{checked:?}");
    server.recovered_without_an_error()?;
    server.lead().await?;
    server.equals_the_ring()
}
