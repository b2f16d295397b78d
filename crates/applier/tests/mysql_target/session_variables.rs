//! Session variables that a statement of the log needs, with statements, rows, DDL, XA and CREATE TABLE … SELECT in every order.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mysql_link::Connection;

use crate::pair::{Pair, Way, connect, server};

/// Settings of a client that the log contains, and settings that determine the log's format.
const SETTINGS: [&str; 12] = [
    "SET explicit_defaults_for_timestamp = 0",
    "SET explicit_defaults_for_timestamp = 1, sql_mode = ''",
    "SET sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,NO_AUTO_VALUE_ON_ZERO'",
    "SET auto_increment_increment = 7, auto_increment_offset = 3, time_zone = '+05:30', lc_time_names = 'de_DE'",
    "SET NAMES gbk",
    "SET collation_server = latin1_bin, collation_database = latin1_bin, default_collation_for_utf8mb4 = utf8mb4_general_ci",
    "SET foreign_key_checks = 0, unique_checks = 0, sql_auto_is_null = 1, sql_require_primary_key = 1",
    "SET enable_cascade_triggers = 0, default_table_encryption = 0",
    "SET sql_generate_invisible_primary_key = 1, binlog_transaction_compression = ON",
    "SET binlog_row_image = MINIMAL, binlog_row_value_options = PARTIAL_JSON, binlog_rows_query_log_events = ON",
    "SET transaction_isolation = 'SERIALIZABLE', innodb_strict_mode = OFF",
    "SET autocommit = 0",
];

/// The client's statements after these settings. `%` is a unique number.
const WORK: [&str; 10] = [
    "INSERT INTO t (a) VALUES ('x'); COMMIT",
    "BEGIN; INSERT INTO t (a) VALUES ('x'); SAVEPOINT s; INSERT INTO t (a) VALUES ('y'); ROLLBACK TO s; INSERT INTO t (a) VALUES ('z'); COMMIT",
    "COMMIT; SET binlog_format = STATEMENT; SET @text = 'v', @number = 1.5; BEGIN; INSERT INTO t (a) VALUES (@text); SAVEPOINT s; \
     UPDATE t SET b = b + @number WHERE id = 1; COMMIT; SET binlog_format = ROW",
    "COMMIT; SET binlog_format = MIXED; BEGIN; INSERT INTO t (a) VALUES ('x'); INSERT INTO t (a) VALUES (UUID()); UPDATE t SET b = 2 WHERE id = 1; COMMIT; \
     SET binlog_format = ROW",
    "COMMIT; XA START 'x%'; INSERT INTO t (a) VALUES ('x'); SAVEPOINT s; INSERT INTO t (a) VALUES ('y'); ROLLBACK TO s; XA END 'x%'; XA PREPARE 'x%'; \
     XA COMMIT 'x%'; XA START 'o%'; INSERT INTO t (a) VALUES ('x'); XA END 'o%'; XA COMMIT 'o%' ONE PHASE",
    "COMMIT; SET binlog_format = STATEMENT; XA START 's%'; INSERT INTO t (a) VALUES (@text); XA END 's%'; XA PREPARE 's%'; XA ROLLBACK 's%'; \
     SET binlog_format = ROW",
    "CREATE TABLE c% (at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (id)) SELECT id, a FROM t; INSERT INTO c% (id) VALUES (1000); COMMIT",
    "COMMIT; SET binlog_format = STATEMENT; SET @text = 'v', @number = 1.5; CREATE TABLE d% (at TIMESTAMP NULL, PRIMARY KEY (id)) SELECT id, @text, @number FROM t; \
     SET binlog_format = ROW",
    "CREATE TABLE g% (id INT PRIMARY KEY, at TIMESTAMP NULL, c VARCHAR(9) CHARACTER SET utf8mb4, d VARCHAR(9)); INSERT INTO g% (id, c) VALUES (1, 'a'); \
     ALTER TABLE g% ADD changed TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, ADD j JSON; UPDATE g% SET c = 'b'; CREATE INDEX i ON g% (c); \
     COMMIT; CREATE TABLE h% LIKE g%; TRUNCATE TABLE h%",
    "COMMIT; SET autocommit = 1, binlog_format = STATEMENT; CREATE TEMPORARY TABLE temporary (id INT PRIMARY KEY, at TIMESTAMP NULL); \
     INSERT INTO temporary (id) VALUES (1); INSERT INTO t (a) SELECT id FROM temporary; DROP TEMPORARY TABLE temporary; SET binlog_format = ROW",
];

#[tokio::test]
async fn sessions_of_every_kind_are_followed_in_every_order() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(99), b INT DEFAULT 0); INSERT INTO d.t (a) VALUES ('first')",
    )?;
    for (number, setting) in SETTINGS.iter().enumerate() {
        let work = WORK.join("; ").replace('%', &number.to_string());
        let script = format!("USE d; {setting}; {work}");
        pair.write(&script).context(script)?;
        if let Err(stop) = pair.follow(Way::Batches(4)).await? {
            anyhow::bail!("{setting}: {}: {}", stop.gtid, stop.error);
        }
    }
    pair.compare(&["d"]).await
}

