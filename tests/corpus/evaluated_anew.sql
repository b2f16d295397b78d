-- What a server evaluates anew when it applies a row, under session variables that decide how: generated columns, functional keys,
-- constraints, partitions, numbers that are given.
CREATE DATABASE evaluated_anew; USE evaluated_anew;
-- A zone with a name, which the server looks up in its tables.
INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9001, 'N'); INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Corpus/East', 9001);
INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation) VALUES (9001, 0, 36000, 0, 'CE');
CREATE TABLE days (id INT PRIMARY KEY, ts TIMESTAMP NULL, n INT DEFAULT 0, day DATE AS (DATE(ts)) STORED, at DATETIME AS (CAST(ts AS DATETIME)), KEY (day));
-- An index over what depends on the zone is right for sessions that all have the same.
CREATE TABLE hours (id INT PRIMARY KEY, ts TIMESTAMP NULL, at DATETIME AS (CAST(ts AS DATETIME)), KEY (at), KEY of_the_day ((HOUR(ts))), UNIQUE KEY a_minute ((MINUTE(ts)), (CAST(ts AS DATE))));
CREATE TABLE once_a_day (id INT AUTO_INCREMENT PRIMARY KEY, user INT, ts TIMESTAMP NULL, UNIQUE KEY a_day (user, (CAST(ts AS DATE))));
CREATE TABLE by_day (id INT PRIMARY KEY, ts TIMESTAMP NULL, CONSTRAINT office_hours CHECK (HOUR(ts) BETWEEN 8 AND 18));
CREATE TABLE fractions (id INT PRIMARY KEY, t6 TIME(6), t0 TIME(0) AS (t6) STORED);
CREATE TABLE padded (id INT PRIMARY KEY, c CHAR(5), x VARCHAR(9) AS (CONCAT(c, 'x')) STORED, UNIQUE (x));
CREATE TABLE months (id INT PRIMARY KEY, d DATE, m VARCHAR(30) AS (DATE_FORMAT(d, '%M')) STORED, KEY (m));
CREATE TABLE stock (id INT PRIMARY KEY, have INT UNSIGNED, reserved INT UNSIGNED, free INT AS (have - reserved) STORED, KEY ((CAST(have - reserved AS SIGNED))));
CREATE TABLE parts (a INT UNSIGNED, b INT UNSIGNED, PRIMARY KEY (a, b)) PARTITION BY HASH (a - b) PARTITIONS 3;
CREATE TABLE numbers (id INT AUTO_INCREMENT PRIMARY KEY, a INT);
CREATE TABLE dates (id INT AUTO_INCREMENT PRIMARY KEY, x INT, s VARCHAR(20), q INT AS (100 DIV x) STORED, dt DATE AS (s) STORED, n TINYINT AS (x * 100) STORED, i INT AS (s) STORED);
CREATE TABLE zeros (id INT AUTO_INCREMENT PRIMARY KEY, d DATE, y INT AS (YEAR(d)) STORED, e DATE AS (d + INTERVAL 1 DAY) STORED, dd DATE AS (COALESCE(d)) STORED, CHECK (d IS NULL OR e IS NULL OR y >= 0));
-- A column that is nothing but another date is copied as the first `sql_mode` of an open table wants it (docs/mysqld-facts.md, "generated column that is
-- nothing but"). So this table is written in modes that all have dates checked; the one above is not such a column.
CREATE TABLE copied (id INT AUTO_INCREMENT PRIMARY KEY, d DATE, dd DATE AS (d) STORED, at DATETIME(3), atat DATETIME(3) AS (at) STORED);
SET time_zone = '-08:00';
INSERT INTO days (id, ts) VALUES (1, '2026-03-01 20:00:00'), (2, '2026-03-02 02:00:00'), (3, NULL); UPDATE days SET ts = ts + INTERVAL 1 HOUR, n = n + 1 WHERE id = 1;
INSERT INTO once_a_day (user, ts) VALUES (7, '2026-03-01 10:00:00'), (7, '2026-03-02 02:00:00'); INSERT INTO once_a_day (user, ts) VALUES (8, '2026-03-01 10:00:00'); INSERT INTO once_a_day (user, ts) VALUES (8, '2026-03-02 02:00:00');
INSERT INTO by_day VALUES (1, '2026-03-01 09:00:00'), (2, '2026-03-01 17:59:00');
-- One row, from one zone and the other, in transactions beside each other.
SET time_zone = '+05:30'; INSERT INTO days (id, ts) VALUES (4, '2026-03-01 20:00:00'); UPDATE days SET ts = ts + INTERVAL 1 HOUR, n = n + 1 WHERE id = 1;
SET time_zone = '-08:00'; UPDATE days SET ts = ts + INTERVAL 1 HOUR, n = n + 1 WHERE id = 1; INSERT INTO days (id, ts) VALUES (5, '2026-03-01 20:00:00');
SET time_zone = '+05:30'; UPDATE days SET ts = ts + INTERVAL 1 HOUR, n = n + 1 WHERE id = 1; UPDATE by_day SET ts = ts + INTERVAL 1 DAY - INTERVAL 16 HOUR WHERE id = 2;
SET time_zone = SYSTEM; INSERT INTO days (id, ts) VALUES (6, '2026-03-01 20:00:00'); UPDATE days SET ts = ts + INTERVAL 1 HOUR, n = n + 1 WHERE id = 1;
SET time_zone = '-08:00'; INSERT INTO hours (id, ts) VALUES (1, '2026-03-01 20:00:00'), (2, '2026-03-02 02:00:00'), (3, '2026-03-02 03:01:00'); UPDATE hours SET ts = ts + INTERVAL 1 HOUR WHERE id = 1; DELETE FROM hours WHERE id = 2;
SET time_zone = 'Corpus/East'; INSERT INTO days (id, ts) VALUES (7, '2026-03-01 01:00:00'); UPDATE days SET ts = ts + INTERVAL 1 HOUR, n = n + 1 WHERE id = 1;
SET time_zone = '-08:00'; BEGIN; INSERT INTO days (id, ts) VALUES (8, '2026-03-01 20:00:00'); SAVEPOINT s; INSERT INTO days (id, ts) VALUES (9, '2026-03-01 20:00:00'); ROLLBACK TO s; UPDATE days SET n = 5, ts = ts + INTERVAL 1 SECOND WHERE id = 8; COMMIT;
SET binlog_format = MIXED; BEGIN; INSERT INTO days (id, ts, n) VALUES (10, '2026-03-01 20:00:00', LENGTH(UUID())); UPDATE days SET ts = ts + INTERVAL 1 HOUR WHERE id = 10; INSERT INTO days (id, ts, n) VALUES (11, '2026-03-01 20:00:00', LENGTH(UUID())); COMMIT;
BEGIN; INSERT INTO days (id, ts) VALUES (12, '2026-03-01 20:00:00'); INSERT INTO days (id, ts, n) VALUES (13, '2026-03-01 20:00:00', LENGTH(UUID())); COMMIT; SET binlog_format = ROW;
XA START 'evaluated'; INSERT INTO days (id, ts) VALUES (14, '2026-03-01 20:00:00'); XA END 'evaluated'; XA PREPARE 'evaluated'; XA COMMIT 'evaluated';
CREATE TABLE selected (id INT PRIMARY KEY, ts TIMESTAMP NULL, day DATE AS (DATE(ts)) STORED) SELECT id, ts FROM days; DELETE FROM days WHERE day = '2026-03-02'; SET time_zone = SYSTEM;
SET sql_mode = CONCAT(@@sql_mode, ',TIME_TRUNCATE_FRACTIONAL'); INSERT INTO fractions (id, t6) VALUES (1, '10:00:00.9'), (2, '23:59:59.999999'); SET sql_mode = DEFAULT; INSERT INTO fractions (id, t6) VALUES (3, '10:00:00.9');
SET sql_mode = CONCAT(@@sql_mode, ',PAD_CHAR_TO_FULL_LENGTH'); INSERT INTO padded (id, c) VALUES (1, 'a'), (2, 'b'); SET sql_mode = DEFAULT; INSERT INTO padded (id, c) VALUES (3, 'a'); UPDATE padded SET c = 'd' WHERE id = 2;
SET lc_time_names = 'de_DE'; INSERT INTO months (id, d) VALUES (1, '2026-03-01'), (2, '2026-05-02'); SET lc_time_names = 'fr_FR'; UPDATE months SET d = '2026-08-03' WHERE id = 2; SET lc_time_names = 'en_US'; INSERT INTO months (id, d) VALUES (3, '2026-03-01');
SET sql_mode = CONCAT(@@sql_mode, ',NO_UNSIGNED_SUBTRACTION'); INSERT INTO stock (id, have, reserved) VALUES (1, 3, 5), (2, 0, 1); INSERT INTO parts VALUES (1, 2), (1, 3), (5, 1); UPDATE parts SET b = 9 WHERE a = 5; SET sql_mode = DEFAULT; INSERT INTO stock (id, have, reserved) VALUES (3, 5, 3);
SET sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO'); INSERT INTO numbers VALUES (0, 77), (5, 78); SET sql_mode = DEFAULT; INSERT INTO numbers (a) VALUES (79);
-- What a strict mode lets through with a warning, and another one as it is.
INSERT IGNORE INTO dates (x, s) VALUES (0, '2020-00-00'), (1, '0000-00-00'), (2, 'abc'), (100, '2020-02-31'); INSERT IGNORE INTO zeros (d) VALUES ('0000-00-00'), ('2020-02-00'), ('2020-02-31');
INSERT IGNORE INTO copied (d, at) VALUES ('0000-00-00', '0000-00-00'), ('2020-02-00', '2020-02-00 01:02:03.004'), ('2020-02-31', '2020-02-31');
SET sql_mode = ''; INSERT INTO dates (x, s) VALUES (0, '2020-00-00'), (1, '0000-00-00'), (2, 'abc'), (100, '2020-02-31'); INSERT INTO zeros (d) VALUES ('0000-00-00'), ('2020-02-00'), ('2020-02-31');
SET sql_mode = 'ALLOW_INVALID_DATES'; INSERT INTO zeros (d) VALUES ('0000-00-00'), ('2020-02-00'), ('2020-02-31');
INSERT INTO copied (d, at) VALUES ('0000-00-00', '0000-00-00'), ('2020-02-00', '2020-02-00 01:02:03.004'), ('2020-02-31', '2020-02-31');
SET sql_mode = 'TRADITIONAL'; INSERT IGNORE INTO dates (x, s) VALUES (0, '2020-00-00'), (1, '0000-00-00'), (2, 'abc'), (100, '2020-02-31'); UPDATE IGNORE zeros SET id = id + 100; UPDATE IGNORE copied SET id = id + 100;
SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE'; INSERT INTO numbers (a) VALUES (80); SET sql_mode = 'ANSI'; UPDATE numbers SET a = a + 1; SET sql_mode = DEFAULT;
