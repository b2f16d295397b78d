//! Names of pieces. A listing of the names is sufficient to detect gaps.

use std::fmt;

use binlog_store::{FileNumber, LogPlace};
use serde::{Deserialize, Serialize};

/// Name prefix of all objects of a ring's log.
pub const LOG_FOLDER: &str = "log/";
const MANIFEST: &str = ".json";
const CLOSED: &str = "closed";
/// Name suffix of an object with a piece's bytes.
const COMPRESSED: &str = ".zst";
const ENCRYPTED: &str = ".age";
/// Number of hexadecimal digits in the unique number of an encrypted object.
const NUMBER_DIGITS: usize = 32;
const BEGINS: &str = "begins.json";

/// Why a text of the archive cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct Malformed {
    text: String,
    expected: &'static str,
}

impl Malformed {
    /// The error for a text, with a description of the expected form.
    pub fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            expected,
        }
    }
}

/// A history of the ring's log. A repair after a lost quorum may discard archived entries. The log and the archive then continue with
/// another history, from the start of the file in which the two histories diverge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timeline(pub u32);

impl Timeline {
    /// The history of a log that was never truncated.
    pub const FIRST: Self = Self(1);

    /// The next history.
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}", self.0)
    }
}

/// The log range of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PieceName {
    /// The history of the log.
    pub timeline: Timeline,
    /// The file.
    pub file: FileNumber,
    /// Offset of the first byte in the file.
    pub start: u64,
    /// End offset in the file, exclusive.
    pub end: u64,
    /// Whether the piece ends with its file, after which the next file begins.
    pub closed: bool,
}

impl PieceName {
    /// True if the piece is its whole file.
    pub const fn is_whole_file(&self) -> bool {
        self.start == 0 && self.closed
    }

    /// The position at which the piece begins.
    pub const fn begins(&self) -> LogPlace {
        LogPlace::new(self.file, self.start)
    }

    /// The position at which the log continues after the piece.
    pub const fn continues_at(&self) -> LogPlace {
        if self.closed {
            LogPlace::new(self.file.next(), 0)
        } else {
            LogPlace::new(self.file, self.end)
        }
    }

    /// The name of the piece's manifest, below the ring's folder.
    pub fn manifest(&self) -> String {
        format!("{self}{MANIFEST}")
    }

    /// The piece of a manifest name; `None` unless [`Self::manifest`] produces exactly that name.
    pub fn of_manifest(name: &str) -> Option<Self> {
        Self::of_stem(name.strip_suffix(MANIFEST)?)
    }

    /// The name of the object with the piece's bytes, below the ring's folder.
    pub fn object(&self) -> String {
        format!("{self}{COMPRESSED}")
    }

    /// The name of an object with the piece's encrypted bytes. Each encryption yields other bytes, so each object has its own number. So
    /// neither a concurrent archiver of the piece nor a delayed write replaces an object that a manifest names.
    pub fn encrypted_object(&self, number: u128) -> String {
        format!("{self}-{number:0NUMBER_DIGITS$x}{COMPRESSED}{ENCRYPTED}")
    }

    /// The piece of an object name; `None` for names that are not exactly one of these forms.
    pub fn of_object(name: &str) -> Option<Self> {
        let Some(name) = name.strip_suffix(ENCRYPTED) else {
            return Self::of_stem(name.strip_suffix(COMPRESSED)?);
        };
        let (stem, number) = name.strip_suffix(COMPRESSED)?.rsplit_once('-')?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_number = number.len() == NUMBER_DIGITS && number.bytes().all(is_digit);
        Self::of_stem(stem).filter(|_| is_number)
    }

    /// Parses a name without its suffix.
    fn of_stem(name: &str) -> Option<Self> {
        let stem = name.strip_prefix(LOG_FOLDER)?;
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
        (piece.start < piece.end && piece.to_string() == name).then_some(piece)
    }
}

/// The common part of the names of the piece's objects.
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

