//! The run: from a source to a database, with everything in between.
//!
//! ```text
//!            window (rows, bytes)
//! reader ──────────────────────────► driver ◄──────► workers ──► sessions
//! source, decoder, table shapes      scheduler, plan   one each
//! ```
//!
//! The reader stops while the window is full, and at every barrier until it is committed, since tables may have another shape
//! after it. The driver asks the plan for the next orders; workers execute and report them.

mod driver;
mod error;
mod options;
pub mod plan;
mod progress;
mod reader;
mod shapes;
mod worker;

use std::sync::Arc;

use crate::backend::Backend;
pub use crate::run::error::ApplyError;
pub use crate::run::options::{
    BatchSize, Control, Ended, MAX_WORKERS, Options, OptionsError, RunHandle, WindowSize,
};
pub use crate::run::progress::{Behind, Passed, Progress, StageName, TableRemarks, Unpassed};
use crate::run::reader::DecodedSource;
pub use crate::run::reader::Feed;
use crate::source::Source;

/// Applies a source's log to a database. Transactions that the database has are skipped, in whatever order it received them.
///
/// # Errors
/// [`ApplyError`]; another run with the same target continues where this one ended.
pub async fn apply<S, B>(
    source: S,
    backend: Arc<B>,
    options: &Options,
    handle: RunHandle,
) -> Result<Ended, ApplyError>
where
    S: Source + 'static,
    B: Backend,
{
    let feed = DecodedSource::new(
        source,
        Arc::clone(&backend),
        options.max_transaction_bytes,
        options.reopen_for,
        Arc::clone(&handle.progress),
    );
    apply_feed(feed, backend, options, handle).await
}

/// The same from decoded transactions.
///
/// # Errors
/// As [`apply`].
pub async fn apply_feed<F, B>(
    feed: F,
    backend: Arc<B>,
    options: &Options,
    handle: RunHandle,
) -> Result<Ended, ApplyError>
where
    F: Feed + 'static,
    B: Backend,
{
    options.validate()?;
    driver::drive(feed, backend, options, handle).await
}
