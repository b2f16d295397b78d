//! Transactions that are not just rows, and rows whose keys depend on each other.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::pair::{Pair, Way};

#[tokio::test]
async fn keys_that_depend_on_each_other_are_the_same_on_both_mysqlds() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; USE d;
         CREATE TABLE t (id INT PRIMARY KEY, u VARCHAR(20), v INT, UNIQUE (u));
         CREATE TABLE parent (id INT PRIMARY KEY, code INT UNIQUE);
         CREATE TABLE child (id INT PRIMARY KEY, parent INT, code INT,
           FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE,
           FOREIGN KEY (code) REFERENCES parent (code) ON DELETE SET NULL ON UPDATE SET NULL);
         CREATE TABLE grandchild (id INT PRIMARY KEY, child INT, FOREIGN KEY (child) REFERENCES child (id) ON DELETE CASCADE);
         CREATE TABLE tree (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE);
         INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 0);",
    )?;
    // Unique values are swapped, within one transaction and across several.
    pair.write(
        "USE d; BEGIN; UPDATE t SET u = NULL WHERE id = 1; UPDATE t SET u = 'a' WHERE id = 2; UPDATE t SET u = 'b' WHERE id = 1; COMMIT;
         UPDATE t SET u = 'x' WHERE id = 3; UPDATE t SET u = 'c' WHERE id = 2; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (9, 'b', 1);
         UPDATE t SET id = id + 10 ORDER BY id DESC; REPLACE INTO t VALUES (100, 'c', 5);
         INSERT INTO t VALUES (100, 'z', 0) ON DUPLICATE KEY UPDATE v = v + 1;",
    )?;
    pair.equal_after(Way::Batches(16), &["d"]).await?;
    pair.write(
        "USE d; INSERT INTO parent VALUES (1, 10), (2, 20), (3, 30), (4, 40); INSERT INTO child VALUES (1, 1, 10), (2, 2, 20), (3, 3, 30), (4, 3, 40);
         INSERT INTO grandchild VALUES (1, 1), (2, 2), (3, 3), (4, 4); DELETE FROM parent WHERE id = 1; UPDATE parent SET id = 22 WHERE id = 2;
         UPDATE parent SET code = 33 WHERE id = 3; DELETE FROM parent WHERE id = 4;
         INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, NULL); DELETE FROM tree WHERE id = 1;
         SET foreign_key_checks = 0; BEGIN; INSERT INTO child VALUES (50, 999, NULL); SET foreign_key_checks = 1; INSERT INTO parent VALUES (7, 70);
         INSERT INTO child VALUES (51, 7, 70); COMMIT;",
    )?;
    pair.equal_after(Way::Pieces(3), &["d"]).await?;
    // One row that is updated repeatedly.
    let hot: String = (0..300)
        .map(|n| format!("UPDATE d.t SET v = v + {n} WHERE id = 12;"))
        .collect();
    pair.write(&hot)?;
    pair.equal_after(Way::Batches(32), &["d"]).await
}

