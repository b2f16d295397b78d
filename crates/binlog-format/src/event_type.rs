//! Event type codes. Unknown codes are kept as [`EventType::Other`].

use std::fmt;

macro_rules! event_types {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// The type byte of an event header. Types that are not used here have no name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventType {
            $($(#[$doc])* $variant,)*
            /// A type without a name, by its code.
            Other(u8),
        }

        impl EventType {
            /// The byte in the header.
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Other(code) => code,
                }
            }

            /// The type for a header's byte. Returns [`Self::Other`] only for a code without a name.
            pub const fn from_code(code: u8) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for EventType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($name),)*
                    Self::Other(code) => write!(f, "type {code}"),
                }
            }
        }
    };
}

event_types! {
    /// A statement, including those that begin and end a transaction.
    Query = 2, "QUERY";
    /// Normal shutdown of the server.
    Stop = 3, "STOP";
    /// Contains the next file's name; the last event of a properly closed file.
    Rotate = 4, "ROTATE";
    /// An integer session variable that the next statement depends on.
    IntVar = 5, "INTVAR";
    /// A block of a file that LOAD DATA reads, in statement format.
    AppendBlock = 9, "APPEND_BLOCK";
    /// The end of an aborted LOAD DATA in statement format.
    DeleteFile = 11, "DELETE_FILE";
    /// The seed that the next statement's RAND() depends on.
    Rand = 13, "RAND";
    /// A user variable that the next statement depends on.
    UserVar = 14, "USER_VAR";
    /// The first event of a file, which defines the format of the others.
    FormatDescription = 15, "FORMAT_DESCRIPTION";
    /// The commit of a transaction in a transactional engine.
    Xid = 16, "XID";
    /// The first block of a file that LOAD DATA reads, in statement format.
    BeginLoadQuery = 17, "BEGIN_LOAD_QUERY";
    /// LOAD DATA in statement format.
    ExecuteLoadQuery = 18, "EXECUTE_LOAD_QUERY";
    /// Describes the table of the following rows events.
    TableMap = 19, "TABLE_MAP";
    /// Inserted rows, version 1.
    WriteRowsV1 = 23, "WRITE_ROWS_V1";
    /// Updated rows, version 1.
    UpdateRowsV1 = 24, "UPDATE_ROWS_V1";
    /// Deleted rows, version 1.
    DeleteRowsV1 = 25, "DELETE_ROWS_V1";
    /// The source lost events: its binlog has a gap.
    Incident = 26, "INCIDENT";
    /// The source is idle; never in a file.
    Heartbeat = 27, "HEARTBEAT";
    /// A reader that does not support this event may skip it.
    Ignorable = 28, "IGNORABLE";
    /// The text of the statement that changed the following rows.
    RowsQuery = 29, "ROWS_QUERY";
    /// Inserted rows.
    WriteRows = 30, "WRITE_ROWS";
    /// Updated rows.
    UpdateRows = 31, "UPDATE_ROWS";
    /// Deleted rows.
    DeleteRows = 32, "DELETE_ROWS";
    /// The GTID of the following transaction.
    Gtid = 33, "GTID";
    /// The start of a transaction that has no GTID.
    AnonymousGtid = 34, "ANONYMOUS_GTID";
    /// The GTIDs of all files before this one.
    PreviousGtids = 35, "PREVIOUS_GTIDS";
    /// Group replication's certification data.
    TransactionContext = 36, "TRANSACTION_CONTEXT";
    /// Group replication's view change.
    ViewChange = 37, "VIEW_CHANGE";
    /// The end of the first phase of an XA transaction.
    XaPrepare = 38, "XA_PREPARE";
    /// Updated rows with partial JSON values.
    PartialUpdateRows = 39, "PARTIAL_UPDATE_ROWS";
    /// A whole transaction, usually compressed.
    TransactionPayload = 40, "TRANSACTION_PAYLOAD";
    /// A heartbeat that can contain positions beyond 4 GiB; never in a file.
    HeartbeatV2 = 41, "HEARTBEAT_V2";
    /// The GTID, with or without a tag, of the following transaction.
    GtidTagged = 42, "GTID_TAGGED";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_round_trips() {
        for code in 0..=u8::MAX {
            assert_eq!(EventType::from_code(code).code(), code);
        }
    }
}
