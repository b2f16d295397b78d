//! File numbers, their names, and the index file that lists them. Names and index have MySQL's format: `binlog.000001`, and one
//! `./binlog.000001` per line.

use std::fmt;

use serde::{Deserialize, Serialize};

const STEM: &str = "binlog.";
/// Minimum digits of a number; larger numbers have more.
const MIN_DIGITS: usize = 6;

pub(crate) const INDEX_NAME: &str = "binlog.index";
/// The name of a new index until it replaces the old one.
pub(crate) const INDEX_TEMPORARY_NAME: &str = "binlog.index.new";

/// The number in a log file's name. The first file of a ring's log is 1, and there is always a next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct FileNumber(u64);

impl FileNumber {
    /// The first file of every log: `binlog.000001`.
    pub const FIRST: Self = Self(1);

    /// The file of this number. 0 is invalid, and so is `u64::MAX`, which would have no successor.
    pub const fn new(number: u64) -> Option<Self> {
        match number {
            0 | u64::MAX => None,
            _ => Some(Self(number)),
        }
    }

    /// The number, at least 1.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The file after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The file's name, without a directory: `binlog.000001`.
    pub fn name(self) -> String {
        self.to_string()
    }

    /// The number of a file name; `None` for names that differ from the result of [`Self::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        let digits = name.strip_prefix(STEM)?;
        if digits.len() < MIN_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = Self::new(digits.parse().ok()?)?;
        (number.name() == name).then_some(number)
    }

    /// The numbers of the log files among these names, in order.
    pub(crate) fn sorted(names: &[String]) -> Vec<Self> {
        let numbers = names.iter().filter_map(|name| Self::from_name(name));
        let mut numbers: Vec<Self> = numbers.collect();
        numbers.sort_unstable();
        numbers
    }
}

/// A number that no log file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no log file has the number {0}")]
pub struct InvalidFileNumber(pub u64);

impl TryFrom<u64> for FileNumber {
    type Error = InvalidFileNumber;

    fn try_from(number: u64) -> Result<Self, Self::Error> {
        Self::new(number).ok_or(InvalidFileNumber(number))
    }
}

impl From<FileNumber> for u64 {
    fn from(number: FileNumber) -> Self {
        number.0
    }
}

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STEM}{:0width$}", self.0, width = MIN_DIGITS)
    }
}

/// The index content for these files.
pub(crate) fn render_index(files: impl IntoIterator<Item = FileNumber>) -> Vec<u8> {
    let mut text = String::new();
    for file in files {
        text.push_str("./");
        text.push_str(&file.name());
        text.push('\n');
    }
    text.into_bytes()
}

/// The files in an index, in order; `None` if it is not a list of consecutive files.
pub(crate) fn parse_index(bytes: &[u8]) -> Option<Vec<FileNumber>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let mut files: Vec<FileNumber> = Vec::new();
    for line in bytes.strip_suffix(b"\n")?.split(|byte| *byte == b'\n') {
        let name = std::str::from_utf8(line).ok()?.strip_prefix("./")?;
        let number = FileNumber::from_name(name)?;
        if files.last().is_some_and(|last| last.next() != number) {
            return None;
        }
        files.push(number);
    }
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> FileNumber {
        FileNumber::new(number).unwrap()
    }

    #[test]
    fn names_round_trip() {
        for (number, name) in [
            (1, "binlog.000001"),
            (999_999, "binlog.999999"),
            (1_000_000, "binlog.1000000"),
        ] {
            assert_eq!(file(number).name(), name);
            assert_eq!(FileNumber::from_name(name), Some(file(number)));
        }
    }

    #[test]
    fn other_names_are_not_ours() {
        for name in [
            "binlog.000000",
            "binlog.1",
            "binlog.0000001",
            "binlog.index",
            "binlog.00000a",
            "relay.000001",
            "binlog.",
            "binlog.18446744073709551615",
        ] {
            assert_eq!(FileNumber::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn every_file_number_has_a_successor() {
        let last = file(u64::MAX - 1);
        assert_eq!(FileNumber::new(last.get() + 1), None);
        let index = format!("./{last}\n./{last}\n");
        assert_eq!(parse_index(index.as_bytes()), None);
        for number in [0, u64::MAX] {
            let read = serde_json::from_str::<FileNumber>(&number.to_string());
            assert!(read.is_err(), "{number}");
        }
        assert_eq!(serde_json::to_string(&last).unwrap(), last.0.to_string());
    }

    #[test]
    fn index_has_the_bytes_that_mysql_writes() {
        let bytes = render_index([file(7), file(8)]);
        assert_eq!(bytes, b"./binlog.000007\n./binlog.000008\n");
        assert_eq!(parse_index(&bytes), Some(vec![file(7), file(8)]));
        assert_eq!(parse_index(b""), Some(vec![]));
    }

    #[test]
    fn a_damaged_index_is_none() {
        let damaged: [&[u8]; 5] = [
            b"./binlog.000001",
            b"./binlog.000001\nhello\n",
            b"./binlog.000001\n./binlog.000003\n",
            b"\n",
            &[0xff, b'\n'],
        ];
        for index in damaged {
            assert_eq!(parse_index(index), None, "{}", index.escape_ascii());
        }
    }
}
