//! Opens the primary for writes, and closes it. Closing is a courtesy to clients; what keeps a former leader from committing is
//! that nobody acknowledges its transactions.

mod executor;
pub(crate) mod long_statements;
pub(crate) mod read_only;

pub(crate) use executor::WriteFence;
pub use executor::WriteFenceOptions;
