//! Gives a mysqld that cannot follow any more a copy of another member's data, by MySQL's clone plugin. The *donor* makes an
//! account for this one copy, under a name that nobody else has; the *recipient* has its data replaced and is started again.
//! That account is the proof: it is in the recipient's tables when the copy is there, and at no other moment. From before
//! anything is removed to that proof a [note](ProvisionNote) on disk keeps everybody's hands off the server.

mod account;
mod clone_plugin;
mod donor;
mod error;
mod note;
mod recipient;

pub use account::CloneAccount;
pub use donor::{CloneOffer, offer, withdraw};
pub use error::ProvisionError;
pub use note::{NoteStep, ProvisionNote};
pub use recipient::{CopyState, Survey, copy, finish, log_place, look, make_ready, survey};
