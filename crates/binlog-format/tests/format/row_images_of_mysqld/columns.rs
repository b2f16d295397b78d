//! Columns of every type of MySQL 9.7, with random values. Compares logged values with the server's.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// How to convert a value's bytes and the server's answer to equal text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    /// An integer; the log records whether it is signed.
    Number,
    /// FLOAT, DOUBLE.
    Real,
    /// BIT.
    BigEndian,
    Year,
    Date,
    /// The bytes in hexadecimal.
    Hex,
    /// The bytes in hexadecimal, without trailing zeros.
    Binary,
    /// Not compared, because the encoding is complex. The length is still checked.
    Not,
}

/// A column and a generator of its values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestColumn {
    pub(crate) definition: &'static str,
    pub(crate) compare: Compare,
    /// Returns the SQL text of a value, generated from a number.
    pub(crate) value: fn(u64) -> String,
}

/// The columns after the primary key, which is column 0.
pub(crate) const COLUMNS: [TestColumn; 46] = [
    column("TINYINT", Compare::Number, |n| format!("{}", n as i8)),
    column("TINYINT UNSIGNED", Compare::Number, |n| {
        format!("{}", n as u8)
    }),
    column("SMALLINT", Compare::Number, |n| format!("{}", n as i16)),
    column("YEAR", Compare::Year, |n| format!("{}", 1901 + n % 255)),
    column("SMALLINT UNSIGNED", Compare::Number, |n| {
        format!("{}", n as u16)
    }),
    column("MEDIUMINT", Compare::Number, |n| {
        format!("{}", (n as i32) >> 8)
    }),
    column("MEDIUMINT UNSIGNED", Compare::Number, |n| {
        format!("{}", (n as u32) >> 8)
    }),
    column("INT", Compare::Number, |n| format!("{}", n as i32)),
    column("INT UNSIGNED", Compare::Number, |n| format!("{}", n as u32)),
    column("BIGINT", Compare::Number, |n| format!("{}", n as i64)),
    column("BIGINT UNSIGNED", Compare::Number, |n| format!("{n}")),
    column("BOOL", Compare::Number, |n| format!("{}", n % 2)),
    column("FLOAT", Compare::Real, |n| {
        format!("{}", f64::from(n as i16) / 4.0)
    }),
    column("DOUBLE", Compare::Real, |n| {
        format!("{}", f64::from(n as i32) / 8.0)
    }),
    column("DECIMAL(10,0)", Compare::Not, |n| format!("{}", n as i32)),
    column("DECIMAL(65,30)", Compare::Not, |n| {
        format!("{}.{n}", n as i64)
    }),
    column("DECIMAL(1,1)", Compare::Not, |n| format!("0.{}", n % 10)),
    column("DECIMAL(20,5) UNSIGNED", Compare::Not, |n| {
        format!("{}.{}", n >> 16, n % 100_000)
    }),
    column("BIT(1)", Compare::BigEndian, |n| format!("{}", n % 2)),
    column("BIT(10)", Compare::BigEndian, |n| format!("{}", n % 1024)),
    column("BIT(64)", Compare::BigEndian, |n| format!("{n}")),
    column("DATE", Compare::Date, date),
    column("TIME", Compare::Not, |n| format!("'{}'", time(n))),
    column("TIME(3)", Compare::Not, |n| {
        format!("'-{}.{:03}'", time(n), n % 1000)
    }),
    column("TIME(6)", Compare::Not, |n| {
        format!("'{}.{:06}'", time(n), n % 1_000_000)
    }),
    column("DATETIME", Compare::Not, |n| {
        format!("TIMESTAMP({}, '{}')", date(n), time(n))
    }),
    column("DATETIME(2)", Compare::Not, |n| {
        format!("TIMESTAMP({}, '{}.{:02}')", date(n), time(n), n % 100)
    }),
    column("DATETIME(5)", Compare::Not, |n| {
        format!("TIMESTAMP({}, '{}.{:05}')", date(n), time(n), n % 100_000)
    }),
    column("TIMESTAMP NULL", Compare::Not, |n| {
        format!("FROM_UNIXTIME({})", n % 2_000_000_000 + 1)
    }),
    column("TIMESTAMP(1) NULL", Compare::Not, |n| {
        format!("FROM_UNIXTIME({}.5)", n % 2_000_000_000 + 1)
    }),
    column("TIMESTAMP(6) NULL", Compare::Not, |n| {
        format!(
            "FROM_UNIXTIME({}.{:06})",
            n % 2_000_000_000 + 1,
            n % 1_000_000
        )
    }),
    column("CHAR(10)", Compare::Hex, |n| text(n, 10)),
    column("CHAR(255) CHARACTER SET utf8mb4", Compare::Hex, |n| {
        text(n, 255)
    }),
    column("BINARY(200)", Compare::Binary, |n| bytes(n, 200)),
    column("VARCHAR(63)", Compare::Hex, |n| text(n, 63)),
    column("VARCHAR(1000) CHARACTER SET latin1", Compare::Hex, |n| {
        text(n, 400)
    }),
    column("VARBINARY(300)", Compare::Hex, |n| bytes(n, 300)),
    column("TINYTEXT", Compare::Hex, |n| text(n, 60)),
    column("TEXT CHARACTER SET latin1", Compare::Hex, |n| text(n, 700)),
    column("MEDIUMBLOB", Compare::Hex, |n| bytes(n, 900)),
    column("LONGTEXT", Compare::Hex, |n| text(n, 700)),
    column("ENUM('a','b','c')", Compare::Number, |n| {
        format!("{}", n % 3 + 1)
    }),
    column(
        "SET('a','b','c','d','e','f','g','h','i','j')",
        Compare::Number,
        |n| format!("{}", n % 1024),
    ),
    column("JSON", Compare::Not, |n| {
        format!(
            "JSON_OBJECT('a', {n}, 'b', REPEAT('long', {}), 'c', JSON_ARRAY(1, {}))",
            n % 40,
            n % 7
        )
    }),
    column("GEOMETRY", Compare::Hex, |n| {
        format!("ST_GeomFromText('LINESTRING({} {}, 1 2)')", n % 90, n % 77)
    }),
    column("VECTOR(9)", Compare::Hex, |n| {
        format!("STRING_TO_VECTOR('[1,2,3,4,5,6,7,8,{}]')", n % 100)
    }),
];

