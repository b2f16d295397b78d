//! Applies a replicaset's log to an unmodified MySQL or another [`backend::Backend`]. The scheduling works per row, as
//! in C5 (VLDB 2023), which implements it inside its own storage engines.
//!
//! ```text
//! source ─► decoder (rows, keys) ─► batches ─► scheduler ─► workers ─► backend session (one batch at a time)
//!                                                             │ commit in the log's order
//! ```
//!
//! Invariants for any number of workers: every row receives its writes in the log's order. Readers see only prefixes of
//! the log. The target itself records which transactions it has applied, so that a restart repeats nothing and skips
//! nothing.
//!
//! Most callers need only the items at the root: a [`Source`] such as [`FileSource`], a [`MysqlBackend`], and [`apply`].

pub mod backend;
pub mod batch;
pub mod decode;
pub mod events;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/applier.rs"]
pub mod fuzzing;
pub mod keys;
pub mod log_parallelism;
pub mod mysql;
pub mod run;
pub mod scheduler;
pub mod schema;
pub mod source;
pub mod transaction;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use crate::mysql::{MysqlBackend, MysqlOptions};
pub use crate::run::{ApplyError, Ended, Options, Progress, RunHandle, apply};
pub use crate::source::{DumpSource, FileSource, Source, SourceError};

/// No code under the locks of this crate leaves an inconsistent state.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
