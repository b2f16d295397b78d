//! Where a demonstration shows itself: a table that redraws itself on a terminal, plain lines
//! elsewhere, nothing but the report with `--output json`.

use std::io::{IsTerminal, Write, stdout};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use member::status::MemberView;
use raft_types::OpId;

use crate::terminal::{Failure, Table};

/// How often a plain screen shows where things stand.
const PLAIN_INTERVAL: Duration = Duration::from_secs(2);

/// Where the demonstration shows its state.
pub(crate) enum Screen {
    /// Redraws its lines in place.
    Live {
        area: MultiProgress,
        /// One for each line, as many as were ever drawn.
        lines: Vec<ProgressBar>,
    },
    /// One line at a time.
    Plain {
        /// When the state was last shown.
        shown: Option<Instant>,
    },
    /// Shows nothing, neither the state nor events.
    Silent,
}

impl Screen {
    /// The screen that fits standard output.
    pub(crate) fn open(silent: bool) -> Self {
        if silent {
            Self::Silent
        } else if stdout().is_terminal() {
            Self::Live {
                area: MultiProgress::with_draw_target(ProgressDrawTarget::stdout()),
                lines: Vec::new(),
            }
        } else {
            Self::Plain { shown: None }
        }
    }

    /// Prints a line that stays.
    pub(crate) fn say(&self, line: &str) {
        // A demonstration goes on when nobody reads it any more; its exit code is the answer.
        match self {
            Self::Live { area, .. } => drop(area.println(line)),
            Self::Plain { .. } => drop(writeln!(stdout(), "{line}")),
            Self::Silent => {}
        }
    }

    /// Shows where things stand: `table` in place, or `brief` now and then.
    pub(crate) fn show(&mut self, table: &[String], brief: &str) {
        match self {
            Self::Live { area, lines } => {
                while lines.len() < table.len() {
                    let line = area.add(ProgressBar::new_spinner());
                    if let Ok(style) = ProgressStyle::with_template("{msg}") {
                        line.set_style(style);
                    }
                    lines.push(line);
                }
                for (place, line) in lines.iter().enumerate() {
                    line.set_message(table.get(place).cloned().unwrap_or_default());
                    line.tick();
                }
            }
            Self::Plain { shown } => {
                if shown.is_none_or(|shown| shown.elapsed() >= PLAIN_INTERVAL) {
                    *shown = Some(Instant::now());
                    let _ = writeln!(stdout(), "{brief}");
                }
            }
            Self::Silent => {}
        }
    }

    /// Takes the table away; what was said stays.
    pub(crate) fn close(&mut self) {
        if let Self::Live { area, lines } = self {
            for line in lines.drain(..) {
                line.finish_and_clear();
            }
            let _ = area.clear();
        }
    }
}

// What the clients of a demonstration see: how many commits came back, how long each took, and the
// longest time in which none did.

/// Counts acknowledged commits. Shared by all client tasks.
#[derive(Debug)]
pub(crate) struct Scoreboard(Mutex<Score>);

#[derive(Debug)]
struct Score {
    total: u64,
    since_window: Instant,
    window: Histogram<u64>,
    all: Histogram<u64>,
    last_commit: Instant,
    longest_gap: Duration,
}

/// The commits of the last window, about a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Window {
    pub(crate) total: u64,
    pub(crate) per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// For how long no commit has come back.
    pub(crate) silent_for: Duration,
}

/// Latencies that are further apart than this are not told apart.
const PRECISION_DIGITS: u8 = 3;
/// Longer ones count as this.
const LONGEST_MICROS: u64 = 120_000_000;
/// How long commits must stay away before it is believed that they wait.
const SETTLED: Duration = Duration::from_millis(500);
/// And how long they may go on until then.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

