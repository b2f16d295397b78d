//! What a statement of the log needs of its session, in every order with rows, DDL, XA and CREATE TABLE … SELECT.

use anyhow::{Context, Result};

use crate::pair::{Pair, Way};

/// What a client may set, as far as the log has it, and what decides how the log is written.
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

/// What it may do then. `%` is a number of its own.
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

/// What the source takes only without `innodb_strict_mode`: the variable is in no event.
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
