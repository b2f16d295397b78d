//! The course that both commands take: the plan is shown and agreed to, its steps are carried out and written down one after the
//! other, and the end is told.

use std::fmt::{Display, Write};
use std::fs::{File, TryLockError};
use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use mysql_link::{ConnectOptions, Connection};
use mysqld_controller::conversion::{Obstacle, Planned};
use mysqld_controller::durable_file;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::cli::conversion::context::ConversionContext;
use crate::cli::session::{Consent, milliseconds};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// A plan, and for whom.
pub(super) struct Course<'a, S> {
    pub(super) context: &'a ConversionContext,
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
        let context = self.context;
        let data_dir = &context.settings.data_dir;
        let mut journal = Journal::open(data_dir, context.name)?;
        self.show()?;
        let steps = self.planned.as_ref().map(Vec::as_slice).unwrap_or_default();
        let all_done = steps.iter().all(|planned| planned.done);
        if dry_run || all_done {
            let words = match all_done {
                true => "\nEverything is done already.\n",
                false => "\nNothing was done. Run it without --dry-run to carry it out.\n",
            };
            return self.end(&self.document(all_done, None), words);
        }
        consent.to(&work.question())?;
        let lock = OneAtATime::take(data_dir, &context.connect).await?;
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
        let context = self.context;
        journal.begins(step.to_string())?;
        let began = Instant::now();
        work.carry_out(step).await.map_err(|mut failure| {
            failure.what = format!("{step}: {}", failure.what);
            if !failure.advice.is_empty() {
                failure.advice += "\n  ";
            }
            failure.advice += &format!(
                "`witness {}` continues where it stopped; `witness {}` goes back",
                context.name,
                match context.name {
                    "disable-raft" => "enable-raft",
                    _ => "disable-raft",
                }
            );
            failure
        })?;
        let seconds = began.elapsed().as_secs_f64();
        journal.ends(seconds)?;
        if context.format == Format::Table {
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
        match self.context.format {
            Format::Table => print_text(&text)?,
            Format::Json if !obstacles.is_empty() => {
                print_json(&self.document(false, None))?;
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
                self.context.name
            ),
        )
    }

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
        match self.context.format {
            Format::Json => print_json(document),
            Format::Table => print_text(text),
        }
    }
}

/// What the journal in the data directory says of the steps that were done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Entries {
    /// What was done, in order.
    pub(super) steps: Vec<Entry>,
    /// For how long clients could not write, in seconds, where a run has seen it from begin to end.
    pub(super) write_pause_seconds: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) step: String,
    /// When it began, in milliseconds since the epoch.
    pub(super) began_ms: u64,
    /// How long it took; none when its end was not seen.
    pub(super) seconds: Option<f64>,
}

/// The file in the data directory that says what was done, step by step, with the time and what clients noticed of it. Replaced as
/// a whole; kept when all is done. A file of another run goes on.
pub(super) struct Journal {
    path: PathBuf,
    pub(super) entries: Entries,
}

/// The file of a command's journal. That of `disable-raft` keeps the name that it had when the command was called `detach`, so that
/// a run which an older version began goes on in it.
fn file_of(command: &str) -> String {
    match command {
        "disable-raft" => "detach.json".to_owned(),
        command => format!("{command}.json"),
    }
}

/// Reads what a journal says, and writes it.
pub(crate) fn written_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let entries: Entries = serde_json::from_slice(bytes).ok()?;
    serde_json::to_vec(&entries).ok()
}

impl Journal {
    /// The journal of the command of this name, with what an earlier run has written.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub(super) fn open(data_dir: &Path, command: &str) -> Result<Self, Failure> {
        let path = data_dir.join(file_of(command));
        let entries = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Failure::new(
                    Exit::Error,
                    format!("{} is not a journal: {error}", path.display()),
                    "move it away; the command finds out which steps are done",
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Entries::default(),
            Err(error) => {
                return Err(Failure::error(format!("{}: {error}", path.display())));
            }
        };
        Ok(Self { path, entries })
    }

    /// A step begins. Durable when it returns.
    ///
    /// # Errors
    /// When it cannot be written; the step must not begin then.
    pub(super) fn begins(&mut self, step: String) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began_ms = now.unwrap_or_default().as_millis();
        self.entries.steps.push(Entry {
            step,
            began_ms: u64::try_from(began_ms).unwrap_or(u64::MAX),
            seconds: None,
        });
        self.write()
    }

    /// It is done. Durable when it returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn ends(&mut self, seconds: f64) -> Result<(), Failure> {
        if let Some(entry) = self.entries.steps.last_mut() {
            entry.seconds = Some(seconds);
        }
        self.write()
    }

    /// What else was found is kept. Durable when it returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn keep(&self) -> Result<(), Failure> {
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let content = serde_json::to_vec_pretty(&self.entries).map_err(io::Error::from);
        let written = content.and_then(|content| durable_file::replace(&self.path, &content));
        written.map_err(|error| {
            Failure::new(
                Exit::Error,
                format!(
                    "the journal {} cannot be written: {error}",
                    self.path.display()
                ),
                "run this on the member's host, as the account that the member runs as",
            )
        })
    }
}

const FILE_NAME: &str = "conversion.lock";
const LOCK_NAME: &str = "witness.conversion";

/// That nobody else does the same at the same time: a lock in the data directory against this host, and a lock in the primary's
/// mysqld against all others. Both go with the process.
pub(super) struct OneAtATime {
    _file: File,
    _connection: Connection,
}

impl OneAtATime {
    /// Takes both locks.
    ///
    /// # Errors
    /// Exit 4 when somebody has one of them; exit 1 when they cannot be asked for.
    pub(super) async fn take(data_dir: &Path, primary: &ConnectOptions) -> Result<Self, Failure> {
        let path = data_dir.join(FILE_NAME);
        let file = File::create(&path).map_err(|error| {
            Failure::new(
                Exit::Error,
                format!("{} cannot be made: {error}", path.display()),
                "run this on the member's host, as the account that the member runs as",
            )
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy(&path.display().to_string())),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let failed =
            |error| Failure::error(format!("the primary's mysqld cannot be locked: {error}"));
        let mut connection = Connection::open(primary).await.map_err(failed)?;
        let asked = format!("SELECT GET_LOCK('{LOCK_NAME}', 0)");
        let taken = connection.query(&asked).await.map_err(failed)?;
        let taken = taken.first().and_then(|row| row.text_at(0));
        if taken != Some("1") {
            return Err(busy(&format!(
                "the lock `{LOCK_NAME}` of the primary's mysqld"
            )));
        }
        Ok(Self {
            _file: file,
            _connection: connection,
        })
    }
}

fn busy(what: &str) -> Failure {
    Failure::new(
        Exit::Refused,
        format!("another run has {what}: `enable-raft` or `disable-raft` is under way"),
        "nothing was done; wait until that has ended",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_goes_on_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(directory.path(), "disable-raft").unwrap();
        journal.begins("one".into()).unwrap();
        journal.ends(0.25).unwrap();
        journal.begins("two".into()).unwrap();
        let again = Journal::open(directory.path(), "disable-raft").unwrap();
        assert_eq!(again.entries, journal.entries);
        let seconds: Vec<_> = again
            .entries
            .steps
            .iter()
            .map(|entry| entry.seconds)
            .collect();
        assert_eq!(seconds, [Some(0.25), None]);
        std::fs::write(directory.path().join("detach.json"), "{").unwrap();
        let failure = Journal::open(directory.path(), "disable-raft")
            .err()
            .unwrap();
        assert!(failure.what.contains("is not a journal"), "{failure}");
    }
}
