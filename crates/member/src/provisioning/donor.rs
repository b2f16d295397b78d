//! What a recipient needs of the member whose mysqld is copied.

use futures::future::BoxFuture;
use mysqld_controller::provision::{CloneAccount, CloneOffer};
use raft_types::MemberId;

use crate::protocol::Refusal;

/// Another member, beside the mysqld that is copied.
pub trait Donor: Send + Sync {
    /// Its name in the ring.
    fn name(&self) -> &str;

    /// The host at which its mysqld listens.
    fn host(&self) -> &str;

    /// Has it make an account for a copy by `recipient`.
    ///
    /// # Errors
    /// Its refusal, or that it does not answer.
    fn offer(&self, recipient: MemberId) -> BoxFuture<'_, Result<CloneOffer, Refusal>>;

    /// Has it take that account away.
    ///
    /// # Errors
    /// As [`Self::offer`].
    fn withdraw<'a>(&'a self, account: &'a CloneAccount) -> BoxFuture<'a, Result<(), Refusal>>;
}
