//! The recovery table: the state of the last file's tail combined with the hard state's record of the log's end. Every combination is in
//! exactly one row.

use {MetaState as M, TailState as T};

use raft_types::OpId;

use crate::format::FileNumber;
use crate::hard_state::UnsyncedRun;
use crate::options::Durability;

/// The state of the log's end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum TailState {
    /// There is no log file.
    #[default]
    NoFiles,
    /// The last file ends after a complete entry, or after its header.
    Clean,
    /// The last file ends within the header of a marker's event.
    TornHeader,
    /// The last file ends within a marker.
    TornMarker,
    /// The last file ends after a marker, before its payload.
    PayloadMissing,
    /// The last file ends within a payload.
    TornPayload,
    /// Only zeros follow the last complete entry.
    ZeroFilled,
    /// The start of an entry follows the last complete one, and the file ends in zeros.
    EndsInZeros,
    /// Invalid bytes follow the last complete entry: the file does not end too early, and no complete entry follows. An unfinished write
    /// and a damaged acknowledged entry are indistinguishable here.
    Garbage,
    /// There is damage before a complete entry, or a gap, or bytes after a rotate event.
    Damage,
    /// The last file ends with a rotate entry, and the next file is missing.
    RotateWithoutNext,
    /// The file after the rotate entry (or the very first one) has no complete header.
    NextHalfMade,
}

impl TailState {
    /// Every state, in the order that the ranges of the table rely on.
    pub const ALL: [Self; 12] = [
        Self::NoFiles,
        Self::Damage,
        Self::Clean,
        Self::TornHeader,
        Self::TornMarker,
        Self::PayloadMissing,
        Self::TornPayload,
        Self::ZeroFilled,
        Self::EndsInZeros,
        Self::Garbage,
        Self::RotateWithoutNext,
        Self::NextHalfMade,
    ];
}

/// The hard state compared with the present complete entries. If several apply, the first in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaState {
    /// The log is to restart with another member's file.
    StartingOver,
    /// The hard state has no record of a log, or records a log in creation although the log has entries.
    Missing,
    /// The log was being created when the member stopped; it has no entries.
    Creating,
    /// The stored vote is of an earlier term than the last entry.
    VoteOlder,
    /// An entry after the log's end was committed.
    CommittedBeyondEnd,
    /// At the index of the committed entry, the log has a different entry.
    CommittedDiffers,
    /// An entry after the log's end was durable.
    DurableBeyondEnd,
    /// The purge floor is after the log's end: the log was to restart after it.
    FloorBeyondEnd,
    /// The purge floor is at or after the first present entry.
    FloorInside,
    /// The stored vote is of a later term than the last entry.
    VoteNewer,
    /// None of the other states applies: hard state and log match.
    Agrees,
}

impl MetaState {
    /// Every state, in the order that the ranges of the table rely on.
    pub const ALL: [Self; 11] = [
        Self::StartingOver,
        Self::Missing,
        Self::Creating,
        Self::VoteOlder,
        Self::CommittedBeyondEnd,
        Self::CommittedDiffers,
        Self::DurableBeyondEnd,
        Self::FloorBeyondEnd,
        Self::FloorInside,
        Self::VoteNewer,
        Self::Agrees,
    ];
}

/// The action for one case when the log is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Create the first file of a new log.
    CreateLog,
    /// Use the log as it is.
    Open,
    /// Truncate the last file after its last complete entry.
    CutTail,
    /// Truncates the last file as [`Self::CutTail`] does, but first records that the truncated bytes may have been acknowledged. The member
    /// then takes part in no election until the other members have reported the ends of their logs.
    CutDoubtedTail,
    /// Create the next file, replacing any incomplete one.
    MakeNextFile,
    /// Begin a new file after the purge floor; remove the other files.
    BeginBehindFloor,
    /// Restart the log with one file, from the header that the hard state stores; remove all other files.
    StartOver,
    /// Do not open: all files are missing.
    RefuseLogMissing,
    /// Do not open: the vote is missing.
    RefuseMetaMissing,
    /// Do not open: damage before valid entries.
    RefuseDamage,
    /// Do not open: the stored vote is older than the log.
    RefuseVoteOlder,
    /// Do not open: entries are missing.
    RefuseEntriesMissing,
    /// Do not open: log and hard state do not match.
    RefuseCommittedDiffers,
}

/// A row of the table.
#[derive(Debug)]
pub struct RecoveryCase {
    /// Name of the row in reports and tests.
    pub name: &'static str,
    /// The matching tail states.
    pub tails: &'static [TailState],
    /// The matching hard states.
    pub metas: &'static [MetaState],
    /// The resulting action.
    pub verdict: Verdict,
}

