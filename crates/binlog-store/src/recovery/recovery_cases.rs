//! The table of recovery: what the tail of the last file looks like, crossed with what the hard state
//! says of the log's end. Every combination is in exactly one row.

use {MetaState as M, TailState as T};

use crate::format::{FileNumber, IndexDamage};

/// What the end of the log looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TailState {
    /// There is no log file.
    NoFiles,
    /// The last file ends behind a complete entry, or behind its header.
    Clean,
    /// It ends inside of the header of a marker's event.
    TornHeader,
    /// It ends inside of a marker.
    TornMarker,
    /// It ends behind a marker whose payload does not begin.
    PayloadMissing,
    /// It ends inside of a payload.
    TornPayload,
    /// Behind the last complete entry there are only zeros.
    ZeroFilled,
    /// Behind the last complete entry stands the beginning of one, and the file ends in zeros.
    EndsInZeros,
    /// Behind the last complete entry there are bytes that are no entry, and no entry behind them. The file is as long as
    /// if they had been one: nothing tells a write that never came about from one that was acknowledged and rotted.
    Garbage,
    /// There is damage, and a complete entry behind it; or a gap; or bytes behind a rotate event.
    Damage,
    /// The last file ends with a rotate entry, and the next file is not there.
    RotateWithoutNext,
    /// The file after the rotate entry (or the very first one) has no complete header.
    NextHalfMade,
}

impl TailState {
    /// Every state; tests go through all of them.
    pub const ALL: [Self; 12] = [
        Self::NoFiles,
        Self::Clean,
        Self::TornHeader,
        Self::TornMarker,
        Self::PayloadMissing,
        Self::TornPayload,
        Self::ZeroFilled,
        Self::EndsInZeros,
        Self::Garbage,
        Self::Damage,
        Self::RotateWithoutNext,
        Self::NextHalfMade,
    ];
}

/// What the hard state says, compared with the complete entries that are there. Where several hold,
/// the first in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetaState {
    /// The log is to begin anew with a file that another member has.
    StartingOver,
    /// It has no record of a log, or says that the log is being made although the log has entries.
    Missing,
    /// The log was being made when the member stopped; it has no entries.
    Creating,
    /// The stored vote is of an earlier term than the last entry.
    VoteOlder,
    /// An entry behind the log's end was committed.
    CommittedBeyondEnd,
    /// The log has another entry than the committed one at its index.
    CommittedDiffers,
    /// An entry behind the log's end was durable.
    DurableBeyondEnd,
    /// The purge floor is behind the log's end: the log was to begin anew behind it.
    FloorBeyondEnd,
    /// The purge floor is at or behind the first entry that is there.
    FloorInside,
    /// The stored vote is of a later term than the last entry.
    VoteNewer,
    /// None of the other states: hard state and log belong together.
    Agrees,
}

impl MetaState {
    /// Every state; tests go through all of them.
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

/// What opening does about one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Make the first file of a new log.
    CreateLog,
    /// Use the log as it is.
    Open,
    /// Cut the last file behind its last complete entry.
    CutTail,
    /// The same, and note before that what is cut may have been acknowledged: the member then takes part in no election
    /// until the others have reported how far their logs go.
    CutDoubtedTail,
    /// Make the next file, over what there may be of it.
    MakeNextFile,
    /// Begin a new file behind the purge floor; the others go.
    BeginBehindFloor,
    /// Let the log begin with the file that the hard state notes; all others go.
    StartOver,
    /// Do not open: all files are gone.
    RefuseLogMissing,
    /// Do not open: the vote is gone.
    RefuseMetaMissing,
    /// Do not open: damage before valid entries.
    RefuseDamage,
    /// Do not open: the vote is an old one.
    RefuseVoteOlder,
    /// Do not open: entries are gone.
    RefuseEntriesMissing,
    /// Do not open: log and hard state do not belong together.
    RefuseCommittedDiffers,
}

/// A row of the table.
#[derive(Debug)]
pub struct RecoveryCase {
    /// What reports and tests call it.
    pub name: &'static str,
    /// The tails that it is for.
    pub tails: &'static [TailState],
    /// The states of the hard state that it is for.
    pub metas: &'static [MetaState],
    /// What opening does then.
    pub verdict: Verdict,
}

