//! Opens the primary for writes, and closes it. Closing only serves clients: a former leader cannot commit, because
//! its transactions receive no ACK.

pub(crate) mod long_statements;
mod open_and_close;
pub(crate) mod read_only;

pub(crate) use open_and_close::WriteFence;
pub use open_and_close::WriteFenceOptions;
