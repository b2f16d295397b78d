//! Runs over files, and to simulated targets.

mod file_sources;
mod log_parallelism;
mod questions_about_tables;
mod refusal_and_resumption;

use std::sync::Arc;

use applier::run::{Control, Progress, RunHandle};

/// Without pause or cancellation.
fn unattended() -> RunHandle {
    RunHandle {
        control: tokio::sync::watch::channel(Control::default()).1,
        cancel: Default::default(),
        progress: Arc::new(Progress::new()),
    }
}
