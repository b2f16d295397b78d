//! Which sessions of this program are open on the target.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::SessionId;

/// The numbers of the sessions that are open, and of how many sessions each is: a target that was started again gives numbers
/// which sessions have that were lost with it, and those are not all dropped yet.
#[derive(Debug, Default)]
pub(super) struct OpenSessions {
    ids: Mutex<BTreeMap<SessionId, usize>>,
}

impl OpenSessions {
    pub(super) fn add(&self, id: SessionId) {
        *self.lock().entry(id).or_default() += 1;
    }

    pub(super) fn remove(&self, id: SessionId) {
        let mut ids = self.lock();
        match ids.get_mut(&id) {
            Some(sessions) if *sessions > 1 => *sessions -= 1,
            _ => drop(ids.remove(&id)),
        }
    }

    /// All of them but one.
    pub(super) fn but(&self, one: SessionId) -> Vec<SessionId> {
        let ids = self.lock();
        ids.keys().copied().filter(|id| *id != one).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, usize>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_given_again_stays_open_when_the_lost_session_is_dropped() {
        let open = OpenSessions::default();
        let (first, second) = (SessionId(12), SessionId(13));
        open.add(first);
        open.add(second);
        // The target was started again: another worker's new session has the first one's number.
        open.add(first);
        open.remove(first);
        assert_eq!(open.but(second), [first]);
        open.remove(first);
        assert!(open.but(second).is_empty());
        open.remove(first);
        assert_eq!(open.but(first), [second]);
    }
}
