//! Makes transactions of the log ready to be scheduled: tells changes of rows from barriers, takes rows events apart into
//! rows, and finds the keys of each row. Pure: what it has to know of the target's tables is given to it.
//!
//! ```text
//! FramedTransaction ─► Decoder::parse ─► Parsed ─(the target's tables)─► Parsed::finish ─► Transaction
//! ```

mod decoder;
mod failure;
mod own_schema;
mod parsed;
mod schema_change;

pub use crate::decode::decoder::Decoder;
pub use crate::decode::failure::{DecodeCause, DecodeFailure};
pub use crate::decode::parsed::{LoggedTable, Parsed, ReadyTables};
