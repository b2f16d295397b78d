//! The run: from a source to a database, with everything in between.
//!
//! ```text
//!            window (rows, bytes)
//! reader ──────────────────────────► driver ◄──────► workers ──► sessions
//! source, decoder, table shapes      scheduler, plan   one each
//! ```
//!
//! The reader stops while the window is full, and at every barrier until it is committed, since tables may look different
//! behind it. The driver asks the plan what to do next; workers do it and report.

mod control;
mod options;
pub mod plan;

pub use control::Control;
pub use options::{BatchSize, CommitOrder, MAX_WORKERS, Options, OptionsError, WindowSize};
