//! Gives a mysqld that can no longer follow a copy of another member's data, by MySQL's clone plugin. The *donor* creates an
//! account for this one copy, under a unique name; the *recipient* has its data replaced and is restarted.
//! That account is the proof: it is in the recipient's tables exactly while the copy is there. From before
//! the first removal until that proof a [note](ProvisionNote) on disk blocks all other actions on the server.

mod donor;
mod error;
mod keyring;
mod local_copy;
mod note;
pub(crate) mod other_engines;
mod prepared;
mod recipient;
mod replacement;

pub use crate::provision::donor::{CloneAccount, CloneOffer, NoCloneAccount, offer, withdraw};
pub use crate::provision::error::ProvisionError;
pub use crate::provision::local_copy::{
    CopyUnderWay, LocalCopy, LocalSource, copy_under_way, end_copy, executed, executed_and_applied,
    local_source, ready_for_copies,
};
pub use crate::provision::note::{NoteStep, ProvisionNote};
pub use crate::provision::prepared::{prepared_transactions, roll_back_prepared};
pub use crate::provision::recipient::{
    BeforeALook, CopyState, copy, finish, log_place, look, make_ready, schema_sizes,
};
pub use crate::provision::replacement::execute_instead;
