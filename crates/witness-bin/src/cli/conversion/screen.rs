//! What both commands show: the plan and what stands in its way, the question, each step with its time, and the end.

use std::fmt::Write as _;
use std::io::Write as _;

use member::conversion::{Course, Direction, Work};
use mysqld_controller::conversion::Planned;
use serde::Serialize;

use crate::cli::session::{Consent, milliseconds};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// How a command speaks.
pub(super) struct Screen<'a> {
    pub(super) direction: Direction,
    pub(super) format: Format,
    pub(super) dry_run: bool,
    pub(super) consent: &'a Consent,
    /// What is asked before anything is done.
    pub(super) question: String,
}

#[derive(Debug, Serialize)]
struct Document {
    /// The steps, with what was done before.
    plan: Vec<StepDocument>,
    /// What stands in the way.
    obstacles: Vec<String>,
    remarks: Vec<String>,
    done: bool,
    /// For how long clients could not write, if that was seen.
    write_pause_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct StepDocument {
    step: String,
    done: bool,
}

impl Screen<'_> {
    /// Shows a plan and has it carried out, as far as that is wanted. `end` is what is told at the end, with what clients noticed.
    ///
    /// # Errors
    /// Exit 4 when something stands in the way or nobody agrees, and those of the steps.
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
                // Nobody who closes this stream wants the steps behind it left undone.
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

    /// Prints a plan, or what stands in its way.
    ///
    /// # Errors
    /// Exit 4 with what stands in the way.
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

    /// Prints how it ended.
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
