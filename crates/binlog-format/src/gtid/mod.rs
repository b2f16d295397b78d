//! Global transaction identifiers and sets of them, with the tags of MySQL 8.3 and later. Sets are ordered by source bytes, then tag, and
//! have merged intervals. So equal sets have equal encodings.

mod forms;
mod set;

use std::fmt;

use uuid::Uuid;

use crate::decode::{DecodeError, invalid};
pub use crate::gtid::forms::{GtidSetFormat, ParseGtidError, parse_gtid_owned, parse_gtid_owners};
pub use crate::gtid::set::{GtidSet, Interval};

// One GTID: source, tag, number.

/// The number of a transaction within its source and tag, from 1 to 2^63 - 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gno(u64);

impl Gno {
    /// The first number of any source and tag: 1.
    pub const MIN: Self = Self(1);
    /// The last number that MySQL assigns: 2^63 - 2.
    pub const MAX: Self = Self(i64::MAX as u64 - 1);

    /// The number, if it is in range; otherwise `None`.
    pub const fn new(number: u64) -> Option<Self> {
        match number >= Self::MIN.0 && number <= Self::MAX.0 {
            true => Some(Self(number)),
            false => None,
        }
    }

    /// The number as a plain integer.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number from a signed integer field.
    pub(crate) fn from_signed(number: i64) -> Result<Self, DecodeError> {
        let number = u64::try_from(number).ok().and_then(Self::new);
        number.ok_or(invalid("GTID number", "outside of 1 to 2^63 - 2"))
    }
}

impl fmt::Display for Gno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A global transaction identifier. Displayed as `source:number` or `source:tag:number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gtid {
    /// UUID of the server that committed the transaction first.
    pub source: SourceId,
    /// The GTID's tag; [`Tag::NONE`] if it has none.
    pub tag: Tag,
    /// The number within the source and tag.
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

// The server on which a transaction originated.

/// A server's UUID, or a UUID that an operator chose for assigned GTIDs. Ordered by bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub Uuid);

impl SourceId {
    /// Number of bytes in the binary form.
    pub const LEN: usize = 16;

    /// Creates a source from its binary form.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The 16 bytes of the UUID.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        self.0.as_bytes()
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

// Tags: an optional name between the source and the number of a GTID.

/// A tag: up to 32 letters, digits and underscores, stored in lower case; the first one is not a digit. An untagged GTID has the empty tag,
/// which sorts first.
// Unused bytes are zero, so comparing the arrays compares the names.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl Tag {
    /// Maximum number of characters in a tag.
    pub const MAX_LEN: usize = 32;

    /// The empty tag of untagged GTIDs.
    pub const NONE: Self = Self {
        bytes: [0; Self::MAX_LEN],
        len: 0,
    };

    /// Creates a tag from a name, which is converted to lower case.
    ///
    /// # Errors
    /// When the name is too long or has an invalid character. An empty name is the empty tag.
    pub fn new(name: &[u8]) -> Result<Self, DecodeError> {
        let mut tag = Self::NONE;
        let Some(room) = tag.bytes.get_mut(..name.len()) else {
            return Err(invalid("GTID tag", "longer than 32 characters"));
        };
        for (at, (to, from)) in room.iter_mut().zip(name).enumerate() {
            *to = match from {
                b'a'..=b'z' | b'_' => *from,
                b'A'..=b'Z' => from.to_ascii_lowercase(),
                b'0'..=b'9' if at > 0 => *from,
                _ => {
                    let reason = "a tag has letters, digits and underscores, and does not begin with a digit";
                    return Err(invalid("GTID tag", reason));
                }
            };
        }
        tag.len = u8::try_from(name.len()).unwrap_or_default();
        Ok(tag)
    }

    /// True for the tag of untagged GTIDs.
    pub const fn is_none(&self) -> bool {
        self.len == 0
    }

    /// The name's bytes, all of them ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The name as text; empty for [`Self::NONE`].
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:?})", self.as_str())
    }
}
