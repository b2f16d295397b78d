//! Connections and servers that are killed at any moment: nothing is applied twice, and nothing is missing.

use std::time::Duration;

use anyhow::{Result, ensure};
use applier::backend::{Backend, BackendError, Session, WriteError};
use applier::mysql::MysqlSession;

use crate::pair::{Pair, Way};

/// Inserts that fail when they come twice, updates of one row, transactions of several rows, and now and then a barrier.
fn load(transactions: u32) -> String {
    let one = |n: u32| match n % 10 {
        3 => format!(
            "BEGIN; INSERT INTO d.t VALUES ({n}, 0), ({n} + 1000000, 0); UPDATE d.t SET v = v + 1 WHERE id = 0; COMMIT;"
        ),
        7 => {
            format!("UPDATE d.t SET v = v + {n} WHERE id = 0; DELETE FROM d.t WHERE id = {n} - 4;")
        }
        _ if n % 97 == 1 => {
            format!("CREATE TABLE d.t{n} (i INT); INSERT INTO d.t VALUES ({n}, 1);")
        }
        _ if n % 97 == 2 => format!(
            "XA START '{n}'; INSERT INTO d.t VALUES ({n}, 2); XA END '{n}'; XA PREPARE '{n}'; XA COMMIT '{n}';"
        ),
        _ if n % 97 == 6 => format!(
            "XA START '{n}'; INSERT INTO d.t VALUES ({n}, 2); XA END '{n}'; XA PREPARE '{n}'; XA ROLLBACK '{n}';"
        ),
        _ => format!("INSERT INTO d.t VALUES ({n}, {n});"),
    };
    let all: String = (1..=transactions).map(one).collect();
    format!("SET SESSION sql_log_bin = 1; {all}")
}

async fn prepared(of_target: &[&str], transactions: u32) -> Result<Pair> {
    let mut pair = Pair::with(
        &["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"],
        of_target,
        |_| {},
    )
    .await?;
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (0, 0)")?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    pair.write(&load(transactions))?;
    Ok(pair)
}

/// A session, when the server is there again.
async fn reopened(pair: &Pair) -> Result<MysqlSession> {
    loop {
        match pair.backend.open().await {
            Ok(session) => return Ok(session),
            Err(BackendError::Unreachable(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn ways() -> impl Iterator<Item = Way> {
    (0_u64..).map(|turn| match turn % 4 {
        0 => Way::AsOne(16),
        1 => Way::Batches(8),
        2 => Way::Pieces(turn),
        _ => Way::Batches(1),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_mysqld_that_is_killed_loses_and_repeats_nothing() -> Result<()> {
    let mut pair = prepared(&[], 1500).await?;
    let client = pair.target.client();
    let mut ways = ways();
    let mut killed = 0;
    loop {
        pair.forget_shapes();
        let mut session = reopened(&pair).await?;
        // What was asked for over the lost one ends one way or the other.
        pair.backend.begin().await?;
        let id = session.id().0;
        let mut missing = pair.missing().await?;
        let client = client.clone();
        let wait = Duration::from_millis(fastrand::u64(20..120));
        let killer = tokio::task::spawn_blocking(move || {
            std::thread::sleep(wait);
            // It may have ended by itself.
            let _ = client.sql(&format!("KILL {id}"));
        });
        let led = pair
            .lead(&mut session, &mut missing, ways.next().unwrap())
            .await?;
        killer.await?;
        match led {
            Ok(()) => break,
            Err(stop) => ensure!(
                matches!(stop.error, WriteError::Lost(_)),
                "{}: {}",
                stop.gtid,
                stop.error
            ),
        }
        killed += 1;
    }
    ensure!(killed > 3, "it was killed {killed} times only");
    pair.compare(&["d"]).await
}

async fn killed_servers(of_target: &[&str]) -> Result<()> {
    let mut pair = prepared(of_target, 4000).await?;
    let mut ways = ways();
    for _ in 0..6 {
        pair.forget_shapes();
        let mut session = reopened(&pair).await?;
        pair.backend.begin().await?;
        let mut missing = pair.missing().await?;
        let pid = pair.target.process_id().unwrap();
        let wait = Duration::from_millis(fastrand::u64(50..400));
        let killer = tokio::task::spawn_blocking(move || {
            std::thread::sleep(wait);
            std::process::Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .status()
        });
        let led = pair
            .lead(&mut session, &mut missing, ways.next().unwrap())
            .await;
        ensure!(killer.await??.success());
        match led {
            Ok(Ok(())) => {}
            Ok(Err(stop)) => ensure!(
                matches!(stop.error, WriteError::Lost(_)),
                "{}: {}",
                stop.gtid,
                stop.error
            ),
            // It was killed before it was asked what its tables look like.
            Err(error) => ensure!(
                matches!(error.downcast_ref(), Some(BackendError::Unreachable(_))),
                "{error:#}"
            ),
        }
        pair.target.kill()?;
        ensure!(matches!(
            pair.backend.executed().await,
            Err(BackendError::Unreachable(_))
        ));
        pair.target.start()?;
    }
    pair.forget_shapes();
    pair.backend.begin().await?;
    pair.equal_after(Way::AsOne(32), &["d"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysqld_with_a_binlog_that_is_killed_loses_and_repeats_nothing() -> Result<()> {
    killed_servers(&[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysqld_without_a_binlog_that_is_killed_loses_and_repeats_nothing() -> Result<()> {
    killed_servers(&["--skip-log-bin"]).await
}

/// Why XA transactions go into the target's binlog even where others do not.
#[tokio::test]
async fn a_prepared_transaction_outlives_a_crash_of_a_mysqld_with_a_binlog() -> Result<()> {
    let mut pair = prepared(&[], 0).await?;
    pair.write("XA START 'x'; INSERT INTO d.t VALUES (5, 5); XA END 'x'; XA PREPARE 'x'")?;
    ensure!(pair.follow(Way::Batches(1)).await?.is_ok());
    pair.target.kill()?;
    pair.target.start()?;
    ensure!(
        pair.target.client().sql("XA RECOVER")?.0.len() == 1,
        "it is gone, and its GTID is executed"
    );
    pair.write("XA COMMIT 'x'; INSERT INTO d.t VALUES (6, 6)")?;
    pair.equal_after(Way::Batches(1), &["d"]).await
}
