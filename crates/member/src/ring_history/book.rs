//! The part of the ring's history in this member's data directory. It contains a copy of the events in the ring's log while the member ran,
//! and the interruptions that the member observed. The file has one JSON object per line. New lines are appended, and the oldest ones are
//! dropped. If a crash interrupted the write of a line, the line is skipped.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use consensus::{HistoryEntry, HistoryEvent, Named, Term};
use mysqld_server::durable_file;
use serde::{Deserialize, Serialize};

/// Minimum number of entries that are kept. If the file has twice as many, it is replaced.
pub(crate) const KEPT: usize = 1_000;

const FILE_NAME: &str = "history.jsonl";
/// This file exists while clients may write to this member's mysqld. If the process ends then, the file stays.
const OPEN_NAME: &str = "history-open";

/// The last moment at which clients could write to this member's mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenUntil {
    pub(crate) at_ms: u64,
    pub(crate) term: Term,
}

/// The history in the data directory. All methods except [`HistoryBook::entries`] and [`HistoryBook::exposed`] wait for the disk.
#[derive(Debug)]
pub(crate) struct HistoryBook {
    data_dir: PathBuf,
    owner: Named,
    entries: Mutex<Vec<HistoryEntry>>,
    exposed: Mutex<Option<u64>>,
}

impl HistoryBook {
    /// Creates the history of this data directory. It is empty until it is read.
    pub(crate) fn new(data_dir: &Path, owner: Named) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            owner,
            entries: Mutex::default(),
            exposed: Mutex::default(),
        }
    }

    /// Reads the entries of earlier processes. If the last process ended while clients could write, returns until when they could.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    pub(crate) fn read(&self) -> io::Result<Option<OpenUntil>> {
        let text = match fs::read(self.data_dir.join(FILE_NAME)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let lines = text.split(|byte| *byte == b'\n');
        let read = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let read: Vec<HistoryEntry> = read.collect();
        read.iter().for_each(|entry| self.note_exposure(entry));
        *self.lock() = read;
        let open = fs::read(self.data_dir.join(OPEN_NAME)).ok();
        Ok(open.and_then(|open| serde_json::from_slice(&open).ok()))
    }

    /// Adds new entries.
    ///
    /// # Errors
    /// If the entries cannot be written. They are still kept in memory.
    pub(crate) fn add(&self, entries: &[HistoryEntry]) -> io::Result<()> {
        let mut kept = self.lock();
        let known = kept.len();
        for entry in entries {
            if !kept.contains(entry) {
                self.note_exposure(entry);
                kept.push(entry.clone());
            }
        }
        if kept.len() == known {
            return Ok(());
        }
        let path = self.data_dir.join(FILE_NAME);
        if kept.len() > 2 * KEPT {
            let surplus = kept.len() - KEPT;
            kept.drain(..surplus);
            return durable_file::replace(&path, &lines(&kept)?);
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // The first new entry begins with a line break, because the last line may be incomplete.
        file.write_all(b"\n")?;
        file.write_all(&lines(&kept[known..])?)?;
        file.sync_data()
    }

    /// Records until when clients could write; `None` if they cannot write.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn open_until(&self, until: Option<OpenUntil>) -> io::Result<()> {
        let path = self.data_dir.join(OPEN_NAME);
        match until {
            Some(until) => fs::write(path, serde_json::to_vec(&until)?),
            None => durable_file::remove(&path),
        }
    }

    /// Returns the member of the data directory.
    pub(crate) fn owner(&self) -> Named {
        self.owner.clone()
    }

    /// Returns all kept entries, in the order in which they were written.
    pub(crate) fn entries(&self) -> Vec<HistoryEntry> {
        self.lock().clone()
    }

    /// Returns the number of transactions that were committed without the ring, in starts of mysqld that no operator has acknowledged;
    /// `None` without such a start.
    pub(crate) fn exposed(&self) -> Option<u64> {
        *self.exposed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_exposure(&self, entry: &HistoryEntry) {
        let mut exposed = self.exposed.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry.event {
            HistoryEvent::Exposed { transactions, .. } => {
                *exposed = Some(exposed.unwrap_or(0).saturating_add(*transactions));
            }
            HistoryEvent::ExposureAcknowledged { .. } => *exposed = None,
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HistoryEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lines(entries: &[HistoryEntry]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut text, entry)?;
        text.push(b'\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use raft_types::MemberId;

    use super::*;

    fn entry(at_ms: u64) -> HistoryEntry {
        HistoryEntry {
            at_ms,
            term: Term(3),
            by: String::new(),
            event: HistoryEvent::Resumed,
        }
    }

    fn book(folder: &Path) -> HistoryBook {
        let owner = Named {
            id: MemberId(1),
            name: "db-1".to_owned(),
        };
        HistoryBook::new(folder, owner)
    }

    fn read(folder: &Path) -> HistoryBook {
        let book = book(folder);
        book.read().unwrap();
        book
    }

    #[test]
    fn a_thousand_entries_outlive_the_process_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let book = read(folder.path());
        for at in (0..5_000).step_by(10) {
            let ten: Vec<_> = (at..at + 10).map(entry).collect();
            book.add(&ten).unwrap();
            book.add(&ten[5..]).unwrap();
        }
        let kept = read(folder.path()).entries();
        assert_eq!(kept, book.entries());
        assert!((KEPT..=2 * KEPT).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept.last(), Some(&entry(4_999)));
        assert!(
            kept.windows(2)
                .all(|pair| pair[0].at_ms + 1 == pair[1].at_ms)
        );
    }

    #[test]
    fn a_torn_line_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        read(folder.path()).add(&[entry(1)]).unwrap();
        let path = folder.path().join(FILE_NAME);
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"at_ms\": 2, \"te").unwrap();
        read(folder.path()).add(&[entry(3)]).unwrap();
        assert_eq!(read(folder.path()).entries(), [entry(1), entry(3)]);
    }

    #[test]
    fn a_process_that_ended_left_until_when_clients_could_write() {
        let folder = tempfile::tempdir().unwrap();
        let book = read(folder.path());
        let until = OpenUntil {
            at_ms: 7,
            term: Term(3),
        };
        book.open_until(Some(until)).unwrap();
        assert_eq!(book.read().unwrap(), Some(until));
        book.open_until(None).unwrap();
        book.open_until(None).unwrap();
        assert_eq!(book.read().unwrap(), None);
    }

    #[test]
    fn an_exposure_lasts_until_it_is_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let member = || Named {
            id: MemberId(1),
            name: "db-1".to_owned(),
        };
        let noted = |at_ms, event| HistoryEntry {
            event,
            ..entry(at_ms)
        };
        let exposed = |at_ms, transactions| {
            let member = member();
            noted(
                at_ms,
                HistoryEvent::Exposed {
                    member,
                    transactions,
                },
            )
        };
        let of = || HistoryBook::new(folder.path(), member());
        let book = of();
        assert_eq!(book.exposed(), None);
        book.add(&[exposed(1, 7), exposed(2, 0), exposed(3, 2)])
            .unwrap();
        assert_eq!(book.exposed(), Some(9));
        let restarted = of();
        restarted.read().unwrap();
        assert_eq!(restarted.exposed(), Some(9));
        let member = member();
        let acknowledged = noted(4, HistoryEvent::ExposureAcknowledged { member });
        restarted.add(&[acknowledged]).unwrap();
        assert_eq!(restarted.exposed(), None);
        restarted.add(&[exposed(5, 0)]).unwrap();
        assert_eq!(restarted.exposed(), Some(0));
    }
}
