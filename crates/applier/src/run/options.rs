//! Options of a run, before and during it, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::run::progress::Progress;
use crate::scheduler::Policy;

/// Limits for transactions in memory. A transaction counts from the moment it is decoded until it is
/// committed. A larger transaction is applied while no other one is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// The most row writes in memory.
    pub rows: usize,
    /// The most bytes of transactions in memory.
    pub bytes: usize,
}

/// Limits for one batch of a session, while there is a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSize {
    /// The most transactions in a batch; 1 applies each transaction separately.
    pub transactions: usize,
    /// The most bytes of a batch; a larger transaction is a batch of its own.
    pub bytes: usize,
}

/// The options of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Which writes may run concurrently.
    pub policy: Policy,
    /// The number of writing sessions.
    pub workers: usize,
    /// Limits for transactions in memory.
    pub window: WindowSize,
    /// Limits for one batch of a session.
    pub batch: BatchSize,
    /// When a write takes longer than this, the locks of later transactions may block it; transactions that do
    /// so are rolled back.
    pub stall_after: Duration,
    /// How long to try to reconnect to a lost database.
    pub reopen_for: Duration,
    /// The largest accepted transaction, uncompressed, in bytes.
    pub max_transaction_bytes: usize,
}

/// The ring's limit for a transaction, in bytes. If a follower refused a committed transaction, it could never
/// continue.
const LARGEST_TRANSACTION: usize = (1 << 31) - 1;

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::Rows,
            workers: 8,
            window: WindowSize {
                rows: 100_000,
                bytes: 256 << 20,
            },
            batch: BatchSize {
                transactions: 128,
                bytes: 1 << 20,
            },
            stall_after: Duration::from_millis(50),
            reopen_for: Duration::from_secs(60),
            max_transaction_bytes: LARGEST_TRANSACTION,
        }
    }
}

/// The most workers that a run may have.
pub const MAX_WORKERS: usize = 1024;

/// An invalid option.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{option} must be {must}")]
pub struct OptionsError {
    /// Name of the field of [`Options`].
    pub option: &'static str,
    /// The valid values, as text.
    pub must: &'static str,
}

impl Options {
    /// # Errors
    /// The first invalid option.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let (window, batch) = (self.window, self.batch);
        let workers = (1..=MAX_WORKERS).contains(&self.workers);
        let rules = [
            (workers, "workers", "1 to 1024"),
            (window.rows > 0, "window.rows", "at least 1"),
            (window.bytes > 0, "window.bytes", "at least 1"),
            (batch.transactions > 0, "batch.transactions", "at least 1"),
            (!self.stall_after.is_zero(), "stall_after", "longer than 0"),
        ];
        let broken = rules.into_iter().find(|(is_kept, ..)| !is_kept);
        broken.map_or(Ok(()), |(_, option, must)| {
            Err(OptionsError { option, must })
        })
    }
}

// Settings that an operator may change during a run.

/// Pause and rate. Sent through a `tokio::sync::watch`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Control {
    /// Nothing new begins; transactions already begun are finished.
    pub paused: bool,
    /// The maximum number of transactions that begin in a second.
    pub max_transactions_per_second: Option<f64>,
}

/// Timers are inexact. After a late timer, transactions are made up for, at most those of this time.
const CATCH_UP: Duration = Duration::from_millis(50);

/// Limits the rate of transactions: computes how many may begin by now. Pure: times are durations since the
/// run began.
#[derive(Debug, Default)]
pub(super) struct Pace {
    per_second: Option<f64>,
    /// How many transactions may begin, as of the time `at`. Negative after an excess.
    allowance: f64,
    at: Duration,
}

impl Pace {
    /// Sets another rate from now on. A rate of zero or less stops all transactions.
    pub(super) fn set(&mut self, per_second: Option<f64>, now: Duration) {
        self.earn(now);
        self.per_second = per_second.map(|rate| if rate > 0.0 { rate } else { 0.0 });
    }

