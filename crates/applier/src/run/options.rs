//! What a run may be told, with defaults.

use std::time::Duration;

use thiserror::Error;

use crate::scheduler::Policy;

/// In which order transactions become visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOrder {
    /// In the log's order: readers may use the database as it is.
    Log,
    /// Freely between prefix points, about `interval` apart: readers use the snapshots taken there.
    Snapshot {
        /// C5-MyRocks's I.
        interval: Duration,
    },
}

/// What may be in memory at once, from the moment a transaction is decoded until it is committed. A transaction that is
/// larger passes alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Row writes.
    pub rows: usize,
    /// Bytes.
    pub bytes: usize,
}

/// How much one session is given at once, when whole transactions follow each other on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// Transactions; 1 for none.
    pub transactions: usize,
    /// Bytes; a larger transaction goes alone.
    pub bytes: usize,
}

/// The options of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What may run beside what.
    pub policy: Policy,
    /// Sessions that write.
    pub workers: usize,
    /// In which order transactions become visible.
    pub commit_order: CommitOrder,
    /// What may be in memory at once.
    pub window: WindowSize,
    /// How much one session is given at once.
    pub batch: BatchSize,
    /// A write that takes longer may wait for locks of later transactions; these are asked to step back.
    pub stall_after: Duration,
    /// How long a lost database is tried to be reached again.
    pub reopen_for: Duration,
    /// The largest transaction that is taken, unpacked, in bytes.
    pub max_transaction_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::Rows,
            workers: 8,
            commit_order: CommitOrder::Log,
            window: WindowSize {
                rows: 100_000,
                bytes: 256 << 20,
            },
            batch: BatchSize {
                transactions: 32,
                bytes: 256 << 10,
            },
            stall_after: Duration::from_millis(50),
            reopen_for: Duration::from_secs(60),
            max_transaction_bytes: 1 << 30,
        }
    }
}

/// The most workers.
pub const MAX_WORKERS: usize = 1024;

/// An option that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{option} must be {must}")]
pub struct OptionsError {
    /// Its name.
    pub option: &'static str,
    /// What it may be.
    pub must: &'static str,
}

impl Options {
    /// # Errors
    /// The first option that cannot be.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let at_least_one = "at least 1";
        let interval = match self.commit_order {
            CommitOrder::Log => None,
            CommitOrder::Snapshot { interval } => Some(interval),
        };
        let rules = [
            (
                "workers",
                (1..=MAX_WORKERS).contains(&self.workers),
                "1 to 1024",
            ),
            ("window.rows", self.window.rows >= 1, at_least_one),
            ("window.bytes", self.window.bytes >= 1, at_least_one),
            (
                "batch.transactions",
                self.batch.transactions >= 1,
                at_least_one,
            ),
            (
                "stall_after",
                !self.stall_after.is_zero(),
                "longer than nothing",
            ),
            (
                "the interval of commit_order = \"snapshot\"",
                interval.is_none_or(|interval| !interval.is_zero()),
                "longer than nothing",
            ),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((option, _, must)) => Err(OptionsError { option, must }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_zeros_are_not() {
        assert_eq!(Options::default().validate(), Ok(()));
        let wrong = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.validate().err().map(|error| error.option)
        };
        assert_eq!(wrong(|options| options.workers = 0), Some("workers"));
        assert_eq!(wrong(|options| options.workers = 1025), Some("workers"));
        assert_eq!(
            wrong(|options| options.window.rows = 0),
            Some("window.rows")
        );
        let never = CommitOrder::Snapshot {
            interval: Duration::ZERO,
        };
        let options = Options {
            commit_order: never,
            ..Options::default()
        };
        assert!(
            options
                .validate()
                .unwrap_err()
                .to_string()
                .contains("snapshot")
        );
    }
}
