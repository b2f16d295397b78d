//! The position of an entry in the replicated log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `(term, index)`: unique in a ring, because a term has at most one leader. Shown as `term.index`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct OpId {
    /// The term of the leader that made the entry.
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

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.index)
    }
}

impl FromStr for OpId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text
            .split_once('.')
            .and_then(|(term, index)| Some(Self::new(term.parse().ok()?, index.parse().ok()?)));
        parsed.ok_or_else(|| {
            format!("`{text}` is not an op id; write it as TERM.INDEX, as in 3.1042")
        })
    }
}

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