/// Restrictions that a target has for its clients by default do not apply to the applier.
#[tokio::test]
async fn limits_of_a_target_s_clients_are_not_the_applier_s() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, a INT DEFAULT 0); \
         INSERT INTO d.t VALUES (1, 0), (2, 0), (3, 0); SET binlog_format = STATEMENT; \
         UPDATE d.t, d.t AS other SET t.a = t.a + other.id WHERE other.a < 9; UPDATE d.t SET a = a + 1; \
         CREATE TABLE d.copy (id INT PRIMARY KEY) SELECT t.id FROM d.t, d.t AS other WHERE other.id = 1; \
         SET binlog_format = ROW; INSERT INTO d.t (a) SELECT a FROM d.t",
    )?;
    let client = pair.target.client();
    client.sql(
        "SET GLOBAL max_join_size = 2, GLOBAL sql_select_limit = 1, GLOBAL sql_safe_updates = 1",
    )?;
    let refused = client.sql(
        "SELECT * FROM information_schema.COLLATIONS AS a, information_schema.COLLATIONS AS b",
    );
    ensure!(refused.is_err(), "the target has no limit");
    if let Err(stop) = pair.follow(Way::Batches(4)).await? {
        anyhow::bail!("{}: {}", stop.gtid, stop.error);
    }
    let client = pair.target.client();
    client.sql("SET GLOBAL max_join_size = DEFAULT, GLOBAL sql_select_limit = DEFAULT, GLOBAL sql_safe_updates = 0")?;
    pair.compare(&["d"]).await
}

/// The source accepts this table only without `innodb_strict_mode`, and no event contains this variable.
#[tokio::test]
async fn a_table_that_was_made_without_strict_mode_is_followed() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; SET innodb_strict_mode = OFF; \
         CREATE TABLE d.t (id INT PRIMARY KEY, a VARCHAR(9)) ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 99; \
         INSERT INTO d.t VALUES (1, 'a'); ALTER TABLE d.t ADD COLUMN b INT, KEY_BLOCK_SIZE = 98; INSERT INTO d.t VALUES (2, 'b', 2)",
    )?;
    if let Err(stop) = pair.follow(Way::Batches(4)).await? {
        anyhow::bail!("{}: {}", stop.gtid, stop.error);
    }
    pair.compare(&["d"]).await
}

/// Tables whose rows the server evaluates again, written with every variable that affects the result.
const EVALUATED_ANEW: &str = include_str!("../../../../tests/corpus/evaluated_anew.sql");

#[tokio::test]
async fn rows_are_evaluated_as_their_source_did() -> Result<()> {
    for way in [
        Way::Batches(4),
        Way::AsOne(1),
        Way::AsOne(1000),
        Way::Pieces(7),
    ] {
        let mut pair = Pair::new().await?;
        pair.write(EVALUATED_ANEW)?;
        is_as_its_source(&mut pair, way)
            .await
            .with_context(|| format!("{way:?}"))?;
    }
    Ok(())
}

/// As `rows_are_evaluated_as_their_source_did`, with transactions whose metadata would need too much memory.
#[tokio::test]
async fn rows_of_large_transactions_are_evaluated_as_their_source_did() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.most_bytes_of_notes = 1;
    pair.write(EVALUATED_ANEW)?;
    is_as_its_source(&mut pair, Way::AsOne(4)).await
}

async fn is_as_its_source(pair: &mut Pair, way: Way) -> Result<()> {
    pair.equal_after(way, &["evaluated_anew"]).await?;
    // For keys over expressions there is no column to compare.
    for table in ["hours", "once_a_day", "stock"] {
        let check = format!("CHECK TABLE evaluated_anew.{table} EXTENDED");
        let said = pair.target.client().sql(&check)?;
        let is_ok = said
            .0
            .iter()
            .all(|row| row.last().is_some_and(|word| word == "OK"));
        ensure!(is_ok, "{said:?}");
    }
    Ok(())
}

/// The log contains the time zone only if a transaction's first statement has used it. Otherwise the sessions of a workload
/// usually have the last time zone in the log.
#[tokio::test]
async fn a_time_zone_that_the_log_does_not_say_is_the_last_one_that_it_did() -> Result<()> {
    let mut pair = Pair::new().await?;
    let write = |number: u32| {
        format!(
            "SET time_zone = '-08:00'; BEGIN; INSERT INTO d.plain (id) VALUES ({number}); \
             INSERT INTO d.t (id, ts) VALUES ({number}, '2026-03-01 20:00:00'); COMMIT"
        )
    };
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.plain (id INT PRIMARY KEY); \
         CREATE TABLE d.t (id INT PRIMARY KEY, ts TIMESTAMP NULL, at DATETIME AS (CAST(ts AS DATETIME)) STORED); \
         SET time_zone = '-08:00'; INSERT INTO d.t (id, ts) VALUES (1, '2026-03-01 20:00:00')",
    )?;
    pair.write(&write(2))?;
    pair.equal_after(Way::AsOne(1), &["d"]).await?;
    // The same holds in another session, and for a barrier.
    pair.write(&write(3))?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    pair.most_bytes_of_notes = 1;
    pair.write(&write(4))?;
    pair.equal_after(Way::Batches(4), &["d"]).await
}

