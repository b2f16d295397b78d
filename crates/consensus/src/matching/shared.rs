//! One follower's [`Knowledge`] between the clients that call it: a lock for a moment, and a signal for
//! who waits for an answer that somebody else will get.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use raft_types::{MemberId, OwnLog};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::knowledge::{Exchange, Knowledge};
use super::reporting::Answered;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shared {
    knowledge: Mutex<Knowledge>,
    changed: Notify,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Knowledge> {
        // Every change leaves it whole.
        self.knowledge
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is known, and lets those know who wait.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Knowledge) -> T) -> T {
        let outcome = change(&mut self.lock());
        self.changed.notify_waiters();
        outcome
    }

    /// Takes in what a real answer says, with the own log as it is now if there is a report to compare.
    pub(super) fn take_in(&self, exchange: &Exchange, answered: &Answered, own: &dyn OwnLog) {
        let theirs = answered.report.as_ref();
        let own = theirs.map(|_| own.report());
        let reports = own.as_ref().zip(theirs);
        self.change(|known| known.learn(exchange, &answered.result, reports));
    }

    /// Ready after the next change; made before one looks.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }
}

/// The followers of one member. Clients come and go, what is known of a follower is one.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers(Arc<Mutex<BTreeMap<MemberId, Arc<Shared>>>>);

impl Followers {
    pub(super) fn of(&self, target: MemberId) -> Arc<Shared> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(target).or_default().clone()
    }
}
