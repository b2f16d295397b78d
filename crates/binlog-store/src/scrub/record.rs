//! The scrub's state: the verified files and the choice of the next file.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use raft_types::OpId;

use crate::format::FileNumber;
use crate::hard_state::{ScrubRecord, VerifiedMark};
use crate::log::LogFile;

/// Pause between the end of a scrub and the start of the next.
const BETWEEN_TURNS: Duration = Duration::from_secs(24 * 3_600);

/// The scrub's state.
#[derive(Default)]
pub(crate) struct Scrub {
    pub(crate) record: Mutex<ScrubRecord>,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) damaged: AtomicU64,
    pub(crate) repaired: AtomicU64,
}

/// Progress of the scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Bytes read back since the log was opened.
    pub read_bytes: u64,
    /// Number of files found damaged since then.
    pub damaged: u64,
    /// Number of files repaired since then.
    pub repaired: u64,
    /// Bytes of closed files completed in the current scrub.
    pub turn_bytes: u64,
    /// Bytes of closed files never read back since they were written.
    pub unverified_bytes: u64,
    /// Bytes of all closed files.
    pub closed_bytes: u64,
    /// End of the last scrub, in seconds since the epoch.
    pub completed_at: Option<u64>,
}

/// The result of one scrub step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrubStep {
    /// No file is due.
    Nothing,
    /// A file is intact.
    Good(FileNumber),
    /// A file is damaged or cannot be read; [`crate::LogHandle::read_faults`] names it.
    Damaged(FileNumber),
    /// The file was removed during the read, or the log is closing.
    Interrupted,
}

/// A closed file whose entries are all committed: it never changes, except by a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClosedFile {
    pub(crate) number: FileNumber,
    pub(crate) before: Option<OpId>,
    pub(crate) last: OpId,
    pub(crate) end: u64,
}

impl ClosedFile {
    pub(crate) fn of(file: &LogFile, committed: Option<OpId>) -> Option<Self> {
        let last = file.last.filter(|_| file.closed)?;
        committed.filter(|committed| committed.index >= last.index)?;
        Some(Self {
            number: file.number(),
            before: file.header.before,
            last,
            end: file.end,
        })
    }
}

/// The file to read next, and whether it is the next one of the current scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) file: FileNumber,
    of_turn: bool,
}

/// Chooses the next file: first the files that were never verified, then all in turn. A file that waits for a repair is not read again.
/// Unverified files after it are read in turn.
pub(super) fn choose(
    closed: &[ClosedFile],
    record: &ScrubRecord,
    waits: impl Fn(FileNumber) -> bool,
    now: u64,
) -> Option<Choice> {
    // An end time in the future comes from a clock that was ahead: the real time is unknown.
    let since = record.completed_at.and_then(|at| now.checked_sub(at));
    let due = since.is_none_or(|since| since >= BETWEEN_TURNS.as_secs());
    let of_turn = (record.read_upto.is_some() || due)
        .then(|| next_of_turn(closed, record, &waits))
        .flatten();
    let verified = record.verified.map(|mark| mark.file);
    let mut numbers = closed.iter().map(|file| file.number);
    let new = numbers.find(|number| Some(*number) > verified);
    let file = new.filter(|new| !waits(*new)).or(of_turn)?;
    Some(Choice {
        file,
        of_turn: of_turn == Some(file),
    })
}

/// The next file of the current scrub.
fn next_of_turn(
    closed: &[ClosedFile],
    record: &ScrubRecord,
    waits: impl Fn(FileNumber) -> bool,
) -> Option<FileNumber> {
    let numbers = closed.iter().map(|file| file.number);
    let mut rest = numbers
        .filter(|number| Some(*number) > record.read_upto)
        .take_while(|number| record.until.is_none_or(|until| *number <= until));
    rest.find(|number| !waits(*number))
}

/// The record after a file was found intact.
pub(super) fn good(closed: &[ClosedFile], mut record: ScrubRecord, choice: Choice) -> ScrubRecord {
    let verified = record.verified.map(|mark| mark.file);
    let mut unverified = closed.iter().filter(|file| Some(file.number) > verified);
    if let Some(file) = unverified.next().filter(|file| file.number == choice.file) {
        record.verified = Some(VerifiedMark {
            file: file.number,
            last: file.last,
        });
    }
    if choice.of_turn {
        record.read_upto = Some(choice.file);
        record.until = record.until.or_else(|| Some(closed.last()?.number));
    }
    record
}

/// Ends the current scrub in the record if it has no file left to read.
pub(super) fn ended(
    closed: &[ClosedFile],
    mut record: ScrubRecord,
    waits: impl Fn(FileNumber) -> bool,
    now: u64,
) -> ScrubRecord {
    if record.read_upto.is_some() && next_of_turn(closed, &record, waits).is_none() {
        (record.read_upto, record.until) = (None, None);
        record.completed_at = Some(now);
    }
    record
}

