//! Keys of row writes: what two writes have in common when their order matters.

mod fold;

pub use fold::Fold;

/// A hash of a table, a key of it, and one value of that key. Two values that the database takes for equal have the same;
/// two others may have, which only costs parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// How a write uses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It depends on it: any number of such writes may go on beside each other (a child row and its parent, any row and
    /// its table).
    Shared,
    /// It takes, changes or frees it.
    Exclusive,
}

/// One key of a row write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyAccess {
    /// The key.
    pub key: KeyHash,
    /// How it is used.
    pub access: Access,
}