const fn column(
    definition: &'static str,
    compare: Compare,
    value: fn(u64) -> String,
) -> TestColumn {
    TestColumn {
        definition,
        compare,
        value,
    }
}

fn date(n: u64) -> String {
    format!(
        "'{:04}-{:02}-{:02}'",
        1000 + n % 9000,
        n % 12 + 1,
        n % 28 + 1
    )
}

fn time(n: u64) -> String {
    format!("{:02}:{:02}:{:02}", n % 24, n % 60, n % 59)
}

/// A text of at most this many characters, all of which exist in latin1.
fn text(n: u64, longest: u64) -> String {
    let length = n % (longest + 1);
    let word = ["a", "é", "Zz", " "][(n >> 32) as usize % 4];
    format!("LEFT(REPEAT('{word}', {length}), {length})")
}

fn bytes(n: u64, longest: u64) -> String {
    format!(
        "LEFT(REPEAT(X'{:016x}', 200), {})",
        n.rotate_left(7),
        n % (longest + 1)
    )
}

impl Compare {
    /// The query that returns the server's value.
    pub(crate) fn query(self, name: &str) -> Option<String> {
        Some(match self {
            Self::Number | Self::BigEndian | Self::Year => format!("{name} + 0"),
            Self::Real | Self::Date => name.to_owned(),
            Self::Hex | Self::Binary => format!("HEX({name})"),
            Self::Not => return None,
        })
    }

