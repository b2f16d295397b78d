//! Tags: an optional name between a GTID's source and its number.

use std::fmt;

use crate::decode_error::DecodeError;

/// Up to 32 letters, digits and underscores that do not begin with a digit; kept in lower case. The
/// empty tag is that of an untagged GTID and sorts first.
// The unused bytes are zero, so that comparing the arrays compares the names.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
}

impl Tag {
    /// The longest tag.
    pub const MAX_LEN: usize = 32;

    /// The empty tag of untagged GTIDs.
    pub const NONE: Self = Self {
        bytes: [0; Self::MAX_LEN],
        len: 0,
    };

    /// The tag of a name, upper case letters lowered.
    ///
    /// # Errors
    /// When the name is too long or has a character that tags may not have. An empty name is the empty tag.
    pub fn new(name: &[u8]) -> Result<Self, DecodeError> {
        let mut tag = Self::NONE;
        let Some(room) = tag.bytes.get_mut(..name.len()) else {
            return Err(DecodeError::invalid(
                "GTID tag",
                "longer than 32 characters",
            ));
        };
        for (at, (to, from)) in room.iter_mut().zip(name).enumerate() {
            *to = match from {
                b'a'..=b'z' | b'_' => *from,
                b'A'..=b'Z' => from.to_ascii_lowercase(),
                b'0'..=b'9' if at > 0 => *from,
                _ => {
                    return Err(DecodeError::invalid(
                        "GTID tag",
                        "a tag has letters, digits and underscores, and does not begin with a digit",
                    ));
                }
            };
        }
        tag.len = u8::try_from(name.len()).unwrap_or_default();
        Ok(tag)
    }

    /// Whether this is the tag of untagged GTIDs.
    pub const fn is_none(&self) -> bool {
        self.len == 0
    }

    /// The name's bytes, all of them ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The name.
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
