//! Transactions as their clients saw them.

/// A list, by its number.
pub type List = u64;
/// An appended value, unique over all lists.
pub type Value = u64;

/// An operation of a transaction on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It appended a value.
    Append(List, Value),
    /// It read a list, with these values in this order.
    Read(List, Vec<Value>),
}

/// A transaction's outcome as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was acknowledged. Its reads count only with this outcome.
    Committed,
    /// It certainly had no effect.
    Failed,
    /// No answer.
    Unknown,
}

/// Where a transaction ran, which determines the promises for its reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// At the primary: it sees everything acknowledged before it began.
    Primary,
    /// At a follower, by its number: it sees a prefix that is no older than earlier reads there.
    Follower(u64),
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its begin at the client, by one clock for all clients, in any unit.
    pub began: u64,
    /// When its client received the answer, or gave up waiting.
    pub ended: u64,
    /// Its outcome as its client knows it.
    pub outcome: Outcome,
    /// Where it ran.
    pub access: Access,
    /// Its operations, in order.
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
