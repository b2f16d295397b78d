//! A plan and its execution, step by step; the journal records each step before it begins.

use std::fmt::Display;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, LinkError};
use mysqld_controller::conversion::{Obstacle, Planned};
use mysqld_server::durable_file;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::conversion::{Conversion, ConversionFailure, Direction, FailureKind};

/// A command's execution of its plan.
pub trait Work: Send {
    /// A step of its plan.
    type Step: Display + Clone + Send + Sync;

    /// The conversion that it works on.
    fn conversion(&self) -> &Conversion<'_>;

    /// Executes one step.
    ///
    /// # Errors
    /// When it is not complete; it can be repeated.
    fn carry_out<'a>(
        &'a mut self,
        step: &'a Self::Step,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>>;

    /// How long clients could not write, if a step measured it.
    fn write_pause(&self) -> Option<Duration>;
}

/// A plan and its execution.
pub struct Course<W: Work> {
    /// The steps, or the obstacles.
    pub planned: Result<Vec<Planned<W::Step>>, Vec<Obstacle>>,
    /// Remarks for the operator.
    pub remarks: Vec<String>,
    journal: Journal,
    work: W,
}

impl<W: Work> Course<W> {
    /// For a new plan.
    ///
    /// # Errors
    /// When there is a journal that cannot be read.
    pub(super) fn new(
        planned: Result<Vec<Planned<W::Step>>, Vec<Obstacle>>,
        remarks: Vec<String>,
        work: W,
    ) -> Result<Self, ConversionFailure> {
        let conversion = work.conversion();
        let journal = Journal::open(&conversion.data_dir, conversion.direction)?;
        Ok(Self {
            planned,
            remarks,
            journal,
            work,
        })
    }

    /// All steps, completed ones included; none if there are obstacles.
    pub fn steps(&self) -> &[Planned<W::Step>] {
        self.planned.as_ref().map(Vec::as_slice).unwrap_or_default()
    }

    /// Obstacles of the plan.
    pub fn obstacles(&self) -> &[Obstacle] {
        let obstacles = self.planned.as_ref().err();
        obstacles.map(Vec::as_slice).unwrap_or_default()
    }

    /// True if all steps are complete.
    pub fn is_done(&self) -> bool {
        self.planned.is_ok() && self.steps().iter().all(|planned| planned.done)
    }

    /// Executes the remaining steps, as far as possible. Reports each step to `told`, with its duration in seconds. Returns how long
    /// clients could not write, in seconds, if this run or an earlier one measured it.
    ///
    /// # Errors
    /// When another run is in progress, and those of the steps.
    pub async fn carry_out(
        &mut self,
        mut told: impl FnMut(&W::Step, f64) + Send,
    ) -> Result<Option<f64>, ConversionFailure> {
        let conversion = self.work.conversion();
        let lock = OneAtATime::take(&conversion.data_dir, &conversion.connect).await?;
        let to_do = self.steps().iter().filter(|planned| !planned.done);
        let to_do: Vec<W::Step> = to_do.map(|planned| planned.step.clone()).collect();
        for step in to_do {
            let seconds = self.step(&step).await?;
            told(&step, seconds);
        }
        drop(lock);
        if let Some(pause) = self.work.write_pause() {
            self.journal.entries.write_pause_seconds = Some(pause.as_secs_f64());
        }
        self.journal.keep()?;
        // An earlier run may have measured it.
        Ok(self.journal.entries.write_pause_seconds)
    }

    /// Executes one step, and records it.
    ///
    /// # Errors
    /// Its own, with the way back.
    async fn step(&mut self, step: &W::Step) -> Result<f64, ConversionFailure> {
        self.journal.begins(step.to_string())?;
        let began = Instant::now();
        if let Err(mut failure) = self.work.carry_out(step).await {
            let direction = self.work.conversion().direction;
            failure.what = format!("{step}: {}", failure.what);
            if !failure.advice.is_empty() {
                failure.advice += "\n  ";
            }
            failure.advice += &format!(
                "`witness {}` continues where it stopped; `witness {}` goes back",
                direction.name(),
                direction.back().name(),
            );
            return Err(failure);
        }
        let seconds = began.elapsed().as_secs_f64();
        self.journal.ends(seconds)?;
        Ok(seconds)
    }
}

