//! Batches that commit as one: never before the previous batch, never twice, and always with their GTIDs published in the
//! end, even if a session is lost, a server fails, or another applier starts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use applier::backend::{Backend, Session, Then, Turn, WriteError};
use applier::batch::{Batch, BatchSeq, Commits};
use applier::mysql::{MysqlBackend, MysqlOptions, MysqlSession, complete_gtid_executed};
use binlog_format::gtid::GtidSet;
use mysql_link::Connection;
use testkit::wait::try_eventually;

use crate::pair::{Pair, Way, connect};

/// Creates a table with one row on both servers. Returns the source's next transactions as batches: rows 1 and 2, 3 and 4, 5
/// and 6.
async fn prepared(
    of_target: &[&str],
    change: impl Fn(&mut MysqlOptions),
) -> Result<(Pair, [Arc<Batch>; 3])> {
    let mut pair = Pair::with(&[], of_target, change).await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY); INSERT INTO d.t VALUES (0)",
    )?;
    ensure!(pair.follow(Way::Batches(1)).await?.is_ok());
    let inserts: String = (1..=6)
        .map(|i| format!("INSERT INTO d.t VALUES ({i});"))
        .collect();
    pair.write(&inserts)?;
    let mut missing = pair.missing().await?;
    let mut all = Vec::new();
    while let Some(transaction) = pair.next(&mut missing).await? {
        all.push(transaction);
    }
    ensure!(all.len() == 6);
    let batch = |at: usize| {
        let two = all[2 * at..2 * at + 2].to_vec();
        Arc::new(Batch::new(BatchSeq(at as u64 + 101), Commits::AsOne, two))
    };
    Ok((pair, [batch(0), batch(1), batch(2)]))
}

async fn as_one(
    session: &mut MysqlSession,
    batch: &Arc<Batch>,
    turn: Turn,
) -> Result<(), WriteError> {
    session
        .write(batch, 0..batch.rows(), Then::InTurn(turn), || ())
        .await
}

/// Opens a session that locks the checkpoint row, so that no batch can take its turn.
async fn holds_the_row(pair: &Pair) -> Result<Connection> {
    let mut holder = Connection::open(&connect(&pair.target, "root")).await?;
    holder.execute("BEGIN").await?;
    holder
        .query("SELECT n FROM witness_applier.checkpoint WHERE id = 1 FOR UPDATE")
        .await?;
    Ok(holder)
}

