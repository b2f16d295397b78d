//! One running member.

mod directory_lock;
mod identity;

pub use directory_lock::{DirectoryLock, LockError};
pub use identity::{Claim, IdentityFileError, IdentityRecord, open_identity};
