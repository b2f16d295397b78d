//! Which old files may go: a pure plan, and holds that keep files for whoever still reads them.

mod hold;

use binlog_format::gtid::GtidSet;
use raft_types::OpId;

use crate::format::FileNumber;
use crate::log::LogPlace;
pub use crate::purge::hold::PurgeHold;

// The decision which files a purge removes. A pure function of what is known of the files.

/// What the operator wants gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgePolicy {
    /// All files before this one, as `PURGE BINARY LOGS TO` means it.
    BeforeFile(FileNumber),
    /// The oldest files, until all together take at most this many bytes.
    TotalBytes(u64),
    /// Files that were closed before this time. A file that says that it was closed later than now, because a leader's clock was
    /// ahead, counts as closed when the next one was that says otherwise.
    ClosedBefore {
        /// In seconds since the epoch.
        time: u32,
        /// The time now, in seconds since the epoch.
        now: u32,
    },
}

/// What is still needed of the log, whatever its operator wants gone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StillNeeded {
    /// The ring needs the entries from this index on; `None` for none.
    pub by_ring: Option<u64>,
    /// What the mysqld beside the member has executed: it needs all others. `None` where there is no mysqld.
    pub executed: Option<GtidSet>,
    /// What the archive lacks; `None` where there is no archive.
    pub by_archive: Option<NotArchived>,
}

/// What is not archived yet, and is kept for that as long as it is not too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotArchived {
    /// Where the archive goes on; `None` where it is not known to have anything.
    pub from: Option<LogPlace>,
    /// The newest files are kept as long as all together have no more bytes.
    pub most_bytes: u64,
}

impl NotArchived {
    /// Whether a file stays for the archive that takes so many bytes with all that are newer.
    pub(crate) fn keeps(&self, file: FileNumber, bytes_from_here: u64) -> bool {
        self.from.is_none_or(|from| from.file <= file) && bytes_from_here <= self.most_bytes
    }
}

/// A file that a purge might remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PurgeCandidate {
    pub(crate) file: FileNumber,
    /// Its last entry, or the one before it where it has none.
    pub(crate) last: Option<OpId>,
    pub(crate) size: u64,
    /// Whether it ends with a rotate entry.
    pub(crate) closed: bool,
    /// When it was closed, in seconds since the epoch.
    pub(crate) closed_at: Option<u32>,
    /// Whether the mysqld beside the member has executed all of it.
    pub(crate) executed: bool,
    /// Whether it stays until it is archived.
    pub(crate) kept_for_archive: bool,
}

/// What keeps a file that the policy would remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeLimit {
    /// It is being written to.
    Open,
    /// Its rotate entry is not committed yet.
    NotCommitted,
    /// The ring needs entry `index` and those behind it.
    NeededByRing {
        /// The lowest index that is needed.
        index: u64,
    },
    /// The mysqld beside the member has not executed all of it.
    NotExecuted,
    /// It is not archived yet.
    NotArchived,
    /// Somebody holds entry `index` and those behind it.
    Held {
        /// The lowest index that is held.
        index: u64,
    },
}

/// What a purge would remove, and what it has to leave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePlan {
    /// The files that go, oldest first.
    pub remove: Vec<FileNumber>,
    /// Bytes of those files together.
    pub bytes: u64,
    /// The entry up to which the engine is to purge; `None` when nothing goes.
    pub floor: Option<OpId>,
    /// The first file that the policy would remove but that stays, and why.
    pub kept: Option<(FileNumber, PurgeLimit)>,
}

/// Decides which of the files, oldest first, go.
#[must_use]
pub(crate) fn plan_purge(
    files: &[PurgeCandidate],
    policy: &PurgePolicy,
    committed: Option<OpId>,
    needed_by_ring: Option<u64>,
    lowest_hold: Option<u64>,
) -> PurgePlan {
    let mut plan = PurgePlan::default();
    let mut left: u64 = files.iter().map(|file| file.size).sum();
    for (at, file) in files.iter().enumerate() {
        if !wanted(&files[at..], policy, left) {
            break;
        }
        if let Some(limit) = limit(file, committed, needed_by_ring, lowest_hold) {
            plan.kept = Some((file.file, limit));
            break;
        }
        left -= file.size;
        plan.remove.push(file.file);
        plan.bytes += file.size;
        plan.floor = file.last;
    }
    plan
}