// The journal in the data directory: each step with its time, and the write pause. The file is replaced as a whole, kept at the end, and
// continued by later runs.

/// The journal's entries for completed steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalEntries {
    /// The steps in order.
    pub steps: Vec<JournalEntry>,
    /// How long clients could not write, in seconds, where a run has measured all of it.
    pub write_pause_seconds: Option<f64>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The step as text.
    pub step: String,
    /// Start, in milliseconds since 1970.
    pub began_ms: u64,
    /// Duration in seconds; none when its end was not seen.
    pub seconds: Option<f64>,
}

/// The journal of one command.
pub struct Journal {
    path: PathBuf,
    /// Its entries.
    pub entries: JournalEntries,
}

/// The file of a command's journal. `disable-raft` keeps the file name of its former name `detach`, so that it continues the run of an
/// older version.
fn file_of(direction: Direction) -> String {
    match direction {
        Direction::DisableRaft => "detach.json".to_owned(),
        Direction::EnableRaft => format!("{}.json", direction.name()),
    }
}

impl Journal {
    /// The journal of this command, with the entries of an earlier run.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub fn open(data_dir: &Path, direction: Direction) -> Result<Self, ConversionFailure> {
        let path = data_dir.join(file_of(direction));
        let entries = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                ConversionFailure::new(
                    FailureKind::Error,
                    format!("{} is not a journal: {error}", path.display()),
                    "move it away; the command finds out which steps are done",
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => JournalEntries::default(),
            Err(error) => {
                return Err(ConversionFailure::error(format!(
                    "{}: {error}",
                    path.display()
                )));
            }
        };
        Ok(Self { path, entries })
    }

    /// Records the start of a step. Durable on return.
    ///
    /// # Errors
    /// When it cannot be written; the step must not begin then.
    pub(super) fn begins(&mut self, step: String) -> Result<(), ConversionFailure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began_ms = now.unwrap_or_default().as_millis();
        self.entries.steps.push(JournalEntry {
            step,
            began_ms: u64::try_from(began_ms).unwrap_or(u64::MAX),
            seconds: None,
        });
        self.write()
    }

    /// Records the end of the step. Durable on return.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn ends(&mut self, seconds: f64) -> Result<(), ConversionFailure> {
        if let Some(entry) = self.entries.steps.last_mut() {
            entry.seconds = Some(seconds);
        }
        self.write()
    }

    /// Writes all other entries. Durable on return.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn keep(&self) -> Result<(), ConversionFailure> {
        self.write()
    }

    fn write(&self) -> Result<(), ConversionFailure> {
        let content = serde_json::to_vec_pretty(&self.entries).map_err(io::Error::from);
        let written = content.and_then(|content| durable_file::replace(&self.path, &content));
        written.map_err(|error| {
            ConversionFailure::new(
                FailureKind::Error,
                format!(
                    "the journal {} cannot be written: {error}",
                    self.path.display()
                ),
                "run this on the member's host, as the account that the member runs as",
            )
        })
    }
}

// Locks out concurrent runs: a lock in the data directory for this host, and a lock in the primary's mysqld for all others. Both end with
// the process.

const FILE_NAME: &str = "conversion.lock";
const LOCK_NAME: &str = "witness.conversion";

/// Both locks.
pub(super) struct OneAtATime {
    _file: File,
    _connection: Connection,
}

