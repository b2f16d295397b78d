//! Tables of engines without transactions: a rollback does not remove their rows, and each row is written once or not at all.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use applier::backend::{Backend, Session, WriteError};
use applier::mysql::MysqlBackend;
use applier::schema::TableName;
use mysql_link::Connection;

use crate::pair::{Pair, Way, connect, options, server};

/// Numbers of rows of a megabyte each: enough for a kill in between on an idle machine, and the maximum.
const ROWS: [u64; 2] = [64, 256];

/// A table without any key, so that it accepts duplicate rows.
const KEYLESS: &str = "CREATE DATABASE d; CREATE TABLE d.m (i INT, b LONGBLOB) ENGINE = MyISAM";

fn count(pair: &Pair) -> Result<u64> {
    let client = pair.target.client();
    Ok(client.value("SELECT COUNT(*) FROM d.m")?.parse()?)
}

/// Kills the session that writes a file. If the first kill arrives between two of its statements, kills it again. After a killed
/// statement the file grows by at most one row.
async fn kill_while_it_grows(
    file: PathBuf,
    mut killer: Connection,
    kill: String,
) -> Result<Infallible> {
    let mut killed_at = 0;
    loop {
        let length = std::fs::metadata(&file).map_or(0, |file| file.len());
        if length >= killed_at + (2 << 20) {
            killer.execute(&kill).await?;
            killed_at = length;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Follows an insert of all rows, logged in this format. The session is killed while it writes them. Returns the reason of the stop,
/// and the number of rows.
async fn killed_among_them(pair: &mut Pair, format: &str, kill: &str) -> Result<(WriteError, u64)> {
    let file = pair.target.data_dir().join("d/m.MYD");
    // In statement format the server writes all rows within one statement, in less time than a busy machine needs to kill it.
    let of_each = if format == "STATEMENT" { 0.02 } else { 0.0 };
    // A busy machine may kill too late, so the next attempt has more rows.
    let [mut rows, most] = ROWS;
    for _ in 0..10 {
        pair.write(&format!(
            "TRUNCATE TABLE d.m; SET SESSION binlog_format = {format}; INSERT INTO d.m WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
             SELECT i, REPEAT('x', 1 << 20) FROM n WHERE SLEEP({of_each}) = 0"
        ))?;
        let mut session = pair.backend.open().await?;
        let killer = Connection::open(&connect(&pair.target, "root")).await?;
        let kill = format!("{kill} {}", session.id().0);
        // Removes the rows of an earlier attempt, which must not count.
        pair.tamper("TRUNCATE TABLE d.m")?;
        let mut missing = pair.missing().await?;
        // A separate task, because the task that applies encodes rows for many milliseconds at a time.
        let killing = tokio::spawn(kill_while_it_grows(file.clone(), killer, kill));
        let led = pair
            .lead(&mut session, &mut missing, Way::Batches(8))
            .await?;
        killing.abort();
        if let Err(stop) = led {
            return Ok((stop.error, rows));
        }
        if let Ok(failed) = killing.await {
            failed?;
        }
        rows = most.min(2 * rows);
    }
    anyhow::bail!("they were through each time before they were killed")
}

async fn refused(pair: &mut Pair) -> Result<String> {
    let stop = pair.follow(Way::Batches(8)).await?;
    let error = stop.expect_err("it begins again").error;
    ensure!(matches!(error, WriteError::Refused(_)), "{error:?}");
    Ok(error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_nobody_can_take_back_are_not_written_twice_where_their_session_is_killed()
-> Result<()> {
    for (batches, format, kill) in [
        (true, "ROW", "KILL"),
        (true, "ROW", "KILL QUERY"),
        (false, "ROW", "KILL"),
        (true, "STATEMENT", "KILL"),
        (false, "STATEMENT", "KILL"),
    ] {
        let mut pair = Pair::with(&[], &[], |options| options.batches = batches).await?;
        pair.write(KEYLESS)?;
        pair.equal_after(Way::Batches(8), &["d"]).await?;
        let (why, rows) = killed_among_them(&mut pair, format, kill).await?;
        match kill {
            "KILL" => ensure!(matches!(why, WriteError::Lost(_)), "{why:?}"),
            _ => ensure!(why.to_string().contains("stay in d.m"), "{why:?}"),
        }
        let written = count(&pair)?;
        ensure!((1..rows).contains(&written), "{written} rows");

        // The transaction is refused both in the same run and in another run.
        for _ in 0..2 {
            let message = refused(&mut pair).await?;
            ensure!(
                message.contains("begun before") && message.contains("d.m, whose engine"),
                "{message}"
            );
            ensure!(count(&pair)? == written);
            if batches {
                pair.backend.settle().await;
                pair.backend = MysqlBackend::connect(options(&pair.target)).await?;
                pair.backend.begin().await?;
            }
        }

        // After checking the rows, an operator may let the transaction begin again.
        pair.tamper("DELETE FROM d.m")?;
        match batches {
            true => {
                pair.tamper("UPDATE witness_applier.checkpoint SET gtids = '' WHERE id = 2")?;
            }
            false => {
                let mut without = options(&pair.target);
                without.batches = false;
                pair.backend = MysqlBackend::connect(without).await?;
            }
        }
        pair.equal_after(Way::Batches(8), &["d"]).await?;
        ensure!(count(&pair)? == rows);
        pair.write("INSERT INTO d.m VALUES (0, ''); DELETE FROM d.m WHERE i < 3; UPDATE d.m SET i = 7 WHERE i = 4")?;
        pair.equal_after(Way::Batches(8), &["d"]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn rows_that_stay_in_mysqld_behind_a_failure_are_told_from_those_that_were_never_there()
-> Result<()> {
    let mut pair = Pair::with(&[], &["--max-error-count=0"], |options| {
        options.lock_wait = Duration::from_secs(1)
    })
    .await?;
    pair.write(&format!("{KEYLESS}; CREATE TABLE d.k (i INT PRIMARY KEY) ENGINE = MyISAM; CREATE TABLE d.t (i INT PRIMARY KEY)"))?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;

    // Nothing was written while the transaction waited for a lock, so it is retried.
    pair.write("INSERT INTO d.k VALUES (1), (2)")?;
    let mut holder = Connection::open(&connect(&pair.target, "root")).await?;
    holder.execute("LOCK TABLES d.k READ").await?;
    let stop = pair
        .follow(Way::Batches(8))
        .await?
        .expect_err("it is locked");
    ensure!(
        matches!(stop.error, WriteError::Again(_)),
        "{:?}",
        stop.error
    );
    holder.close().await;
    pair.equal_after(Way::Batches(8), &["d"]).await?;

    // The first two rows are written, and the third one is a duplicate. The transaction is not retried, since a retry would stop at the
    // first row.
    pair.tamper("INSERT INTO d.k VALUES (5)")?;
    pair.write("INSERT INTO d.k VALUES (3), (4), (5)")?;
    let message = refused(&mut pair).await?;
    ensure!(
        message.contains("1062") && message.contains("stay in d.k"),
        "{message}"
    );
    let message = refused(&mut pair).await?;
    ensure!(message.contains("begun before"), "{message}");
    pair.tamper("DELETE FROM d.k WHERE i > 2; UPDATE witness_applier.checkpoint SET gtids = '' WHERE id = 2")?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;

    // A statement that fails halfway is not retried either, whatever kind of table it writes to.
    pair.tamper("INSERT INTO d.m VALUES (1, ''), (2, ''); CREATE UNIQUE INDEX one ON d.m (i)")?;
    pair.write("SET binlog_format = STATEMENT; INSERT INTO d.m VALUES (3, ''), (2, '')")?;
    let message = refused(&mut pair).await?;
    ensure!(
        message.contains("1062") && message.contains("stay in"),
        "{message}"
    );
    let message = refused(&mut pair).await?;
    ensure!(message.contains("may write to d.k, d.m"), "{message}");
    pair.tamper("DROP INDEX one ON d.m; DELETE FROM d.m; UPDATE witness_applier.checkpoint SET gtids = '' WHERE id = 2")?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;

    // A failure after which no changes remain is refused as usual, and retried when the cause is removed.
    pair.tamper("INSERT INTO d.t VALUES (1)")?;
    pair.write("INSERT INTO d.t VALUES (1)")?;
    let message = refused(&mut pair).await?;
    ensure!(
        message.contains("1062") && !message.contains("stay"),
        "{message}"
    );
    pair.tamper("DELETE FROM d.t")?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;

    // After the log has dropped the last table without transactions, statements are handled as usual.
    pair.write("DROP TABLE d.k, d.m; SET binlog_format = STATEMENT; UPDATE d.t SET i = 2")?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;
    let noted = "SELECT gtids FROM witness_applier.checkpoint WHERE id = 2";
    let noted = pair.target.client().value(noted)?;
    pair.write("SET binlog_format = STATEMENT; UPDATE d.t SET i = 3")?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;
    let last = pair
        .target
        .client()
        .value("SELECT gtids FROM witness_applier.checkpoint WHERE id = 2")?;
    ensure!(last == noted, "{last} is noted");
    Ok(())
}

#[tokio::test]
async fn the_engine_of_a_table_of_mysqld_says_whether_its_rows_can_be_taken_back() -> Result<()> {
    let target = server(2, &[])?;
    let engines = [
        ("MyISAM", true),
        ("ARCHIVE", true),
        ("CSV", true),
        ("MEMORY", true),
        ("BLACKHOLE", false),
        ("InnoDB", false),
    ];
    target.client().sql("CREATE DATABASE d")?;
    for (engine, _) in engines {
        let sql = format!("CREATE TABLE d.{engine} (i INT NOT NULL) ENGINE = {engine}");
        target.client().sql(&sql)?;
    }
    let backend = MysqlBackend::connect(options(&target)).await?;
    let names = engines.map(|(engine, _)| TableName::new("d", engine));
    let shapes = backend.tables(&names).await?;
    for ((engine, without), shape) in engines.into_iter().zip(shapes) {
        let said = shape.and_then(|shape| shape.without_transactions);
        assert_eq!(said.as_deref(), without.then_some(engine));
    }
    Ok(())
}