const ANY_FILES: &[TailState] = TailState::ALL.split_at(1).1;
const ANY_BUT_DAMAGE: &[TailState] = TailState::ALL.split_at(2).1;
const CREATING_OR_IN_USE: &[MetaState] = MetaState::ALL.split_at(2).1;
const IN_USE: &[MetaState] = MetaState::ALL.split_at(3).1;
/// The hard state is consistent with the present complete entries.
const CONSISTENT: &[MetaState] = MetaState::ALL.split_at(8).1;
const CONSISTENT_OR_CREATING: &[MetaState] =
    &[M::Creating, M::FloorInside, M::VoteNewer, M::Agrees];

/// The recovery table: the action for each combination of tail and hard state.
#[rustfmt::skip]
pub const RECOVERY_CASES: &[RecoveryCase] = &[
    RecoveryCase { name: "starting over interrupted", tails: &TailState::ALL, metas: &[M::StartingOver], verdict: Verdict::StartOver },
    RecoveryCase { name: "new log", tails: &[T::NoFiles], metas: &[M::Missing, M::Creating], verdict: Verdict::CreateLog },
    RecoveryCase { name: "log files gone", tails: &[T::NoFiles], metas: IN_USE, verdict: Verdict::RefuseLogMissing },
    RecoveryCase { name: "hard state gone", tails: ANY_FILES, metas: &[M::Missing], verdict: Verdict::RefuseMetaMissing },
    RecoveryCase { name: "first file half made", tails: &[T::NextHalfMade], metas: &[M::Creating], verdict: Verdict::CreateLog },
    RecoveryCase { name: "rotated while being made", tails: &[T::RotateWithoutNext], metas: &[M::Creating], verdict: Verdict::RefuseMetaMissing },
    RecoveryCase { name: "damage in the middle", tails: &[T::Damage], metas: CREATING_OR_IN_USE, verdict: Verdict::RefuseDamage },
    RecoveryCase { name: "vote older than the log", tails: ANY_BUT_DAMAGE, metas: &[M::VoteOlder], verdict: Verdict::RefuseVoteOlder },
    RecoveryCase { name: "committed beyond the log's end", tails: ANY_BUT_DAMAGE, metas: &[M::CommittedBeyondEnd], verdict: Verdict::RefuseEntriesMissing },
    RecoveryCase { name: "committed entry differs", tails: ANY_BUT_DAMAGE, metas: &[M::CommittedDiffers], verdict: Verdict::RefuseCommittedDiffers },
    RecoveryCase { name: "durable entries gone", tails: ANY_BUT_DAMAGE, metas: &[M::DurableBeyondEnd], verdict: Verdict::RefuseEntriesMissing },
    RecoveryCase { name: "purge floor beyond the log's end", tails: ANY_BUT_DAMAGE, metas: &[M::FloorBeyondEnd], verdict: Verdict::BeginBehindFloor },
    RecoveryCase { name: "clean", tails: &[T::Clean], metas: &[M::Creating, M::Agrees], verdict: Verdict::Open },
    RecoveryCase { name: "vote newer than the log", tails: &[T::Clean], metas: &[M::VoteNewer], verdict: Verdict::Open },
    RecoveryCase { name: "purge floor beyond the first file", tails: &[T::Clean], metas: &[M::FloorInside], verdict: Verdict::Open },
    RecoveryCase { name: "torn header", tails: &[T::TornHeader], metas: CONSISTENT_OR_CREATING, verdict: Verdict::CutTail },
    RecoveryCase { name: "torn marker", tails: &[T::TornMarker], metas: CONSISTENT_OR_CREATING, verdict: Verdict::CutTail },
    RecoveryCase { name: "marker without payload", tails: &[T::PayloadMissing], metas: CONSISTENT_OR_CREATING, verdict: Verdict::CutTail },
    RecoveryCase { name: "torn event", tails: &[T::TornPayload], metas: CONSISTENT_OR_CREATING, verdict: Verdict::CutTail },
    RecoveryCase { name: "zero-filled tail", tails: &[T::ZeroFilled], metas: CONSISTENT_OR_CREATING, verdict: Verdict::CutTail },
    RecoveryCase { name: "tail that ends in zeros", tails: &[T::EndsInZeros], metas: CONSISTENT_OR_CREATING, verdict: Verdict::CutTail },
    RecoveryCase { name: "garbage after a first file's header", tails: &[T::Garbage], metas: &[M::Creating], verdict: Verdict::CutTail },
    RecoveryCase { name: "garbage tail", tails: &[T::Garbage], metas: CONSISTENT, verdict: Verdict::CutDoubtedTail },
    RecoveryCase { name: "rotated, next file missing", tails: &[T::RotateWithoutNext], metas: CONSISTENT, verdict: Verdict::MakeNextFile },
    RecoveryCase { name: "rotated, next file half made", tails: &[T::NextHalfMade], metas: CONSISTENT, verdict: Verdict::MakeNextFile },
];