    /// Returns how many transactions may begin now.
    pub(super) fn allowed(&mut self, now: Duration) -> usize {
        self.earn(now);
        self.per_second
            .map_or(usize::MAX, |_| self.allowance.max(0.0) as usize)
    }

    /// Returns how many transactions may begin together, at least one. It is bounded so that a low rate does
    /// not result in rare bursts.
    pub(super) fn at_once(&self) -> usize {
        let at_once = |rate| ((rate * CATCH_UP.as_secs_f64()) as usize).max(1);
        self.per_second.map_or(usize::MAX, at_once)
    }

    /// Counts transactions that begin. If they exceed the rate, later transactions are delayed.
    pub(super) fn begin(&mut self, transactions: usize) {
        if self.per_second.is_some() {
            self.allowance -= transactions as f64;
        }
    }

    /// Returns when the next transaction may begin.
    pub(super) fn next(&self) -> Option<Duration> {
        let rate = self.per_second.filter(|rate| *rate > 0.0)?;
        let missing = (1.0 - self.allowance).max(0.0) / rate;
        // Rounded up: an event slightly late is better than one that is too early.
        let wait = Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX);
        let next = self.at.checked_add(wait)?;
        next.checked_add(Duration::from_nanos(1))
    }

    fn earn(&mut self, now: Duration) {
        let gone = now.saturating_sub(self.at).as_secs_f64();
        self.at = now;
        let rate = self.per_second.unwrap_or_default();
        let most = (rate * CATCH_UP.as_secs_f64()).max(1.0);
        self.allowance = (self.allowance + gone * rate).min(most);
    }
}

/// Inputs and outputs of a run in progress.
#[derive(Debug, Clone)]
pub struct RunHandle {
    /// Pause and rate. Dropping the sender leaves them unchanged.
    pub control: watch::Receiver<Control>,
    /// Ends the run cleanly: open transactions that can no longer be committed are rolled back.
    pub cancel: CancellationToken,
    /// Its progress.
    pub progress: Arc<Progress>,
}

/// How a successful run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The log has ended, and all of it is committed.
    WithTheLog,
    /// The run was cancelled; earlier commits stay.
    Cancelled,
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
    }
}

#[cfg(test)]
mod control_tests {
    use super::*;

    #[test]
    fn the_rate_does_not_depend_on_the_steps() {
        for step_ms in [1, 7, 30] {
            let mut pace = Pace::default();
            pace.set(Some(200.0), Duration::ZERO);
            let mut begun = 0;
            for now in (0..10_000).step_by(step_ms).map(Duration::from_millis) {
                let allowed = pace.allowed(now);
                pace.begin(allowed);
                begun += allowed;
            }
            assert!(
                (1990..=2001).contains(&begun),
                "{begun} in steps of {step_ms} ms"
            );
        }
    }

    #[test]
    fn a_long_pause_earns_no_burst() {
        let mut pace = Pace::default();
        pace.set(Some(100.0), Duration::ZERO);
        assert_eq!(pace.allowed(Duration::from_secs(100)), 5);
        pace.set(None, Duration::from_secs(100));
        assert_eq!(pace.allowed(Duration::from_secs(100)), usize::MAX);
        pace.set(Some(f64::NAN), Duration::from_secs(100));
        pace.begin(6);
        assert_eq!(pace.allowed(Duration::from_secs(900)), 0);
        assert_eq!(pace.next(), None);
    }

    #[test]
    fn the_next_moment_is_exact() {
        let mut pace = Pace::default();
        pace.set(Some(3.0), Duration::ZERO);
        let mut now = Duration::ZERO;
        for _ in 0..10 {
            assert_eq!(pace.allowed(now), 0);
            now = pace.next().unwrap();
            assert_eq!(pace.allowed(now), 1);
            pace.begin(1);
        }
        assert!((3.3..3.4).contains(&now.as_secs_f64()), "{now:?}");
    }
}
