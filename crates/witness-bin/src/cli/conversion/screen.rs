//! Output of both commands: plan, obstacles, question, each step with its duration, and result.

use std::fmt::Write as _;
use std::io::Write as _;

use member::conversion::{Course, Direction, Work};
use mysqld_controller::conversion::Planned;
use serde::Serialize;

use crate::cli::session::{Consent, milliseconds};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Output of a command.
pub(super) struct Screen<'a> {
    pub(super) direction: Direction,
    pub(super) format: Format,
    pub(super) dry_run: bool,
    pub(super) consent: &'a Consent,
    /// The question before the first step.
    pub(super) question: String,
}

#[derive(Debug, Serialize)]
struct Document {
    /// The steps, including completed ones.
    plan: Vec<StepDocument>,
    /// The obstacles.
    obstacles: Vec<String>,
    remarks: Vec<String>,
    done: bool,
    /// How long clients could not write, if measured.
    write_pause_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct StepDocument {
    step: String,
    done: bool,
}

impl Screen<'_> {
    /// Shows a plan and has it executed, as far as requested. `end` is the final message, with the effects on clients.
    ///
    /// # Errors
    /// Exit 4 when there is an obstacle or the operator does not confirm, and those of the steps.
    pub(super) async fn go<W: Work>(
        &self,
        course: &mut Course<W>,
        end: impl FnOnce(&str) -> String,
    ) -> Result<(), Failure> {
        self.show(course)?;
        let all_done = course.is_done();
        if self.dry_run || all_done {
            let words = match all_done {
                true => "\nEverything is done already.\n",
                false => "\nNothing was done. Run it without --dry-run to carry it out.\n",
            };
            return self.end(&document(course, all_done, None), words);
        }
        self.consent.to(&self.question)?;
        let told = |step: &W::Step, seconds: f64| {
            if self.format == Format::Table {
                // Closing this stream must not leave later steps undone.
                let _ = writeln!(
                    std::io::stderr().lock(),
                    "{:<60} {:>10}",
                    step.to_string(),
                    milliseconds(seconds)
                );
            }
        };
        let pause = course.carry_out(told).await?;
        let noticed = match pause {
            Some(seconds) => format!("Clients could not write for {}.", milliseconds(seconds)),
            None => "For how long clients could not write was not seen.".to_owned(),
        };
        self.end(&document(course, true, pause), &end(&noticed))
    }

    /// Prints a plan, or its obstacles.
    ///
    /// # Errors
    /// Exit 4 with the obstacles.
    fn show<W: Work>(&self, course: &Course<W>) -> Result<(), Failure> {
        let mut text = String::new();
        for Planned { step, done } in course.steps() {
            let mark = if *done { "done" } else { "to do" };
            let _ = writeln!(text, "{mark:<6} {step}");
        }
        let obstacles = course.obstacles();
        for obstacle in obstacles {
            let _ = writeln!(
                text,
                "{}: {}\n       {}",
                obstacle.place, obstacle.found, obstacle.advice
            );
        }
        for remark in &course.remarks {
            let _ = writeln!(text, "Remark: {remark}");
        }
        match self.format {
            Format::Table => print_text(&text)?,
            Format::Json if !obstacles.is_empty() => {
                print_json(&document(course, false, None))?;
            }
            Format::Json => {}
        }
        match obstacles.len() {
            0 => Ok(()),
            1 => Err(self.in_the_way("there is one obstacle")),
            many => Err(self.in_the_way(&format!("there are {many} obstacles"))),
        }
    }

    fn in_the_way(&self, what: &str) -> Failure {
        Failure::new(
            Exit::Refused,
            format!("{what}; nothing was done"),
            format!(
                "fix what is named above, and run {} again",
                self.direction.name()
            ),
        )
    }

    /// Prints the result.
    ///
    /// # Errors
    /// When it cannot be printed.
    fn end(&self, document: &Document, text: &str) -> Result<(), Failure> {
        match self.format {
            Format::Json => print_json(document),
            Format::Table => print_text(text),
        }
    }
}

fn document<W: Work>(
    course: &Course<W>,
    all_done: bool,
    write_pause_seconds: Option<f64>,
) -> Document {
    Document {
        plan: course
            .steps()
            .iter()
            .map(|planned| StepDocument {
                step: planned.step.to_string(),
                done: planned.done || all_done,
            })
            .collect(),
        obstacles: course.obstacles().iter().map(ToString::to_string).collect(),
        remarks: course.remarks.clone(),
        done: all_done,
        write_pause_seconds,
    }
}
