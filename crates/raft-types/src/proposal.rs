//! How the engine tells what became of a proposed entry. openraft fixes the type of this answer in
//! its type configuration, so it stands here; who listens is decided where proposals are made.
//! The listener hears of the commit at once, not only after the state machine has applied it.

use std::fmt;

use openraft::RaftTypeConfig;
use openraft::raft::responder::Responder;
use openraft::type_config::alias::LogIdOf;

use crate::op_id::OpId;

/// Hears what became of one proposal. Called inside the engine's own loop: it must neither block
/// nor panic. When it is dropped without a call, the engine has stopped.
pub trait ProposalListener<T>: Send {
    /// The entry is committed under this op id. Called at most once, before [`Self::completed`].
    fn committed(&mut self, op_id: OpId);

    /// The engine is done with the proposal: it was applied, refused or discarded.
    fn completed(self: Box<Self>, result: T);
}

/// The engine's handle on a [`ProposalListener`].
pub struct ProposalResponder<T>(Box<dyn ProposalListener<T>>);

impl<T> ProposalResponder<T> {
    /// A responder that tells `listener`.
    pub fn new(listener: impl ProposalListener<T> + 'static) -> Self {
        Self(Box::new(listener))
    }
}

impl<T> fmt::Debug for ProposalResponder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProposalResponder")
    }
}

impl<C, T> Responder<C, T> for ProposalResponder<T>
where
    C: RaftTypeConfig,
    T: Send + 'static,
    LogIdOf<C>: Into<OpId>,
{
    fn on_commit(&mut self, log_id: LogIdOf<C>) {
        self.0.committed(log_id.into());
    }

    fn on_complete(self, result: T) {
        self.0.completed(result);
    }
}
