//! Typed views of the events that something acts on. Each decodes from an event without checksum and
//! encodes to the canonical form; whatever has no view here stays bytes.

mod body;
mod format_description;
mod gtid_event;
mod heartbeat;
mod ignorable;
mod previous_gtids;
mod query;
mod rotate;
mod rows;
mod rows_query;
mod session_context;
mod statement_variables;
mod summary;
mod table_map;
mod transaction_payload;
mod xid;

pub use body::{EncodeEvent, EventOrigin};
pub use format_description::FormatDescription;
pub use gtid_event::{CommitTimestamp, GtidEvent, GtidForm, LogicalClock, ServerVersion};
pub use heartbeat::Heartbeat;
pub use ignorable::Ignorable;
pub use previous_gtids::PreviousGtids;
pub use query::{Query, StatementKind};
pub use rotate::Rotate;
pub use rows::{Rows, RowsChange};
pub use rows_query::RowsQuery;
pub use session_context::{
    AutoIncrement, CharacterSets, Invoker, SessionContext, SessionOptions, UpdatedSchemas,
};
pub use statement_variables::{IntVar, IntVarKind, Rand, UserVar, UserVarType, UserVarValue};
pub use summary::summary;
pub use table_map::{TableId, TableMap};
pub use transaction_payload::{Compression, TransactionPayload};
pub use xid::{XaPrepare, Xid};
