//! Refusals of the target: the report contains the table, the row and the server's message, and no change of the
//! transaction remains.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use applier::backend::{Backend, Refusal, Session, Then, WriteError};
use applier::batch::{Batch, BatchSeq, Commits};
use applier::mysql::MysqlSession;
use applier::transaction::Transaction;

use mysql_link::Connection;

use crate::pair::{Pair, Stop, Way, alone, connect};

fn refusal(error: &WriteError) -> &Refusal {
    match error {
        WriteError::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Returns the table, row and error number of a refusal.
fn place(stop: &Stop) -> (Option<String>, Option<usize>, u16) {
    let refusal = refusal(&stop.error);
    (
        refusal.table.as_ref().map(ToString::to_string),
        refusal.row,
        refusal.code,
    )
}

async fn tables() -> Result<Pair> {
    let mut pair = Pair::with(&[], &[], |options| {
        options.lock_wait = Duration::from_secs(1)
    })
    .await?;
    pair.write(
        "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, v INT, UNIQUE (v)); CREATE TABLE child (id INT PRIMARY KEY, t INT, \
         FOREIGN KEY (t) REFERENCES t (id)); CREATE TABLE keyless (a INT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4); INSERT INTO keyless VALUES (1), (2)",
    )?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    Ok(pair)
}

fn one_by_one<'a>(all: impl IntoIterator<Item = &'a Arc<Transaction>>) -> Arc<Batch> {
    let all = all.into_iter().cloned().collect();
    Arc::new(Batch::new(BatchSeq(0), Commits::OneByOne, all))
}

#[tokio::test]
async fn a_stop_says_where_and_goes_on_when_the_cause_is_gone_from_mysqld() -> Result<()> {
    let mut pair = tables().await?;
    let six = "BEGIN; UPDATE d.t SET v = v + 10 WHERE id IN (1, 2); INSERT INTO d.child VALUES (1, 1), (2, 2); UPDATE d.t SET v = 33 WHERE id = 3; DELETE FROM d.t WHERE id = 4; COMMIT";
    // Each case: the change that causes the problem at the target, the source's statement, the place of the
    // refusal, and the fix.
    let cases = [
        (
            "DELETE FROM d.t WHERE id = 3",
            six,
            (Some("d.t"), Some(5), 1032),
            "INSERT INTO d.t VALUES (3, 3)",
        ),
        (
            "DELETE FROM d.t WHERE id = 3",
            "DELETE FROM d.t WHERE id = 3",
            (Some("d.t"), Some(1), 1032),
            "INSERT INTO d.t VALUES (3, 33)",
        ),
        (
            "INSERT INTO d.t VALUES (7, 70)",
            "INSERT INTO d.t VALUES (5, 50), (6, 60), (7, 7), (8, 80)",
            (Some("d.t"), Some(3), 1062),
            "DELETE FROM d.t WHERE id = 7",
        ),
        (
            "INSERT INTO d.t VALUES (99, 100)",
            "INSERT INTO d.t VALUES (9, 100)",
            (Some("d.t"), Some(1), 1062),
            "DELETE FROM d.t WHERE id = 99",
        ),
        (
            "DELETE FROM d.keyless WHERE a = 1",
            "UPDATE d.keyless SET a = a + 10 WHERE a = 1",
            (Some("d.keyless"), Some(1), 1032),
            "INSERT INTO d.keyless VALUES (1)",
        ),
        (
            "RENAME TABLE d.keyless TO d.other",
            "INSERT INTO d.keyless VALUES (5)",
            (Some("d.keyless"), Some(1), 1146),
            "RENAME TABLE d.other TO d.keyless",
        ),
        (
            "ALTER TABLE d.keyless MODIFY a VARCHAR(3)",
            "INSERT INTO d.keyless VALUES (6)",
            (Some("d.keyless"), Some(1), 1105),
            "ALTER TABLE d.keyless MODIFY a INT",
        ),
    ];
    // Missing rows are refused even if the server's own replica would ignore them.
    pair.tamper("SET GLOBAL replica_exec_mode = IDEMPOTENT")?;
    for (number, (harm, write, (table, row, code), fix)) in cases.into_iter().enumerate() {
        let ways = [Way::Batches(8), Way::Batches(1), Way::Pieces(number as u64)];
        pair.write("INSERT INTO d.keyless VALUES (100)")?;
        pair.tamper(harm)?;
        pair.write(write)?;
        pair.write("INSERT INTO d.keyless VALUES (200)")?;
        for way in ways {
            let before = pair.target.client().value("SELECT CONCAT((SELECT COUNT(*) FROM d.t), '.', (SELECT SUM(v) FROM d.t), '.', (SELECT COUNT(*) FROM d.child))")?;
            let stop = pair.follow(way).await?.expect_err(write);
            let found = place(&stop);
            ensure!(
                found.0.as_deref() == table && found.2 == code,
                "{write}: {}",
                stop.error
            );
            // The report contains the details from the server's error log.
            ensure!(
                code != 1105
                    || stop
                        .error
                        .to_string()
                        .contains("cannot be converted from type"),
                "{}",
                stop.error
            );
            // If a transaction is written in pieces, earlier rows are not checked again.
            ensure!(found.1 == row, "{write} by {way:?}: {}", stop.error);
            ensure!(!pair.backend.executed().await?.to_string().is_empty());
            let after = pair.target.client().value("SELECT CONCAT((SELECT COUNT(*) FROM d.t), '.', (SELECT SUM(v) FROM d.t), '.', (SELECT COUNT(*) FROM d.child))")?;
            ensure!(before == after, "{write}: a part of it stayed");
            ensure!(
                pair.target
                    .client()
                    .value("SELECT @@GLOBAL.gtid_owned")?
                    .is_empty()
            );
            ensure!(!pair.target.client().gtid_executed()?.ends_with(&stop.gtid));
        }
        pair.tamper(&format!("SET foreign_key_checks = 0; {fix}"))?;
        pair.equal_after(ways[number % 3], &["d"]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn statements_that_mysqld_refuses_leave_a_session_that_goes_on() -> Result<()> {
    let mut pair = tables().await?;
    let mut session = pair.backend.open().await?;
    let cases = [
        (
            "CREATE TABLE d.there (i INT)",
            "CREATE TABLE d.there (j INT)",
            1050,
            "DROP TABLE d.there",
        ),
        (
            "ALTER TABLE d.t DROP INDEX v",
            "ALTER TABLE d.t DROP INDEX v",
            1091,
            "ALTER TABLE d.t ADD UNIQUE (v)",
        ),
        (
            "DELETE FROM d.t WHERE id = 1",
            "XA START 'q'; UPDATE d.t SET v = 11 WHERE id = 1; XA END 'q'; XA PREPARE 'q'; XA COMMIT 'q'",
            1032,
            "INSERT INTO d.t VALUES (1, 1)",
        ),
        (
            "DELETE FROM d.t WHERE id = 2",
            "SET binlog_format = MIXED; BEGIN; UPDATE d.t SET v = UUID_SHORT() % 100 + 200 WHERE id = 2; INSERT INTO d.keyless VALUES (9); COMMIT",
            1032,
            "INSERT INTO d.t VALUES (2, 2)",
        ),
        (
            "INSERT INTO d.keyless VALUES (77)",
            "CREATE TABLE d.copied (a INT PRIMARY KEY) SELECT a FROM d.keyless WHERE a < 5",
            0,
            "DELETE FROM d.keyless WHERE a = 77",
        ),
        (
            "CREATE USER known@localhost",
            "CREATE USER known@localhost IDENTIFIED BY 'a secret'",
            1396,
            "DROP USER known@localhost",
        ),
    ];
    for (harm, write, code, fix) in cases {
        pair.tamper(harm)?;
        pair.write(write)?;
        let mut missing = pair.missing().await?;
        pair.forget_shapes();
        let led = pair
            .lead(&mut session, &mut missing, Way::Batches(4))
            .await?;
        if code != 0 {
            let stop = led.expect_err(write);
            ensure!(refusal(&stop.error).code == code, "{write}: {}", stop.error);
            // mysqld logs the hash of a password; no message may contain it.
            let message = stop.error.to_string();
            ensure!(
                !message.contains("$A$") && !message.contains(" AS '"),
                "{message}"
            );
        }
        ensure!(pair.target.client().sql("XA RECOVER")?.0.is_empty());
        pair.tamper(fix)?;
        // The same session accepts the transaction after the cause is removed.
        let mut missing = pair.missing().await?;
        if let Err(stop) = pair
            .lead(&mut session, &mut missing, Way::Batches(4))
            .await?
        {
            panic!("{write}: {}", stop.error);
        }
        pair.compare(&["d"]).await?;
    }
    // A statement that failed on its source must fail here.
    pair.write("CREATE TABLE d.m (i INT PRIMARY KEY) ENGINE = MyISAM; INSERT INTO d.m VALUES (1)")?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    pair.tamper("DELETE FROM d.m")?;
    let failed = pair.write("SET binlog_format = STATEMENT; INSERT INTO d.m VALUES (5), (1), (6)");
    ensure!(failed.is_err());
    let stop = pair
        .follow(Way::Batches(4))
        .await?
        .expect_err("it did not fail");
    ensure!(
        stop.error
            .to_string()
            .contains("with error 1062 and did not here"),
        "{}",
        stop.error
    );
    Ok(())
}

/// Runs statements on the source, and returns the new transactions.
async fn transactions(pair: &mut Pair, statements: &str) -> Result<Vec<Arc<Transaction>>> {
    pair.write(statements)?;
    let mut missing = pair.missing().await?;
    let mut all = Vec::new();
    while let Some(next) = pair.next(&mut missing).await? {
        all.push(next);
    }
    Ok(all)
}

fn is_again(outcome: &Result<(), WriteError>) -> bool {
    matches!(outcome, Err(WriteError::Again(_)))
}

/// Locks a row until the session's end.
async fn hold(pair: &Pair, id: u32) -> Result<Connection> {
    let mut holder = Connection::open(&connect(&pair.target, "root")).await?;
    holder.execute("BEGIN").await?;
    let row = format!("SELECT v FROM d.t WHERE id = {id} FOR UPDATE");
    holder.query(row).await?;
    Ok(holder)
}

#[tokio::test]
async fn locks_that_are_not_had_in_mysqld_make_a_transaction_come_again() -> Result<()> {
    let mut pair = tables().await?;
    let both = transactions(
        &mut pair,
        "BEGIN; UPDATE d.t SET v = 10 WHERE id = 1; UPDATE d.t SET v = 20 WHERE id = 2; COMMIT;
         BEGIN; UPDATE d.t SET v = 200 WHERE id = 2; UPDATE d.t SET v = 100 WHERE id = 1; COMMIT; INSERT INTO d.keyless VALUES (3)",
    )
    .await?;
    let [first_one, other_one, third] = &both[..] else {
        panic!("three");
    };

    let (one, other) = (alone(first_one), alone(other_one));
    let mut first: MysqlSession = pair.backend.open().await?;
    let mut second: MysqlSession = pair.backend.open().await?;

    // Another session has a lock.
    let client = pair.target.client();
    let holder = hold(&pair, 2).await?;
    ensure!(is_again(
        &first.write(&one, 0..2, Then::Commit, || ()).await
    ));
    // No change of the transaction remains, and the session immediately accepts another one.
    ensure!(client.value("SELECT v FROM d.t WHERE id = 1")? == "1");
    let (committed, outcome) = first.apply(&one_by_one([third, first_one]), 0).await;
    ensure!(
        committed == 1 && is_again(&outcome),
        "{committed} {outcome:?}"
    );
    drop(holder);

    // A deadlock: one of the two transactions must be retried, and the other one continues.
    first.write(&one, 0..1, Then::StayOpen, || ()).await?;
    second.write(&other, 0..1, Then::StayOpen, || ()).await?;
    let outcomes = tokio::join!(
        first.write(&one, 1..2, Then::Commit, || ()),
        second.write(&other, 1..2, Then::StayOpen, || ())
    );
    ensure!(
        is_again(&outcomes.0) != is_again(&outcomes.1),
        "{outcomes:?}"
    );
    second.roll_back().await?;
    if outcomes.0.is_err() {
        first.write(&one, 0..2, Then::Commit, || ()).await?;
    }
    second.write(&other, 0..2, Then::Commit, || ()).await?;
    pair.compare(&["d"]).await?;

    // A killed statement is retried; a killed connection is lost.
    let more = transactions(&mut pair, "UPDATE d.t SET v = 3000 WHERE id = 3").await?;
    let again = alone(&more[0]);
    for (kill, comes_again) in [("KILL QUERY", true), ("KILL", false)] {
        let holder = hold(&pair, 3).await?;
        let id = first.id().0;
        let mut administrator = Connection::open(&connect(&pair.target, "root")).await?;
        let killer = async {
            const WAITS: &str = "SELECT 1 FROM performance_schema.data_lock_waits LIMIT 1";
            while administrator.query(WAITS).await?.rows.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            administrator.execute(format!("{kill} {id}")).await
        };
        let (outcome, killed) =
            tokio::join!(first.write(&again, 0..1, Then::Commit, || ()), killer);
        killed?;
        match &outcome {
            Err(WriteError::Again(_)) => ensure!(comes_again),
            Err(WriteError::Lost(_)) => ensure!(!comes_again),
            other => panic!("{other:?}"),
        }
        drop(holder);
    }
    let lost = first.write(&again, 0..1, Then::Commit, || ()).await;
    ensure!(matches!(lost, Err(WriteError::Lost(_))), "{lost:?}");
    let (_, outcome) = second.apply(&one_by_one(&more), 0).await;
    outcome?;
    pair.compare(&["d"]).await
}

/// If the statement gave up, its rebuilt table would be discarded, and a retry would start from the beginning.
#[tokio::test]
async fn a_statement_waits_for_readers_of_its_table_and_is_done_once() -> Result<()> {
    let mut pair = tables().await?;
    pair.write(
        "ALTER TABLE d.t ADD COLUMN w INT, ALGORITHM = COPY; INSERT INTO d.t (id, v) VALUES (5, 5)",
    )?;
    let client = pair.target.client();
    let holder = client.start_sql("BEGIN; SELECT COUNT(*) FROM d.t; DO SLEEP(4); COMMIT")?;
    let holds = "SELECT COUNT(*) FROM performance_schema.metadata_locks WHERE object_schema = 'd' AND object_name = 't'";
    while client.value(holds)? == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let count = "SELECT count_star FROM performance_schema.events_statements_summary_global_by_event_name \
                 WHERE event_name = 'statement/sql/alter_table'";
    let before: u64 = client.value(count)?.parse()?;
    pair.forget_shapes();
    if let Err(stop) = pair.follow(Way::Batches(4)).await? {
        anyhow::bail!("{}: {}", stop.gtid, stop.error);
    }
    let after: u64 = client.value(count)?.parse()?;
    ensure!(after == before + 1, "{} times", after - before);
    holder.finish(Duration::from_secs(20))?;

    // The timeout for row locks is unchanged.
    pair.write("UPDATE d.t SET v = 50 WHERE id = 5")?;
    let holder = client.start_sql("LOCK TABLES d.t READ; DO SLEEP(3)")?;
    while client.value(holds)? == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stop = pair.follow(Way::Batches(4)).await?.expect_err("it waits");
    ensure!(matches!(stop.error, WriteError::Again(_)), "{}", stop.error);
    holder.finish(Duration::from_secs(20))?;
    pair.equal_after(Way::Batches(4), &["d"]).await
}

/// Two transactions take their full-text document ids in one order and commit in the other. InnoDB accepts only
/// growing ids.
#[tokio::test]
async fn an_order_that_full_text_indexes_do_not_take_is_refused_with_what_helps() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (FTS_DOC_ID BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, words TEXT, FULLTEXT f (words))",
    )?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    let mut first = Connection::open(&connect(&pair.source, "root")).await?;
    first.execute("BEGIN").await?;
    first
        .execute("INSERT INTO d.t (words) VALUES ('late')")
        .await?;
    pair.write("INSERT INTO d.t (words) VALUES ('early')")?;
    first.execute("COMMIT").await?;
    let stop = pair
        .follow(Way::Batches(4))
        .await?
        .expect_err("it is refused");
    let message = stop.error.to_string();
    ensure!(
        place(&stop).0.as_deref() == Some("d.t") && message.contains("drop the table's FULLTEXT"),
        "{message}"
    );
    pair.tamper("ALTER TABLE d.t DROP INDEX f")?;
    if let Err(stop) = pair.follow(Way::Batches(4)).await? {
        anyhow::bail!("{}", stop.error);
    }
    pair.tamper("ALTER TABLE d.t ADD FULLTEXT INDEX f (words)")?;
    pair.compare(&["d"]).await
}

/// Settings or plugins of the source that the log does not contain, and that the target needs.
#[tokio::test]
async fn what_only_the_source_has_is_refused_with_what_helps() -> Result<()> {
    let mut pair = tables().await?;
    pair.write(
        "SET GLOBAL partial_revokes = ON; INSTALL PLUGIN mysql_no_login SONAME 'mysql_no_login.so'; \
         INSTALL PLUGIN simple_parser SONAME 'mypluglib.so'",
    )?;
    let cases = [
        (
            "CREATE USER u; GRANT SELECT ON *.* TO u; REVOKE SELECT ON mysql.* FROM u",
            "SET PERSIST partial_revokes = ON",
            "SET PERSIST partial_revokes = ON",
        ),
        (
            "CREATE USER without_login IDENTIFIED WITH mysql_no_login",
            "INSTALL PLUGIN … SONAME",
            "INSTALL PLUGIN mysql_no_login SONAME 'mysql_no_login.so'",
        ),
        (
            "CREATE TABLE d.parsed (a INT PRIMARY KEY, t TEXT, FULLTEXT KEY (t) WITH PARSER simple_parser)",
            "INSTALL PLUGIN … SONAME",
            "INSTALL PLUGIN simple_parser SONAME 'mypluglib.so'",
        ),
        (
            "SET binlog_format = STATEMENT; CREATE TEMPORARY TABLE d.passing (a INT); INSERT INTO d.passing VALUES (5); \
             INSERT INTO d.keyless SELECT a FROM d.passing",
            "binlog_format = ROW",
            "",
        ),
    ];
    for (write, helps, fix) in cases {
        pair.write(write)?;
        if fix.is_empty() {
            // The session with the temporary table is lost.
            let mut missing = pair.missing().await?;
            let created = pair.next(&mut missing).await?;
            let created = created.context("CREATE TEMPORARY TABLE is not logged")?;
            let mut session = pair.backend.open().await?;
            session.run_barrier(&created).await?;
        }
        let stop = pair.follow(Way::Batches(4)).await?.expect_err(write);
        let message = stop.error.to_string();
        ensure!(message.contains(helps), "{message}");
        if !fix.is_empty() {
            pair.tamper(fix)?;
            pair.equal_after(Way::Batches(4), &["d"]).await?;
        }
    }
    Ok(())
}
