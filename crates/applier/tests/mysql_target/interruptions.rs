//! Kills connections and servers at any moment, and cuts the power of servers: no transaction is applied twice, and none is
//! missing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use applier::backend::{Backend, BackendError, Session, WriteError};
use applier::mysql::MysqlSession;
use binlog_format::gtid::GtidSet;
use mysql_link::Connection;
use testkit::real_disks::LoopDisk;
use testkit::wait::try_eventually;

use crate::pair::{Pair, Way, options, server_on};

/// Statements that fail when they are repeated: inserts, updates of one row, transactions of several rows, and some barriers.
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

const OF_SOURCE: [&str; 2] = ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"];

async fn prepared(of_target: &[&str], transactions: u32) -> Result<Pair> {
    let pair = Pair::with(&OF_SOURCE, of_target, |_| {}).await?;
    furnished(pair, transactions).await
}

async fn furnished(mut pair: Pair, transactions: u32) -> Result<Pair> {
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (0, 0)")?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    pair.write(&load(transactions))?;
    Ok(pair)
}

/// Opens a session, after waiting until the server is back.
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
    let mut pair = prepared(&[], 2500).await?;
    let client = pair.target.client();
    let mut ways = ways();
    let mut killed = 0;
    loop {
        pair.forget_shapes();
        let mut session = reopened(&pair).await?;
        // The request of the lost session completes or fails.
        pair.backend.begin().await?;
        let id = session.id().0;
        let mut missing = pair.missing().await?;
        let client = client.clone();
        // The first kills come early, because a fast machine applies everything within milliseconds.
        let within = if killed < 4 { 1..25 } else { 20..120 };
        let wait = Duration::from_millis(fastrand::u64(within));
        let killer = tokio::task::spawn_blocking(move || {
            std::thread::sleep(wait);
            // The session may have ended already.
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

/// After a session is lost, the server may still be committing. The rows are visible then, and the GTID is not executed yet.
#[tokio::test]
async fn what_a_lost_session_is_still_committing_is_not_missing() -> Result<()> {
    const GTID: &str = "07070707-0707-0707-0707-070707070707:1";
    let mut pair = Pair::with(&OF_SOURCE, &[], |_| {}).await?;
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)")?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    let mut lost = Connection::open(&options(&pair.target).connect).await?;
    for statement in [
        "SET SESSION sql_log_bin = 0",
        &format!("SET SESSION gtid_next = '{GTID}'"),
        "BEGIN",
        "INSERT INTO d.t VALUES (1)",
    ] {
        lost.execute(statement).await?;
    }
    let begins = pair.backend.begin();
    tokio::pin!(begins);
    let early = tokio::time::timeout(Duration::from_millis(300), &mut begins).await;
    ensure!(early.is_err(), "it was not waited for: {early:?}");
    lost.execute("COMMIT").await?;
    let executed = begins.await?;
    ensure!(GTID.parse::<GtidSet>()?.difference(&executed).is_empty());
    Ok(())
}

/// Kills the target's server six times. If `disk` is given, it has the target's data, and its power is cut each time.
async fn killed_servers(disk: Option<Arc<LoopDisk>>, mut pair: Pair) -> Result<()> {
    let mut ways = ways();
    for number in 0..6 {
        pair.forget_shapes();
        let mut session = reopened(&pair).await?;
        pair.backend.begin().await?;
        let mut missing = pair.missing().await?;
        let pid = pair.target.process_id().unwrap();
        let wait = Duration::from_millis(fastrand::u64(50..400));
        let dying = disk.clone();
        let client = pair.target.client();
        // A new binlog file contains the executed GTIDs, and is synced.
        let begins_a_binlog = number % 2 == 0;
        let killer = tokio::task::spawn_blocking(move || {
            std::thread::sleep(wait);
            let signal = |signal: &str| {
                let mut command = std::process::Command::new("kill");
                let status = command.args([signal, &pid.to_string()]).status()?;
                ensure!(status.success(), "{status}");
                Ok(())
            };
            if let Some(disk) = dying {
                if begins_a_binlog {
                    client.sql("FLUSH BINARY LOGS")?;
                }
                signal("-STOP")?;
                disk.cut_power()?;
            }
            signal("-KILL")
        });
        let led = pair
            .lead(&mut session, &mut missing, ways.next().unwrap())
            .await;
        killer.await??;
        match led {
            Ok(Ok(())) => {}
            Ok(Err(stop)) => ensure!(
                matches!(stop.error, WriteError::Lost(_)),
                "{}: {}",
                stop.gtid,
                stop.error
            ),
            // The server was killed before the query for its tables.
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
        if let Some(disk) = &disk {
            disk.restore_power()?;
        }
        pair.target.start()?;
    }
    pair.forget_shapes();
    pair.backend.begin().await?;
    pair.equal_after(Way::AsOne(32), &["d"]).await
}

/// Creates a pair. The target has these settings, and its data is on a loop device.
async fn on_a_disk(of_target: &[&str], transactions: u32) -> Result<(LoopDisk, Pair)> {
    let disk = LoopDisk::of_its_own(2 << 30)?;
    let target = server_on(disk.folder(), 2, of_target)?;
    // Sync, as if the target had existed for a long time.
    disk.force()?;
    let pair = Pair::between(&OF_SOURCE, target, |_| {}).await?;
    Ok((disk, furnished(pair, transactions).await?))
}

/// Cuts the power of the target's host, and starts the target with the content of its disk.
fn lose_power(pair: &mut Pair, disk: &LoopDisk) -> Result<()> {
    pair.target.pause()?;
    disk.cut_power()?;
    pair.target.kill()?;
    disk.restore_power()?;
    pair.target.start()
}

async fn power_cuts(of_target: &[&str]) -> Result<()> {
    let (disk, pair) = on_a_disk(of_target, TRANSACTIONS).await?;
    killed_servers(Some(Arc::new(disk)), pair).await
}

const TRANSACTIONS: u32 = 4000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysqld_with_a_binlog_that_is_killed_loses_and_repeats_nothing() -> Result<()> {
    killed_servers(None, prepared(&[], TRANSACTIONS).await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysqld_without_a_binlog_that_is_killed_loses_and_repeats_nothing() -> Result<()> {
    let pair = prepared(&["--skip-log-bin"], TRANSACTIONS).await?;
    killed_servers(None, pair).await
}

/// The target has the settings of a follower: it syncs its redo log and not its binlog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysqld_with_a_binlog_whose_power_goes_loses_and_repeats_nothing() -> Result<()> {
    power_cuts(&["--sync-binlog=0"]).await
}

/// The target loses commits together with their GTIDs, and receives them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mysqld_that_forces_its_log_once_a_second_and_has_no_binlog_gets_again_what_went_with_the_power()
-> Result<()> {
    power_cuts(&["--skip-log-bin", "--innodb-flush-log-at-trx-commit=2"]).await
}

/// Shows why a follower with a binlog syncs its redo log at every commit. The operating system writes both files in an
/// undefined order. If the binlog is written first, its GTIDs outlive their rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gtids_outlive_their_rows_where_the_binlog_is_forced_and_the_redo_log_once_a_second()
-> Result<()> {
    let settings = ["--sync-binlog=1", "--innodb-flush-log-at-trx-commit=2"];
    let (disk, mut pair) = on_a_disk(&settings, 0).await?;
    // The redo log may be synced right after the commit, so several attempts are made.
    for number in 1..=5 {
        pair.write(&format!("INSERT INTO d.t VALUES ({number}, 0)"))?;
        ensure!(pair.follow(Way::Batches(1)).await?.is_ok());
        lose_power(&mut pair, &disk)?;
        ensure!(pair.source.client().gtid_executed()? == pair.target.client().gtid_executed()?);
        let rows = "SELECT COUNT(*) FROM d.t";
        if pair.source.client().value(rows)? != pair.target.client().value(rows)? {
            return Ok(());
        }
        pair.backend.begin().await?;
    }
    bail!("no row was lost")
}

/// The applier outlives a power cut of the target, as it would on another machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_target_has_lost_with_its_power_is_not_published_by_the_applier_that_outlived_it()
-> Result<()> {
    let settings = ["--skip-log-bin", "--innodb-flush-log-at-trx-commit=2"];
    let (disk, mut pair) = on_a_disk(&settings, 0).await?;
    // The redo log may be synced right after the commit, so several attempts are made.
    for number in 1..=5 {
        pair.write(&format!("INSERT INTO d.t VALUES ({number}, 0)"))?;
        // The lock delays the publication of the GTID, and the power is cut in the meantime.
        let lock = "BEGIN; SELECT 'locked' FROM mysql.gtid_executed FOR UPDATE; SELECT SLEEP(60)";
        let mut holder = pair.target.client().start_sql(lock)?;
        let locks = "SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_name = 'gtid_executed'";
        try_eventually("the table is locked", Duration::from_secs(20), || {
            Ok(pair.target.client().value(locks)? != "0")
        })?;
        ensure!(pair.follow(Way::AsOne(1)).await?.is_ok());
        lose_power(&mut pair, &disk)?;
        // Publishes everything that can be published.
        pair.backend.settle().await;
        let is_executed =
            pair.source.client().gtid_executed()? == pair.target.client().gtid_executed()?;
        let rows = "SELECT COUNT(*) FROM d.t";
        let is_there = pair.source.client().value(rows)? == pair.target.client().value(rows)?;
        ensure!(
            is_executed == is_there,
            "executed: {is_executed}, there: {is_there}"
        );
        ensure!(holder.is_finished()?);
        pair.backend.begin().await?;
        pair.equal_after(Way::AsOne(1), &["d"]).await?;
        if !is_there {
            return Ok(());
        }
    }
    bail!("no row was lost")
}

/// Shows why XA transactions are written to the target's binlog even if other transactions are not.
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