/// Waits until `count` sessions wait for the checkpoint row.
async fn until_they_wait(pair: &Pair, count: &str) -> Result<()> {
    let waits =
        "SELECT COUNT(DISTINCT requesting_thread_id) FROM performance_schema.data_lock_waits";
    for _ in 0..3_000 {
        if pair.target.client().value(waits)? == count {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    anyhow::bail!("no session waits for the row")
}

/// A session commits a batch, and is lost while the batch waits for its turn.
async fn lost_while_it_waits(
    pair: &Pair,
    mut lost: MysqlSession,
    batch: &Arc<Batch>,
) -> Result<()> {
    tokio::select! {
        done = as_one(&mut lost, batch, Turn::First) => anyhow::bail!("it has not waited: {done:?}"),
        waits = until_they_wait(pair, "1") => waits,
    }
}

/// Returns the rows in the table, without the first one.
fn rows(pair: &Pair) -> Result<String> {
    let all = "SELECT COALESCE(GROUP_CONCAT(i ORDER BY i), '') FROM d.t WHERE i > 0";
    pair.target.client().value(all)
}

/// Commits the first batch. The second and the third batch then wait for their turns while another session locks the
/// checkpoint row. `then` receives that session, and the id of the second batch's session. Returns both results, and how
/// often a turn was passed on.
async fn second_and_third<F: Future<Output = Result<()>>>(
    pair: &Pair,
    [first, second, third]: &[Arc<Batch>; 3],
    then: impl FnOnce(Connection, u64) -> F,
) -> Result<([Result<(), WriteError>; 2], u32)> {
    let mut sessions = [pair.backend.open().await?, pair.backend.open().await?];
    as_one(&mut sessions[0], first, Turn::First).await?;
    ensure!(rows(pair)? == "1,2");
    let holder = holds_the_row(pair).await?;
    let passed = AtomicU32::new(0);
    let count = || {
        passed.fetch_add(1, Relaxed);
    };
    let [of_second, of_third] = &mut sessions;
    let id = of_second.id().0;
    let order = async {
        until_they_wait(pair, "2").await?;
        ensure!(rows(pair)? == "1,2", "they have not waited");
        then(holder, id).await
    };
    let second = of_second.write(second, 0..2, Then::InTurn(Turn::Next), count);
    let third = async {
        until_they_wait(pair, "1").await?;
        Ok::<_, anyhow::Error>(
            of_third
                .write(third, 0..2, Then::InTurn(Turn::Next), count)
                .await,
        )
    };
    let (second, third, ordered) = tokio::join!(second, third, order);
    ordered?;
    Ok(([second, third?], passed.load(Relaxed)))
}

#[tokio::test]
async fn the_next_one_commits_when_the_one_before_it_has() -> Result<()> {
    for of_target in [&["--skip-log-bin"][..], &[]] {
        let (pair, all) = prepared(of_target, |_| {}).await?;
        let commits =
            async |mut holder: Connection, _| Ok(holder.execute("COMMIT").await.map(|_| ())?);
        let (done, passed) = second_and_third(&pair, &all, commits).await?;
        ensure!(done.iter().all(Result::is_ok) && passed == 2, "{done:?}");
        pair.compare(&["d"]).await?;
    }
    Ok(())
}

/// The second batch's session dies while the batch waits for its turn.
#[tokio::test]
async fn nobody_commits_behind_a_session_that_died() -> Result<()> {
    let (pair, all) = prepared(&[], |_| {}).await?;
    let target = pair.target.client();
    let dies = async |mut holder: Connection, second| {
        target.sql(&format!("KILL {second}"))?;
        until_they_wait(&pair, "1").await?;
        Ok(holder.execute("COMMIT").await.map(|_| ())?)
    };
    let ([second, third], passed) = second_and_third(&pair, &all, dies).await?;
    ensure!(matches!(&second, Err(WriteError::Lost(_))), "{second:?}");
    ensure!(matches!(&third, Err(WriteError::Again(_))), "{third:?}");
    ensure!(passed == 0 && rows(&pair)? == "1,2");
    // Another session continues with the second batch.
    let mut session = pair.backend.open().await?;
    as_one(&mut session, &all[1], Turn::First).await?;
    as_one(&mut session, &all[2], Turn::Next).await?;
    pair.compare(&["d"]).await
}

#[tokio::test]
async fn nobody_commits_behind_a_batch_that_was_rolled_back() -> Result<()> {
    let (pair, all) = prepared(&[], |_| {}).await?;
    let target = pair.target.client();
    let stopped = async |mut holder: Connection, second| {
        target.sql(&format!("KILL QUERY {second}"))?;
        until_they_wait(&pair, "1").await?;
        Ok(holder.execute("COMMIT").await.map(|_| ())?)
    };
    let (done, passed) = second_and_third(&pair, &all, stopped).await?;
    let again = |one: &Result<_, _>| matches!(one, Err(WriteError::Again(_)));
    ensure!(done.iter().all(again), "{done:?}");
    ensure!(passed == 0 && rows(&pair)? == "1,2");
    Ok(())
}

#[tokio::test]
async fn a_turn_that_is_waited_for_too_long_is_not_had() -> Result<()> {
    let (mut pair, all) =
        prepared(&[], |options| options.lock_wait = Duration::from_secs(1)).await?;
    let mut kept = None;
    let keeps = async |holder: Connection, _| {
        kept = Some(holder);
        Ok(())
    };
    let (done, passed) = second_and_third(&pair, &all, keeps).await?;
    let again = |one: &Result<_, _>| matches!(one, Err(WriteError::Again(_)));
    ensure!(done.iter().all(again), "{done:?}");
    ensure!(passed == 0 && rows(&pair)? == "1,2");
    kept.context("the holder")?.execute("ROLLBACK").await?;
    pair.equal_after(Way::AsOne(2), &["d"]).await
}

/// The connection breaks while its batch waits for its turn. mysqld continues and executes the COMMIT.
#[tokio::test]
async fn a_commit_that_goes_on_without_its_session_is_not_repeated() -> Result<()> {
    let (pair, [first, second, _]) = prepared(&[], |_| {}).await?;
    let lost = pair.backend.open().await?;
    let mut session = pair.backend.open().await?;
    let mut holder = holds_the_row(&pair).await?;
    lost_while_it_waits(&pair, lost, &first).await?;
    holder.execute("COMMIT").await?;
    while rows(&pair)? != "1,2" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A caller with an outdated answer repeats the batch. Its rows are refused. Applied one by one, the transactions are
    // found to be committed.
    let refused = as_one(&mut session, &first, Turn::First).await;
    ensure!(
        matches!(&refused, Err(WriteError::Refused(_))),
        "{refused:?}"
    );
    let (committed, outcome) = session.apply(&first, 0).await;
    ensure!(committed == 2 && outcome.is_ok(), "{outcome:?}");
    as_one(&mut session, &second, Turn::First).await?;
    ensure!(rows(&pair)? == "1,2,3,4");
    Ok(())
}

/// As above, with a query for the committed transactions, which waits for the commit.
#[tokio::test]
async fn a_commit_that_goes_on_without_its_session_is_waited_for() -> Result<()> {
    let (pair, [first, second, _]) = prepared(&[], |_| {}).await?;
    let lost = pair.backend.open().await?;
    let mut holder = holds_the_row(&pair).await?;
    lost_while_it_waits(&pair, lost, &first).await?;
    let released = async {
        until_they_wait(&pair, "2").await?;
        Ok::<_, anyhow::Error>(holder.execute("COMMIT").await?)
    };
    let (executed, released) = tokio::join!(pair.backend.executed(), released);
    released?;
    let gtid = first.transactions()[1].gtid;
    ensure!(executed?.contains(&gtid) && rows(&pair)? == "1,2");
    as_one(&mut pair.backend.open().await?, &second, Turn::First).await?;
    ensure!(rows(&pair)? == "1,2,3,4");
    Ok(())
}

#[tokio::test]
async fn two_appliers_at_one_target_do_not_repeat_one_another() -> Result<()> {
    let (pair, [first, second, third]) = prepared(&[], |_| {}).await?;
    let mut session = pair.backend.open().await?;
    as_one(&mut session, &first, Turn::First).await?;
    let other = MysqlBackend::connect(MysqlOptions::new(connect(&pair.target, "root"))).await?;
    let executed = other.begin().await?;
    ensure!(executed.contains(&first.transactions()[1].gtid));
    let mut others = other.open().await?;
    as_one(&mut others, &second, Turn::First).await?;
    // Publishes the GTIDs; otherwise they may or may not be published at this point.
    other.settle().await;
    // The first backend lags and has not recorded that. It is refused because of the rows, or because of the checkpoint row.
    for batch in [&second, &third] {
        let refused = as_one(&mut session, batch, Turn::First).await;
        ensure!(
            matches!(&refused, Err(WriteError::Refused(_))),
            "{refused:?}"
        );
        let (committed, outcome) = session.apply(batch, 0).await;
        if batch.seq == second.seq {
            // mysqld skips transactions with an executed GTID.
            ensure!(committed == 2 && outcome.is_ok(), "{outcome:?}");
            continue;
        }
        let message = outcome.expect_err("it is refused").to_string();
        ensure!(
            committed == 0 && message.contains("another applier"),
            "{message}"
        );
    }
    ensure!(rows(&pair)? == "1,2,3,4");
    as_one(&mut others, &third, Turn::First).await?;
    other.settle().await;
    pair.compare(&["d"]).await
}

/// The server is killed after the COMMIT and before the GTIDs are published. (The tests in `interruptions` kill it at any
/// moment.)
#[tokio::test]
async fn what_a_crash_leaves_out_of_gtid_executed_is_added_before_anything_else() -> Result<()> {
    for of_target in [
        &[][..],
        &["--skip-log-bin"],
        &["--innodb-flush-log-at-trx-commit=2"],
    ] {
        let (mut pair, [first, second, third]) = prepared(of_target, |_| {}).await?;
        // This backend does not publish.
        let silent =
            MysqlBackend::connect(MysqlOptions::new(connect(&pair.target, "root"))).await?;
        let mut session = silent.open().await?;
        for batch in [&first, &second] {
            as_one(&mut session, batch, Turn::First).await?;
        }
        let before = pair.target.client().gtid_executed()?;
        pair.target.kill()?;
        pair.target.start()?;
        ensure!(rows(&pair)? == "1,2,3,4" && pair.target.client().gtid_executed()? == before);
        ensure!(
            silent
                .executed()
                .await?
                .contains(&second.transactions()[1].gtid)
        );
        let next = MysqlBackend::connect(MysqlOptions::new(connect(&pair.target, "root"))).await?;
        let executed = next.begin().await?;
        ensure!(executed.contains(&second.transactions()[1].gtid));
        ensure!(pair.target.client().gtid_executed()? == executed.to_string());
        // A session that begins now can commit.
        let late = as_one(&mut next.open().await?, &third, Turn::First).await;
        ensure!(late.is_ok(), "{late:?}");
        next.settle().await;
        pair.compare(&["d"]).await?;
    }
    Ok(())
}

/// Each change of `gtid_purged` writes two lines into the error log, unless a filter suppresses them. The filter is active
/// while an applier runs.
#[tokio::test]
async fn the_error_log_keeps_quiet_and_tells_again_afterwards() -> Result<()> {
    let services = "SELECT @@GLOBAL.log_error_services";
    let (pair, [first, second, _]) = prepared(&[], |_| {}).await?;
    let mut session = pair.backend.open().await?;
    as_one(&mut session, &first, Turn::First).await?;
    ensure!(pair.target.client().value(services)?.contains("dragnet"));
    pair.backend.settle().await;
    ensure!(!pair.target.client().value(services)?.contains("dragnet"));
    ensure!(!pair.target.error_log().contains("GTID_PURGED was changed"));
    // An operator's own filter is kept.
    let own = "IF prio>=INFORMATION THEN drop.";
    pair.target.client().sql(&format!(
        "SET GLOBAL log_error_services = 'log_filter_dragnet; log_sink_internal'; \
         SET GLOBAL dragnet.log_error_filter_rules = '{own}'"
    ))?;
    pair.backend.begin().await?;
    as_one(&mut session, &second, Turn::First).await?;
    pair.backend.settle().await;
    let rules = pair
        .target
        .client()
        .value("SELECT @@GLOBAL.dragnet.log_error_filter_rules")?;
    ensure!(rules == own, "{rules}");
    ensure!(!pair.target.error_log().contains("GTID_PURGED was changed"));
    Ok(())
}

#[tokio::test]
async fn without_its_table_transactions_go_one_by_one() -> Result<()> {
    let (mut pair, [first, second, _]) = prepared(&[], |_| {}).await?;
    let mut session = pair.backend.open().await?;
    pair.tamper("DROP DATABASE witness_applier")?;
    let gone = as_one(&mut session, &first, Turn::First).await;
    ensure!(matches!(&gone, Err(WriteError::Again(_))), "{gone:?}");
    let gone = as_one(&mut session, &first, Turn::First).await;
    ensure!(matches!(&gone, Err(WriteError::Refused(_))), "{gone:?}");
    let (committed, outcome) = session.apply(&second, 0).await;
    ensure!(committed == 2 && outcome.is_ok() && rows(&pair)? == "3,4");
    pair.equal_after(Way::Batches(2), &["d"]).await
}

/// With `binlog_row_value_options = PARTIAL_JSON` every update is partial, even in tables without JSON. The image after then
/// begins with value options, for which other events have no space.
#[tokio::test]
async fn partial_updates_leave_what_the_source_has_behind_other_writes_of_their_rows() -> Result<()>
{
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.q (id INT PRIMARY KEY, s VARCHAR(40) CHARACTER SET ascii, n INT)",
    )?;
    ensure!(pair.follow(Way::Batches(1)).await?.is_ok());
    pair.write(
        "USE d; SET binlog_row_value_options = PARTIAL_JSON;
         BEGIN; INSERT INTO q VALUES (7, 'hello', 1); UPDATE q SET s = 'world', n = 2 WHERE id = 7; COMMIT;
         INSERT INTO q VALUES (8, 'one', 1); UPDATE q SET s = 'two', n = 2 WHERE id = 8; UPDATE q SET s = 'three' WHERE id = 8;
         SET binlog_row_value_options = ''; INSERT INTO q VALUES (9, 'one', 1); UPDATE q SET s = 'two' WHERE id = 9;
         SET binlog_row_value_options = PARTIAL_JSON; UPDATE q SET n = 3 WHERE id = 9;
         SET binlog_row_value_options = ''; UPDATE q SET s = 'four' WHERE id = 9; UPDATE q SET n = 5 WHERE id = 9;",
    )?;
    pair.equal_after(Way::AsOne(16), &["d"]).await
}

/// The row is neither in the target's GTIDs nor in its binlog. An account without the privileges commits one by one, without
/// the row.
#[tokio::test]
async fn batches_commit_as_one_where_that_is_allowed() -> Result<()> {
    let there = |pair: &Pair| {
        let table =
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'witness_applier'";
        Ok::<bool, anyhow::Error>(pair.target.client().value(table)? == "1")
    };
    let plain = Pair::with(&[], &[], |_| {}).await?;
    ensure!(plain.backend.commits_as_one() && there(&plain)?);
    ensure!(plain.target.client().gtid_executed()?.is_empty());
    let logged = Pair::with(&[], &[], |options| options.target_binlog = true).await?;
    ensure!(!logged.backend.commits_as_one() && !there(&logged)?);
    let unasked = Pair::with(&[], &[], |options| options.batches = false).await?;
    ensure!(!unasked.backend.commits_as_one() && !there(&unasked)?);

    unasked.tamper(
        "CREATE USER limited@localhost; GRANT INSERT, UPDATE, DELETE ON d.* TO limited@localhost; \
         GRANT REPLICATION_APPLIER, TRANSACTION_GTID_TAG, SESSION_VARIABLES_ADMIN ON *.* TO limited@localhost",
    )?;
    let options = MysqlOptions::new(connect(&unasked.target, "limited"));
    for grant in [
        "GRANT CREATE, SELECT, INSERT, UPDATE ON witness_applier.* TO limited@localhost",
        "GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO limited@localhost",
    ] {
        let backend = MysqlBackend::connect(options.clone()).await?;
        ensure!(!backend.commits_as_one());
        backend.begin().await?;
        unasked.tamper(grant)?;
    }
    ensure!(MysqlBackend::connect(options).await?.commits_as_one() && there(&unasked)?);
    Ok(())
}

/// The GTIDs in the row of another ring's follower. A dump with this row is loaded at this ring's source.
const OF_ANOTHER: &str = "eeeeeeee-eeee-eeee-eeee-eeeeeeeeeeee:1-9";

/// Returns a dump as `mysqldump` writes it. All of it is in the source's log.
fn dump_of_another() -> String {
    format!(
        "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `witness_applier` /*!40100 DEFAULT CHARACTER SET utf8mb4 */; USE `witness_applier`; \
         DROP TABLE IF EXISTS `checkpoint`; \
         CREATE TABLE `checkpoint` (`id` tinyint unsigned NOT NULL, `n` bigint unsigned NOT NULL, \
         `gtids` mediumtext CHARACTER SET ascii NOT NULL, PRIMARY KEY (`id`)) ENGINE=InnoDB STATS_PERSISTENT=0 COMMENT='what'; \
         LOCK TABLES `checkpoint` WRITE; /*!40000 ALTER TABLE `checkpoint` DISABLE KEYS */; \
         INSERT INTO `checkpoint` VALUES (1, 7, '{OF_ANOTHER}'); \
         /*!40000 ALTER TABLE `checkpoint` ENABLE KEYS */; UNLOCK TABLES;"
    )
}

/// A dump with another server's row is loaded at the source, and the source then changes that row.
#[tokio::test]
async fn what_the_log_has_of_the_row_is_not_the_targets() -> Result<()> {
    for batches in [true, false] {
        let mut pair = Pair::with(&[], &[], |options| options.batches = batches).await?;
        pair.write("CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY)")?;
        pair.write(&dump_of_another())?;
        pair.write(
            "USE witness_applier; INSERT INTO d.t VALUES (1); CREATE TABLE d.u (i INT PRIMARY KEY); \
             BEGIN; UPDATE checkpoint SET n = 8; INSERT INTO d.t VALUES (2); UPDATE checkpoint SET n = 9; COMMIT; \
             INSERT INTO d.u VALUES (3)",
        )?;
        let way = match batches {
            true => Way::AsOne(3),
            false => Way::Batches(3),
        };
        pair.equal_after(way, &["d"]).await?;
        pair.write("DROP DATABASE witness_applier; INSERT INTO d.t VALUES (4)")?;
        pair.backend.begin().await?;
        pair.equal_after(way, &["d"]).await?;
        // The next applier of this target relies on the row.
        let next = MysqlBackend::connect(MysqlOptions::new(connect(&pair.target, "root"))).await?;
        let executed = next.begin().await?;
        ensure!(executed.to_string() == pair.source.client().gtid_executed()?);
    }
    Ok(())
}

/// The target is a copy of a server that had loaded such a dump.
#[tokio::test]
async fn what_the_row_says_beyond_the_log_is_not_believed() -> Result<()> {
    let (mut pair, [first, second, _]) = prepared(&[], |_| {}).await?;
    let log_has: GtidSet = pair.source.client().gtid_executed()?.parse()?;
    let target = MysqlOptions::new(connect(&pair.target, "root"));
    // This backend does not publish.
    let silent = MysqlBackend::connect(target.clone()).await?;
    as_one(&mut silent.open().await?, &first, Turn::First).await?;
    let set = "UPDATE witness_applier.checkpoint SET gtids = CONCAT(gtids, ',";
    pair.tamper(&format!("{set}{OF_ANOTHER}')"))?;
    let knows_the_log = MysqlOptions {
        log_has: Some(log_has.clone()),
        ..target.clone()
    };
    let next = MysqlBackend::connect(knows_the_log).await?;
    let executed = next.begin().await?;
    ensure!(executed.contains(&first.transactions()[1].gtid));
    ensure!(executed.difference(&log_has).is_empty(), "{executed}");
    next.settle().await;
    // A caller that does not have the log's transactions gets the same result.
    let executed = MysqlBackend::connect(target.clone()).await?.begin().await?;
    ensure!(executed.difference(&log_has).is_empty(), "{executed}");

    // On a read-only server the row cannot be changed; the other transactions are ignored as well.
    as_one(&mut silent.open().await?, &second, Turn::First)
        .await
        .ok();
    pair.tamper(&format!(
        "{set}{OF_ANOTHER}'); SET GLOBAL super_read_only = ON"
    ))?;
    complete_gtid_executed(&target.connect, Some(&log_has)).await?;
    let executed: GtidSet = pair.target.client().gtid_executed()?.parse()?;
    ensure!(executed.difference(&log_has).is_empty(), "{executed}");
    pair.target
        .client()
        .sql("SET GLOBAL super_read_only = OFF")?;
    complete_gtid_executed(&target.connect, Some(&log_has)).await?;
    pair.backend.begin().await?;
    pair.equal_after(Way::AsOne(2), &["d"]).await
}

/// A publication occurs between the query for missing GTIDs and the statement that adds them. A trigger delays the statement
/// here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_is_taken_over_while_what_was_committed_before_is_being_published() -> Result<()> {
    let (mut pair, [first, ..]) = prepared(&[], |_| {}).await?;
    let log_has: GtidSet = pair.source.client().gtid_executed()?.parse()?;
    let target = MysqlOptions::new(connect(&pair.target, "root"));
    // This backend does not publish.
    let silent = MysqlBackend::connect(target.clone()).await?;
    as_one(&mut silent.open().await?, &first, Turn::First).await?;
    pair.tamper(&format!(
        "UPDATE witness_applier.checkpoint SET gtids = CONCAT(gtids, ',{OF_ANOTHER}'); \
         CREATE TRIGGER witness_applier.slow BEFORE UPDATE ON witness_applier.checkpoint FOR EACH ROW SET @slept = IF(NEW.gtids = OLD.gtids, 0, SLEEP(3))"
    ))?;
    let knows_the_log = MysqlOptions {
        log_has: Some(log_has.clone()),
        ..target
    };
    let next = MysqlBackend::connect(knows_the_log).await?;
    let published = first.transactions()[0].gtid;
    let client = pair.target.client();
    let publishing = tokio::task::spawn_blocking(move || {
        let held_up =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'";
        try_eventually("it is held up", Duration::from_secs(20), || {
            Ok(client.value(held_up)? == "1")
        })?;
        client.sql(&format!("SET GLOBAL gtid_purged = '+{published}'"))
    });
    let executed = next.begin().await?;
    publishing.await??;
    for transaction in first.transactions() {
        ensure!(executed.contains(&transaction.gtid), "{executed}");
    }
    ensure!(executed.difference(&log_has).is_empty(), "{executed}");
    pair.tamper("DROP TRIGGER witness_applier.slow")?;
    pair.backend.begin().await?;
    pair.equal_after(Way::AsOne(2), &["d"]).await
}

