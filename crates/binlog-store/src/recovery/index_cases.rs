//! What the index file may look like beside the files that are there. It follows from the files, so
//! it is written anew wherever it differs; but a file that it names and that is gone was lost.

use crate::format::{FileNumber, IndexDamage};

/// The index compared with the files of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexState {
    /// It names exactly the files of the log.
    Agrees,
    /// There is none.
    Missing,
    /// It cannot be read.
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

/// The table.
#[rustfmt::skip]
pub const INDEX_CASES: &[IndexCase] = &[
    IndexCase { name: "index agrees", state: IndexState::Agrees, rewrite: Some(false) },
    IndexCase { name: "index missing", state: IndexState::Missing, rewrite: Some(true) },
    IndexCase { name: "index damaged", state: IndexState::Damaged, rewrite: Some(true) },
    IndexCase { name: "file not in index", state: IndexState::Stale, rewrite: Some(true) },
    IndexCase { name: "index names a missing file", state: IndexState::NamesMissingFile, rewrite: None },
];

impl IndexState {
    /// All of them.
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
