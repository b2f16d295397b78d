//! Selects the log files that an archive can serve before a member's own files. Pure: uses only a listing.

use std::collections::{BTreeMap, BTreeSet};

use binlog_store::FileNumber;

use crate::chain::Run;
use crate::name::PieceName;
use crate::storage::Listing;

/// A log file that the archive has completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFile {
    /// The file.
    pub number: FileNumber,
    /// The file's size in bytes, as on a member's disk.
    pub bytes: u64,
    /// The pieces of the file, at least one. Each begins where the previous one ends.
    pub(super) pieces: Vec<PieceName>,
}

impl ArchivedFile {
    /// The file of these pieces, if they are the complete file.
    fn of(pieces: Vec<PieceName>) -> Option<Self> {
        let (first, last) = (pieces.first()?, pieces.last()?);
        let adjoin = pieces
            .windows(2)
            .all(|pair| pair[0].continues_at() == pair[1].begins());
        (first.start == 0 && last.closed && adjoin).then(|| Self {
            number: last.file,
            bytes: last.end,
            pieces: pieces.clone(),
        })
    }
}

/// Why no earlier files are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stops {
    /// There are no earlier files: the archive, or the log, begins here.
    Begins,
    /// This file is missing from the archive, at least in part.
    Gap(FileNumber),
    /// This file is encrypted, and no identity decrypts it.
    Encrypted(FileNumber),
    /// The archive's data on this file are unusable.
    Damaged(FileNumber),
    /// This file belongs to another history than the member's log: the log continues after another entry.
    OtherHistory(FileNumber),
}

/// The files that can be served, gapless up to the member's first file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OlderFiles {
    pub(super) files: BTreeMap<FileNumber, ArchivedFile>,
    pub(super) stops: Stops,
}

impl OlderFiles {
    /// No files.
    pub(super) fn none(stops: Stops) -> Self {
        let files = BTreeMap::new();
        Self { files, stops }
    }

    /// The files before `kept`, from a listing and the runs of its newest history. If `decrypts` is false, encrypted files do not count.
    pub(super) fn before(
        kept: FileNumber,
        runs: &[Run],
        listing: &Listing,
        decrypts: bool,
    ) -> Self {
        let mut of_files: BTreeMap<FileNumber, Vec<PieceName>> = BTreeMap::new();
        for piece in runs.iter().flat_map(|run| &run.pieces) {
            of_files.entry(piece.file).or_default().push(*piece);
        }
        let of_object = |name: &String| {
            let piece = PieceName::of_object(name)?;
            Some((piece, piece.object() != *name))
        };
        let objects: BTreeSet<(PieceName, bool)> = listing.keys().filter_map(of_object).collect();
        // The manifest determines which of two objects counts. If one of them is encrypted, it may be that one.
        let is_encrypted = |piece: &PieceName| objects.contains(&(*piece, true));
        let is_there =
            |piece: &PieceName| is_encrypted(piece) || objects.contains(&(*piece, false));

        let mut older = Self::none(Stops::Begins);
        let mut next = kept;
        while let Some(number) = FileNumber::new(next.get() - 1) {
            let begins = of_files.range(..=number).next().is_none();
            let pieces = of_files.remove(&number).unwrap_or_default();
            let whole = ArchivedFile::of(pieces).filter(|file| file.pieces.iter().all(is_there));
            let Some(file) = whole else {
                // If the archive has neither this file nor an earlier one, it begins after this file.
                if !begins {
                    older.stops = Stops::Gap(number);
                }
                break;
            };
            if !decrypts && file.pieces.iter().any(is_encrypted) {
                older.stops = Stops::Encrypted(number);
                break;
            }
            older.files.insert(number, file);
            next = number;
        }
        older
    }

    /// Removes the first file, which is unusable.
    pub(super) fn begin_after_the_first(&mut self) {
        if let Some((number, _)) = self.files.pop_first() {
            self.stops = Stops::Damaged(number);
        }
    }

