//! The course that both commands take: the plan is shown and agreed to, its steps are carried out and written down one after the
//! other, and the end is told.

use std::fmt::{Display, Write};
use std::io::Write as _;
use std::time::Duration;

use mysqld_controller::conversion::{Obstacle, Planned};
use serde::Serialize;
use tokio::time::Instant;

use super::journal::Journal;
use super::one_at_a_time::OneAtATime;
use super::undertaking::Undertaking;
use crate::cli::phases::milliseconds;
use crate::cli::session::Consent;
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// A plan, and for whom.
pub(super) struct Course<'a, S> {
    pub(super) undertaking: &'a Undertaking,
    /// The steps, or what stands in their way.
    pub(super) planned: Result<Vec<Planned<S>>, Vec<Obstacle>>,
    pub(super) remarks: Vec<String>,
}

/// How a command carries its plan out.
pub(super) trait Work<S> {
    /// What is asked before anything is done.
    fn question(&self) -> String;

    /// Carries one step out.
    ///
    /// # Errors
    /// When it is not done; all of it can be run again.
    async fn carry_out(&mut self, step: &S) -> Result<(), Failure>;

    /// For how long clients could not write, if a step has seen that.
    fn write_pause(&self) -> Option<Duration>;

    /// What is told at the end, with what clients noticed.
    fn end(&self, noticed: &str) -> String;
}

/// What `--output json` prints.
#[derive(Debug, Serialize)]
struct Document {
    /// The steps, with what was done before.
    plan: Vec<StepDocument>,
    /// What stands in the way.
    obstacles: Vec<String>,
    /// What is worth knowing.
    remarks: Vec<String>,
    /// Whether all is done.
    done: bool,
    /// For how long clients could not write, if that was seen.
    write_pause_seconds: Option<f64>,
}

/// One step.
#[derive(Debug, Serialize)]
struct StepDocument {
    step: String,
    done: bool,
}

impl<S: Display> Course<'_, S> {
    /// Goes it to its end, or as far as it goes.
    ///
    /// # Errors
    /// Exit 4 when something stands in the way or nobody agrees, and those of the steps.
    pub(super) async fn go(
        &self,
        dry_run: bool,
        consent: &Consent,
        work: &mut impl Work<S>,
    ) -> Result<(), Failure> {
        let undertaking = self.undertaking;
        let data_dir = &undertaking.settings.data_dir;
        let mut journal = Journal::open(data_dir, undertaking.name)?;
        self.show()?;
        let steps = self.planned.as_ref().map(Vec::as_slice).unwrap_or_default();
        let all_done = steps.iter().all(|planned| planned.done);
        if dry_run || all_done {
            let words = match all_done {
                true => "\nEverything is done already.\n",
                false => "\nNothing was done. Without --dry-run it is carried out.\n",
            };
            return self.end(&self.document(all_done, None), words);
        }
        consent.to(&work.question())?;
        let lock = OneAtATime::take(data_dir, &undertaking.connect).await?;
        for Planned { step, done } in steps {
            if !done {
                self.step(&mut journal, step, work).await?;
            }
        }
        drop(lock);
        if let Some(pause) = work.write_pause() {
            journal.entries.write_pause_seconds = Some(pause.as_secs_f64());
        }
        journal.keep()?;
        // An earlier run may have seen it.
        let pause = journal.entries.write_pause_seconds;
        let noticed = match pause {
            Some(seconds) => format!("Clients could not write for {}.", milliseconds(seconds)),
            None => "For how long clients could not write was not seen.".to_owned(),
        };
        self.end(&self.document(true, pause), &work.end(&noticed))
    }

    /// Carries one step out, shows it, and writes it down.
    ///
    /// # Errors
    /// Its own, with the way back.
    async fn step(
        &self,
        journal: &mut Journal,
        step: &S,
        work: &mut impl Work<S>,
    ) -> Result<(), Failure> {
        let undertaking = self.undertaking;
        journal.begins(step.to_string())?;
        let began = Instant::now();
        work.carry_out(step).await.map_err(|mut failure| {
            failure.what = format!("{step}: {}", failure.what);
            if !failure.advice.is_empty() {
                failure.advice += "\n  ";
            }
            failure.advice += &format!(
                "`witness {}` goes on where it was; `witness {}` goes back",
                undertaking.name,
                match undertaking.name {
                    "disable-raft" => "enable-raft",
                    _ => "disable-raft",
                }
            );
            failure
        })?;
        let seconds = began.elapsed().as_secs_f64();
        journal.ends(seconds)?;
        if undertaking.format == Format::Table {
            let mut err = std::io::stderr().lock();
            writeln!(
                err,
                "{:<60} {:>10}",
                step.to_string(),
                milliseconds(seconds)
            )?;
        }
        Ok(())
    }

    /// Prints a plan, or what stands in its way.
    ///
    /// # Errors
    /// Exit 4 with what stands in the way.
    fn show(&self) -> Result<(), Failure> {
        let mut text = String::new();
        let obstacles = match &self.planned {
            Ok(steps) => {
                for Planned { step, done } in steps {
                    let mark = if *done { "done" } else { "to do" };
                    let _ = writeln!(text, "{mark:<6} {step}");
                }
                &[][..]
            }
            Err(obstacles) => obstacles,
        };
        for obstacle in obstacles {
            let _ = writeln!(
                text,
                "{}: {}\n       {}",
                obstacle.place, obstacle.found, obstacle.advice
            );
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "Remark: {remark}");
        }
        match self.undertaking.format {
            Format::Table => print_text(&text)?,
            Format::Json if !obstacles.is_empty() => {
                print_json(&self.document(false, None))?;
            }
            Format::Json => {}
        }
        match obstacles.len() {
            0 => Ok(()),
            1 => Err(self.in_the_way("one thing stands in the way")),
            many => Err(self.in_the_way(&format!("{many} things stand in the way"))),
        }
    }

    fn in_the_way(&self, what: &str) -> Failure {
        Failure::new(
            Exit::Refused,
            format!("{what}; nothing was done"),
            format!(
                "mend what is named above, and run {} again",
                self.undertaking.name
            ),
        )
    }

    /// What JSON says.
    fn document(&self, all_done: bool, write_pause_seconds: Option<f64>) -> Document {
        let steps = self.planned.as_ref().map(Vec::as_slice).unwrap_or_default();
        let obstacles = self.planned.as_ref().err().map(Vec::as_slice);
        Document {
            plan: steps
                .iter()
                .map(|planned| StepDocument {
                    step: planned.step.to_string(),
                    done: planned.done || all_done,
                })
                .collect(),
            obstacles: obstacles
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect(),
            remarks: self.remarks.clone(),
            done: all_done,
            write_pause_seconds,
        }
    }

    /// Prints how it ended.
    ///
    /// # Errors
    /// When it cannot be printed.
    fn end(&self, document: &Document, text: &str) -> Result<(), Failure> {
        match self.undertaking.format {
            Format::Json => print_json(document),
            Format::Table => print_text(text),
        }
    }
}
