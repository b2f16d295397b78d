//! Transactions, as their clients saw them.

/// A list, by its number.
pub type List = u64;
/// What is appended; no value is appended twice, to whatever list.
pub type Value = u64;

/// What a transaction did to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It appended a value.
    Append(List, Value),
    /// It read a list, and saw these values in this order.
    Read(List, Vec<Value>),
}

/// What the client knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged. What it read counts with this outcome alone.
    Committed,
    /// It was certainly not done.
    Failed,
    /// Nobody said.
    Unknown,
}

/// Where a transaction ran, and what its reads are promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// At the primary: it sees all that was acknowledged before it began.
    Primary,
    /// At a follower, by its number: it sees a prefix, and no older one than what was read there before it began.
    Follower(u64),
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// When its client began it, by one clock for all clients, in any unit.
    pub began: u64,
    /// When its client had the answer, or gave up waiting.
    pub ended: u64,
    /// What its client knows of it.
    pub outcome: Outcome,
    /// Where it ran.
    pub access: Access,
    /// What it did, in order.
    pub operations: Vec<Operation>,
}

impl Transaction {
    pub(crate) fn appends(&self) -> impl Iterator<Item = (List, Value)> {
        self.operations.iter().filter_map(|one| match one {
            Operation::Append(list, value) => Some((*list, *value)),
            Operation::Read(..) => None,
        })
    }

    pub(crate) fn reads(&self) -> impl Iterator<Item = (List, &[Value])> {
        self.operations.iter().filter_map(|one| match one {
            Operation::Append(..) => None,
            Operation::Read(list, values) => Some((*list, values.as_slice())),
        })
    }
}
