//! Which sessions of this program are open on the target.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::backend::SessionId;

/// The numbers of the sessions that are open.
#[derive(Debug, Default)]
pub(super) struct OpenSessions {
    ids: Mutex<BTreeSet<SessionId>>,
}

impl OpenSessions {
    pub(super) fn add(&self, id: SessionId) {
        self.ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
    }

    pub(super) fn remove(&self, id: SessionId) {
        self.ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
    }

    /// All of them but one.
    pub(super) fn but(&self, one: SessionId) -> Vec<SessionId> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.iter().copied().filter(|id| *id != one).collect()
    }
}