/// Whether the first of these files is to go, by the policy alone.
fn wanted(files: &[PurgeCandidate], policy: &PurgePolicy, left: u64) -> bool {
    match policy {
        PurgePolicy::BeforeFile(first_kept) => {
            files.first().is_some_and(|file| file.file < *first_kept)
        }
        PurgePolicy::TotalBytes(bytes) => left > *bytes,
        PurgePolicy::ClosedBefore { time, now } => {
            // A file was closed before those behind it were. That is asked for only where its own time cannot be: else one
            // rotation by a clock that was behind would give the age of a file to all before it.
            let mut possible = files.iter().filter_map(|file| file.closed_at);
            let decides = possible.find(|closed_at| closed_at < time || closed_at <= now);
            decides.is_some_and(|closed_at| closed_at < *time)
        }
    }
}

fn limit(
    file: &PurgeCandidate,
    committed: Option<OpId>,
    needed_by_ring: Option<u64>,
    lowest_hold: Option<u64>,
) -> Option<PurgeLimit> {
    let last = match file.last {
        Some(last) if file.closed => last,
        _ => return Some(PurgeLimit::Open),
    };
    if committed.is_none_or(|committed| committed.index < last.index) {
        return Some(PurgeLimit::NotCommitted);
    }
    if let Some(index) = needed_by_ring.filter(|needed| *needed <= last.index) {
        return Some(PurgeLimit::NeededByRing { index });
    }
    if !file.executed {
        return Some(PurgeLimit::NotExecuted);
    }
    if file.kept_for_archive {
        return Some(PurgeLimit::NotArchived);
    }
    let index = lowest_hold.filter(|hold| *hold <= last.index)?;
    Some(PurgeLimit::Held { index })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> FileNumber {
        FileNumber::new(number).unwrap()
    }

    /// Files 1 to 4 of 100 bytes with ten entries each, closed at 1000, 2000 and 3000; the last is open.
    fn files() -> Vec<PurgeCandidate> {
        (1..=4)
            .map(|file| PurgeCandidate {
                file: number(file),
                last: Some(OpId::new(1, file * 10 - 1)),
                size: 100,
                closed: file < 4,
                closed_at: (file < 4).then_some(file as u32 * 1000),
                executed: true,
                kept_for_archive: false,
            })
            .collect()
    }

    fn closed_before(time: u32) -> PurgePolicy {
        let now = 10_000;
        PurgePolicy::ClosedBefore { time, now }
    }

    /// A leader's clock was wrong while it began the next file.
    #[test]
    fn a_clock_that_was_ahead_once_holds_no_files_back() {
        // When the files were closed, before when they are to go, and how many go.
        let rows: [([u32; 3], u32, usize); 11] = [
            // The second one a long time from now.
            ([1000, 90_000, 3000], 2000, 1),
            ([1000, 90_000, 3000], 3000, 1),
            ([1000, 90_000, 3000], 3001, 3),
            ([90_000, 80_000, 3000], 3001, 3),
            // Nothing tells when the last one was closed.
            ([1000, 2000, 90_000], 9000, 2),
            ([90_000, 90_001, 90_002], 9000, 0),
            ([90_000, 90_001, 90_002], 90_002, 2),
            ([90_000, 5000, 6000], 90_000, 3),
            // What is not from now on may be so: a clock that was behind makes no file older but its own.
            ([5000, 6000, 7], 4000, 0),
            ([5000, 6000, 7], 5500, 1),
            ([5000, 9000, 6000], 7000, 1),
        ];
        for (closed_at, time, removed) in rows {
            let mut files = files();
            for (file, closed_at) in files.iter_mut().zip(closed_at) {
                file.closed_at = Some(closed_at);
            }
            let all = Some(OpId::new(1, 39));
            let plan = plan_purge(&files, &closed_before(time), all, None, None);
            assert_eq!(plan.remove.len(), removed, "{closed_at:?} before {time}");
        }
    }

    #[test]
    fn table_of_policies_and_limits() {
        let all = Some(OpId::new(1, 39));
        let held = |index| Some(PurgeLimit::Held { index });
        #[rustfmt::skip]
        type Row = (PurgePolicy, Option<OpId>, Option<u64>, u64, Option<PurgeLimit>);
        let rows: [Row; 14] = [
            (PurgePolicy::BeforeFile(number(1)), all, None, 0, None),
            (PurgePolicy::BeforeFile(number(3)), all, None, 2, None),
            (
                PurgePolicy::BeforeFile(number(9)),
                all,
                None,
                3,
                Some(PurgeLimit::Open),
            ),
            (
                PurgePolicy::BeforeFile(number(3)),
                None,
                None,
                0,
                Some(PurgeLimit::NotCommitted),
            ),
            (
                PurgePolicy::BeforeFile(number(3)),
                Some(OpId::new(1, 9)),
                None,
                1,
                Some(PurgeLimit::NotCommitted),
            ),
            (
                PurgePolicy::BeforeFile(number(3)),
                all,
                Some(19),
                1,
                held(19),
            ),
            (PurgePolicy::BeforeFile(number(3)), all, Some(20), 2, None),
            (PurgePolicy::BeforeFile(number(3)), all, Some(0), 0, held(0)),
            (PurgePolicy::TotalBytes(400), all, None, 0, None),
            (PurgePolicy::TotalBytes(399), all, None, 1, None),
            (PurgePolicy::TotalBytes(150), all, None, 3, None),
            (
                PurgePolicy::TotalBytes(1),
                all,
                None,
                3,
                Some(PurgeLimit::Open),
            ),
            (closed_before(2000), all, None, 1, None),
            (closed_before(9000), all, None, 3, None),
        ];
        for (policy, committed, hold, removed, limit) in rows {
            let plan = plan_purge(&files(), &policy, committed, None, hold);
            let case = format!("{policy:?} committed {committed:?} hold {hold:?}");
            assert_eq!(plan.remove.len() as u64, removed, "{case}");
            assert_eq!(plan.bytes, removed * 100, "{case}");
            assert_eq!(
                plan.floor,
                (removed > 0).then(|| OpId::new(1, removed * 10 - 1)),
                "{case}"
            );
            assert_eq!(plan.kept.map(|(_, limit)| limit), limit, "{case}");
            assert_eq!(
                plan.kept.map(|(file, _)| file.get()),
                limit.map(|_| removed + 1),
                "{case}"
            );
        }
    }

    #[test]
    fn what_the_ring_or_the_server_beside_it_needs_stays() {
        let all = Some(OpId::new(1, 39));
        let everything = PurgePolicy::TotalBytes(1);
        for (needed, removed) in [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)] {
            let plan = plan_purge(&files(), &everything, all, Some(needed), None);
            assert_eq!(plan.remove.len(), removed, "from {needed} on");
            let limit = match removed {
                3 => PurgeLimit::Open,
                _ => PurgeLimit::NeededByRing { index: needed },
            };
            assert_eq!(plan.kept.map(|(_, limit)| limit), Some(limit));
        }
        let mut lagging = files();
        lagging[1].executed = false;
        let plan = plan_purge(&lagging, &everything, all, None, None);
        assert_eq!(plan.floor, Some(OpId::new(1, 9)));
        assert_eq!(plan.kept, Some((number(2), PurgeLimit::NotExecuted)));
        let mut not_archived = files();
        not_archived[2].kept_for_archive = true;
        let plan = plan_purge(&not_archived, &everything, all, None, None);
        assert_eq!(plan.floor, Some(OpId::new(1, 19)));
        assert_eq!(plan.kept, Some((number(3), PurgeLimit::NotArchived)));
    }

    #[test]
    fn what_is_not_archived_stays_up_to_a_limit() {
        let from = |number| {
            Some(LogPlace {
                file: number,
                offset: 5,
            })
        };
        let keeps = |from, file, bytes| {
            let not_archived = NotArchived {
                from,
                most_bytes: 300,
            };
            not_archived.keeps(number(file), bytes)
        };
        assert!(keeps(from(number(3)), 3, 200));
        assert!(!keeps(from(number(3)), 2, 300), "it is archived");
        assert!(keeps(None, 2, 300) && keeps(from(number(1)), 2, 300));
        assert!(!keeps(None, 1, 301), "there is too much");
    }
}
