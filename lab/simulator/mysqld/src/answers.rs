//! The results of statements, and their packets.

use mysql_link::wire::{Outgoing, put_integer, put_string};
use thiserror::Error;

/// An error of the server, or of the client library if the server has ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} (MySQL error {code})")]
pub struct SqlError {
    /// MySQL's error number.
    pub code: u16,
    /// The error message.
    pub message: String,
}

/// Error numbers.
pub(crate) mod code {
    pub(crate) const TOO_MANY_CONNECTIONS: u16 = 1040;
    pub(crate) const HANDSHAKE: u16 = 1043;
    pub(crate) const ACCESS_DENIED: u16 = 1045;
    pub(crate) const UNKNOWN_COMMAND: u16 = 1047;
    pub(crate) const SHUTDOWN: u16 = 1053;
    pub(crate) const DUPLICATE_KEY: u16 = 1062;
    pub(crate) const UNKNOWN_SCHEMA: u16 = 1049;
    pub(crate) const PARSE: u16 = 1064;
    pub(crate) const NO_SUCH_THREAD: u16 = 1094;
    pub(crate) const PLUGIN_EXISTS: u16 = 1125;
    pub(crate) const TABLE_ACCESS_DENIED: u16 = 1142;
    pub(crate) const NO_SUCH_TABLE: u16 = 1146;
    pub(crate) const UNKNOWN_VARIABLE: u16 = 1193;
    pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(crate) const SPECIFIC_ACCESS_DENIED: u16 = 1227;
    pub(crate) const WRONG_VALUE: u16 = 1231;
    pub(crate) const FATAL_READING_BINLOG: u16 = 1236;
    pub(crate) const QUERY_INTERRUPTED: u16 = 1317;
    pub(crate) const UNKNOWN_FILE: u16 = 1373;
    pub(crate) const NO_USER_BY_GRANT: u16 = 1410;
    pub(crate) const MALFORMED_PACKET: u16 = 1835;
    pub(crate) const HOOK_FAILED: u16 = 3100;
    pub(crate) const RESTART_FAILED: u16 = 3707;
    /// An error of the client library: no server listens.
    pub(crate) const CANNOT_CONNECT: u16 = 2002;
    /// An error of the client library: the connection ended before the answer.
    pub(crate) const LOST: u16 = 2013;
}

impl SqlError {
    pub(crate) fn new(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn lost() -> Self {
        Self::new(code::LOST, "Lost connection to MySQL server during query")
    }

    pub(crate) fn read_only(option: &str) -> Self {
        let message = format!(
            "The MySQL server is running with the {option} option so it cannot execute this statement"
        );
        Self::new(1290, message)
    }

    pub(crate) fn lacks(privilege: &str) -> Self {
        let message = format!(
            "Access denied; you need (at least one of) the {privilege} privilege(s) for this operation"
        );
        Self::new(code::SPECIFIC_ACCESS_DENIED, message)
    }

    /// The error of a statement after a clone has dropped the schema of the lists' table.
    pub(crate) fn no_schema() -> Self {
        let message = format!("Unknown database '{}'", crate::SCHEMA);
        Self::new(code::UNKNOWN_SCHEMA, message)
    }

    pub(crate) fn lock_wait() -> Self {
        let message = "Lock wait timeout exceeded; try restarting transaction";
        Self::new(code::LOCK_WAIT_TIMEOUT, message)
    }

    fn sqlstate(&self) -> &'static [u8; 5] {
        match self.code {
            code::ACCESS_DENIED => b"28000",
            code::TOO_MANY_CONNECTIONS => b"08004",
            code::HANDSHAKE | code::UNKNOWN_COMMAND | code::SHUTDOWN => b"08S01",
            code::PARSE
            | code::SPECIFIC_ACCESS_DENIED
            | code::TABLE_ACCESS_DENIED
            | code::UNKNOWN_SCHEMA
            | code::NO_USER_BY_GRANT
            | code::WRONG_VALUE => b"42000",
            code::NO_SUCH_TABLE => b"42S02",
            code::DUPLICATE_KEY => b"23000",
            code::QUERY_INTERRUPTED => b"70100",
            _ => b"HY000",
        }
    }

    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0xff];
        packet.extend_from_slice(&self.code.to_le_bytes());
        packet.push(b'#');
        packet.extend_from_slice(self.sqlstate());
        packet.extend_from_slice(self.message.as_bytes());
        packet
    }
}