impl OneAtATime {
    /// Takes both locks.
    ///
    /// # Errors
    /// Refused when another run holds one of them; an error when a lock cannot be requested.
    pub(super) async fn take(
        data_dir: &Path,
        primary: &ConnectOptions,
    ) -> Result<Self, ConversionFailure> {
        let path = data_dir.join(FILE_NAME);
        let file = File::create(&path).map_err(|error| {
            ConversionFailure::new(
                FailureKind::Error,
                format!("{} cannot be made: {error}", path.display()),
                "run this on the member's host, as the account that the member runs as",
            )
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy(&path.display().to_string())),
            Err(TryLockError::Error(error)) => {
                return Err(ConversionFailure::error(error.to_string()));
            }
        }
        let failed = |error| {
            ConversionFailure::error(format!("the primary's mysqld cannot be locked: {error}"))
        };
        let mut connection = Connection::open_with_own_settings(primary)
            .await
            .map_err(failed)?;
        let asked = format!("SELECT GET_LOCK('{LOCK_NAME}', 0)");
        let taken = connection.query(&asked).await.map_err(failed)?;
        let taken = taken.value();
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

fn busy(what: &str) -> ConversionFailure {
    ConversionFailure::new(
        FailureKind::Refused,
        format!("another run has {what}: `enable-raft` or `disable-raft` is under way"),
        "nothing was done; wait until that has ended",
    )
}

// Measures how long clients cannot write: polls on its own connection whether the primary is read only.

/// Polling interval, about the accuracy of the result.
const AGAIN: Duration = Duration::from_millis(2);

/// A running measurement.
pub(super) struct WritePause {
    end: oneshot::Sender<()>,
    task: JoinHandle<Option<Duration>>,
}

impl WritePause {
    /// Measures from now on.
    ///
    /// # Errors
    /// When the server cannot be connected to.
    pub(super) async fn watch(primary: &ConnectOptions) -> Result<Self, LinkError> {
        let connection = Connection::open_with_own_settings(primary).await?;
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(watch(connection, ended));
        Ok(Self { end, task })
    }

    /// The pause so far, from the first closed moment to the last opening. None if its start or end was not seen.
    pub(super) async fn end(self) -> Option<Duration> {
        // The polling task may have ended already.
        let _ = self.end.send(());
        self.task.await.ok().flatten()
    }
}

async fn watch(mut connection: Connection, mut ended: oneshot::Receiver<()>) -> Option<Duration> {
    let mut seen = Seen::default();
    // The last check is after the end: it was opened before that.
    let mut last = false;
    loop {
        let asked = connection.query("SELECT @@GLOBAL.read_only").await.ok()?;
        let closed = asked.value() == Some("1");
        seen.look(closed, Instant::now());
        if last {
            return seen.pause();
        }
        tokio::select! {
            _ = &mut ended => last = true,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// When clients could write and when not, as seen by a polling session.
#[derive(Default)]
struct Seen {
    was_open: bool,
    closed_at: Option<Instant>,
    opened_at: Option<Instant>,
}

impl Seen {
    fn look(&mut self, closed: bool, now: Instant) {
        if !closed {
            if self.closed_at.is_some() && !self.was_open {
                self.opened_at = Some(now);
            }
            self.was_open = true;
        } else {
            if self.was_open && self.closed_at.is_none() {
                self.closed_at = Some(now);
            }
            self.was_open = false;
        }
    }

    fn pause(&self) -> Option<Duration> {
        let (closed, opened) = self.closed_at.zip(self.opened_at)?;
        self.was_open.then(|| opened - closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_run_goes_on_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Journal::open(directory.path(), Direction::DisableRaft);
        let mut journal = open().unwrap();
        journal.begins("one".into()).unwrap();
        journal.ends(0.25).unwrap();
        journal.begins("two".into()).unwrap();
        let again = open().unwrap();
        assert_eq!(again.entries, journal.entries);
        let seconds: Vec<_> = again
            .entries
            .steps
            .iter()
            .map(|entry| entry.seconds)
            .collect();
        assert_eq!(seconds, [Some(0.25), None]);
        std::fs::write(directory.path().join("detach.json"), "{").unwrap();
        let failure = open().err().unwrap();
        assert!(failure.what.contains("is not a journal"), "{failure}");
    }
}

#[cfg(test)]
mod write_pause_tests {
    use super::*;

    #[test]
    fn a_pause_is_known_when_it_was_seen_from_begin_to_end() {
        let begin = Instant::now();
        // True if it was closed at each of these milliseconds.
        let table: [(&[bool], Option<u64>); 6] = [
            (&[false, true, true, false, false], Some(2)),
            (&[false, true, false, true, false], Some(3)),
            (&[false, false], None),
            (&[true, true, false], None),
            (&[false, true], None),
            (&[], None),
        ];
        for (looks, expected) in table {
            let mut seen = Seen::default();
            for (at, closed) in (0..).zip(looks) {
                seen.look(*closed, begin + Duration::from_millis(at));
            }
            assert_eq!(
                seen.pause(),
                expected.map(Duration::from_millis),
                "{looks:?}"
            );
        }
    }
}
