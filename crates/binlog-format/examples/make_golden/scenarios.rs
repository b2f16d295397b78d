//! The contents of the golden files.

/// The statements that produce one file.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Statements that run before the file begins.
    pub(crate) before: &'static str,
    /// Statements that run in one session while the file is written.
    pub(crate) sql: &'static str,
    /// Statements that run after the file ends.
    pub(crate) after: &'static str,
}

pub(crate) const SETUP: &str = "
    CREATE DATABASE shop;
    USE shop;
    CREATE TABLE item (id BIGINT PRIMARY KEY, name VARCHAR(40), price INT);
    CREATE TABLE sale (id BIGINT PRIMARY KEY, item BIGINT, amount INT);
    CREATE TABLE document (id BIGINT PRIMARY KEY, body JSON);
    CREATE TABLE note (id BIGINT AUTO_INCREMENT PRIMARY KEY, text TEXT) ENGINE=MyISAM;
    CREATE TABLE part (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 4;
    CREATE TABLE wide (
        id INT PRIMARY KEY, t TINYINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(20,6), b BIT(11), y YEAR,
        da DATE, ti TIME(3), dt DATETIME(6), ts TIMESTAMP(2) NULL, c CHAR(9) CHARACTER SET latin1, bi VARBINARY(300),
        bl LONGBLOB, e ENUM('red', 'green'), s SET('a', 'b', 'c'), g POINT, v VECTOR(3));
";

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "rows",
        before: "",
        sql: "
            INSERT INTO item VALUES (1, 'nail', 2), (2, 'screw', NULL), (3, NULL, 7);
            UPDATE item SET price = 9 WHERE id < 3;
            DELETE FROM item WHERE id = 3;
            BEGIN;
            INSERT INTO item VALUES (4, 'bolt', 3);
            INSERT INTO sale VALUES (1, 4, 10);
            UPDATE item, sale SET item.price = 4, sale.amount = 11 WHERE item.id = sale.item;
            COMMIT;
            INSERT INTO part VALUES (1, 1), (2, 2), (3, 3);
            UPDATE part SET id = id + 10;
            INSERT INTO wide VALUES (1, 200, 1.5, -2.25, 12345.678901, b'10101010101', 2024, '2024-02-29', '-11:22:33.444',
                '2024-02-29 01:02:03.456789', '2024-03-01 04:05:06.78', 'latin', x'00ff', repeat('blob', 50), 'green', 'a,c',
                POINT(1, 2), STRING_TO_VECTOR('[1,2,3]'));
            INSERT INTO wide (id) VALUES (2);
            REPLACE INTO item VALUES (1, 'nail', 5);
            INSERT INTO item VALUES (2, 'x', 1) ON DUPLICATE KEY UPDATE price = 6;
            INSERT INTO note (text) VALUES ('not transactional');",
        after: "",
    },
    Scenario {
        name: "ddl",
        before: "",
        sql: "
            CREATE TABLE made (id INT PRIMARY KEY, v VARCHAR(5));
            ALTER TABLE made ADD COLUMN w INT;
            CREATE INDEX by_w ON made (w);
            CREATE VIEW seen AS SELECT * FROM made;
            CREATE TRIGGER fired BEFORE INSERT ON made FOR EACH ROW SET NEW.w = 1;
            CREATE PROCEDURE done() SELECT 1;
            CREATE USER 'reader'@'localhost' IDENTIFIED BY 'secret';
            GRANT SELECT ON shop.* TO 'reader'@'localhost';
            CREATE TABLE made_from ENGINE=InnoDB SELECT * FROM item;
            CREATE TABLE made_empty LIKE item;
            TRUNCATE TABLE made;
            DROP TABLE made, made_empty;
            DROP VIEW seen;
            DROP PROCEDURE done;
            DROP USER 'reader'@'localhost';
            ANALYZE TABLE item;
            CREATE TEMPORARY TABLE gone (a INT);
            DROP TEMPORARY TABLE gone;
            DROP DATABASE IF EXISTS never_there;",
        after: "",
    },
    Scenario {
        name: "statements",
        before: "SET GLOBAL binlog_format = 'STATEMENT'",
        sql: "
            INSERT INTO note (text) VALUES ('by statement'), (NULL);
            SET @chosen = 'a user variable';
            INSERT INTO item VALUES (100, @chosen, 1);
            INSERT INTO item VALUES (101, 'random', RAND() * 10);
            INSERT INTO note (text) VALUES (LAST_INSERT_ID());
            BEGIN;
            INSERT INTO item VALUES (102, 'in a transaction', 1);
            SAVEPOINT one;
            INSERT INTO item VALUES (103, 'undone', 1);
            ROLLBACK TO one;
            DELETE FROM item WHERE id = 102;
            COMMIT;
            LOAD DATA INFILE './items.txt' INTO TABLE item;
            SET @v = 3;
            CREATE TABLE from_variable SELECT @v AS v;
            DROP TABLE from_variable;
            DELETE FROM item WHERE id >= 100;",
        after: "SET GLOBAL binlog_format = 'ROW'",
    },
    Scenario {
        name: "load_data",
        before: "",
        sql: "LOAD DATA INFILE './items.txt' INTO TABLE item; DELETE FROM item WHERE id >= 500;",
        after: "",
    },
    Scenario {
        name: "empty_transactions",
        before: "",
        sql: "
            SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:23'; BEGIN; COMMIT;
            SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:25'; COMMIT;
            SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:26'; BEGIN; ROLLBACK;
            SET gtid_next = '{uuid}:9000000000'; BEGIN; COMMIT;
            SET gtid_next = 'AUTOMATIC';",
        after: "",
    },
    Scenario {
        name: "savepoints",
        before: "",
        sql: "
            BEGIN;
            INSERT INTO item VALUES (200, 'kept', 1);
            SAVEPOINT one;
            INSERT INTO item VALUES (201, 'undone', 1);
            ROLLBACK TO one;
            INSERT INTO item VALUES (202, 'kept', 1);
            SAVEPOINT two;
            RELEASE SAVEPOINT two;
            COMMIT;",
        after: "",
    },
    Scenario {
        name: "compressed",
        before: "",
        sql: "
            SET binlog_transaction_compression = ON;
            INSERT INTO item VALUES (300, REPEAT('a', 40), 1), (301, REPEAT('b', 40), 1);
            BEGIN; UPDATE item SET price = 2 WHERE id >= 300; DELETE FROM item WHERE id >= 300; COMMIT;
            CREATE TABLE not_compressed (a INT);
            INSERT INTO wide (id, bl) VALUES (10, REPEAT('a long run of the same words; ', 3000));
            SET binlog_transaction_compression = OFF;
            DROP TABLE not_compressed;",
        after: "",
    },
    Scenario {
        name: "tagged",
        before: "",
        sql: "
            SET gtid_next = 'AUTOMATIC:billing';
            INSERT INTO item VALUES (400, 'tagged', 1);
            SET gtid_next = 'AUTOMATIC:a_tag_with_all_32_characters_0_9';
            INSERT INTO item VALUES (401, 'tagged', 1);
            SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:assigned:9223372036854775806';
            INSERT INTO item VALUES (402, 'tagged', 1);
            SET gtid_next = 'ffffffff-ffff-ffff-ffff-ffffffffffff:assigned:7'; BEGIN; COMMIT;
            SET gtid_next = 'AUTOMATIC:billing';
            CREATE TABLE tagged_ddl (a INT);
            SET gtid_next = 'AUTOMATIC:billing';
            SET binlog_transaction_compression = ON;
            INSERT INTO item VALUES (403, 'tagged and compressed', 1);
            SET binlog_transaction_compression = OFF;
            SET gtid_next = 'AUTOMATIC';
            DROP TABLE tagged_ddl;",
        after: "",
    },
    Scenario {
        name: "xa",
        before: "",
        sql: "
            XA START 'global', 'branch', 42; INSERT INTO item VALUES (600, 'xa', 1); XA END 'global', 'branch', 42;
            XA PREPARE 'global', 'branch', 42; XA COMMIT 'global', 'branch', 42;
            XA START 'undone'; INSERT INTO item VALUES (601, 'xa', 1); XA END 'undone';
            XA PREPARE 'undone'; XA ROLLBACK 'undone';
            XA START 'single'; INSERT INTO item VALUES (602, 'xa', 1); XA END 'single'; XA COMMIT 'single' ONE PHASE;
            XA START 'empty'; XA END 'empty'; XA PREPARE 'empty'; XA COMMIT 'empty';",
        after: "",
    },
    Scenario {
        name: "rows_query",
        before: "",
        sql: "
            SET binlog_rows_query_log_events = ON;
            INSERT INTO item VALUES (700, 'with its text', 1);
            INSERT INTO item VALUES (701, 'more than 255 bytes of text', 1), (702, \
            'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', 1), (703, 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', 1), (704, \
            'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', 1), (705, 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy', 1);
            BEGIN; DELETE FROM item WHERE id = 700; DELETE FROM item WHERE id > 700; COMMIT;",
        after: "",
    },
    Scenario {
        name: "partial_json",
        before: "",
        sql: "
            SET binlog_row_value_options = 'PARTIAL_JSON';
            INSERT INTO document VALUES (1, JSON_OBJECT('a', 1, 'text', REPEAT('long ', 40), 'b', JSON_ARRAY(1, 2, 3)));
            UPDATE document SET body = JSON_SET(body, '$.a', 2, '$.b[1]', 'two');
            UPDATE document SET body = JSON_REMOVE(body, '$.text');
            UPDATE document SET body = JSON_OBJECT('all', 'new');",
        after: "",
    },
    Scenario {
        name: "minimal_image",
        before: "",
        sql: "
            SET binlog_row_image = 'MINIMAL';
            INSERT INTO item (id) VALUES (800);
            UPDATE item SET price = 8 WHERE id = 800;
            DELETE FROM item WHERE id = 800;",
        after: "",
    },
    Scenario {
        name: "full_metadata",
        before: "SET GLOBAL binlog_row_metadata = 'FULL'",
        sql: "
            UPDATE wide SET e = 'red', t = 3 WHERE id = 1;
            INSERT INTO item VALUES (810, 'described', 1);
            INSERT INTO document VALUES (2, '{}');
            DELETE FROM part WHERE id = 11;",
        after: "SET GLOBAL binlog_row_metadata = 'MINIMAL'",
    },
    Scenario {
        name: "no_checksum",
        // Setting the variable rotates the log, so an empty file follows this one.
        before: "SET GLOBAL binlog_checksum = 'NONE'",
        sql: "
            INSERT INTO item VALUES (820, 'unprotected', 1);
            SET binlog_transaction_compression = ON;
            INSERT INTO item VALUES (821, 'unprotected and compressed', 1);
            CREATE TABLE unprotected (a INT);
            SET gtid_next = 'AUTOMATIC:billing';
            DROP TABLE unprotected;",
        after: "SET GLOBAL binlog_checksum = 'CRC32'",
    },
];
