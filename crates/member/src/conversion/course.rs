//! A plan and its execution, step by step. The journal records each step before the step begins.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mysql_link::{ConnectOptions, Connection};
use mysqld_server::durable_file;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::conversion::disable_plan::plan_disable;
use crate::conversion::enable_plan::{plan_enable, remarks};
use crate::conversion::plan::{Obstacle, Planned, Scene, Step};
use crate::conversion::{Conversion, Direction, MemberPlace, failed};
use crate::protocol::Refusal;
use crate::ring_handle::now_ms;

/// A plan and its execution.
pub struct Course<'a> {
    /// All steps, including completed ones; empty if there are obstacles.
    pub steps: Vec<Planned>,
    /// Obstacles of the plan.
    pub obstacles: Vec<Obstacle>,
    /// Remarks for the operator.
    pub remarks: Vec<String>,
    pub(super) conversion: &'a Conversion<'a>,
    pub(super) scene: Scene,
    pub(super) places: Vec<MemberPlace>,
    /// How long clients could not write, if a step measured it.
    pub(super) pause: Option<Duration>,
    journal: Journal,
}

impl<'a> Course<'a> {
    /// Checks all servers, and makes a plan.
    ///
    /// # Errors
    /// If a member does not answer, or the journal exists and cannot be read.
    pub async fn of(conversion: &'a Conversion<'a>) -> Result<Self, Refusal> {
        let (scene, places) = conversion.scene().await?;
        let (planned, remarks) = match conversion.direction {
            Direction::EnableRaft => (plan_enable(&scene), remarks(&scene, now_ms())),
            Direction::DisableRaft => (plan_disable(&scene), Vec::new()),
        };
        let (steps, obstacles) = match planned {
            Ok(steps) => (steps, Vec::new()),
            Err(obstacles) => (Vec::new(), obstacles),
        };
        let mut course = Self {
            steps,
            obstacles,
            remarks,
            conversion,
            scene,
            places,
            pause: None,
            journal: Journal::open(&conversion.data_dir, conversion.direction)?,
        };
        let replicates =
            |planned: &Planned| !planned.done && matches!(planned.step, Step::Replicate(_));
        if course.steps.iter().any(replicates)
            && let Some(obstacle) = course.no_login().await?
        {
            course.steps.clear();
            course.obstacles.push(obstacle);
        }
        Ok(course)
    }

    /// True if all steps are complete.
    pub fn is_done(&self) -> bool {
        self.obstacles.is_empty() && self.steps.iter().all(|planned| planned.done)
    }

    /// Executes the remaining steps, as far as possible. Calls `told` for each step, with its duration in seconds. Returns how long clients
    /// could not write, in seconds, if this run or an earlier one measured it.
    ///
    /// # Errors
    /// If another run is in progress, or a step fails; the advice names the command that goes back.
    pub async fn carry_out(
        &mut self,
        mut told: impl FnMut(&Step, f64) + Send,
    ) -> Result<Option<f64>, Refusal> {
        let (direction, conversion) = (self.conversion.direction, self.conversion);
        let lock = OneAtATime::take(&conversion.data_dir, &conversion.connect).await?;
        let to_do = self.steps.iter().filter(|planned| !planned.done);
        let to_do: Vec<Step> = to_do.map(|planned| planned.step.clone()).collect();
        for step in to_do {
            self.journal.begins(step.to_string())?;
            let began = Instant::now();
            if let Err(mut failure) = self.execute(&step).await {
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
            told(&step, seconds);
        }
        drop(lock);
        if let Some(pause) = self.pause {
            self.journal.entries.write_pause_seconds = Some(pause.as_secs_f64());
        }
        self.journal.write()?;
        // An earlier run may have measured the pause.
        Ok(self.journal.entries.write_pause_seconds)
    }
}

// The journal in the data directory: each step with its time, and the time for which clients could not write. Each change replaces the
// whole file. Later runs continue the journal, and it is kept after the last step.

/// The journal's entries for completed steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalEntries {
    /// The steps in order.
    pub steps: Vec<JournalEntry>,
    /// How long clients could not write, in seconds, if a run has measured the whole time.
    pub write_pause_seconds: Option<f64>,
}

/// One step in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The step as text.
    pub step: String,
    /// Start, in milliseconds since 1970.
    pub began_ms: u64,
    /// Duration in seconds; `None` if the run did not observe the end.
    pub seconds: Option<f64>,
}

/// The journal of one command.
struct Journal {
    path: PathBuf,
    entries: JournalEntries,
}

impl Journal {
    /// Opens the journal of this command, with the entries of an earlier run.
    ///
    /// # Errors
    /// If it exists and cannot be read.
    fn open(data_dir: &Path, direction: Direction) -> Result<Self, Refusal> {
        let path = data_dir.join(match direction {
            // This is the file name of the command's former name, `detach`, so that a run of an older version is continued.
            Direction::DisableRaft => "detach.json",
            Direction::EnableRaft => "enable-raft.json",
        });
        let entries = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Refusal::failed(
                    format!("{} is not a journal: {error}", path.display()),
                    "move it away; the command finds out which steps are done",
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => JournalEntries::default(),
            Err(error) => {
                let what = format!("{}: {error}", path.display());
                return Err(failed(what));
            }
        };
        Ok(Self { path, entries })
    }

