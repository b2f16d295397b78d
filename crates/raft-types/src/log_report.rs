//! What a member's log says of itself without the engine: which vote is stored and which terms its
//! durable entries have. Two such reports tell up to where two logs are equal (`consensus::matching`).

use std::io;
use std::ops::Range;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::type_config::{Entry, Vote};

/// Consecutive entries of one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermRun {
    /// The term.
    pub term: u64,
    /// The first index.
    pub first: u64,
    /// The last index.
    pub last: u64,
}

/// The stored vote and the durable end of a log, read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogReport {
    /// The stored vote. An entry that a later leader made is never in `runs` beside an older vote,
    /// because a vote is stored before the entries that follow it.
    pub vote: Option<Vote>,
    /// The newest runs, oldest first, up to the last durable entry; [`REPORTED_RUNS`] at most.
    pub runs: Vec<TermRun>,
}

/// How many runs a report has at most. Logs of one ring differ in their newest terms only, and a
/// report travels with an answer.
pub const REPORTED_RUNS: usize = 16;

/// What reading entries leads to.
pub type ReadingEntries<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Entry>, io::Error>> + Send + 'a>>;

/// A member's own log, as the parts beside the engine see it.
pub trait OwnLog: Send + Sync + 'static {
    /// The vote and the newest runs of one moment; only what is durable. Does no input or output.
    fn report(&self) -> LogReport;

    /// The entries of a range that the log has, from its start on; it may end early. What is not
    /// durable yet is included.
    fn entries(&self, range: Range<u64>) -> ReadingEntries<'_>;

    /// Changes with every append, to the index behind the newest entry: it can be read from then on, durable or not.
    fn appended(&self) -> watch::Receiver<u64>;
}