/// The result of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The number of changed rows.
    Done(u64),
    Rows(Rows),
}

/// A result set: named columns, and values as text. `None` is NULL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Option<String>>>,
}

impl Rows {
    pub(crate) fn of(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Creates a result set from the columns' names, separated by blanks.
    pub(crate) fn named(columns: &str) -> Self {
        Self::of(&columns.split(' ').collect::<Vec<_>>())
    }

    pub(crate) fn row(mut self, values: impl IntoIterator<Item = impl Into<Cell>>) -> Self {
        let values = values.into_iter().map(|value| value.into().0);
        self.rows.push(values.collect());
        self
    }

    pub(crate) fn rows<V: Into<Cell>>(
        self,
        rows: impl IntoIterator<Item = impl IntoIterator<Item = V>>,
    ) -> Self {
        rows.into_iter().fold(self, Self::row)
    }
}

/// A value of a result set.
pub(crate) struct Cell(Option<String>);

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self(Some(text.to_owned()))
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self(Some(text))
    }
}

impl From<Option<String>> for Cell {
    fn from(text: Option<String>) -> Self {
        Self(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self(Some(number.to_string()))
    }
}

// Packets.

/// `SERVER_STATUS_AUTOCOMMIT`.
const STATUS: u16 = 2;
const NULL: u8 = 0xfb;

/// Appends the packets of a statement's result.
pub(crate) fn put_answer(
    out: &mut Outgoing,
    answer: &Result<Answer, SqlError>,
    deprecate_eof: bool,
) {
    match answer {
        Err(error) => out.push(&error.packet()),
        Ok(Answer::Done(affected)) => out.push(&ok_packet(0, *affected)),
        Ok(Answer::Rows(rows)) => {
            let mut count = Vec::new();
            put_integer(&mut count, rows.columns.len() as u64);
            out.push(&count);
            for column in &rows.columns {
                out.push(&column_packet(column));
            }
            if !deprecate_eof {
                out.push(&eof_packet());
            }
            for row in &rows.rows {
                let mut packet = Vec::new();
                for value in row {
                    match value {
                        None => packet.push(NULL),
                        Some(text) => put_string(&mut packet, text.as_bytes()),
                    }
                }
                out.push(&packet);
            }
            match deprecate_eof {
                true => out.push(&ok_packet(0xfe, 0)),
                false => out.push(&eof_packet()),
            }
        }
    }
}

/// An OK packet. With `header` 0xfe it ends a result set.
pub(crate) fn ok_packet(header: u8, affected: u64) -> Vec<u8> {
    let mut packet = vec![header];
    put_integer(&mut packet, affected);
    packet.push(0);
    packet.extend_from_slice(&STATUS.to_le_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet
}

pub(crate) fn eof_packet() -> Vec<u8> {
    let mut packet = vec![0xfe, 0, 0];
    packet.extend_from_slice(&STATUS.to_le_bytes());
    packet
}

/// A column definition. Every column is text in utf8mb4, because clients of the text protocol parse the values themselves.
fn column_packet(name: &str) -> Vec<u8> {
    const UTF8MB4: u16 = 45;
    const VAR_STRING: u8 = 0xfd;
    let mut packet = Vec::new();
    put_string(&mut packet, b"def");
    for part in ["", "", "", name, ""] {
        put_string(&mut packet, part.as_bytes());
    }
    packet.push(0x0c);
    packet.extend_from_slice(&UTF8MB4.to_le_bytes());
    packet.extend_from_slice(&(1_u32 << 20).to_le_bytes());
    packet.push(VAR_STRING);
    packet.extend_from_slice(&[0; 5]);
    packet
}