#[tokio::test]
async fn a_time_zone_that_mysqld_does_not_know_is_refused_with_what_helps() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, ts TIMESTAMP)")?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    let zone = "SET sql_log_bin = 0; INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9001, 'N'); \
                INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Test/East', 9001); \
                INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) \
                VALUES (9001, 0, 36000, 0, 'TE'); SET sql_log_bin = 1";
    pair.write(zone)?;
    pair.write("SET time_zone = 'Test/East'; INSERT INTO d.t VALUES (1, '2026-03-01 20:00:00')")?;
    for way in [Way::Batches(4), Way::Pieces(1)] {
        let stop = pair.follow(way).await?.expect_err("it is refused");
        let message = stop.error.to_string();
        ensure!(
            message.contains("Test/East") && message.contains("mysql_tzinfo_to_sql"),
            "{message}"
        );
    }
    pair.tamper(zone)?;
    pair.equal_after(Way::Batches(4), &["d"]).await
}

#[tokio::test]
async fn a_function_that_its_source_trusted_is_followed_and_the_target_trusts_nobody_behind_it()
-> Result<()> {
    // An account without the deprecated privilege SUPER.
    let target = server(2, &[])?;
    target.client().sql(
        "SET sql_log_bin = 0; CREATE USER limited@localhost; GRANT ALL ON *.* TO limited@localhost WITH GRANT OPTION; \
         REVOKE SUPER ON *.* FROM limited@localhost",
    )?;
    let mut pair = Pair::between(&[], target, |options| {
        options.connect.user = "limited".to_owned();
    })
    .await?;
    let trusts = "SELECT @@GLOBAL.log_bin_trust_function_creators";
    pair.write("SET GLOBAL log_bin_trust_function_creators = ON; CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY)")?;
    for write in [
        "CREATE FUNCTION d.writes() RETURNS INT MODIFIES SQL DATA RETURN 1",
        "CREATE FUNCTION d.reads() RETURNS INT DETERMINISTIC RETURN 1",
        "ALTER FUNCTION d.writes MODIFIES SQL DATA COMMENT 'c'",
        "CREATE TRIGGER d.t BEFORE INSERT ON d.t FOR EACH ROW SET NEW.a = NEW.a + 1",
    ] {
        pair.target
            .client()
            .sql("SET GLOBAL log_bin_trust_function_creators = OFF")?;
        pair.write(write)?;
        pair.equal_after(Way::Batches(4), &["d"]).await?;
        ensure!(pair.target.client().sql(trusts)?.0 == [["0"]], "{write}");
    }
    let routines = "SELECT routine_name, routine_comment FROM information_schema.routines WHERE routine_schema = 'd' ORDER BY 1";
    let routines = pair.target.client().sql(routines)?;
    ensure!(
        routines.0 == [["reads", ""], ["writes", "c"]],
        "{routines:?}"
    );

    // The setting is also off after an applier ends while such a statement waits for a lock.
    let mut holder = Connection::open(&connect(&pair.target, "root")).await?;
    holder.execute("LOCK TABLES d.t READ").await?;
    pair.write("CREATE TRIGGER d.waits AFTER INSERT ON d.t FOR EACH ROW SET @a = 1")?;
    let on = async {
        while trusts_of(&mut holder).await? != "1" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    };
    tokio::select! {
        followed = pair.follow(Way::Batches(4)) => panic!("it did not wait: {followed:?}"),
        seen = tokio::time::timeout(Duration::from_secs(30), on) => {
            let seen: Result<()> = seen?;
            seen?;
        }
    }
    let until = Instant::now() + Duration::from_secs(30);
    while trusts_of(&mut holder).await? != "0" {
        ensure!(Instant::now() < until, "the target still trusts");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    holder.close().await;
    pair.equal_after(Way::Batches(4), &["d"]).await?;

    // If the account may not change the setting, the report names the remedy.
    pair.tamper("REVOKE SYSTEM_VARIABLES_ADMIN ON *.* FROM limited@localhost")?;
    pair.write("CREATE FUNCTION d.more() RETURNS INT MODIFIES SQL DATA RETURN 1")?;
    let stop = pair.follow(Way::Batches(4)).await?;
    let message = stop.expect_err("it is refused").error.to_string();
    ensure!(
        message.contains("SET GLOBAL log_bin_trust_function_creators = ON here"),
        "{message}"
    );
    pair.tamper("SET GLOBAL log_bin_trust_function_creators = ON")?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    ensure!(pair.target.client().sql(trusts)?.0 == [["1"]]);
    Ok(())
}

async fn trusts_of(connection: &mut Connection) -> Result<String> {
    let trusts = "SELECT @@GLOBAL.log_bin_trust_function_creators";
    let answer = connection.query(trusts).await?;
    let answer = answer.first().and_then(|row| row.text_at(0));
    Ok(answer.unwrap_or_default().to_owned())
}
