//! Where a demonstration shows itself: a table that redraws itself on a terminal, plain lines
//! elsewhere, nothing but the report with `--output json`.

use std::io::{IsTerminal, Write, stdout};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a plain screen shows where things stand.
const PLAIN_INTERVAL: Duration = Duration::from_secs(2);

/// See the module.
pub(crate) enum Screen {
    /// Redraws its lines in place.
    Live {
        /// All lines together.
        area: MultiProgress,
        /// One for each line, as many as were ever drawn.
        lines: Vec<ProgressBar>,
    },
    /// One line at a time.
    Plain {
        /// When the state was last shown.
        shown: Option<Instant>,
    },
    /// Quiet.
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

    /// Says something that stays.
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