#[tokio::test]
async fn statements_of_every_kind_do_the_same_on_both_mysqlds() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d CHARACTER SET latin1; CREATE DATABASE `we``ird; name`; USE d;
         CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(100), b DOUBLE, c DATETIME(6), e BIGINT) CHARACTER SET utf8mb4;
         INSERT INTO t (a) VALUES ('rows'); ALTER TABLE t ADD COLUMN f INT DEFAULT 3 FIRST; INSERT INTO t (a) VALUES ('after'), ('more');
         ALTER TABLE t RENAME COLUMN f TO g, ADD UNIQUE (e); UPDATE t SET g = id; CREATE TABLE u LIKE t; INSERT INTO u SELECT * FROM t;
         RENAME TABLE u TO `we``ird; name`.`ta\"bl''e;`; INSERT INTO `we``ird; name`.`ta\"bl''e;` (a) VALUES ('quoted');
         CREATE TABLE s (PRIMARY KEY (id)) SELECT id, a FROM t; INSERT INTO s VALUES (77, 'x'); TRUNCATE TABLE t; INSERT INTO t (a) VALUES ('again');
         CREATE TABLE gone (i INT); DROP TABLE gone; CREATE DATABASE gone; USE gone; DROP DATABASE gone; CREATE TABLE d.by_name (i INT PRIMARY KEY);
         INSERT INTO d.by_name VALUES (1); USE d; SET sql_mode = 'ANSI_QUOTES'; CREATE TABLE \"ansi\" (\"i\" INT DEFAULT '7'); INSERT INTO \"ansi\" VALUES ();
         SET sql_mode = DEFAULT; SET NAMES latin1; CREATE TABLE l1 (a VARCHAR(9) DEFAULT '\u{e4}'); INSERT INTO l1 VALUES (); SET NAMES utf8mb4;
         SET default_storage_engine = InnoDB; CREATE TABLE stamps (id INT PRIMARY KEY, at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
         SET timestamp = 1234567890.123456, time_zone = '-07:00'; INSERT INTO stamps (id) VALUES (1); ALTER TABLE stamps ADD COLUMN now DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6);
         SET timestamp = DEFAULT, time_zone = DEFAULT;
         CREATE USER reader@localhost IDENTIFIED BY 'secret'; GRANT SELECT ON d.* TO reader@localhost; CREATE VIEW v AS SELECT a FROM t;
         CREATE FUNCTION twice(i INT) RETURNS INT DETERMINISTIC RETURN i * 2; CREATE TRIGGER tr BEFORE INSERT ON s FOR EACH ROW SET NEW.a = CONCAT(NEW.a, '!');
         SET innodb_strict_mode = OFF; CREATE TABLE not_strict (id INT PRIMARY KEY, a VARCHAR(9)) ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 99;
         INSERT INTO not_strict VALUES (1, 'a'); SET innodb_strict_mode = DEFAULT;
         INSERT INTO s VALUES (78, 'y'); CREATE INDEX i ON s (a); ANALYZE TABLE s; OPTIMIZE TABLE s; FLUSH TABLES;
         BEGIN; SAVEPOINT one; INSERT INTO s VALUES (79, 'z'); ROLLBACK TO one; INSERT INTO s VALUES (80, 'z'); COMMIT; DROP TABLE IF EXISTS nothing;",
    )?;
    pair.equal_after(Way::Batches(4), &["d", "we`ird; name"])
        .await?;
    let routines = "SELECT CONCAT(routine_schema, routine_name, definer, sql_mode, created) FROM information_schema.routines WHERE routine_schema = 'd'; \
                    SELECT CONCAT(trigger_name, action_statement, sql_mode, definer) FROM information_schema.triggers WHERE trigger_schema = 'd'; \
                    SELECT CONCAT(view_definition, definer) FROM information_schema.views WHERE table_schema = 'd'; \
                    SHOW GRANTS FOR reader@localhost; SELECT authentication_string FROM mysql.user WHERE user = 'reader'";
    let (one, other) = (
        pair.source.client().sql(routines)?,
        pair.target.client().sql(routines)?,
    );
    ensure!(one == other && one.0.len() == 6, "{one:?}\n{other:?}");

    // Statement format, where the session's settings affect the result of a statement.
    pair.write(
        "USE d; SET binlog_format = STATEMENT; SET sql_mode = 'PIPES_AS_CONCAT,NO_ENGINE_SUBSTITUTION'; INSERT INTO t (a) VALUES ('a' || 'b'); SET sql_mode = DEFAULT;
         INSERT INTO t (a, b) VALUES ('rand', RAND()), ('rand', RAND()); INSERT INTO t (a, c) VALUES ('now', NOW(6));
         SET @text = 'v\u{e4}r\\'iable', @number = 12.5, @whole = -7, @real = 1e-9, @unsigned = CAST(18446744073709551615 AS UNSIGNED), @none = NULL;
         INSERT INTO t (a, b, e) VALUES (@text, @number, @whole), (@none, @real, NULL); INSERT INTO t (a) VALUES (@unsigned);
         SET @`odd``name` = _latin1 X'e4' COLLATE latin1_german2_ci; INSERT INTO t (a, e) VALUES (@`odd``name`, @`odd``name` = 'ae');
         SET insert_id = 500; INSERT INTO t (a) VALUES ('forced'), ('next'); INSERT INTO t (a, b) VALUES ('last', LAST_INSERT_ID());
         SET auto_increment_increment = 10, auto_increment_offset = 3; INSERT INTO t (a) VALUES ('by ten'), ('by ten'); SET auto_increment_increment = 1, auto_increment_offset = 1;
         SET time_zone = '+05:30', lc_time_names = 'de_DE', timestamp = 1000000000; INSERT INTO t (a, c) VALUES (DATE_FORMAT(NOW(), '%M'), FROM_UNIXTIME(0));
         SET time_zone = DEFAULT, lc_time_names = DEFAULT, timestamp = DEFAULT;
         SET NAMES latin1; INSERT INTO t (a) VALUES ('\u{e4}'); SET NAMES utf8mb4; INSERT INTO t (a, e) SELECT a, id + 100000 FROM s ORDER BY id;
         BEGIN; UPDATE t SET b = b + 1 WHERE a = 'rand'; DELETE FROM t WHERE a = 'next'; SAVEPOINT p; INSERT INTO t (a) VALUES ('not'); ROLLBACK TO p; COMMIT;
         SET foreign_key_checks = 0, unique_checks = 0; UPDATE t SET g = 1; SET foreign_key_checks = 1, unique_checks = 1;
         SET binlog_format = MIXED; INSERT INTO t (a) VALUES (UUID()); UPDATE t SET b = 2 WHERE id = 1; SET binlog_format = ROW;
         BEGIN; INSERT INTO t (a) VALUES ('in rows'); SET @x = 1; COMMIT;",
    )?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;

    // Engines without transactions: changes remain after a rollback, and a statement that failed halfway on the
    // source fails here again.
    pair.write(
        "USE d; CREATE TABLE m (i INT PRIMARY KEY) ENGINE = MyISAM; SET binlog_format = STATEMENT; INSERT INTO m VALUES (1), (2), (3);
         BEGIN; INSERT INTO m VALUES (4); ROLLBACK; SET binlog_format = ROW; INSERT INTO m VALUES (10); BEGIN; INSERT INTO m VALUES (11); ROLLBACK;",
    )?;
    let failing = pair
        .write("USE d; SET binlog_format = STATEMENT; INSERT INTO m VALUES (20), (21), (1), (22)");
    ensure!(failing.is_err_and(|error| error.to_string().contains("1062")));
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    ensure!(
        pair.target
            .client()
            .value("SELECT COUNT(*) FROM d.m WHERE i IN (4, 10, 11, 20, 21, 22)")?
            == "5"
    );

    // The session then applies rows as before.
    pair.write("INSERT INTO d.t (a) VALUES ('rows')")?;
    pair.equal_after(Way::Pieces(1), &["d"]).await?;

    // If a statement needs information that the log does not contain, that is reported.
    pair.write(
        "USE d; CREATE TABLE now (at TIMESTAMP NOT NULL); SET binlog_format = STATEMENT, explicit_defaults_for_timestamp = OFF; \
         INSERT INTO now VALUES (NULL)",
    )?;
    let stop = pair.follow(Way::Batches(4)).await?.unwrap_err();
    let message = stop.error.to_string();
    ensure!(
        message.contains("1048") && message.contains("let the source log rows"),
        "{message}"
    );
    Ok(())
}

