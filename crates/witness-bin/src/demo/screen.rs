//! The output of a demonstration while it runs: on a terminal a table that is redrawn in place, elsewhere plain
//! lines, and nothing with `--output json`. It also counts the commits and measures their latencies.

use std::convert::Infallible;
use std::io::{IsTerminal, Write, stdout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::status::members;
use crate::operator::Asker;
use crate::terminal::{Attempt, Failure, Format};

/// Interval at which the table is redrawn.
const FRAME: Duration = Duration::from_millis(250);
/// Interval at which a line is printed if there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(2);

/// The output of a demonstration. Write errors are ignored: if the reader of the output has gone, the demonstration
/// continues, and its exit code is its result.
pub(crate) enum Screen {
    /// A terminal.
    Live(ProgressBar),
    /// A file or a pipe.
    Plain,
    /// No output.
    Silent,
}

impl Screen {
    /// Selects the kind of output that fits the format and standard output.
    pub(crate) fn open(format: Format) -> Self {
        if format == Format::Json {
            return Self::Silent;
        }
        if !stdout().is_terminal() {
            return Self::Plain;
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        match ProgressStyle::with_template("{msg}") {
            Ok(style) => Self::Live(bar.with_style(style)),
            Err(_) => Self::Plain,
        }
    }

    /// Prints a line that remains when the table is redrawn.
    pub(crate) fn print(&self, line: &str) {
        match self {
            Self::Live(bar) => bar.println(line),
            Self::Plain => drop(writeln!(stdout(), "{line}")),
            Self::Silent => {}
        }
    }
}

/// The screen and the sources of its content: the commits, and the members' status.
pub(crate) struct Display {
    pub(crate) screen: Screen,
    pub(crate) board: Arc<Scoreboard>,
    pub(crate) asker: Asker,
}

impl Display {
    /// Shows the current state again and again. Does not return.
    pub(crate) async fn draw(&self) -> Infallible {
        let mut frames = tokio::time::interval(match self.screen {
            Screen::Live(_) => FRAME,
            Screen::Plain | Screen::Silent => PLAIN_INTERVAL,
        });
        loop {
            frames.tick().await;
            let summary = self.board.summary();
            match &self.screen {
                Screen::Live(bar) => {
                    let table = members(&self.asker.report().await);
                    bar.set_message(format!("\n{summary}\n{}", table.trim_end()));
                    bar.tick();
                }
                Screen::Plain => self.screen.print(&summary),
                Screen::Silent => {}
            }
        }
    }

    /// Removes the table. Printed lines remain.
    pub(crate) fn close(&self) {
        if let Screen::Live(bar) = &self.screen {
            bar.finish_and_clear();
        }
    }
}

// Measurements by the clients: the number of acknowledged commits, their latencies, and the longest
// time without a commit.

/// Counts acknowledged commits. Shared by all clients.
pub(crate) struct Scoreboard(Mutex<Score>);

struct Score {
    started: Instant,
    /// The latency of each commit.
    commits: Vec<Duration>,
    /// The number of commits at the last summary, and the time of that summary.
    summarized: (usize, Instant),
    last_commit: Instant,
    longest_gap: Duration,
}

/// A summary reports that commits wait if none was acknowledged for this long.
const WAITING: Duration = Duration::from_millis(300);
/// For the scenario, commits count as blocked if none was acknowledged for this long.
const SETTLED: Duration = Duration::from_millis(500);
/// Time limit until commits are blocked.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

impl Scoreboard {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Score {
            started: now,
            commits: Vec::new(),
            summarized: (0, now),
            last_commit: now,
            longest_gap: Duration::ZERO,
        }))
    }

    /// Counts one acknowledged commit.
    pub(crate) fn committed(&self, took: Duration) {
        let mut score = self.lock();
        score.commits.push(took);
        score.longest_gap = score.longest_gap.max(score.last_commit.elapsed());
        score.last_commit = Instant::now();
    }

    /// Returns one line with the number of all commits, and the rate and latencies of the commits since the last summary.
    pub(crate) fn summary(&self) -> String {
        let mut score = self.lock();
        let (before, made) = score.summarized;
        let latest = &score.commits[before..];
        let millis = |part| quantile(latest, part).as_secs_f64() * 1e3;
        let mut summary = format!(
            "{:6.1} s  {:>7} commits  {:>6.0}/s  p50 {:>7.2} ms  p99 {:>7.2} ms",
            score.started.elapsed().as_secs_f64(),
            score.commits.len(),
            latest.len() as f64 / made.elapsed().as_secs_f64().max(f64::EPSILON),
            millis(0.5),
            millis(0.99),
        );
        let silent = score.last_commit.elapsed();
        if !score.commits.is_empty() && silent > WAITING {
            let silent = silent.as_secs_f64();
            summary.push_str(&format!("   commits wait since {silent:.1} s"));
        }
        score.summarized = (score.commits.len(), Instant::now());
        summary
    }

    /// Returns the number of acknowledged commits.
    pub(crate) fn total(&self) -> u64 {
        self.lock().commits.len() as u64
    }

    /// Waits until commits are blocked, and then for `time` longer. Returns the number of acknowledged commits. The first wait is
    /// needed because, on a loaded machine, a commit that the quorum acknowledged before its crash may reach the client late.
    ///
    /// # Errors
    /// When commits are not blocked within [`STOPS_WITHIN`], or one is acknowledged during `time`.
    pub(crate) async fn wait_until_blocked(&self, time: Duration) -> Attempt<u64> {
        let begun = tokio::time::Instant::now();
        let mut before = self.total();
        loop {
            tokio::time::sleep(SETTLED).await;
            let now = self.total();
            if now == before {
                break;
            }
            if begun.elapsed() > STOPS_WITHIN {
                return Err(Failure::error(format!(
                    "commits are still acknowledged {STOPS_WITHIN:?} after the quorum was lost"
                )));
            }
            before = now;
        }
        tokio::time::sleep(time).await;
        match self.total() - before {
            0 => Ok(before),
            more => Err(Failure::error(format!(
                "{more} commits were acknowledged without a quorum"
            ))),
        }
    }

    /// Returns the latency that this part of all commits, from 0 to 1, did not exceed.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        quantile(&self.lock().commits, part)
    }

    /// Returns the longest time without a commit since the last call. A gap that has not ended yet counts, too.
    pub(crate) fn take_longest_gap(&self) -> Duration {
        let mut score = self.lock();
        let lasting = score.last_commit.elapsed();
        std::mem::take(&mut score.longest_gap).max(lasting)
    }

    fn lock(&self) -> MutexGuard<'_, Score> {
        // The lock protects only counters, which are usable after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn quantile(latencies: &[Duration], part: f64) -> Duration {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() as f64 * part) as usize;
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result for a board that receives `first` commits at short intervals, and one more after `late`.
    async fn blocked(first: u64, late: Duration) -> Attempt<u64> {
        let board = Scoreboard::new();
        let commits = async {
            for _ in 0..first {
                tokio::time::sleep(Duration::from_millis(300)).await;
                board.committed(Duration::from_millis(1));
            }
            tokio::time::sleep(late).await;
            board.committed(Duration::from_millis(1));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            blocked = board.wait_until_blocked(Duration::from_secs(2)) => blocked,
            () = commits => unreachable!("it never ends"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn commits_in_flight_are_awaited_and_later_ones_are_errors() {
        let hour = Duration::from_secs(3600);
        assert_eq!(blocked(0, hour).await.ok(), Some(0));
        assert_eq!(blocked(8, hour).await.ok(), Some(8));
        assert!(blocked(8, Duration::from_millis(1500)).await.is_err());
        assert!(blocked(100, hour).await.is_err());
    }

    #[test]
    fn a_summary_has_the_latencies_since_the_last_one() {
        let board = Scoreboard::new();
        for millis in 1..=100 {
            board.committed(Duration::from_millis(millis));
        }
        for latencies in [
            "p50   51.00 ms  p99  100.00 ms",
            "p50    0.00 ms  p99    0.00 ms",
        ] {
            let summary = board.summary();
            assert!(summary.contains("  100 commits  "), "{summary}");
            assert!(summary.contains(latencies), "{summary}");
        }
        assert_eq!(board.quantile(0.5), Duration::from_millis(51));
    }
}
