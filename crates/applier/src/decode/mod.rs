//! Makes transactions of the log ready to be scheduled: tells changes of rows from barriers, takes rows events apart into
//! rows, and finds the keys of each row. Pure: what it has to know of the target's tables is given to it.
//!
//! ```text
//! FramedTransaction ─► Decoder::parse ─► Parsed ─(the target's tables)─► Parsed::finish ─► Transaction
//! ```

mod barrier;
mod decoder;
mod failure;
mod parsed;
mod row_changes;
mod schema_change;

pub use decoder::Decoder;
pub use failure::{DecodeCause, DecodeFailure};
pub use parsed::{LoggedTable, Parsed};
