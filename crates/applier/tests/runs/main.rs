//! Runs with files as sources, and with simulated targets.

mod file_sources;
mod log_parallelism;
mod questions_about_tables;
mod refusal_and_resumption;

use std::sync::Arc;

use applier::run::{Control, Progress, RunHandle};

/// Returns a handle that neither pauses nor cancels the run.
fn unattended() -> RunHandle {
    RunHandle {
        control: tokio::sync::watch::channel(Control::default()).1,
        cancel: Default::default(),
        progress: Arc::new(Progress::new()),
    }
}