/// The row for a combination.
pub fn judge(tail: TailState, meta: MetaState) -> &'static RecoveryCase {
    let fits = |case: &&RecoveryCase| case.tails.contains(&tail) && case.metas.contains(&meta);
    RECOVERY_CASES
        .iter()
        .find(fits)
        .expect("every combination is in the table")
}

// Compares the index file with the present files. The index is derived from the files, so it is rewritten if it differs. But if the index
// lists a file that is missing, that file was lost.

/// The index compared with the files of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexState {
    /// The index names exactly the files of the log.
    Agrees,
    /// The index file is missing.
    Missing,
    /// The index file is not a list of file names.
    Damaged,
    /// The index lacks a file of the log, or still lists a purged one.
    Stale,
}

impl IndexState {
    /// Every state, for tests.
    pub const ALL: [Self; 4] = [Self::Agrees, Self::Missing, Self::Damaged, Self::Stale];

    /// Name of the state in reports and tests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agrees => "index agrees",
            Self::Missing => "index missing",
            Self::Damaged => "index damaged",
            Self::Stale => "file not in index",
        }
    }
}

/// Compares the index with the log's files.
///
/// # Errors
/// A required file that the index names is missing; the error is its number.
pub(super) fn index_state(
    index: Option<&Option<Vec<FileNumber>>>,
    log: &[FileNumber],
) -> Result<IndexState, FileNumber> {
    let listed = match index {
        None => return Ok(IndexState::Missing),
        Some(None) => return Ok(IndexState::Damaged),
        Some(Some(listed)) => listed,
    };
    // Files purged before the log's first file may still be listed.
    let is_gone = |file: &&FileNumber| Some(*file) >= log.first() && !log.contains(file);
    match listed.iter().find(is_gone) {
        Some(file) => Err(*file),
        None if *listed == log => Ok(IndexState::Agrees),
        None => Ok(IndexState::Stale),
    }
}

// Determines whether a log that was written without sync may lack entries. The run's record ([`UnsyncedRun`]) names the machine's boot. The
// log's end does not show a loss: a file system usually loses whole writes, so the log still ends with a complete entry.

/// The state, at the next start, of entries that were acknowledged without a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsynced {
    /// No such entries are on record, or they were synced when the log was closed.
    NotNoted,
    /// The machine has not restarted, so data written to its operating system is present.
    AllThere,
    /// Some of the entries may be missing.
    MayBeMissing,
}

impl Unsynced {
    /// Compares the record with the machine's current boot. An unknown boot never matches.
    pub(super) fn of(run: Option<&UnsyncedRun>, boot: Option<&str>) -> Self {
        match run {
            None => Self::NotNoted,
            Some(run) if boot.is_some() && run.boot.as_deref() == boot => Self::AllThere,
            Some(_) => Self::MayBeMissing,
        }
    }

    /// Returns whether the state leaves a doubt for a log with this end. A log without entries had acknowledged nothing: its first entry is
    /// a membership, which is always synced.
    pub(super) fn leaves_a_doubt(self, end: Option<OpId>) -> bool {
        self == Self::MayBeMissing && end.is_some()
    }

    /// Adjusts the table's verdict about a torn tail. The table relies on the file's length, which without sync does not show what was
    /// acknowledged. For logs of older versions, which have no record, the current configuration decides.
    pub(super) fn judge_tail(
        self,
        verdict: Verdict,
        meta: MetaState,
        durability: Durability,
    ) -> Verdict {
        let unsynced = match self {
            Self::MayBeMissing => true,
            Self::AllThere => false,
            Self::NotNoted => durability == Durability::Os,
        };
        match verdict {
            Verdict::CutTail if unsynced && meta != MetaState::Creating => Verdict::CutDoubtedTail,
            verdict => verdict,
        }
    }
}

