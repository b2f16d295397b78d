//! Why a transaction cannot be decoded.

use binlog_format::DecodeError;
use binlog_format::event::{EventType, RawEvent};
use binlog_format::events::TableId;
use binlog_format::gtid::Gtid;
use thiserror::Error;

use crate::keys::KeyColumnMissing;
use crate::schema::TableName;

/// A transaction that cannot be decoded; applying stops before it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("transaction {gtid} cannot be applied: {}{cause}", match .table {
    Some(table) => format!("{table}: "),
    None => String::new(),
})]
pub struct DecodeFailure {
    /// The transaction that cannot be applied.
    pub gtid: Gtid,
    /// The affected table, if there is one.
    pub table: Option<TableName>,
    /// The reason, with the remedy.
    pub cause: Box<DecodeCause>,
}

impl DecodeFailure {
    pub(crate) fn new(gtid: Gtid, table: Option<TableName>, cause: DecodeCause) -> Self {
        let cause = Box::new(cause);
        Self { gtid, table, cause }
    }
}

/// Why a transaction cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeCause {
    /// An event cannot be read.
    #[error(
        "{0}; take the log from another server or member, or use a version of this program that knows the source's"
    )]
    Unreadable(#[from] DecodeError),
    /// The decompressed transaction is too large.
    #[error(
        "its compressed payload has more than max_transaction_bytes ({limit}): raise that limit"
    )]
    TooLarge {
        /// `max_transaction_bytes` of the run.
        limit: u64,
    },
    /// LOAD DATA in statement format, which needs the file that the source read.
    #[error(
        "it is a LOAD DATA in statement format: set binlog_format=ROW on the source, and provision the target with a copy \
         that has this transaction"
    )]
    LoadData,
    /// An event at an impossible position.
    #[error(
        "a {event_type} event cannot stand at its place; the log lacks events, or is of a later MySQL version"
    )]
    Misplaced {
        /// The type in its header.
        event_type: EventType,
    },
    /// The transaction has rows of a table number for which it has no table map.
    #[error(
        "its rows are of table number {0}, which no table map of it names; the log lacks events"
    )]
    UnknownTable(TableId),
    /// The transaction uses one number for two tables.
    #[error("it gives two tables the number {0}; the log is damaged")]
    DoubleTable(TableId),
    /// A schema's or table's name is not UTF-8.
    #[error("a table's name is not UTF-8; the log is damaged")]
    TableName,
    /// The target does not have this table.
    #[error(
        "the target has no such table: create it as the source has it, or provision the target with a copy of the source"
    )]
    NoSuchTable,
    /// The keys of the target's table cannot be computed from the log's rows.
    #[error("{0}; give the target's table the source's columns, in the same order")]
    KeyColumn(#[from] KeyColumnMissing),
}

/// The transaction has no end.
pub(super) const INCOMPLETE: DecodeCause = DecodeCause::Misplaced {
    event_type: EventType::Gtid,
};

/// An event at an impossible position.
pub(super) fn misplaced(event: &RawEvent) -> DecodeCause {
    DecodeCause::Misplaced {
        event_type: event.event_type(),
    }
}
