//! The journal in the data directory: each step with its time, and the write pause. The file is replaced as a whole, kept at the end, and
//! continued by later runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mysqld_server::durable_file;
use serde::{Deserialize, Serialize};

use crate::conversion::{ConversionFailure, Direction, FailureKind};

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