    /// The expected answer for a logged value.
    pub(crate) fn text(self, value: &[u8], unsigned: bool) -> String {
        let little_endian = |value: &[u8]| {
            let mut wide = [0; 8];
            wide[..value.len()].copy_from_slice(value);
            u64::from_le_bytes(wide)
        };
        match self {
            Self::Number if unsigned => little_endian(value).to_string(),
            Self::Number => {
                let unused = 64 - 8 * value.len() as u32;
                (((little_endian(value) << unused) as i64) >> unused).to_string()
            }
            Self::BigEndian => value
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
                .to_string(),
            Self::Real if value.len() == 4 => {
                f32::from_le_bytes(value.try_into().unwrap()).to_string()
            }
            Self::Real => f64::from_le_bytes(value.try_into().unwrap()).to_string(),
            Self::Year => (1900 + u64::from(value[0])).to_string(),
            Self::Date => {
                let number = little_endian(value);
                format!(
                    "{:04}-{:02}-{:02}",
                    number >> 9,
                    number >> 5 & 15,
                    number & 31
                )
            }
            Self::Hex => hex(value),
            Self::Binary => hex(value).trim_end_matches("00").to_owned(),
            Self::Not => String::new(),
        }
    }

    /// Converts the server's answer to the form of the expected one.
    pub(crate) fn answer(self, answer: &str) -> String {
        match self {
            // Removes trailing zero bytes. The hexadecimal digits of another byte may also end with 0.
            Self::Binary => {
                let mut digits = answer;
                while let Some(rest) = digits.strip_suffix("00") {
                    digits = rest;
                }
                digits.to_owned()
            }
            _ => answer.to_owned(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02X}").unwrap();
        text
    })
}

/// Statements that fill, change and empty a table of these columns, from a fixed seed. Also returns the numbers of inserted and deleted
/// rows.
pub(crate) fn statements(round: u64) -> (String, usize, usize) {
    let mut runner = TestRunner::deterministic();
    let mut next = || any::<u64>().new_tree(&mut runner).unwrap().current();
    for _ in 0..round * 1000 {
        next();
    }
    let (mut sql, mut inserted, mut deleted) = (String::new(), 0, 0);
    let first = round * 1000;
    for row in 0..40 {
        if row % 4 == 0 {
            sql += "INSERT INTO every VALUES ";
        }
        write!(sql, "({}", first + row).unwrap();
        for column in &COLUMNS {
            let n = next();
            let value = if n % 5 == 0 {
                "NULL".to_owned()
            } else {
                (column.value)(n)
            };
            write!(sql, ",{value}").unwrap();
        }
        sql += if row % 4 == 3 { ");\n" } else { ")," };
        inserted += 1;
    }
    for row in 40..50 {
        let at = next() as usize % COLUMNS.len();
        let value = (COLUMNS[at].value)(next());
        writeln!(
            sql,
            "INSERT INTO every (id, c{at}) VALUES ({}, {value});",
            first + row
        )
        .unwrap();
        inserted += 1;
    }
    for _ in 0..60 {
        let id = first + next() % 50;
        let mut changes = Vec::new();
        for _ in 0..1 + next() % 3 {
            let at = next() as usize % COLUMNS.len();
            let n = next();
            let value = if n % 6 == 0 {
                "NULL".to_owned()
            } else {
                (COLUMNS[at].value)(n)
            };
            changes.push(format!("c{at} = {value}"));
        }
        writeln!(
            sql,
            "UPDATE every SET {} WHERE id = {id};",
            changes.join(", ")
        )
        .unwrap();
    }
    let json = COLUMNS
        .iter()
        .position(|column| column.definition == "JSON")
        .unwrap();
    writeln!(
        sql,
        "UPDATE every SET c{json} = JSON_SET(c{json}, '$.a', 7), c7 = id WHERE id BETWEEN {} AND {};",
        first + 3,
        first + 30
    )
    .unwrap();
    // The primary key is changed, too.
    writeln!(
        sql,
        "UPDATE every SET id = {} WHERE id = {first};",
        first + 500
    )
    .unwrap();
    for row in (10..20).chain([500]) {
        writeln!(sql, "DELETE FROM every WHERE id = {};", first + row).unwrap();
        deleted += 1;
    }
    (sql, inserted, deleted)
}
