//! Values of every type arrive unchanged, in every form of the log.

use anyhow::Result;

use crate::pair::{Pair, Way};

const TABLES: &str = "
CREATE DATABASE d; USE d;
CREATE TABLE numbers (id INT PRIMARY KEY, a TINYINT, b SMALLINT UNSIGNED, c MEDIUMINT, d INT UNSIGNED ZEROFILL, e BIGINT UNSIGNED,
  f FLOAT, g DOUBLE, h DECIMAL(65,30), i DECIMAL(9,9), j BIT(1), k BIT(33), l BOOL, m YEAR, UNIQUE (e), KEY (h));
CREATE TABLE times (id INT PRIMARY KEY, a DATE, b TIME, c TIME(6), d DATETIME, e DATETIME(3), f TIMESTAMP NULL, g TIMESTAMP(6) NULL);
CREATE TABLE texts (id INT PRIMARY KEY, a CHAR(3), b VARCHAR(70), c VARCHAR(500) CHARACTER SET utf8mb4, d TINYTEXT, e TEXT,
  f MEDIUMTEXT, g LONGTEXT CHARACTER SET latin1, h BINARY(5), i VARBINARY(300), j TINYBLOB, k BLOB, l MEDIUMBLOB, m LONGBLOB,
  n ENUM('x','y','z'), o SET('p','q','r'), p CHAR(20) CHARACTER SET utf16, UNIQUE (b), UNIQUE (i(10)));
CREATE TABLE shapes (id INT PRIMARY KEY, a GEOMETRY, b POINT NOT NULL SRID 4326, c JSON, d VECTOR(3), SPATIAL KEY (b));
CREATE TABLE made (id INT PRIMARY KEY, a INT, v INT AS (a * 2) VIRTUAL, s INT AS (a DIV 3) STORED, h INT INVISIBLE DEFAULT 7,
  c JSON, UNIQUE (v), CHECK (a < 1000000));
CREATE TABLE hidden (id INT PRIMARY KEY, a INT, c JSON, b INT, KEY ((a + 1)), UNIQUE KEY ((a * 2)),
  UNIQUE KEY ((CAST(c->'$.tags' AS UNSIGNED ARRAY))));
CREATE TABLE keyless (a INT, b VARCHAR(20));
SET sql_generate_invisible_primary_key = ON; CREATE TABLE unseen (a INT, b INT); SET sql_generate_invisible_primary_key = OFF;
CREATE TABLE parted (id INT, p INT, v INT, PRIMARY KEY (id, p)) PARTITION BY HASH (p) PARTITIONS 3;
";

