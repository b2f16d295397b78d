//! One transaction of every kind that a crash of mysqld can interrupt.

/// Statements that create the objects and rows for [`KINDS`].
pub(crate) const BEFORE: &str = "
    CREATE DATABASE d; USE d;
    CREATE TABLE ins (id INT PRIMARY KEY, v LONGTEXT);
    CREATE TABLE upd (id INT PRIMARY KEY, v INT); INSERT INTO upd VALUES (1, 1), (2, 2), (3, 3);
    CREATE TABLE altered (id INT PRIMARY KEY, v INT); INSERT INTO altered VALUES (1, 1), (2, 2);
    CREATE TABLE rebuilt (id INT PRIMARY KEY, v INT); INSERT INTO rebuilt VALUES (1, 1), (2, 2);
    CREATE TABLE dropped (id INT PRIMARY KEY); INSERT INTO dropped VALUES (1);
    CREATE TABLE emptied (id INT PRIMARY KEY); INSERT INTO emptied VALUES (1), (2);
    CREATE TABLE renamed (id INT PRIMARY KEY); INSERT INTO renamed VALUES (1);
    CREATE TABLE indexed (id INT PRIMARY KEY, v INT); INSERT INTO indexed VALUES (1, 1);
    CREATE TABLE xa (id VARCHAR(9) PRIMARY KEY);
    CREATE DATABASE away; CREATE TABLE away.t (id INT PRIMARY KEY);
    CREATE USER known@localhost;
    XA START 'commits'; INSERT INTO xa VALUES ('commits'); XA END 'commits'; XA PREPARE 'commits';
    XA START 'goes'; INSERT INTO xa VALUES ('goes'); XA END 'goes'; XA PREPARE 'goes';
    XA START 'stays'; INSERT INTO xa VALUES ('stays'); XA END 'stays'; XA PREPARE 'stays'";

/// The kinds: one transaction each, independent of the others.
pub(crate) const KINDS: [(&str, &str); 20] = [
    ("insert", "INSERT INTO d.ins VALUES (1, 'one')"),
    (
        "insert of another session",
        "INSERT INTO d.ins VALUES (2, 'two')",
    ),
    (
        "several statements",
        "BEGIN; INSERT INTO d.ins VALUES (3, 'three'); UPDATE d.upd SET v = 30 WHERE id = 3; COMMIT",
    ),
    ("update", "UPDATE d.upd SET v = 10 WHERE id = 1"),
    ("delete", "DELETE FROM d.upd WHERE id = 2"),
    (
        "larger than the binlog cache",
        "INSERT INTO d.ins SELECT 100 + n, REPEAT('big', 30000) FROM (WITH RECURSIVE c (n) AS \
         (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20) SELECT n FROM c) AS numbers",
    ),
    (
        "compressed",
        "SET SESSION binlog_transaction_compression = ON; INSERT INTO d.ins VALUES (4, REPEAT('four', 1000))",
    ),
    (
        "create table",
        "CREATE TABLE d.created (id INT PRIMARY KEY)",
    ),
    (
        "create table as select",
        "CREATE TABLE d.selected (id INT PRIMARY KEY) AS SELECT 7 AS id",
    ),
    (
        "alter table, in place",
        "ALTER TABLE d.altered ADD COLUMN w INT",
    ),
    (
        "alter table, copying",
        "ALTER TABLE d.rebuilt ADD COLUMN w INT, ALGORITHM=COPY",
    ),
    ("create index", "CREATE INDEX by_v ON d.indexed (v)"),
    ("drop table", "DROP TABLE d.dropped"),
    ("truncate", "TRUNCATE TABLE d.emptied"),
    ("rename", "RENAME TABLE d.renamed TO d.renamed_away"),
    ("create database", "CREATE DATABASE made"),
    (
        "xa prepare",
        "XA START 'new'; INSERT INTO d.xa VALUES ('new'); XA END 'new'; XA PREPARE 'new'",
    ),
    ("xa commit", "XA COMMIT 'commits'"),
    ("xa rollback", "XA ROLLBACK 'goes'"),
    (
        "xa in one phase",
        "XA START 'once'; INSERT INTO d.xa VALUES ('once'); XA END 'once'; XA COMMIT 'once' ONE PHASE",
    ),
];

/// The objects of [`NO_OPS`], created after [`BEFORE`].
pub(crate) const OBJECTS: &str = "
    USE d;
    CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2;
    CREATE VIEW v AS SELECT 1;
    CREATE PROCEDURE proc() SELECT 1;
    CREATE FUNCTION fun() RETURNS INT DETERMINISTIC RETURN 1;
    CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DO SELECT 1;
    CREATE TRIGGER tr BEFORE INSERT ON ins FOR EACH ROW SET @a = 1";

/// Statements that change nothing. mysqld nevertheless assigns a GTID to them, without an XID.
pub(crate) const NO_OPS: [(&str, &str); 23] = [
    (
        "create table",
        "CREATE TABLE IF NOT EXISTS d.upd (id INT PRIMARY KEY)",
    ),
    (
        "create like",
        "CREATE TABLE IF NOT EXISTS d.emptied LIKE d.renamed",
    ),
    ("drop table", "DROP TABLE IF EXISTS d.missing"),
    (
        "drop tables",
        "DROP TABLE IF EXISTS d.missing_1, d.missing_2",
    ),
    ("create view", "CREATE VIEW IF NOT EXISTS d.v AS SELECT 1"),
    ("drop view", "DROP VIEW IF EXISTS d.no_view"),
    (
        "create event",
        "CREATE EVENT IF NOT EXISTS d.ev ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    ),
    ("drop event", "DROP EVENT IF EXISTS d.no_event"),
    (
        "create procedure",
        "CREATE PROCEDURE IF NOT EXISTS d.proc() SELECT 1",
    ),
    ("drop procedure", "DROP PROCEDURE IF EXISTS d.no_procedure"),
    (
        "create function",
        "CREATE FUNCTION IF NOT EXISTS d.fun() RETURNS INT DETERMINISTIC RETURN 1",
    ),
    ("drop function", "DROP FUNCTION IF EXISTS d.no_function"),
    (
        "create trigger",
        "CREATE TRIGGER IF NOT EXISTS d.tr BEFORE INSERT ON d.ins FOR EACH ROW SET @a = 1",
    ),
    ("drop trigger", "DROP TRIGGER IF EXISTS d.no_trigger"),
    ("alter table", "ALTER TABLE d.altered"),
    (
        "rename to itself",
        "ALTER TABLE d.rebuilt RENAME TO d.rebuilt",
    ),
    (
        "analyze partition",
        "ALTER TABLE d.parts ANALYZE PARTITION p0",
    ),
    ("analyze", "ANALYZE TABLE d.indexed"),
    ("repair", "REPAIR TABLE d.dropped"),
    ("flush slow logs", "FLUSH SLOW LOGS"),
    ("flush costs", "FLUSH OPTIMIZER_COSTS"),
    ("create database", "CREATE DATABASE IF NOT EXISTS away"),
    ("drop database", "DROP DATABASE IF EXISTS no_schema"),
];
