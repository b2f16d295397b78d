//! Where a ring's log begins: behind the transactions that the servers had before there was a ring. All members are given the
//! same origin together with the ring, because it stands in the header of the first file, which is the same bytes everywhere.

use serde::{Deserialize, Serialize};

/// The transactions that a ring's log takes as given, a GTID set in MySQL's words. Empty where the log has them all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogOrigin(String);

impl LogOrigin {
    /// Behind these transactions.
    pub fn behind(gtids: impl Into<String>) -> Self {
        Self(gtids.into())
    }

    /// The GTID set.
    pub fn gtids(&self) -> &str {
        &self.0
    }

    /// Whether the log begins with the first transaction of all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
