//! The server on which a transaction originated.

use std::fmt;

use uuid::Uuid;

/// A server's UUID, or a UUID that an operator chose for assigned GTIDs. Ordered by its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub Uuid);

impl SourceId {
    /// Bytes in the binary form.
    pub const LEN: usize = 16;

    /// The source of the binary form.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The binary form.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        self.0.as_bytes()
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}
