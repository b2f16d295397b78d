//! One GTID: source, tag, number.

use std::fmt;

use crate::decode_error::DecodeError;
use crate::gtid::{SourceId, Tag};

/// The number of a transaction within its source and tag, from 1 to 2^63 - 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gno(u64);

impl Gno {
    /// The first number.
    pub const MIN: Self = Self(1);
    /// The last number.
    pub const MAX: Self = Self(i64::MAX as u64 - 1);

    /// The number, when it is in range.
    pub const fn new(number: u64) -> Option<Self> {
        if number >= Self::MIN.0 && number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of a field that holds it as a signed integer.
    pub(crate) fn from_signed(number: i64) -> Result<Self, DecodeError> {
        u64::try_from(number)
            .ok()
            .and_then(Self::new)
            .ok_or(DecodeError::invalid(
                "GTID number",
                "outside of 1 to 2^63 - 2",
            ))
    }
}

impl fmt::Display for Gno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A global transaction identifier. Shown as `source:number` or `source:tag:number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gtid {
    /// Where the transaction originated.
    pub source: SourceId,
    /// Its tag, [`Tag::NONE`] when it has none.
    pub tag: Tag,
    /// Its number within source and tag.
    pub gno: Gno,
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tag.is_none() {
            write!(f, "{}:{}", self.source, self.gno)
        } else {
            write!(f, "{}:{}:{}", self.source, self.tag, self.gno)
        }
    }
}
