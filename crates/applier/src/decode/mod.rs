//! Prepares transactions of the log for scheduling: separates row changes from barriers, splits rows events into
//! rows, and finds the keys of each row. Pure: the caller supplies the shapes of the target's tables.
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
