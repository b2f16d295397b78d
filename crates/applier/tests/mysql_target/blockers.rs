//! Finds the sessions that block a waiting session.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use applier::backend::{Backend, Session, Then};
use applier::mysql::{MysqlBackend, MysqlOptions};
use applier::transaction::Transaction;

use crate::pair::{Pair, Way, alone, connect};

/// Returns two updates of one row, and an update of another row.
async fn three_updates(pair: &mut Pair) -> Result<[Arc<Transaction>; 3]> {
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (1, 1), (2, 2)")?;
    pair.equal_after(Way::Batches(2), &["d"]).await?;
    pair.write("UPDATE d.t SET v = 5 WHERE id = 1; UPDATE d.t SET v = 6 WHERE id = 1; UPDATE d.t SET v = 7 WHERE id = 2")?;
    let mut missing = pair.missing().await?;
    Ok([
        pair.next(&mut missing).await?.unwrap(),
        pair.next(&mut missing).await?.unwrap(),
        pair.next(&mut missing).await?.unwrap(),
    ])
}

/// The first update waits for a row that the second update has locked. The backend must report the blocking session if
/// `aware` is true.
async fn check_blockers(
    backend: &MysqlBackend,
    [first, second, third]: &[Arc<Transaction>; 3],
    aware: bool,
) -> Result<()> {
    let (mut early, mut late, mut bystander) = (
        backend.open().await?,
        backend.open().await?,
        backend.open().await?,
    );
    late.write(&alone(second), 0..1, Then::StayOpen, || ())
        .await?;
    bystander
        .write(&alone(third), 0..1, Then::StayOpen, || ())
        .await?;
    let (waiting, holder) = (early.id(), late.id());
    let first = Arc::clone(first);
    let write = tokio::spawn(async move {
        let done = early
            .write(&alone(&first), 0..1, Then::StayOpen, || ())
            .await;
        (early, done)
    });
    let mut blockers = None;
    for _ in 0..200 {
        blockers = backend.blockers(waiting).await?;
        if blockers.as_ref().is_none_or(|all| all.contains(&holder)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if aware {
        assert_eq!(blockers, Some(vec![holder]));
        assert_eq!(backend.blockers(holder).await?, Some(Vec::new()));
    } else {
        // The blocking session is unknown, so it may be any session.
        assert_eq!(blockers, None);
    }
    // The session that blocks rolls back, and the other one continues.
    late.roll_back().await?;
    let (mut early, done) = write.await?;
    done?;
    early.roll_back().await?;
    bystander.roll_back().await?;
    Ok(())
}

#[tokio::test]
async fn mysqld_tells_who_holds_a_lock_to_who_may_ask() -> Result<()> {
    let mut pair = Pair::new().await?;
    let updates = three_updates(&mut pair).await?;
    pair.tamper(
        "CREATE USER limited@localhost; GRANT INSERT, UPDATE, DELETE, REPLICATION_APPLIER, TRANSACTION_GTID_TAG, SESSION_VARIABLES_ADMIN ON *.* TO limited@localhost",
    )?;
    let unaware =
        MysqlBackend::connect(MysqlOptions::new(connect(&pair.target, "limited"))).await?;
    check_blockers(&pair.backend, &updates, true).await?;
    check_blockers(&unaware, &updates, false).await
}

/// With `performance_schema = OFF` the tables exist too, but have no rows.
#[tokio::test]
async fn a_mysqld_that_shows_no_locks_is_not_taken_for_one_without_any() -> Result<()> {
    let mut pair = Pair::with(&[], &["--performance-schema=OFF"], |_| {}).await?;
    let updates = three_updates(&mut pair).await?;
    check_blockers(&pair.backend, &updates, false).await
}