impl Scrub {
    pub(super) fn record(&self) -> MutexGuard<'_, ScrubRecord> {
        // The record is replaced as a whole, so the lock is used even if poisoned.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(numbers: &[u64]) -> Vec<ClosedFile> {
        let file = |number: &u64| ClosedFile {
            number: FileNumber::new(*number).unwrap(),
            before: None,
            last: OpId::new(1, number * 10),
            end: 1_000,
        };
        numbers.iter().map(file).collect()
    }

    fn record(verified: u64, read_upto: u64, completed_at: Option<u64>) -> ScrubRecord {
        let mark = |file: FileNumber| VerifiedMark {
            file,
            last: OpId::new(1, file.get() * 10),
        };
        ScrubRecord {
            verified: FileNumber::new(verified).map(mark),
            read_upto: FileNumber::new(read_upto),
            until: None,
            completed_at,
        }
    }

    const DAY: u64 = 24 * 3_600;

    #[test]
    fn new_files_come_first_then_all_in_turn() {
        // Closed files, last verified, last read in turn, end of the last scrub, damaged; result: the file and whether it is read in turn.
        type Row<'a> = (
            &'a [u64],
            u64,
            u64,
            Option<u64>,
            &'a [u64],
            Option<(u64, bool)>,
        );
        let table: [Row<'_>; 15] = [
            (&[], 0, 0, None, &[], None),
            (&[1, 2, 3], 0, 0, None, &[], Some((1, true))),
            (&[1, 2, 3], 1, 1, None, &[], Some((2, true))),
            // A new file during a scrub.
            (&[1, 2, 3], 2, 1, Some(0), &[], Some((3, false))),
            (&[1, 2, 3], 3, 1, Some(0), &[], Some((2, true))),
            // Between two scrubs.
            (&[1, 2, 3], 3, 0, Some(DAY), &[], None),
            (&[1, 2, 3, 4], 3, 0, Some(DAY), &[], Some((4, false))),
            (&[1, 2, 3], 3, 0, Some(0), &[], Some((1, true))),
            (&[1, 2, 3], 3, 0, Some(DAY + 1), &[], None),
            // The clock was ahead when the last scrub ended.
            (&[1, 2, 3], 3, 0, Some(365 * DAY), &[], Some((1, true))),
            // The oldest files are purged.
            (&[8, 9], 3, 3, None, &[], Some((8, true))),
            // Damaged files wait, and the others are read in turn.
            (&[1, 2, 3], 1, 1, None, &[2], Some((3, true))),
            (&[1, 2, 3], 1, 3, None, &[2], None),
            (&[1, 2, 3], 3, 0, Some(0), &[1], Some((2, true))),
            (&[1, 2, 3], 1, 0, Some(DAY), &[2], None),
        ];
        for row in table {
            let (files, verified, read_upto, completed_at, damaged, expected) = row;
            let damaged = |number: FileNumber| damaged.contains(&number.get());
            let record = record(verified, read_upto, completed_at);
            let chosen = choose(&closed(files), &record, damaged, DAY + 1);
            let chosen = chosen.map(|choice| (choice.file.get(), choice.of_turn));
            assert_eq!(chosen, expected, "{row:?}");
        }
    }

    #[test]
    fn a_turn_that_has_read_everything_ends_and_marks_have_no_gaps() {
        let files = closed(&[1, 2, 3]);
        let (mut now, mut seen) = (record(0, 0, None), Vec::new());
        while let Some(choice) = choose(&files, &now, |_| false, 5) {
            seen.push(choice.file.get());
            now = good(&files, now, choice);
        }
        let read = ScrubRecord {
            until: FileNumber::new(3),
            ..record(3, 3, None)
        };
        assert_eq!((seen, now), (vec![1, 2, 3], read));
        let none = |_| false;
        assert_eq!(ended(&files, now, none, 5), record(3, 0, Some(5)));
        let between = record(3, 0, Some(5));
        assert_eq!(ended(&files, between, none, 9), between);
        // No file after a damaged one counts as verified.
        let choice = Choice {
            file: FileNumber::new(3).unwrap(),
            of_turn: true,
        };
        assert_eq!(
            good(&files, record(1, 1, None), choice).verified,
            now_verified(1)
        );
    }

    /// The test closes a new file for each file that is read. New files come first, but must not postpone the scrub's end.
    #[test]
    fn a_turn_ends_however_fast_files_are_written() {
        let mut numbers = vec![1, 2, 3];
        let mut now = record(3, 0, Some(0));
        let mut seen = Vec::new();
        for read in 0.. {
            let files = closed(&numbers);
            now = ended(&files, now, |_| false, DAY + 1);
            if now.completed_at == Some(DAY + 1) {
                break;
            }
            let choice = choose(&files, &now, |_| false, DAY + 1).unwrap();
            seen.push(choice.file.get());
            now = good(&files, now, choice);
            assert!(read < 10, "{seen:?}");
            if read % 2 == 0 {
                numbers.push(numbers.len() as u64 + 1);
            }
        }
        assert_eq!(seen, [1, 4, 2, 5, 3]);
        assert_eq!((now.read_upto, now.until), (None, None));
    }

    fn now_verified(number: u64) -> Option<VerifiedMark> {
        record(number, 0, None).verified
    }
}
