//! The recipient's interface to the member whose mysqld is copied.

use futures::future::BoxFuture;
use mysqld_server::provision::{CloneAccount, CloneOffer};
use raft_types::MemberId;

use crate::protocol::Refusal;

/// The donor member.
pub trait Donor: Send + Sync {
    /// The donor's name in the ring.
    fn name(&self) -> &str;

    /// The host of its mysqld.
    fn host(&self) -> &str;

    /// Makes it create an account for a copy by `recipient`.
    ///
    /// # Errors
    /// Its refusal, or that it does not answer.
    fn offer(&self, recipient: MemberId) -> BoxFuture<'_, Result<CloneOffer, Refusal>>;

    /// Makes it remove that account.
    ///
    /// # Errors
    /// As [`Self::offer`].
    fn withdraw<'a>(&'a self, account: &'a CloneAccount) -> BoxFuture<'a, Result<(), Refusal>>;
}