const ANY_FILES: &[TailState] = &[
    T::Clean,
    T::TornHeader,
    T::TornMarker,
    T::PayloadMissing,
    T::TornPayload,
    T::ZeroFilled,
    T::EndsInZeros,
    T::Garbage,
    T::Damage,
    T::RotateWithoutNext,
    T::NextHalfMade,
];
const ANY_BUT_DAMAGE: &[TailState] = &[
    T::Clean,
    T::TornHeader,
    T::TornMarker,
    T::PayloadMissing,
    T::TornPayload,
    T::ZeroFilled,
    T::EndsInZeros,
    T::Garbage,
    T::RotateWithoutNext,
    T::NextHalfMade,
];
const IN_USE: &[MetaState] = &[
    M::VoteOlder,
    M::CommittedBeyondEnd,
    M::CommittedDiffers,
    M::DurableBeyondEnd,
    M::FloorBeyondEnd,
    M::FloorInside,
    M::VoteNewer,
    M::Agrees,
];
/// The hard state is consistent with the complete entries that are there.
const CONSISTENT: &[MetaState] = &[M::FloorInside, M::VoteNewer, M::Agrees];
const CONSISTENT_OR_CREATING: &[MetaState] =
    &[M::Creating, M::FloorInside, M::VoteNewer, M::Agrees];

/// The recovery table: what opening does for each combination of tail and hard state.
#[rustfmt::skip]
pub const RECOVERY_CASES: &[RecoveryCase] = &[
    RecoveryCase { name: "starting over interrupted", tails: &TailState::ALL, metas: &[M::StartingOver], verdict: Verdict::StartOver },
    RecoveryCase { name: "new log", tails: &[T::NoFiles], metas: &[M::Missing, M::Creating], verdict: Verdict::CreateLog },
    RecoveryCase { name: "log files gone", tails: &[T::NoFiles], metas: IN_USE, verdict: Verdict::RefuseLogMissing },
    RecoveryCase { name: "hard state gone", tails: ANY_FILES, metas: &[M::Missing], verdict: Verdict::RefuseMetaMissing },
    RecoveryCase { name: "first file half made", tails: &[T::NextHalfMade], metas: &[M::Creating], verdict: Verdict::CreateLog },
    RecoveryCase { name: "rotated while being made", tails: &[T::RotateWithoutNext], metas: &[M::Creating], verdict: Verdict::RefuseMetaMissing },
    RecoveryCase { name: "damage in the middle", tails: &[T::Damage], metas: &[M::Creating, M::VoteOlder, M::CommittedBeyondEnd, M::CommittedDiffers, M::DurableBeyondEnd, M::FloorBeyondEnd, M::FloorInside, M::VoteNewer, M::Agrees], verdict: Verdict::RefuseDamage },
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
    RecoveryCase { name: "garbage behind a first file's header", tails: &[T::Garbage], metas: &[M::Creating], verdict: Verdict::CutTail },
    RecoveryCase { name: "garbage tail", tails: &[T::Garbage], metas: CONSISTENT, verdict: Verdict::CutDoubtedTail },
    RecoveryCase { name: "rotated, next file missing", tails: &[T::RotateWithoutNext], metas: CONSISTENT, verdict: Verdict::MakeNextFile },
    RecoveryCase { name: "rotated, next file half made", tails: &[T::NextHalfMade], metas: CONSISTENT, verdict: Verdict::MakeNextFile },
];

/// The row for a combination.
#[must_use]
pub fn judge(tail: TailState, meta: MetaState) -> &'static RecoveryCase {
    let fits = |case: &&RecoveryCase| case.tails.contains(&tail) && case.metas.contains(&meta);
    RECOVERY_CASES
        .iter()
        .find(fits)
        .expect("every combination is in the table")
}

// What the index file may look like beside the files that are there. It follows from the files, so
// it is written anew wherever it differs; but a file that it names and that is gone was lost.

