//! What a demonstration shows while it runs: a table that is redrawn in place on a terminal, plain
//! lines elsewhere, nothing with `--output json`.

use std::convert::Infallible;
use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::status::table::members;
use crate::demo::scoreboard::Scoreboard;
use crate::operator::Asker;
use crate::terminal::Format;

/// How often the table is redrawn.
const FRAME: Duration = Duration::from_millis(250);
/// How often a line is printed where there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(2);

/// The output of a demonstration. Write errors are ignored: a demonstration continues without readers, and
/// its exit code is the answer.
pub(crate) enum Screen {
    /// A terminal.
    Live(ProgressBar),
    /// A file or a pipe.
    Plain,
    /// Nowhere.
    Silent,
}

impl Screen {
    /// The screen that fits standard output.
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

    /// Prints a line that stays.
    pub(crate) fn print(&self, line: &str) {
        match self {
            Self::Live(bar) => bar.println(line),
            Self::Plain => drop(writeln!(stdout(), "{line}")),
            Self::Silent => {}
        }
    }
}

/// The screen with what is shown on it: the commits, and the members' status as an asker gets it.
pub(crate) struct Display {
    pub(crate) screen: Screen,
    pub(crate) board: Arc<Scoreboard>,
    pub(crate) asker: Asker,
}

impl Display {
    /// Shows the state for as long as it is polled.
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

    /// Removes the table; printed lines stay.
    pub(crate) fn close(&self) {
        if let Screen::Live(bar) = &self.screen {
            bar.finish_and_clear();
        }
    }
}
