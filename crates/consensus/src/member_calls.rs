//! Calls between members that are not the engine's own. The transport implements them.

use futures::future::BoxFuture;
use raft_types::{MemberId, MemberRecord};
use thiserror::Error;

use crate::leadership::Term;

/// Calls that one member makes to another.
pub trait MemberCalls: Send + Sync + 'static {
    /// Asks a voter to campaign for a term after `term`, in which the caller leads and has given up.
    fn ask_to_campaign<'a>(
        &'a self,
        to: MemberId,
        record: &'a MemberRecord,
        term: Term,
    ) -> BoxFuture<'a, Result<(), CallError>>;
}

/// A call that failed or was refused, in words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CallError(pub String);