    /// The last piece of the file before `number`, if that file is one of these.
    pub(super) fn piece_before(&self, number: FileNumber) -> Option<PieceName> {
        let before = self.files.get(&FileNumber::new(number.get() - 1)?)?;
        before.pieces.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::chain::Pieces;
    use crate::chain::tests::{number, piece};
    use crate::name::Begin;
    use crate::storage::Listed;

    /// A listing of pieces such as `1/7:0-90!`, each with its object. With the prefix `e` the object is encrypted, with `-` it is missing.
    fn listing(text: &str) -> Listing {
        let mut listing = Listing::new();
        let listed = Listed {
            bytes: 1,
            written: SystemTime::UNIX_EPOCH,
        };
        for word in text.split_whitespace() {
            let piece = piece(word.trim_start_matches(['e', '-']));
            listing.insert(piece.manifest(), listed);
            match word.chars().next() {
                Some('e') => listing.insert(piece.encrypted_object(7), listed),
                Some('-') => None,
                _ => listing.insert(piece.object(), listed),
            };
        }
        listing
    }

    fn older(listing: &Listing, kept: u64, decrypts: bool) -> (Vec<u64>, Stops) {
        let pieces = Pieces::of_names(listing.keys());
        let runs = (pieces.newest()).map_or_else(Vec::new, |newest| pieces.history(newest));
        let older = OlderFiles::before(number(kept), &runs, listing, decrypts);
        let files = older.files.values().map(|file| file.number.get()).collect();
        (files, older.stops)
    }

    #[test]
    fn whole_files_without_a_gap_up_to_the_members_own_are_served() {
        let all = "1/1:0-90! 1/2:0-50 1/2:50-80! 1/3:0-70! 1/4:0-10";
        for (text, kept, files, stops) in [
            (all, 4, &[1, 2, 3][..], Stops::Begins),
            (all, 3, &[1, 2], Stops::Begins),
            (all, 1, &[], Stops::Begins),
            // The archive has the fifth file only in part, and the sixth not at all.
            (all, 5, &[], Stops::Gap(number(4))),
            (all, 6, &[], Stops::Gap(number(5))),
            ("", 3, &[], Stops::Begins),
            ("1/5:0-90! 1/6:0-90!", 7, &[5, 6], Stops::Begins),
            (
                "1/1:0-9! 1/3:0-9! 1/4:0-9!",
                5,
                &[3, 4],
                Stops::Gap(number(2)),
            ),
            (
                "1/1:0-9! 1/2:0-5 1/2:6-9! 1/3:0-9!",
                4,
                &[3],
                Stops::Gap(number(2)),
            ),
            ("1/1:0-9! 1/2:4-9! 1/3:0-9!", 4, &[3], Stops::Gap(number(2))),
            // A manifest without its object.
            (
                "1/1:0-9! -1/2:0-9! 1/3:0-9!",
                4,
                &[3],
                Stops::Gap(number(2)),
            ),
        ] {
            let found = older(&listing(text), kept, false);
            assert_eq!(found, (files.to_vec(), stops), "{text} before {kept}");
        }
    }

    #[test]
    fn undecryptable_files_are_not_offered() {
        let mixed = listing("1/1:0-9! e1/2:0-9! 1/3:0-9! 1/4:0-5 e1/4:5-9! 1/5:0-9!");
        let encrypted = |file| Stops::Encrypted(number(file));
        assert_eq!(older(&mixed, 6, false), (vec![5], encrypted(4)));
        assert_eq!(older(&mixed, 4, false), (vec![3], encrypted(2)));
        assert_eq!(older(&mixed, 6, true), (vec![1, 2, 3, 4, 5], Stops::Begins));
    }

    #[test]
    fn pruned_archive_begins_at_its_begin() {
        let mut listing = listing("1/1:0-9! 1/2:0-9! 1/3:0-9!");
        let begin = Begin {
            timeline: crate::name::Timeline::FIRST,
            file: number(2),
        };
        let listed = *listing.values().next().unwrap();
        listing.insert(begin.name(), listed);
        listing.retain(|name, _| !name.contains("binlog.000001/"));
        assert_eq!(older(&listing, 4, false), (vec![2, 3], Stops::Begins));
    }

    #[test]
    fn later_history_replaces_files_of_the_previous_one() {
        let listing = listing("1/1:0-9! 1/2:0-9! 1/3:0-9! 2/2:0-7! 2/3:0-7!");
        let pieces = Pieces::of_names(listing.keys());
        let runs = pieces.history(pieces.newest().unwrap());
        let older = OlderFiles::before(number(4), &runs, &listing, false);
        let of = |file| older.files.get(&number(file)).map(|file| file.bytes);
        assert_eq!((of(1), of(2), of(3)), (Some(9), Some(7), Some(7)));
        assert_eq!(older.piece_before(number(3)), Some(piece("2/2:0-7!")));
        assert_eq!(older.piece_before(number(1)), None);
    }
}