impl Scoreboard {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self(Mutex::new(Score {
            total: 0,
            since_window: now,
            window: histogram(),
            all: histogram(),
            last_commit: now,
            longest_gap: Duration::ZERO,
        }))
    }

    /// Counts one commit that its client waited for.
    pub(crate) fn committed(&self, took: Duration) {
        let mut score = self.lock();
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        score.window.saturating_record(micros);
        score.all.saturating_record(micros);
        score.total += 1;
        let now = Instant::now();
        let gap = now.duration_since(score.last_commit);
        score.longest_gap = score.longest_gap.max(gap);
        score.last_commit = now;
    }

    /// The commits since the last call.
    pub(crate) fn window(&self) -> Window {
        let mut score = self.lock();
        let now = Instant::now();
        let seconds = now.duration_since(score.since_window).as_secs_f64();
        let window = Window {
            total: score.total,
            per_second: score.window.len() as f64 / seconds.max(f64::EPSILON),
            p50: at(&score.window, 0.5),
            p99: at(&score.window, 0.99),
            silent_for: now.duration_since(score.last_commit),
        };
        score.window.reset();
        score.since_window = now;
        window
    }

    /// How many commits came back.
    pub(crate) fn total(&self) -> u64 {
        self.lock().total
    }

    /// Waits until no commit has come back for a moment, and looks for as long as it is told whether one does after all. Gives
    /// how many had come back. What was taken before its acknowledgers died may still come back, on a busy machine seconds later.
    ///
    /// # Errors
    /// When commits do not stop, or one comes back later.
    pub(crate) async fn stands_still(&self, time: Duration) -> Result<u64, Failure> {
        let begun = tokio::time::Instant::now();
        let mut before = self.total();
        loop {
            tokio::time::sleep(SETTLED).await;
            let now = self.total();
            if now == before {
                break;
            }
            if begun.elapsed() > STOPS_WITHIN {
                let words =
                    format!("commits still come back {STOPS_WITHIN:?} later, without a quorum");
                return Err(Failure::error(words));
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

    /// The latency below which that part of all commits stayed.
    pub(crate) fn percentile(&self, part: f64) -> Duration {
        at(&self.lock().all, part)
    }

    /// The longest time without a commit since the last call, one that still lasts included.
    pub(crate) fn take_longest_gap(&self) -> Duration {
        let mut score = self.lock();
        let lasting = score.last_commit.elapsed();
        std::mem::take(&mut score.longest_gap).max(lasting)
    }

    fn lock(&self) -> MutexGuard<'_, Score> {
        // Only counters: whatever a panic left behind is as good as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_MICROS, PRECISION_DIGITS)
        .expect("the bounds are constants that the histogram takes")
}

fn at(histogram: &Histogram<u64>, part: f64) -> Duration {
    Duration::from_micros(histogram.value_at_quantile(part))
}

// The picture that a demonstration draws again and again: what the clients see, and the members.

/// Without a commit for so long, commits wait.
const WAITING: Duration = Duration::from_millis(300);

/// One picture: lines for a terminal, and the first of them alone for elsewhere.
pub(crate) struct Frame {
    pub(crate) lines: Vec<String>,
    pub(crate) brief: String,
}

impl Frame {
    /// The picture at this moment of a demonstration; a member without a view is down.
    pub(crate) fn new(
        elapsed: Duration,
        window: &Window,
        members: &[(String, Option<MemberView>)],
    ) -> Self {
        let mut brief = format!(
            "{:6.1} s  {:>7} commits  {:>6.0}/s  p50 {:>7.2} ms  p99 {:>7.2} ms",
            elapsed.as_secs_f64(),
            window.total,
            window.per_second,
            window.p50.as_secs_f64() * 1e3,
            window.p99.as_secs_f64() * 1e3,
        );
        if window.total > 0 && window.silent_for > WAITING {
            let silent = window.silent_for.as_secs_f64();
            brief.push_str(&format!("   commits wait since {silent:.1} s"));
        }
        let mut lines = vec![String::new(), brief.clone()];
        lines.extend(table(members).lines());
        Self { lines, brief }
    }
}

fn table(members: &[(String, Option<MemberView>)]) -> Table {
    let mut table = Table::new(&[
        "Member",
        "Role",
        "Term",
        "Log_end",
        "Committed",
        "File",
        "File_size",
    ]);
    let op_id = |op_id: Option<OpId>| op_id.map_or("-".to_owned(), |op_id| op_id.to_string());
    for (name, view) in members {
        let mut cells = vec![name.clone()];
        match view {
            None => {
                cells.push("down".into());
                cells.extend(std::iter::repeat_n("-".to_owned(), 5));
            }
            Some(view) => cells.extend([
                view.role.to_string(),
                view.term.to_string(),
                op_id(view.log_end),
                op_id(view.committed),
                view.log.file.clone(),
                view.log.file_bytes.to_string(),
            ]),
        }
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A board to which so many commits come in the first milliseconds, and one more after a time.
    async fn looked_at(first: u64, late: Duration) -> Result<u64, Failure> {
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
            seen = board.stands_still(Duration::from_secs(2)) => seen,
            () = commits => unreachable!("it is for ever"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn commits_that_were_on_their_way_are_waited_for_and_later_ones_are_not() {
        let hour = Duration::from_secs(3600);
        assert_eq!(looked_at(0, hour).await.ok(), Some(0));
        assert_eq!(looked_at(8, hour).await.ok(), Some(8));
        assert!(looked_at(8, Duration::from_millis(1500)).await.is_err());
        assert!(looked_at(100, hour).await.is_err());
    }

    #[test]
    fn a_window_counts_what_came_since_the_last_one() {
        let board = Scoreboard::new();
        for millis in 1..=100 {
            board.committed(Duration::from_millis(millis));
        }
        let window = board.window();
        assert_eq!(window.total, 100);
        assert!((49..=51).contains(&window.p50.as_millis()), "{window:?}");
        assert!((98..=100).contains(&window.p99.as_millis()), "{window:?}");
        let next = board.window();
        assert_eq!((next.total, next.p99), (100, Duration::ZERO));
        assert!((49..=51).contains(&board.percentile(0.5).as_millis()));
    }

    #[test]
    fn a_gap_that_lasts_counts() {
        let board = Scoreboard::new();
        board.committed(Duration::ZERO);
        board.take_longest_gap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(board.take_longest_gap() >= Duration::from_millis(20));
    }
}