/// The index compared with the files of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexState {
    /// It names exactly the files of the log.
    Agrees,
    /// The index file is not there.
    Missing,
    /// The index file is there and is no list of file names.
    Damaged,
    /// A file of the log is not in it, or one that was purged still is.
    Stale,
    /// It names a file that the log must have and that is gone.
    NamesMissingFile,
}

/// A row of the table.
#[derive(Debug)]
pub struct IndexCase {
    /// What reports and tests call it.
    pub name: &'static str,
    /// The state that it is for.
    pub state: IndexState,
    /// Whether it is written anew; `None` refuses to open.
    pub rewrite: Option<bool>,
}

/// The index table: when opening rewrites the index file; `None` where it refuses to open.
#[rustfmt::skip]
pub const INDEX_CASES: &[IndexCase] = &[
    IndexCase { name: "index agrees", state: IndexState::Agrees, rewrite: Some(false) },
    IndexCase { name: "index missing", state: IndexState::Missing, rewrite: Some(true) },
    IndexCase { name: "index damaged", state: IndexState::Damaged, rewrite: Some(true) },
    IndexCase { name: "file not in index", state: IndexState::Stale, rewrite: Some(true) },
    IndexCase { name: "index names a missing file", state: IndexState::NamesMissingFile, rewrite: None },
];

impl IndexState {
    /// Every state; tests go through all of them.
    pub const ALL: [Self; 5] = [
        Self::Agrees,
        Self::Missing,
        Self::Damaged,
        Self::Stale,
        Self::NamesMissingFile,
    ];

    /// The row for the state.
    #[must_use]
    pub fn case(self) -> &'static IndexCase {
        INDEX_CASES
            .iter()
            .find(|case| case.state == self)
            .expect("every state is in the table")
    }
}

/// Compares the index with the files that make up the log, and names the file that is missing.
pub(super) fn index_state(
    index: Option<&Result<Vec<FileNumber>, IndexDamage>>,
    log: &[FileNumber],
) -> (IndexState, Option<FileNumber>) {
    let listed = match index {
        None => return (IndexState::Missing, None),
        Some(Err(_)) => return (IndexState::Damaged, None),
        Some(Ok(listed)) => listed,
    };
    // What was purged before the log's first file may still be named.
    let gone = listed
        .iter()
        .find(|file| Some(*file) >= log.first() && !log.contains(file));
    if let Some(file) = gone {
        return (IndexState::NamesMissingFile, Some(*file));
    }
    (
        if *listed == log {
            IndexState::Agrees
        } else {
            IndexState::Stale
        },
        None,
    )
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
                assert!(
                    format!("{verdict:?}").starts_with("Refuse"),
                    "{tail:?} with {meta:?}: {verdict:?}"
                );
            }
        }
    }
}

#[cfg(test)]
mod index_cases_tests {
    use super::*;

    #[test]
    fn every_state_is_in_exactly_one_row() {
        for state in IndexState::ALL {
            assert_eq!(
                INDEX_CASES
                    .iter()
                    .filter(|case| case.state == state)
                    .count(),
                1,
                "{state:?}"
            );
        }
    }

    #[test]
    fn states_are_told_apart() {
        let files = |numbers: &[u64]| -> Vec<FileNumber> {
            numbers
                .iter()
                .map(|number| FileNumber::new(*number).unwrap())
                .collect()
        };
        let state =
            |index: &[u64], log: &[u64]| index_state(Some(&Ok(files(index))), &files(log)).0;
        assert_eq!(state(&[3, 4], &[3, 4]), IndexState::Agrees);
        assert_eq!(state(&[3], &[3, 4]), IndexState::Stale);
        assert_eq!(state(&[2, 3, 4], &[3, 4]), IndexState::Stale);
        assert_eq!(state(&[3, 4, 5], &[3, 4]), IndexState::NamesMissingFile);
        assert_eq!(state(&[], &[3]), IndexState::Stale);
        assert_eq!(index_state(None, &files(&[1])).0, IndexState::Missing);
        assert_eq!(
            index_state(Some(&Err(IndexDamage::CutOff)), &files(&[1])).0,
            IndexState::Damaged
        );
    }
}