/// Defaults of the target with which a query would keep the checkpoint row locked, would keep an old view of it, or would be
/// cut off.
#[tokio::test]
async fn defaults_of_the_target_hold_nothing_up() -> Result<()> {
    let defaults = [
        "--autocommit=0",
        "--transaction-isolation=REPEATABLE-READ",
        "--transaction-read-only=ON",
        "--completion-type=CHAIN",
        "--max-execution-time=5000",
        "--sql-mode=ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES",
    ];
    let mut pair = Pair::with(&[], &defaults, |options| {
        options.lock_wait = Duration::from_secs(1);
    })
    .await?;
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY)")?;
    for i in 0..3 {
        pair.write(&format!(
            "INSERT INTO d.t (i) VALUES ({i}); INSERT INTO d.t (i) VALUES ({i} + 10)"
        ))?;
        // Each run begins with the query for the executed GTIDs.
        let followed = pair.follow(Way::AsOne(2)).await?;
        followed.map_err(|stop| anyhow::anyhow!("{}: {}", stop.gtid, stop.error))?;
        // The ALTER makes the applier query the tables again. The query must not see their old state.
        pair.write(&format!("ALTER TABLE d.t ADD c{i} INT"))?;
    }
    pair.equal_after(Way::AsOne(2), &["d"]).await
}
