//! Names of pieces: everything that says whether the archive has a gap is in them, so that a listing is enough.

use std::fmt;

use binlog_store::{FileNumber, LogPlace};
use serde::{Deserialize, Serialize};

/// What the names of all objects of a ring's log begin with.
pub const LOG_FOLDER: &str = "log/";
const MANIFEST: &str = ".json";
const CLOSED: &str = "closed";

/// A history of the ring's log. A repair of a lost quorum may give entries up that the archive has already; the ring's log goes
/// on from there as another one, and so does the archive, from the beginning of the file in which they part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timeline(pub u32);

impl Timeline {
    /// That of a ring whose log was never cut back.
    pub const FIRST: Self = Self(1);

    /// The one that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}", self.0)
    }
}

/// Which bytes of the log a piece has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PieceName {
    /// The history of the log.
    pub timeline: Timeline,
    /// The file.
    pub file: FileNumber,
    /// The first byte of the file that it has.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// Whether it ends with the file, behind which the next one begins.
    pub closed: bool,
}

impl PieceName {
    /// Whether it has its whole file.
    #[must_use]
    pub const fn is_whole_file(&self) -> bool {
        self.start == 0 && self.closed
    }

    /// Where it begins.
    #[must_use]
    pub const fn begins(&self) -> LogPlace {
        LogPlace {
            file: self.file,
            offset: self.start,
        }
    }

    /// Where the log goes on behind it.
    #[must_use]
    pub const fn goes_on(&self) -> LogPlace {
        if self.closed {
            LogPlace {
                file: self.file.next(),
                offset: 0,
            }
        } else {
            LogPlace {
                file: self.file,
                offset: self.end,
            }
        }
    }

    /// The name of its manifest, below the folder of the ring.
    #[must_use]
    pub fn manifest(&self) -> String {
        format!("{self}{MANIFEST}")
    }

    /// The piece whose manifest has this name; `None` for names that are not exactly those that [`Self::manifest`] gives.
    #[must_use]
    pub fn of_manifest(name: &str) -> Option<Self> {
        let stem = name.strip_prefix(LOG_FOLDER)?.strip_suffix(MANIFEST)?;
        let mut parts = stem.split('/');
        let (timeline, file, range) = (parts.next()?, parts.next()?, parts.next()?);
        let mut numbers = range.split('-');
        let (start, end) = (numbers.next()?, numbers.next()?);
        let piece = Self {
            timeline: Timeline(timeline.parse().ok()?),
            file: FileNumber::from_name(file)?,
            start: start.parse().ok()?,
            end: end.parse().ok()?,
            closed: numbers.next() == Some(CLOSED),
        };
        (piece.start < piece.end && piece.manifest() == name).then_some(piece)
    }
}

/// Its objects' names without what tells them apart.
impl fmt::Display for PieceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            timeline,
            file,
            start,
            end,
            closed,
        } = self;
        write!(f, "{LOG_FOLDER}{timeline}/{file}/{start:016}-{end:016}")?;
        if *closed {
            write!(f, "-{CLOSED}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn a_piece() -> impl Strategy<Value = PieceName> {
        let numbers = (any::<u32>(), 1..u64::MAX, any::<u64>(), any::<u64>());
        (numbers, any::<bool>()).prop_filter_map(
            "no bytes",
            |((timeline, file, start, end), closed)| {
                let piece = PieceName {
                    timeline: Timeline(timeline),
                    file: FileNumber::new(file)?,
                    start,
                    end,
                    closed,
                };
                (start < end).then_some(piece)
            },
        )
    }

    proptest! {
        #[test]
        fn a_name_says_which_piece_it_is(piece in a_piece()) {
            prop_assert_eq!(PieceName::of_manifest(&piece.manifest()), Some(piece));
        }

        #[test]
        fn names_of_others_are_passed_over(name in ".*") {
            if let Some(piece) = PieceName::of_manifest(&name) {
                prop_assert_eq!(piece.manifest(), name);
            }
        }
    }

    #[test]
    fn names_are_in_the_order_of_the_log() {
        let piece = |file, start, end, closed| PieceName {
            timeline: Timeline::FIRST,
            file: FileNumber::new(file).unwrap(),
            start,
            end,
            closed,
        };
        let in_order = [
            piece(7, 0, 900, false),
            piece(7, 900, 10_000, false),
            piece(7, 10_000, 10_050, true),
            piece(8, 0, 5, false),
        ];
        let names = in_order.map(|piece| piece.manifest());
        assert!(names.is_sorted());
        assert_eq!(
            names[2],
            "log/00000001/binlog.000007/0000000000010000-0000000000010050-closed.json"
        );
        for other in [
            "log/00000001/binlog.000007/0000000000010000-0000000000010050-closed.zst",
            "log/00000001/binlog.000007/10000-10050.json",
            "log/00000001/binlog.000007/0000000000010000-0000000000010000.json",
            "log/00000001/binlog.7/0000000000010000-0000000000010050.json",
            "base/1.json",
        ] {
            assert_eq!(PieceName::of_manifest(other), None, "{other}");
        }
    }
}
