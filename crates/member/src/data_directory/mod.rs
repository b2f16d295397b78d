//! What a member keeps in its data directory beside its log.

mod directory_lock;
mod hands_off;
mod identity;

pub(crate) use directory_lock::DirectoryLock;
pub use directory_lock::LockError;
pub(crate) use hands_off::HandsOff;
pub use identity::IdentityFileError;
pub(crate) use identity::{Claim, open_identity};
