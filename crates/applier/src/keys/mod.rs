//! Keys of row writes: what two writes have in common when their order matters.

mod fold;
mod hash;
mod row_keys;
mod table_keys;

pub use fold::Fold;
pub use hash::KeyHash;
pub use row_keys::RowKeys;
pub use table_keys::{KeyColumnMissing, TableKeys};

/// How a write uses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
