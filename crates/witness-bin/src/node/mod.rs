//! One running member.

mod directory_lock;
mod founding;
mod identity;
mod portrait;

pub use directory_lock::{DirectoryLock, LockError};
pub use founding::{FoundingCalls, FoundingError, configured_members, prepare_ring};
pub use identity::{Claim, IdentityFileError, IdentityRecord, open_identity};
