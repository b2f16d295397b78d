//! What the first event of a transaction says, however it is written.

use std::borrow::Cow;
use std::fmt;

use crate::gtid::Gtid;

/// Microseconds since the epoch at which a server committed a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitTimestamp(pub u64);

impl fmt::Display for CommitTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A server version as events carry it: 90704 is 9.7.4.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerVersion(pub u32);

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}.{}",
            self.0 / 10_000,
            self.0 / 100 % 100,
            self.0 % 100
        )
    }
}

/// The logical clock of MySQL's parallel applier: which transactions of one file may run together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LogicalClock {
    /// The sequence number of the last transaction that must be committed before this one starts.
    pub last_committed: i64,
    /// The transaction's own number in its file.
    pub sequence_number: i64,
}

/// How a GTID event is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GtidForm<'a> {
    /// GTID: without a tag, fields at fixed places.
    Classic,
    /// GTID_TAGGED: numbered fields.
    Tagged {
        /// The last field that a reader must know.
        last_non_ignorable_field: u64,
        /// Fields of later versions, as they were read.
        later_fields: Cow<'a, [u8]>,
    },
}

impl GtidForm<'_> {
    /// The tagged form as 8.3 to 9.7 write it.
    pub const TAGGED: GtidForm<'static> = GtidForm::Tagged {
        last_non_ignorable_field: 0,
        later_fields: Cow::Borrowed(&[]),
    };
}

/// The first event of a transaction. What a server before 8.0 does not write is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GtidEvent<'a> {
    /// How it is written.
    pub form: GtidForm<'a>,
    /// Bit 0: the transaction may have statement-format events.
    pub flags: u8,
    /// The transaction's identifier; without a tag in the classic form.
    pub gtid: Gtid,
    /// For the parallel applier.
    pub clock: LogicalClock,
    /// When the server that wrote this file committed it.
    pub immediate_commit: Option<CommitTimestamp>,
    /// When the server where it originated committed it, if that is another time.
    pub original_commit: Option<CommitTimestamp>,
    /// Bytes of all its events in that server's file, checksums included.
    pub transaction_length: Option<u64>,
    /// The version of the server that wrote this file.
    pub immediate_version: Option<ServerVersion>,
    /// The version of the server where it originated, if that is another one.
    pub original_version: Option<ServerVersion>,
    /// Orders commits of several sessions; group replication alone sets it.
    pub commit_group_ticket: Option<u64>,
}

impl GtidEvent<'_> {
    /// Flag bit of a transaction that may have statement-format events.
    pub const MAY_HAVE_STATEMENTS: u8 = 1;
}