/// Identifies the machine's current boot: data that is only in memory is lost between two boots. `None` if the system does not provide it.
pub fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = id.trim();
    (!id.is_empty()).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_in_exactly_one_row() {
        for tail in TailState::ALL {
            for meta in MetaState::ALL {
                let rows: Vec<&str> = RECOVERY_CASES
                    .iter()
                    .filter(|case| case.tails.contains(&tail) && case.metas.contains(&meta))
                    .map(|case| case.name)
                    .collect();
                assert_eq!(rows.len(), 1, "{tail:?} with {meta:?} is in {rows:?}");
            }
        }
    }

    #[test]
    fn a_log_with_known_losses_is_never_opened() {
        for tail in TailState::ALL {
            for meta in [
                M::VoteOlder,
                M::CommittedBeyondEnd,
                M::CommittedDiffers,
                M::DurableBeyondEnd,
            ] {
                let verdict = judge(tail, meta).verdict;
                let refused = matches!(
                    verdict,
                    Verdict::RefuseLogMissing
                        | Verdict::RefuseDamage
                        | Verdict::RefuseVoteOlder
                        | Verdict::RefuseEntriesMissing
                        | Verdict::RefuseCommittedDiffers
                );
                assert!(refused, "{tail:?} with {meta:?}: {verdict:?}");
            }
        }
    }
}

#[cfg(test)]
mod index_cases_tests {
    use super::*;

    #[test]
    fn index_states_are_distinguished() {
        let files = |numbers: &[u64]| -> Vec<FileNumber> {
            numbers
                .iter()
                .map(|number| FileNumber::new(*number).unwrap())
                .collect()
        };
        let state =
            |index: &[u64], log: &[u64]| index_state(Some(&Some(files(index))), &files(log));
        assert_eq!(state(&[3, 4], &[3, 4]), Ok(IndexState::Agrees));
        assert_eq!(state(&[3], &[3, 4]), Ok(IndexState::Stale));
        assert_eq!(state(&[2, 3, 4], &[3, 4]), Ok(IndexState::Stale));
        assert_eq!(state(&[3, 4, 5], &[3, 4]), Err(files(&[5])[0]));
        assert_eq!(state(&[], &[3]), Ok(IndexState::Stale));
        assert_eq!(index_state(None, &files(&[1])), Ok(IndexState::Missing));
        assert_eq!(
            index_state(Some(&None), &files(&[1])),
            Ok(IndexState::Damaged)
        );
    }
}

#[cfg(test)]
mod unsynced_tests {
    use super::*;

    #[test]
    fn the_boot_id_is_the_systems() {
        let words = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let id = boot_id().unwrap();
        assert_eq!((id.as_str(), id.len()), (words.trim(), 36));
    }

    #[test]
    fn unsynced_entries_survive_until_the_machine_stops() {
        let run = |boot: Option<&str>| UnsyncedRun {
            boot: boot.map(str::to_owned),
        };
        let (a, b) = (Some("a"), Some("b"));
        let rows = [
            (None, a, Unsynced::NotNoted),
            (None, None, Unsynced::NotNoted),
            (Some(run(a)), a, Unsynced::AllThere),
            (Some(run(a)), b, Unsynced::MayBeMissing),
            (Some(run(a)), None, Unsynced::MayBeMissing),
            (Some(run(None)), a, Unsynced::MayBeMissing),
            (Some(run(None)), None, Unsynced::MayBeMissing),
        ];
        for (run, boot, expected) in rows {
            let found = Unsynced::of(run.as_ref(), boot);
            assert_eq!(found, expected, "{run:?}, now {boot:?}");
        }
    }

    #[test]
    fn a_torn_tail_is_judged_by_the_durability_of_its_writes() {
        use Durability::{Fsync, Os};
        use MetaState::{Agrees, Creating};
        let rows = [
            (Unsynced::NotNoted, Agrees, Fsync, false),
            (Unsynced::NotNoted, Agrees, Os, true),
            (Unsynced::NotNoted, Creating, Os, false),
            (Unsynced::AllThere, Agrees, Fsync, false),
            (Unsynced::AllThere, Agrees, Os, false),
            (Unsynced::MayBeMissing, Agrees, Fsync, true),
            (Unsynced::MayBeMissing, Agrees, Os, true),
            (Unsynced::MayBeMissing, Creating, Os, false),
        ];
        for (unsynced, meta, durability, doubted) in rows {
            let expected = match doubted {
                true => Verdict::CutDoubtedTail,
                false => Verdict::CutTail,
            };
            let case = format!("{unsynced:?}, {meta:?}, now {durability}");
            let found = unsynced.judge_tail(Verdict::CutTail, meta, durability);
            assert_eq!(found, expected, "{case}");
            let open = unsynced.judge_tail(Verdict::Open, meta, durability);
            assert_eq!(open, Verdict::Open, "{case}");
        }
    }

    #[test]
    fn the_boot_id_is_stable() {
        assert_eq!(boot_id(), boot_id());
    }
}