/// The begin of a pruned archive. Everything before this file, in this history and earlier ones, is no longer part of the archive, even if
/// it is not deleted yet.
///
/// The begin is stored as an object name, which never changes. If there are several, the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Begin {
    /// The newest history when the archive was pruned.
    pub timeline: Timeline,
    /// The first file that stays.
    pub file: FileNumber,
}

impl Begin {
    /// The name of its object, below the ring's folder.
    pub fn name(&self) -> String {
        format!("{LOG_FOLDER}{}/{}/{BEGINS}", self.timeline, self.file)
    }

    /// Parses an object name; `None` unless [`Self::name`] produces exactly that name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(LOG_FOLDER)?.split('/');
        let (timeline, file) = (parts.next()?, parts.next()?);
        let begin = Self {
            timeline: Timeline(timeline.parse().ok()?),
            file: FileNumber::from_name(file)?,
        };
        (begin.name() == name).then_some(begin)
    }
}

/// The kind of an object in an archive's log, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    /// The manifest of a piece.
    Manifest(PieceName),
    /// The bytes of a piece.
    Object(PieceName),
    /// The begin of the archive.
    Begin(Begin),
}

impl Named {
    /// Parses an object name; `None` for names outside an archive's log.
    pub fn of(name: &str) -> Option<Self> {
        let manifest = PieceName::of_manifest(name).map(Self::Manifest);
        manifest
            .or_else(|| PieceName::of_object(name).map(Self::Object))
            .or_else(|| Begin::of_name(name).map(Self::Begin))
    }

    /// The history and file of the object.
    pub const fn file(&self) -> (Timeline, FileNumber) {
        match self {
            Self::Manifest(piece) | Self::Object(piece) => (piece.timeline, piece.file),
            Self::Begin(begin) => (begin.timeline, begin.file),
        }
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
        fn object_name_identifies_its_piece(piece in a_piece()) {
            prop_assert_eq!(PieceName::of_manifest(&piece.manifest()), Some(piece));
            prop_assert_eq!(PieceName::of_object(&piece.object()), Some(piece));
        }

        #[test]
        fn each_name_is_of_one_kind(piece in a_piece(), number in any::<u128>()) {
            let begin = Begin { timeline: piece.timeline, file: piece.file };
            let file = (piece.timeline, piece.file);
            for (name, named) in [
                (piece.manifest(), Named::Manifest(piece)),
                (piece.object(), Named::Object(piece)),
                (piece.encrypted_object(number), Named::Object(piece)),
                (begin.name(), Named::Begin(begin)),
            ] {
                prop_assert_eq!(Named::of(&name), Some(named), "{}", name);
                prop_assert_eq!(named.file(), file);
            }
        }

        #[test]
        fn foreign_names_are_ignored(name in ".*") {
            if let Some(piece) = PieceName::of_manifest(&name) {
                prop_assert_eq!(piece.manifest(), name);
            }
        }
    }

    #[test]
    fn inexact_object_names_are_ignored() {
        let stem = "log/00000001/binlog.000007/0000000000000000-0000000000000050-closed";
        let number = "0123456789abcdef0123456789abcdef";
        assert!(PieceName::of_object(&format!("{stem}-{number}.zst.age")).is_some());
        for other in [
            format!("{stem}.zst.age"),
            format!("{stem}-{number}.zst"),
            format!("{stem}-{}.zst.age", &number[1..]),
            format!("{stem}-{}.zst.age", number.to_uppercase()),
            format!("{stem}.json"),
            "log/00000001/binlog.000007/begins.zst".to_owned(),
            "log/00000001/binlog.7/begins.json".to_owned(),
            "log/1/binlog.000007/begins.json".to_owned(),
        ] {
            assert_eq!(PieceName::of_object(&other), None, "{other}");
            assert_eq!(Begin::of_name(&other), None, "{other}");
        }
    }

    #[test]
    fn piece_names_sort_in_log_order() {
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
