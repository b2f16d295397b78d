//! Formats: one number for the layout of the calls between members, the log's markers, the hard state and the data
//! directory. A program supports a range of these numbers, so that members of two versions work together.
//! docs/upgrades.md lists the changes of each number.

use std::fmt;
use std::str::FromStr;

use derive_more::Display;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The number of one format.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct FormatVersion(pub u32);

impl FormatVersion {
    /// The first format. Programs without this field, rings that record no format, and directories that never had another format use it.
    pub const FIRST: Self = Self(1);

    /// Returns the next format.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The formats that a program supports: all formats from the oldest to the newest. Written as `1` or `1-2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FormatRange {
    oldest: FormatVersion,
    newest: FormatVersion,
}

impl FormatRange {
    /// The formats that this program supports.
    pub const OF_THIS_PROGRAM: Self = Self::only(FormatVersion::FIRST);

    /// Returns a range of one format.
    pub const fn only(format: FormatVersion) -> Self {
        Self {
            oldest: format,
            newest: format,
        }
    }

    /// Returns a range; `None` if `oldest` is later than `newest`.
    pub fn between(oldest: FormatVersion, newest: FormatVersion) -> Option<Self> {
        (oldest <= newest).then_some(Self { oldest, newest })
    }

    /// Returns the lowest format of the range.
    pub const fn oldest(self) -> FormatVersion {
        self.oldest
    }

    /// Returns the highest format of the range.
    pub const fn newest(self) -> FormatVersion {
        self.newest
    }

    /// Returns true if the range includes `format`.
    pub fn has(self, format: FormatVersion) -> bool {
        (self.oldest..=self.newest).contains(&format)
    }

    /// Returns the format of the range that is nearest to `format`.
    #[must_use]
    pub fn nearest(self, format: FormatVersion) -> FormatVersion {
        format.clamp(self.oldest, self.newest)
    }

    /// Checks whether a program that supports these formats can read the format `found`.
    ///
    /// # Errors
    /// [`FormatMismatch`]; its text names the version of the program to install.
    pub fn check(self, found: FormatVersion) -> Result<(), FormatMismatch> {
        let speaks = self;
        match self.has(found) {
            true => Ok(()),
            false => Err(FormatMismatch { found, speaks }),
        }
    }
}

impl fmt::Display for FormatRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => self.oldest.fmt(f),
            false => write!(f, "{}-{}", self.oldest, self.newest),
        }
    }
}

impl FromStr for FormatRange {
    type Err = NoFormatRange;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (oldest, newest) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse().ok().map(FormatVersion);
        let range = number(oldest).zip(number(newest));
        range
            .and_then(|(oldest, newest)| Self::between(oldest, newest))
            .ok_or_else(|| NoFormatRange(text.to_owned()))
    }
}

/// A text that is not a range of formats.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no range of formats, such as 1 or 1-2")]
pub struct NoFormatRange(String);

impl TryFrom<String> for FormatRange {
    type Error = NoFormatRange;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FormatRange> for String {
    fn from(range: FormatRange) -> Self {
        range.to_string()
    }
}

/// Data is in a format that a program does not support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("format {found}, and this program speaks {speaks}: {}", match *.found > .speaks.newest() {
    true => "install a later version of witness".to_owned(),
    false => format!(
        "install an earlier version of witness that speaks both, and this one when `witness status` says that the ring's format is {}",
        .speaks.oldest()
    ),
})]
pub struct FormatMismatch {
    /// The format that was found.
    pub found: FormatVersion,
    /// The formats that the program supports.
    pub speaks: FormatRange,
}

/// A member's program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Version of `witness`.
    pub version: String,
    /// The formats that the program supports.
    pub formats: FormatRange,
}

impl Program {
    /// The running program.
    pub fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            formats: FormatRange::OF_THIS_PROGRAM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> FormatRange {
        text.parse().unwrap()
    }

    #[test]
    fn a_range_is_read_as_it_is_written() {
        for text in ["1", "1-2", "2-13"] {
            assert_eq!(range(text).to_string(), text);
            let json = serde_json::to_string(&range(text)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(
                serde_json::from_str::<FormatRange>(&json).unwrap(),
                range(text)
            );
        }
        for text in ["", "x", "2-1", "1-", "-1", "1-2-3"] {
            assert!(text.parse::<FormatRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_unsupported_format_names_the_needed_version() {
        let speaks = range("2-3");
        let format = FormatVersion;
        assert_eq!(speaks.check(format(2)).and(speaks.check(format(3))), Ok(()));
        let beyond = speaks.check(format(4)).unwrap_err().to_string();
        assert_eq!(
            beyond,
            "format 4, and this program speaks 2-3: install a later version of witness"
        );
        let before = speaks.check(format(1)).unwrap_err().to_string();
        assert!(before.contains("an earlier version of witness"), "{before}");
        assert!(before.contains("the ring's format is 2"), "{before}");
        let nearest = [1, 2, 3, 4].map(|number| speaks.nearest(format(number)).0);
        assert_eq!(nearest, [2, 2, 3, 3]);
    }
}
