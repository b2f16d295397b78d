//! Commits that pass on their turn by a row: never before the transaction before them, whatever becomes of that one.
//!
//! The transaction before is played by a connection of the test, which writes the number that the row is to have.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use applier::backend::{Backend, Session, Turn, WriteError};
use applier::mysql::{MysqlBackend, MysqlOptions, MysqlSession};
use applier::transaction::{Seq, Transaction};
use mysql_link::Connection;

use crate::pair::{Pair, Way, connect};

const PLAIN: [&str; 1] = ["--skip-log-bin"];

/// A table with one row on both servers, turns, and the source's next transactions, each an insert, with their numbers.
async fn prepared(change: impl Fn(&mut MysqlOptions)) -> Result<(Pair, Vec<Arc<Transaction>>)> {
    let mut pair = Pair::with(&[], &PLAIN, |options| {
        options.turns = true;
        change(options);
    })
    .await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY); INSERT INTO d.t VALUES (0)",
    )?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    pair.write(
        "INSERT INTO d.t VALUES (1); INSERT INTO d.t VALUES (2); INSERT INTO d.t VALUES (3)",
    )?;
    let mut missing = pair.missing().await?;
    let mut all = Vec::new();
    while let Some(transaction) = pair.next(&mut missing).await? {
        let mut numbered = Transaction::clone(&transaction);
        numbered.seq = Seq(all.len() as u64 + 1);
        all.push(Arc::new(numbered));
    }
    ensure!(all.len() == 3);
    Ok((pair, all))
}

/// Somebody who has the turn of the transaction behind the one that has it now.
async fn takes_the_turn(pair: &Pair) -> Result<Connection> {
    let mut holder = Connection::open(&connect(&pair.target, "root")).await?;
    holder.execute("BEGIN").await?;
    let changed = holder
        .execute("UPDATE witness_applier.turn SET n = n + 1 WHERE id = 1")
        .await?;
    ensure!(changed == 1);
    Ok(holder)
}

