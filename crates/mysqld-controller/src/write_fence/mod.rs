//! Opens the primary for writes, and closes it. Closing is a courtesy to clients; what keeps a former leader from committing is
//! that nobody acknowledges its transactions.

pub(crate) mod long_statements;
mod open_and_close;
pub(crate) mod read_only;

pub(crate) use open_and_close::WriteFence;
pub use open_and_close::WriteFenceOptions;
