//! Where the log comes from: transactions in the log's order.

mod dump;
mod event_file;
mod files;
mod payload;
mod until;
mod versions;

pub use dump::DumpSource;
pub use files::{FileSource, ReadBytes};
pub use payload::framed;
pub use until::{Until, UntilSource};
pub use versions::VersionSource;

use std::future::Future;
use std::time::Duration;

use binlog_format::framing::FramedTransaction;
use thiserror::Error;

use crate::persistence::Persistence;

/// A log that is read from front to back.
pub trait Source: Send {
    /// The next transaction; `None` when the log has ended for good, or was to be read up to here only. Waits while there is
    /// nothing new. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`SourceError`]; the source is over then.
    fn next(
        &mut self,
    ) -> impl Future<Output = Result<Option<FramedTransaction>, SourceError>> + Send;

    /// Whether nothing more is there to be read at the moment: everything that the source has was given out.
    fn is_drained(&self) -> bool;
}

/// How a source that is away is opened again, for at most `patience`.
pub fn reopening(patience: Duration) -> Persistence {
    Persistence {
        within: patience,
        first_pause: Duration::from_millis(100),
        longest_pause: Duration::from_secs(5),
    }
}

/// Why a source gives no more transactions.
#[derive(Debug, Clone, Error)]
pub enum SourceError {
    /// It cannot be reached, or broke off; opening it again at the target's executed GTIDs may help.
    #[error("{0}")]
    Unreachable(String),
    /// It is damaged, or cannot be applied from: the words say what to do.
    #[error("{0}")]
    Refused(String),
}