/// Waits until a session waits for the row.
async fn until_it_waits(pair: &Pair) -> Result<()> {
    let waits = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
    for _ in 0..3_000 {
        if pair.target.client().value(waits)? != "0" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("nobody waits for the row")
}

fn has(pair: &Pair, row: u32) -> Result<bool> {
    let count = format!("SELECT COUNT(*) FROM d.t WHERE i = {row}");
    Ok(pair.target.client().value(&count)? == "1")
}

/// The first transaction commits in its turn; the third one, which follows the turn of the second, waits for it.
async fn third_behind<F: Future<Output = Result<()>>>(
    pair: &Pair,
    all: &[Arc<Transaction>],
    session: &mut MysqlSession,
    second: impl FnOnce(Connection) -> F,
) -> Result<(Result<(), WriteError>, u32)> {
    let passed = AtomicU32::new(0);
    let count = || {
        passed.fetch_add(1, Relaxed);
    };
    session
        .write_in_turn(&all[0], 0..1, Turn::First, count)
        .await?;
    ensure!(passed.swap(0, Relaxed) == 1 && has(pair, 1)?);
    let holder = takes_the_turn(pair).await?;
    let ends = async {
        until_it_waits(pair).await?;
        ensure!(!has(pair, 3)?, "it has not waited");
        second(holder).await
    };
    let count = || {
        passed.fetch_add(1, Relaxed);
    };
    let third = session.write_in_turn(&all[2], 0..1, Turn::Next, count);
    let (third, ended) = tokio::join!(third, ends);
    ended?;
    Ok((third, passed.load(Relaxed)))
}

#[tokio::test]
async fn the_next_one_commits_when_the_one_before_it_has() -> Result<()> {
    let (pair, all) = prepared(|_| {}).await?;
    let mut session = pair.backend.open().await?;
    let commits = async |mut holder: Connection| Ok(holder.execute("COMMIT").await.map(|_| ())?);
    let (third, passed) = third_behind(&pair, &all, &mut session, commits).await?;
    ensure!(third.is_ok() && passed == 1 && has(&pair, 3)?, "{third:?}");
    Ok(())
}

/// Its session is killed between its turn and its COMMIT.
#[tokio::test]
async fn nobody_commits_behind_a_session_that_died_with_the_turn() -> Result<()> {
    let (mut pair, all) = prepared(|_| {}).await?;
    let mut session = pair.backend.open().await?;
    let target = pair.target.client();
    let dies =
        async |holder: Connection| Ok(target.sql(&format!("KILL {}", holder.id())).map(|_| ())?);
    let (third, passed) = third_behind(&pair, &all, &mut session, dies).await?;
    ensure!(matches!(&third, Err(WriteError::Again(_))), "{third:?}");
    ensure!(passed == 0 && !has(&pair, 3)?);
    let executed = target.gtid_executed()?;
    ensure!(!executed.contains(&all[2].gtid.to_string()), "{executed}");
    // The session is as good as before, and so is the row.
    session
        .write_in_turn(&all[1], 0..1, Turn::First, || ())
        .await?;
    session
        .write_in_turn(&all[2], 0..1, Turn::Next, || ())
        .await?;
    pair.equal_after(Way::Batches(1), &["d"]).await
}

#[tokio::test]
async fn nobody_commits_behind_a_transaction_that_was_rolled_back() -> Result<()> {
    let (pair, all) = prepared(|_| {}).await?;
    let mut session = pair.backend.open().await?;
    let back = async |mut holder: Connection| Ok(holder.execute("ROLLBACK").await.map(|_| ())?);
    let (third, passed) = third_behind(&pair, &all, &mut session, back).await?;
    ensure!(matches!(&third, Err(WriteError::Again(_))), "{third:?}");
    ensure!(passed == 0 && !has(&pair, 3)?);
    Ok(())
}

#[tokio::test]
async fn a_turn_that_is_waited_for_too_long_is_not_had() -> Result<()> {
    let (mut pair, all) = prepared(|options| options.lock_wait = Duration::from_secs(1)).await?;
    let mut session = pair.backend.open().await?;
    let mut kept = None;
    let keeps = async |holder: Connection| {
        kept = Some(holder);
        Ok(())
    };
    let (third, passed) = third_behind(&pair, &all, &mut session, keeps).await?;
    ensure!(matches!(&third, Err(WriteError::Again(_))), "{third:?}");
    ensure!(passed == 0 && !has(&pair, 3)?);
    kept.context("the holder")?.execute("ROLLBACK").await?;
    pair.equal_after(Way::Batches(1), &["d"]).await
}

/// Numbers of another run, or of another applier at the same target, are not those of the transaction before.
#[tokio::test]
async fn numbers_of_others_are_not_followed() -> Result<()> {
    let (pair, all) = prepared(|_| {}).await?;
    let mut session = pair.backend.open().await?;
    session
        .write_in_turn(&all[0], 0..1, Turn::First, || ())
        .await?;
    let mut options = MysqlOptions::new(connect(&pair.target, "root"));
    options.turns = true;
    let other = MysqlBackend::connect(options).await?;
    ensure!(other.passes_turns());
    let mut session = other.open().await?;
    let second = session
        .write_in_turn(&all[1], 0..1, Turn::Next, || ())
        .await;
    ensure!(matches!(&second, Err(WriteError::Again(_))), "{second:?}");
    ensure!(!has(&pair, 2)?);
    Ok(())
}

#[tokio::test]
async fn without_its_table_the_order_is_kept_as_ever() -> Result<()> {
    let (mut pair, all) = prepared(|_| {}).await?;
    let mut session = pair.backend.open().await?;
    pair.target.client().sql("DROP DATABASE witness_applier")?;
    for turn in [Turn::First, Turn::Next] {
        let first = session.write_in_turn(&all[0], 0..1, turn, || ()).await;
        ensure!(matches!(&first, Err(WriteError::Again(_))), "{first:?}");
    }
    let passed = AtomicU32::new(0);
    let count = || {
        passed.fetch_add(1, Relaxed);
    };
    session
        .write_in_turn(&all[0], 0..1, Turn::First, count)
        .await?;
    ensure!(has(&pair, 1)? && passed.load(Relaxed) == 0);
    pair.equal_after(Way::Batches(1), &["d"]).await
}

/// Nothing of the row gets into the target's GTIDs, and no other target gets one.
#[tokio::test]
async fn turns_are_passed_on_only_where_it_is_of_use_and_allowed() -> Result<()> {
    let there = |pair: &Pair| {
        let table =
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'witness_applier'";
        Ok::<bool, anyhow::Error>(pair.target.client().value(table)? == "1")
    };
    let with =
        async |arguments: &[&str]| Pair::with(&[], arguments, |options| options.turns = true).await;
    let plain = with(&PLAIN).await?;
    ensure!(plain.backend.passes_turns() && there(&plain)?);
    ensure!(plain.target.client().gtid_executed()?.is_empty());
    let logged = with(&[]).await?;
    ensure!(!logged.backend.passes_turns() && !there(&logged)?);
    let relaxed = with(&["--skip-log-bin", "--innodb-flush-log-at-trx-commit=2"]).await?;
    ensure!(!relaxed.backend.passes_turns() && !there(&relaxed)?);
    let unasked = Pair::with(&[], &PLAIN, |_| {}).await?;
    ensure!(!unasked.backend.passes_turns() && !there(&unasked)?);

    // Without the rights on the schema, all else goes on; with them, the table is made.
    unasked.tamper(
        "CREATE USER limited@localhost; GRANT INSERT, UPDATE, DELETE ON d.* TO limited@localhost; \
         GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO limited@localhost",
    )?;
    let mut options = MysqlOptions::new(connect(&unasked.target, "limited"));
    options.turns = true;
    ensure!(!MysqlBackend::connect(options.clone()).await?.passes_turns());
    unasked
        .tamper("GRANT CREATE, SELECT, INSERT, UPDATE ON witness_applier.* TO limited@localhost")?;
    ensure!(MysqlBackend::connect(options).await?.passes_turns() && there(&unasked)?);
    Ok(())
}