#[tokio::test]
async fn prepared_and_empty_and_tagged_transactions_reach_mysqld() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.u (id INT PRIMARY KEY)")?;
    pair.write(
        "USE d; XA START 'a;b', 'br', 7; INSERT INTO t VALUES (1); XA END 'a;b', 'br', 7; XA PREPARE 'a;b', 'br', 7; XA COMMIT 'a;b', 'br', 7;
         XA START 'x'; INSERT INTO t VALUES (2); XA END 'x'; XA COMMIT 'x' ONE PHASE;
         XA START 'y'; INSERT INTO t VALUES (3); XA END 'y'; XA PREPARE 'y'; XA ROLLBACK 'y';
         XA START 'stays'; INSERT INTO t VALUES (4); INSERT INTO u VALUES (4); XA END 'stays'; XA PREPARE 'stays';",
    )?;
    pair.write("INSERT INTO d.t VALUES (5)")?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    let prepared = |pair: &Pair| {
        pair.target
            .client()
            .sql("XA RECOVER")
            .map(|rows| rows.0.len())
    };
    ensure!(prepared(&pair)? == 1);
    pair.write("XA COMMIT 'stays'")?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    ensure!(prepared(&pair)? == 0);
    ensure!(pair.target.client().value("SELECT COUNT(*) FROM d.u")? == "1");

    let source = pair.source.client().variable("server_uuid")?;
    pair.write(&format!(
        "SET gtid_next = '{source}:1000'; COMMIT; SET gtid_next = '{source}:a_tag:5'; BEGIN; INSERT INTO d.t VALUES (6); COMMIT;
         SET gtid_next = 'AUTOMATIC:b_tag'; INSERT INTO d.t VALUES (7); CREATE TABLE d.w (i INT); SET gtid_next = AUTOMATIC;
         INSERT INTO d.t VALUES (8); BEGIN; UPDATE d.t SET id = 8 WHERE id = 8; COMMIT; DELETE FROM d.u WHERE id = 99;"
    ))?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    ensure!(pair.target.client().gtid_executed()?.contains(":b_tag:1-2"));
    Ok(())
}

