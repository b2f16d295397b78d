//! Shows a command under way on standard error: the phase that runs with a spinner where somebody looks, each
//! phase that is done on a line with its time, and how far a new member has caught up.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::admin::Told;

/// How often a spinner turns.
const TURN: Duration = Duration::from_millis(80);

/// See the module.
pub(super) struct Phases {
    /// None where standard error is no terminal.
    spinner: Option<ProgressBar>,
}

impl Phases {
    /// Shows nothing yet.
    pub(super) fn new() -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                spinner.set_style(style);
            }
            spinner
        });
        Self { spinner }
    }

    /// Shows what a member tells.
    pub(super) fn show(&mut self, told: Told) {
        match told {
            Told::Asking(place) => {
                self.line(&format!("asking `{}` ({})", place.name, place.address))
            }
            Told::Began(phase) => {
                if let Some(spinner) = &self.spinner {
                    spinner.reset_elapsed();
                    spinner.set_message(phase);
                    spinner.enable_steady_tick(TURN);
                }
            }
            Told::Done(phase, seconds) => {
                self.line(&format!("{phase:<14} {:>10}", milliseconds(seconds)));
            }
        }
    }

    fn line(&self, text: &str) {
        match &self.spinner {
            Some(spinner) => spinner.println(text),
            None => {
                // Somebody who closed standard error wants to see nothing.
                drop(writeln!(std::io::stderr(), "{text}"));
            }
        }
    }
}

impl Drop for Phases {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

/// A time as people read it: "152.3 ms", "2.25 s".
pub(super) fn milliseconds(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1000.0)
    } else {
        format!("{seconds:.2} s")
    }
}

/// How far a new member has caught up, in entries.
pub(super) struct CatchUp {
    bar: Option<ProgressBar>,
    /// Entries that it lacked at first.
    first: Option<u64>,
    /// What was told last, where there is no terminal.
    told: Option<u64>,
}

impl CatchUp {
    /// Shows nothing yet.
    pub(super) fn new() -> Self {
        Self {
            bar: None,
            first: None,
            told: None,
        }
    }

    /// It lacks this many entries now.
    pub(super) fn show(&mut self, behind: u64) {
        // The leader goes on writing, so it may be more than at first.
        let first = self.first.map_or(behind, |first| first.max(behind));
        self.first = Some(first);
        let done = first - behind.min(first);
        if std::io::stderr().is_terminal() {
            let bar = self.bar.get_or_insert_with(|| {
                let bar = ProgressBar::new(first);
                let template = "{bar:30} {pos}/{len} entries  {per_sec}  {eta} to go";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar
            });
            bar.set_length(first);
            bar.set_position(done);
        } else if self
            .told
            .is_none_or(|told| behind * 10 <= told * 9 && behind != told)
        {
            self.told = Some(behind);
            drop(writeln!(std::io::stderr(), "{behind} entries to go"));
        }
    }
}

impl Drop for CatchUp {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
