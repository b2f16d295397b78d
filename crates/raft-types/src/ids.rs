//! Identities that are sent between members, and the position of an entry in the log.

use std::str::FromStr;

use derive_more::Display;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

/// Defines a type for one value, which is written in the same way as the value.
macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);
    };
}
pub(crate) use newtype;

newtype! {
    /// A member's number in its ring. Small, chosen by the operator, and never reused for another
    /// data directory: a member that lost its data must return under a new number.
    MemberId(u64)
}

impl From<u64> for MemberId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

newtype! {
    /// The number of a leadership, which has at most one leader.
    Term(u64)
}

/// The name of a member's location. With the default policy, the voters of the leader's region are the data quorum.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Region(pub String);

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        newtype! {
            $(#[$doc])*
            $name(Uuid)
        }

        impl $name {
            /// A new random identity (UUID version 4).
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_newtype! {
    /// The identity of a ring (one replicaset). It is created once, at bootstrap. Every call carries it and every receiver checks it, so
    /// that a member of another ring is refused.
    RingId
}

uuid_newtype! {
    /// The identity of one data directory, created when the directory is first used. The membership records it. So a member with an emptied
    /// data directory is distinguished from the earlier member that had voted.
    Incarnation
}

// The position of an entry in the replicated log.

/// `(term, index)`: unique in a ring, because a term has at most one leader. Shown as `term.index`.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Display,
    Serialize,
    Deserialize,
)]
#[display("{term}.{index}")]
pub struct OpId {
    /// The term of the leader that created the entry.
    pub term: u64,
    /// The entry's index in the log; the first one is 0.
    pub index: u64,
}

impl OpId {
    /// The op id of a term and an index.
    pub const fn new(term: u64, index: u64) -> Self {
        Self { term, index }
    }
}

impl FromStr for OpId {
    type Err = NotAnOpId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text
            .split_once('.')
            .and_then(|(term, index)| Some(Self::new(term.parse().ok()?, index.parse().ok()?)));
        parsed.ok_or_else(|| NotAnOpId(text.to_owned()))
    }
}

/// A text that is not an op id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not an op id; write it as TERM.INDEX, as in 3.1042")]
pub struct NotAnOpId(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let op_id = OpId::new(7, 42);
        assert_eq!(op_id.to_string(), "7.42");
        assert_eq!("7.42".parse(), Ok(op_id));
        assert!("7".parse::<OpId>().is_err());
        assert!("7.x".parse::<OpId>().is_err());
    }
}