    /// Records the start of a step. Durable on return.
    ///
    /// # Errors
    /// If the start cannot be recorded. The step must not begin then.
    fn begins(&mut self, step: String) -> Result<(), Refusal> {
        self.entries.steps.push(JournalEntry {
            step,
            began_ms: now_ms(),
            seconds: None,
        });
        self.write()
    }

    /// Records the end of the step. Durable on return.
    ///
    /// # Errors
    /// If the end cannot be recorded.
    fn ends(&mut self, seconds: f64) -> Result<(), Refusal> {
        if let Some(entry) = self.entries.steps.last_mut() {
            entry.seconds = Some(seconds);
        }
        self.write()
    }

    fn write(&self) -> Result<(), Refusal> {
        let content = serde_json::to_vec_pretty(&self.entries).map_err(io::Error::from);
        let written = content.and_then(|content| durable_file::replace(&self.path, &content));
        let path = self.path.display();
        written.map_err(|error| not_ours(format!("the journal {path} cannot be written: {error}")))
    }
}

fn not_ours(what: String) -> Refusal {
    let advice = "run this on the member's host, as the account that the member runs as";
    Refusal::failed(what, advice)
}

// Prevents concurrent runs. A lock in the data directory is for runs on this host, and a lock in the primary's mysqld is for runs on other
// hosts. Both are released when the process ends.

const FILE_NAME: &str = "conversion.lock";
const LOCK_NAME: &str = "witness.conversion";

/// Both locks.
struct OneAtATime {
    _file: File,
    _connection: Connection,
}

impl OneAtATime {
    /// Takes both locks.
    ///
    /// # Errors
    /// A refusal if another run holds a lock; a failure if a lock cannot be requested.
    async fn take(data_dir: &Path, primary: &ConnectOptions) -> Result<Self, Refusal> {
        let path = data_dir.join(FILE_NAME);
        let file = File::create(&path);
        let file =
            file.map_err(|error| not_ours(format!("{} cannot be made: {error}", path.display())))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => busy(&path.display().to_string()),
            TryLockError::Error(error) => failed(error),
        })?;
        let failed = |error| failed(format!("the primary's mysqld cannot be locked: {error}"));
        let mut connection = Connection::open_with_own_settings(primary)
            .await
            .map_err(failed)?;
        let asked = format!("SELECT GET_LOCK('{LOCK_NAME}', 0)");
        let taken = connection.query(&asked).await.map_err(failed)?;
        if taken.value() != Some("1") {
            let what = format!("the lock `{LOCK_NAME}` of the primary's mysqld");
            return Err(busy(&what));
        }
        Ok(Self {
            _file: file,
            _connection: connection,
        })
    }
}

fn busy(what: &str) -> Refusal {
    Refusal::refused(
        format!("another run has {what}: `enable-raft` or `disable-raft` is under way"),
        "nothing was done; wait until that has ended",
    )
}

// Measures how long clients cannot write. A connection of its own polls whether the primary is read only.

/// The polling interval, which is about the accuracy of the result.
const AGAIN: Duration = Duration::from_millis(2);

/// A running measurement.
pub(super) struct WritePause {
    end: oneshot::Sender<()>,
    task: JoinHandle<Option<Duration>>,
}

impl WritePause {
    /// Starts a measurement.
    ///
    /// # Errors
    /// If the server cannot be connected to.
    pub(super) async fn watch(primary: &ConnectOptions) -> Result<Self, Refusal> {
        let connection = Connection::open_with_own_settings(primary).await;
        let connection = connection.map_err(failed)?;
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(watch(connection, ended));
        Ok(Self { end, task })
    }

    /// Ends the measurement. Returns the time from the first moment when writes were refused to the last moment when they were accepted
    /// again. `None` if the start or the end was not observed.
    pub(super) async fn end(self) -> Option<Duration> {
        // The polling task may have ended already.
        let _ = self.end.send(());
        self.task.await.ok().flatten()
    }
}

async fn watch(mut connection: Connection, mut ended: oneshot::Receiver<()>) -> Option<Duration> {
    let mut seen = Seen::default();
    // There is one more check after the end, because the primary was opened shortly before it.
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

/// When clients could and could not write, as observed by a polling session.
#[derive(Default)]
struct Seen {
    was_open: bool,
    closed_at: Option<Instant>,
    opened_at: Option<Instant>,
}

impl Seen {
    fn look(&mut self, closed: bool, now: Instant) {
        if self.was_open && closed {
            self.closed_at.get_or_insert(now);
        } else if !self.was_open && !closed && self.closed_at.is_some() {
            self.opened_at = Some(now);
        }
        self.was_open = !closed;
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
        // For each millisecond, true if the primary was closed for writes.
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
