//! Opens the primary for writes, and closes it. Closing only serves clients: a former leader cannot commit, because
//! its transactions receive no ACK.

mod open_and_close;

pub(crate) use open_and_close::WriteFence;
pub use open_and_close::WriteFenceOptions;
