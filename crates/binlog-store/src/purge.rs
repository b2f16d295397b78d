//! Selection of old files to purge: a pure plan, and holds that keep files for readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use binlog_format::gtid::GtidSet;
use raft_types::OpId;

use crate::format::FileNumber;
use crate::log::LogPlace;
use crate::shared::Shared;

// The purge decision: a pure function of the files' metadata.

/// The operator's purge request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgePolicy {
    /// All files before this one, as in `PURGE BINARY LOGS TO`.
    BeforeFile(FileNumber),
    /// The oldest files, until the total size is at most this many bytes.
    TotalBytes(u64),
    /// Files closed before this time. If a leader's clock was ahead, a file's closing time can be in the future. Such a file gets the
    /// closing time of the next file with a valid time.
    ClosedBefore {
        /// In seconds since the epoch.
        time: u32,
        /// The time now, in seconds since the epoch.
        now: u32,
    },
}

/// Entries that the ring, the member's mysqld or the archive still needs, whatever the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StillNeeded {
    /// The ring needs the entries starting at this index; `None` for none.
    pub by_ring: Option<u64>,
    /// GTIDs that the member's mysqld has executed; it still needs all other transactions. `None` without a mysqld.
    pub executed: Option<GtidSet>,
    /// The unarchived part; `None` without an archive.
    pub by_archive: Option<NotArchived>,
}

/// The unarchived part of the log, kept up to a size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotArchived {
    /// The next position to archive; `None` if the archive is not known to have any data.
    pub from: Option<LogPlace>,
    /// The newest files are kept up to this total size.
    pub most_bytes: u64,
}

impl NotArchived {
    /// Returns whether the file stays for the archive. `bytes_from_here` is the size of this file and all newer ones.
    pub(crate) fn keeps(&self, file: FileNumber, bytes_from_here: u64) -> bool {
        self.from.is_none_or(|from| from.file <= file) && bytes_from_here <= self.most_bytes
    }
}

/// A candidate for a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PurgeCandidate {
    pub(crate) file: FileNumber,
    /// The file's last entry; if the file has none, the entry before it.
    pub(crate) last: Option<OpId>,
    pub(crate) size: u64,
    /// Whether the file ends with a rotate entry.
    pub(crate) closed: bool,
    /// Closing time in seconds since the epoch.
    pub(crate) closed_at: Option<u32>,
    /// True if the member's mysqld has executed all transactions of the file.
    pub(crate) executed: bool,
    /// True if the file stays until it is archived.
    pub(crate) kept_for_archive: bool,
}

/// Why a file that the policy would remove is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeLimit {
    /// The file is being written.
    Open,
    /// The file's rotate entry is not committed yet.
    NotCommitted,
    /// The ring needs entry `index` and later ones.
    NeededByRing(u64),
    /// The member's mysqld has not executed all transactions of the file.
    NotExecuted,
    /// The file is not archived yet.
    NotArchived,
    /// A hold keeps entry `index` and later ones.
    Held(u64),
}

/// The files that a purge would remove, and the first that it keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePlan {
    /// The files to remove, oldest first.
    pub remove: Vec<FileNumber>,
    /// Total bytes of those files.
    pub bytes: u64,
    /// The entry up to which the engine must purge; `None` if no file is removed.
    pub floor: Option<OpId>,
    /// The first file that the policy would remove but that is kept, with the reason.
    pub kept: Option<(FileNumber, PurgeLimit)>,
}

/// Decides which of the files, oldest first, to remove.
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

/// Whether the policy alone would remove the first of these files.
fn wanted(files: &[PurgeCandidate], policy: &PurgePolicy, left: u64) -> bool {
    match policy {
        PurgePolicy::BeforeFile(first_kept) => {
            files.first().is_some_and(|file| file.file < *first_kept)
        }
        PurgePolicy::TotalBytes(bytes) => left > *bytes,
        PurgePolicy::ClosedBefore { time, now } => {
            // Files are closed in order, so this file was closed before the later ones. A later file's time is used only if this file's own
            // time is impossible. Otherwise one rotation by a lagging clock would make all earlier files look that old.
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
        return Some(PurgeLimit::NeededByRing(index));
    }
    if !file.executed {
        return Some(PurgeLimit::NotExecuted);
    }
    if file.kept_for_archive {
        return Some(PurgeLimit::NotArchived);
    }
    let index = lowest_hold.filter(|hold| *hold <= last.index)?;
    Some(PurgeLimit::Held(index))
}

// A guard that keeps entries while it exists.

static NEXT_HOLD: AtomicU64 = AtomicU64::new(0);

/// Keeps the files with the entries starting at an index. Files that are purged while the hold exists are removed on drop.
#[must_use = "the entries are kept only as long as the hold lives"]
pub struct PurgeHold {
    shared: Arc<Shared>,
    id: u64,
}

impl PurgeHold {
    pub(crate) fn new(shared: Arc<Shared>, index: u64) -> Self {
        let id = NEXT_HOLD.fetch_add(1, Ordering::Relaxed);
        shared.view.lock().holds.insert(id, index);
        Self { shared, id }
    }

    /// Releases the entries before `index`, which are no longer needed.
    pub fn advance(&self, index: u64) {
        let mut view = self.shared.view.lock();
        let held = view.holds.entry(self.id).or_insert(index);
        *held = (*held).max(index);
        drop(view);
        self.shared.nudge();
    }
}

impl Drop for PurgeHold {
    fn drop(&mut self) {
        self.shared.view.lock().holds.remove(&self.id);
        self.shared.nudge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> FileNumber {
        FileNumber::new(number).unwrap()
    }

    /// Files 1 to 4 of 100 bytes with ten entries each. Files 1 to 3 were closed at 1000, 2000 and 3000; file 4 is open.
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

    /// A leader's clock was wrong when it created the next file.
    #[test]
    fn a_clock_that_was_ahead_once_holds_no_files_back() {
        // Closing times of the files, the time limit, and the number of removed files.
        let rows: [([u32; 3], u32, usize); 11] = [
            // The second file's closing time is far in the future.
            ([1000, 90_000, 3000], 2000, 1),
            ([1000, 90_000, 3000], 3000, 1),
            ([1000, 90_000, 3000], 3001, 3),
            ([90_000, 80_000, 3000], 3001, 3),
            // The last file's closing time is unknown.
            ([1000, 2000, 90_000], 9000, 2),
            ([90_000, 90_001, 90_002], 9000, 0),
            ([90_000, 90_001, 90_002], 90_002, 2),
            ([90_000, 5000, 6000], 90_000, 3),
            // A time in the past may be correct: a lagging clock makes only its own file look older.
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
        let held = |index| Some(PurgeLimit::Held(index));
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
    fn files_needed_by_the_ring_or_by_mysqld_stay() {
        let all = Some(OpId::new(1, 39));
        let everything = PurgePolicy::TotalBytes(1);
        for (needed, removed) in [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)] {
            let plan = plan_purge(&files(), &everything, all, Some(needed), None);
            assert_eq!(plan.remove.len(), removed, "from {needed} on");
            let limit = match removed {
                3 => PurgeLimit::Open,
                _ => PurgeLimit::NeededByRing(needed),
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
    fn unarchived_files_stay_up_to_a_limit() {
        let from = |number| Some(LogPlace::new(number, 5));
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
