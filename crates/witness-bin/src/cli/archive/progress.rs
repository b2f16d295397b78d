//! Progress display of a restore, and the duration of each part.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use archive::restore::{Stage, Watching};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::terminal::Format;

/// Duration of a part.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Took {
    pub(super) stage: &'static str,
    pub(super) seconds: f64,
}

/// A bar for each part on a terminal; the start of each part elsewhere.
pub(super) struct Progress {
    hidden: bool,
    so_far: Mutex<SoFar>,
}

struct SoFar {
    bar: ProgressBar,
    begun: Vec<(Stage, Instant)>,
}

impl Progress {
    pub(super) fn new(format: Format) -> Self {
        Self {
            hidden: format != Format::Table || !std::io::stderr().is_terminal(),
            so_far: Mutex::new(SoFar {
                bar: ProgressBar::hidden(),
                begun: Vec::new(),
            }),
        }
    }

    /// Ends the display. Returns the duration of each part, the last one until now.
    pub(super) fn end(&self) -> Vec<Took> {
        let so_far = self.so_far();
        so_far.bar.finish_and_clear();
        took(&so_far.begun, Instant::now())
    }

    fn so_far(&self) -> MutexGuard<'_, SoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn took(begun: &[(Stage, Instant)], end: Instant) -> Vec<Took> {
    let ends = begun.iter().skip(1).map(|(_, at)| *at).chain([end]);
    let took = begun.iter().zip(ends).map(|((stage, at), end)| Took {
        stage: stage.name(),
        seconds: end.duration_since(*at).as_secs_f64(),
    });
    took.collect()
}

impl Watching for Progress {
    fn begins(&self, stage: Stage, total: u64) {
        let mut so_far = self.so_far();
        // A part may be reported twice, once its size is known.
        if so_far.begun.last().is_none_or(|(last, _)| *last != stage) {
            so_far.begun.push((stage, Instant::now()));
        }
        if self.hidden {
            return;
        }
        let (words, template) = match stage {
            Stage::Base => (
                "base backup",
                "{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ),
            Stage::Log => (
                "log",
                "{msg} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ),
            Stage::Start => ("mysqld starts", "{spinner} {msg} {elapsed}"),
            Stage::Apply => ("transactions", "{msg} {bar:40} {pos}/{len} {per_sec} {eta}"),
            Stage::Check => ("tables", "{msg} {bar:40} {pos}/{len} {eta}"),
            Stage::Stop => ("mysqld stops", "{spinner} {msg} {elapsed}"),
        };
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let bar = match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        };
        bar.set_message(words);
        if total == 0 {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        std::mem::replace(&mut so_far.bar, bar).finish_and_clear();
    }

    fn reached(&self, at: u64) {
        self.so_far().bar.set_position(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_took_until_the_next_one_began() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let begun = [
            (Stage::Base, at(0)),
            (Stage::Log, at(3)),
            (Stage::Apply, at(4)),
        ];
        let took = took(&begun, at(9));
        let took: Vec<_> = took.iter().map(|one| (one.stage, one.seconds)).collect();
        assert_eq!(took, [("base backup", 3.0), ("log", 1.0), ("apply", 5.0)]);
        let progress = Progress::new(Format::Json);
        progress.begins(Stage::Apply, 0);
        progress.begins(Stage::Apply, 7);
        assert_eq!(progress.end().len(), 1);
    }
}