/// Returns the statements of one round; `n` makes keys and values different from those of other
/// rounds.
fn round(n: u32) -> String {
    let k = n * 100;
    format!(
        r#"USE d; SET time_zone = '+03:00';
INSERT INTO numbers VALUES ({k}, -128, 65535, -8388608, 4294967295, 18446744073709551615 - {k}, 1.5e-30, -1e300,
  12345678901234567890123456789012345.012345678901234567890123456789, 0.123456789, 1, b'100000000000000000000000000000001', 1, 1999),
  ({k} + 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  ({k} + 2, 127, 0, 8388607, 0, {k}, -0.0, 0, -0.5, -0.000000001, 0, 0, 0, 2155);
UPDATE numbers SET f = 3.25, h = -h, k = 7 WHERE id = {k}; UPDATE numbers SET a = 1 WHERE id >= {k}; DELETE FROM numbers WHERE id = {k} + 1;
INSERT INTO times VALUES ({k}, '1000-01-01', '-838:59:59', '-00:00:00.000001', '9999-12-31 23:59:59', '2026-01-02 03:04:05.678',
  '1971-01-01 00:00:01', '2026-11-20 10:11:12.123456'), ({k} + 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
UPDATE times SET c = '838:59:58.999999', g = NULL WHERE id = {k};
INSERT INTO texts VALUES ({k}, 'a', 'b{n}', 'ü€😀', 'd', REPEAT('e', 300), REPEAT('f', 70000), 'ä', 'x', 'i{n}', '', 'k', 'l', X'00ff27',
  'y', 'p,r', 'ß'), ({k} + 1, '', 'B{n}x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
UPDATE texts SET c = CONCAT(c, REPEAT('é', 200)), n = 'z', o = '', l = REPEAT(X'0001', 40000) WHERE id = {k}; DELETE FROM texts WHERE id = {k} + 1;
INSERT INTO shapes VALUES ({k}, ST_GeomFromText('LINESTRING(0 0,1 1,2 {n})'), ST_SRID(POINT(1, {n}), 4326),
  '{{"a": {n}, "b": ["x", 1.5, null, true], "long": "{long}", "d": {{"e": "2026-01-01"}}}}', TO_VECTOR('[1,2.5,{n}]')),
  ({k} + 1, NULL, ST_SRID(POINT(0, 0), 4326), '[]', NULL);
UPDATE shapes SET c = JSON_SET(c, '$.a', 'changed', '$.new', {n}) WHERE id = {k}; UPDATE shapes SET c = JSON_REMOVE(c, '$.b[1]') WHERE id = {k};
UPDATE shapes SET c = JSON_REPLACE(c, '$.long', 'short'), d = TO_VECTOR('[0,0,{n}]') WHERE id = {k};
INSERT INTO made (id, a, c) VALUES ({k}, {k}, '{{"tags": [1, 2, {n}]}}'), ({k} + 1, {k} + 1, NULL), ({k} + 2, NULL, NULL);
UPDATE made SET a = a + 50, h = {n} WHERE id >= {k}; DELETE FROM made WHERE id = {k} + 1;
INSERT INTO hidden VALUES ({k}, {k}, '{{"tags": [{k}, {k}1]}}', 5), ({k} + 1, NULL, NULL, NULL), ({k} + 2, {k} + 2, '{{"tags": [{k}2]}}', 6);
UPDATE hidden SET a = a + 1, c = JSON_SET(c, '$.x', {n}) WHERE id >= {k}; DELETE FROM hidden WHERE id = {k} + 1;
INSERT INTO keyless VALUES (1, 'one'), (1, 'one'), (2, 'two{n}'), (NULL, NULL); UPDATE keyless SET b = 'uno' WHERE a = 1 LIMIT 1;
DELETE FROM keyless WHERE a IS NULL LIMIT 1;
INSERT INTO unseen VALUES ({n}, 1), ({n}, 2); UPDATE unseen SET b = b + 10 WHERE a = {n};
INSERT INTO parted VALUES ({k}, 1, 1), ({k}, 2, 2), ({k} + 1, 1, 1); UPDATE parted SET p = p + 2 WHERE id = {k} AND p = 1; DELETE FROM parted WHERE id = {k} + 1;
BEGIN; UPDATE numbers SET m = 2000; UPDATE texts SET d = 'changed'; INSERT INTO keyless SELECT id, 'n' FROM numbers; DELETE FROM times WHERE id = {k} + 1; COMMIT;
"#,
        long = "y".repeat(200)
    )
}

const FORMS: [&str; 5] = [
    "SET binlog_row_image = FULL",
    "SET binlog_row_image = MINIMAL",
    "SET binlog_row_image = NOBLOB",
    "SET binlog_row_image = MINIMAL; SET binlog_row_value_options = PARTIAL_JSON",
    "SET binlog_transaction_compression = ON",
];

#[tokio::test]
async fn values_of_every_type_arrive_as_they_left_from_one_mysqld_to_another() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(TABLES)?;
    for (n, form) in FORMS.into_iter().enumerate() {
        pair.write(&format!("{form}; {}", round(n as u32 + 1)))?;
        let way = if n % 2 == 0 {
            Way::Batches(8)
        } else {
            Way::Pieces(n as u64)
        };
        pair.equal_after(way, &["d"]).await?;
    }
    pair.write("SET GLOBAL binlog_row_metadata = FULL; SET GLOBAL binlog_checksum = NONE")?;
    pair.write(&round(9))?;
    pair.equal_after(Way::Batches(64), &["d"]).await
}
