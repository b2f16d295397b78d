//! The transactions, with the results that the clients received.

/// A list, by its number.
pub type List = u64;
/// An appended value, unique over all lists.
pub type Value = u64;

/// An operation of a transaction on a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The transaction appended a value.
    Append(List, Value),
    /// The transaction read a list; the values are in the order of the list.
    Read(List, Vec<Value>),
}

/// A transaction's outcome as reported to its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was acknowledged. Only reads of acknowledged transactions are checked.
    Committed,
    /// The transaction certainly had no effect.
    Failed,
    /// The client received no answer.
    Unknown,
}

/// Where a transaction ran. The place determines what its reads must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// At the primary: the transaction must read all appends that were acknowledged before it began.
    Primary,
    /// At the follower with this number: the transaction must read a prefix that is no older than earlier reads at the same follower.
    Follower(u64),
}

/// A transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// When the client began the transaction. All clients use one clock, in any unit.
    pub began: u64,
    /// When the client received the answer or stopped waiting for it.
    pub ended: u64,
    /// The outcome as reported to the client.
    pub outcome: Outcome,
    /// The server on which the transaction ran.
    pub access: Access,
    /// The operations, in order.
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