/// In the log, transactions between the phases of an XA transaction come after its PREPARE and before its end. If
/// the prepared transaction keeps gap locks, these transactions wait indefinitely.
#[tokio::test]
async fn a_prepared_transaction_is_in_the_way_of_no_row_that_it_does_not_change() -> Result<()> {
    let mut pair = Pair::with(&[], &[], |options| {
        options.lock_wait = Duration::from_secs(1);
    })
    .await?;
    pair.write(
        "CREATE DATABASE d; USE d; CREATE TABLE xk (a INT, b INT, KEY (a), KEY (b)); INSERT INTO xk VALUES (10, 1), (20, 2), (30, 3);
         CREATE TABLE xu (id INT PRIMARY KEY, u INT UNIQUE); INSERT INTO xu VALUES (1, 10), (2, 20), (3, 30)",
    )?;
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    for (rows, concurrent) in [
        (
            "UPDATE xk SET b = 22 WHERE b = 2",
            "INSERT INTO d.xk VALUES (15, 9)",
        ),
        (
            "DELETE FROM xu WHERE id = 2; INSERT INTO xu VALUES (5, 20)",
            "INSERT INTO d.xu VALUES (6, 15)",
        ),
        (
            "DELETE FROM xu WHERE id = 3; SAVEPOINT s; INSERT INTO xu VALUES (7, 30)",
            "INSERT INTO d.xu VALUES (8, 25)",
        ),
    ] {
        pair.write(&format!(
            "USE d; SET SESSION transaction_isolation = 'READ-COMMITTED'; XA START 'k'; {rows}; XA END 'k'; XA PREPARE 'k'"
        ))?;
        pair.write(concurrent)?;
        // The target has not read the end of the XA transaction yet.
        if let Err(stop) = pair.follow(Way::Batches(4)).await? {
            bail!("{concurrent}: {}", stop.error);
        }
        pair.write("XA COMMIT 'k'")?;
        pair.equal_after(Way::Batches(4), &["d"]).await?;
    }
    Ok(())
}

/// At the source, another session has dropped the schema while it was this session's default schema.
#[tokio::test]
async fn a_statement_from_a_session_in_a_schema_that_is_gone_runs() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write("CREATE DATABASE d; CREATE DATABASE gone")?;
    ensure!(pair.follow(Way::Batches(1)).await?.is_ok());
    pair.tamper("DROP DATABASE gone")?;
    pair.write("USE gone; CREATE TABLE d.t (i INT PRIMARY KEY); INSERT INTO d.t VALUES (1)")?;
    pair.equal_after(Way::Batches(1), &["d"]).await
}
