//! Output of both commands: plan, obstacles, question, each step with its duration, and result.

use std::fmt::Write as _;
use std::io::Write as _;

use member::conversion::{Course, Direction, Planned, Step};
use serde_json::{Value, json};

use crate::cli::session::{Consent, milliseconds};
use crate::terminal::{Attempt, Exit, Format, print, print_json, print_text};

/// Output of a command.
pub(super) struct Screen {
    pub(super) direction: Direction,
    pub(super) format: Format,
    pub(super) dry_run: bool,
    pub(super) consent: Consent,
}

impl Screen {
    /// Shows a plan and has it executed, as far as requested. `question` is asked before the first step; `end` is the final message, with
    /// the effects on clients.
    ///
    /// # Errors
    /// Exit 4 when there is an obstacle or the operator does not confirm, and those of the steps.
    pub(super) async fn go(
        &self,
        course: &mut Course<'_>,
        question: &str,
        end: impl FnOnce(&str) -> String,
    ) -> Attempt {
        self.show(course)?;
        let all_done = course.is_done();
        if self.dry_run || all_done {
            let document = document(course, all_done, None);
            return print(self.format, &document, || match all_done {
                true => "\nEverything is done already.\n",
                false => "\nNothing was done. Run it without --dry-run to carry it out.\n",
            });
        }
        self.consent.to(question)?;
        let report = |step: &Step, seconds: f64| {
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
        let pause = course.carry_out(report).await?;
        let noticed = match pause {
            Some(seconds) => format!("Clients could not write for {}.", milliseconds(seconds)),
            None => "The time in which clients could not write was not measured.".to_owned(),
        };
        print(self.format, &document(course, true, pause), || {
            end(&noticed)
        })
    }

    /// Prints a plan, or its obstacles.
    ///
    /// # Errors
    /// Exit 4 with the obstacles.
    fn show(&self, course: &Course<'_>) -> Attempt {
        let mut text = String::new();
        for Planned { step, done } in &course.steps {
            let mark = if *done { "done" } else { "to do" };
            let _ = writeln!(text, "{mark:<6} {step}");
        }
        let obstacles = &course.obstacles;
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
        let what = match obstacles.len() {
            0 => return Ok(()),
            1 => "there is one obstacle".to_owned(),
            many => format!("there are {many} obstacles"),
        };
        let command = self.direction.name();
        Err(Exit::Refused.because(
            format!("{what}; nothing was done"),
            format!("fix what is named above, and run {command} again"),
        ))
    }
}

/// Output with `--output json`: the steps, including completed ones; the obstacles; and how long clients could not write, if measured.
fn document(course: &Course<'_>, all_done: bool, write_pause: Option<f64>) -> Value {
    let steps = course.steps.iter();
    let plan = steps.map(
        |planned| json!({ "step": planned.step.to_string(), "done": planned.done || all_done }),
    );
    let obstacles = course.obstacles.iter().map(ToString::to_string);
    json!({
        "plan": plan.collect::<Vec<_>>(),
        "obstacles": obstacles.collect::<Vec<_>>(),
        "remarks": course.remarks,
        "done": all_done,
        "write_pause_seconds": write_pause,
    })
}
