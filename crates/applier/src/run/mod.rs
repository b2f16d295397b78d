//! A run: applies a source to a database.
//!
//! ```text
//!            window (rows, bytes)
//! reader ──────────────────────────► driver ◄──────► workers ──► sessions
//! source, decoder, table shapes      scheduler, plan   one each
//! ```
//!
//! The reader waits while the window is full. If it needs the shape of an unknown table, it waits until the barriers before
//! are committed, since a barrier may change the shape. The driver asks the plan for the next orders; workers execute the
//! orders and report the results.

mod driver;
mod options;
pub mod plan;
mod progress;
mod reader;
mod worker;

use std::future::Future;
use std::time::Duration;

use binlog_format::gtid::Gtid;
use thiserror::Error;

use crate::backend::{BackendError, Refusal};
use crate::decode::DecodeFailure;
pub use crate::run::driver::apply;
pub use crate::run::options::{
    BatchSize, Control, Ended, MAX_WORKERS, Options, OptionsError, RunHandle, WindowSize,
};
pub use crate::run::progress::{
    Counts, LagStart, Passed, Progress, StageName, TableRemarks, Unpassed,
};
use crate::source::{SourceError, persist};

/// Why a run ended early. In every case the target's executed GTIDs show what is applied, and another run continues from
/// there.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// An option has an invalid value.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The database refuses a transaction. Everything before it is committed, and the refused transaction is rolled back.
    #[error(
        "transaction {gtid} is refused: {refusal}. Everything before it is committed, and nothing of it. Remove the cause and \
         apply again: it goes on with this transaction"
    )]
    Refused {
        /// The first transaction that is not applied.
        gtid: Gtid,
        /// The table, the row and the database's message.
        refusal: Box<Refusal>,
    },
    /// A transaction cannot be decoded. Everything before it is committed.
    #[error(transparent)]
    Decode(#[from] DecodeFailure),
    /// The source failed. All transactions received from it are committed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The database refuses something that the run needs, such as a query.
    #[error("{0}")]
    Database(String),
    /// The database was unreachable for as long as `reopen_for`.
    #[error(
        "the database was not reached for {seconds} s: {message}. Apply again when it is back: it continues where it stopped"
    )]
    Unreachable {
        /// Duration of the attempts, in seconds.
        seconds: u64,
        /// The error of the last attempt.
        message: String,
    },
    /// A task of the run panicked or was aborted, which is a bug of this program.
    #[error("a task of the applier broke: {0}")]
    Broken(String),
}

// Retries of queries to a database that is unreachable for some time.

/// Calls `ask` until it succeeds, for at most `within`.
async fn reach<T, F, A>(within: Duration, ask: F) -> Result<T, ApplyError>
where
    F: FnMut() -> A,
    A: Future<Output = Result<T, BackendError>>,
{
    let may_pass = |error: &BackendError| !matches!(error, BackendError::Refused(_));
    let answer = persist(within, "the database is away", may_pass, ask).await;
    answer.map_err(|error| match error {
        BackendError::Refused(message) => ApplyError::Database(message),
        BackendError::Unreachable(message) => ApplyError::Unreachable {
            seconds: within.as_secs(),
            message,
        },
    })
}
