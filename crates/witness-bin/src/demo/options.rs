//! How a demonstration is played.

use std::path::PathBuf;
use std::time::Duration;

/// How a demonstration is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoOptions {
    /// Around a real mysqld instead of the embedded database.
    pub mysql: bool,
    /// Where the members' files go and stay; a temporary directory otherwise.
    pub data_dir: Option<PathBuf>,
    /// How long the load runs between two events.
    pub pause: Duration,
    /// Nothing is shown but the report.
    pub silent: bool,
}
