//! One follower's [`Knowledge`], shared by the clients that call the follower. A lock is held only for a short time. A signal wakes clients
//! that wait for the answer to another client's request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use raft_types::{Incarnation, MemberId, OwnLog, lock};
use tokio::sync::Notify;

use crate::log_probe::Answered;
use crate::log_probe::knowledge::{Exchange, Knowledge};

/// One follower's knowledge, shared by the clients that call the follower.
#[derive(Debug, Default)]
pub(super) struct Shared {
    knowledge: Mutex<Knowledge>,
    /// Notifies the waiting clients. A client begins to wait before it checks the knowledge.
    pub(super) changed: Notify,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Knowledge> {
        // A poisoned lock is used too, because every change leaves the knowledge consistent.
        lock(&self.knowledge)
    }

    /// Changes the knowledge, and wakes the waiting clients.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Knowledge) -> T) -> T {
        let outcome = change(&mut self.lock());
        self.changed.notify_waiters();
        outcome
    }

    /// Records a real answer. If it has a report, the current own log is compared with it.
    pub(super) fn take_in(&self, exchange: &Exchange, answered: &Answered, own: &dyn OwnLog) {
        let theirs = answered.report.as_ref();
        let own = theirs.map(|_| own.report());
        let reports = own.as_ref().zip(theirs);
        self.change(|known| known.learn(exchange, &answered.result, reports));
    }
}

/// The followers of one member. A follower has one knowledge, shared by all its clients, also later ones. Another data directory under the
/// same number begins without knowledge.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers(Arc<Mutex<BTreeMap<MemberId, Follower>>>);

type Follower = (Incarnation, Arc<Shared>);

impl Followers {
    pub(super) fn of(&self, target: MemberId, incarnation: Incarnation) -> Arc<Shared> {
        let mut known = lock(&self.0);
        let unknown = || (incarnation, Arc::default());
        let follower = known.entry(target).or_insert_with(unknown);
        if follower.0 != incarnation {
            *follower = unknown();
        }
        follower.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use raft_types::LogId;
    use raft_types::OpId;
    use raft_types::Vote;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn another_data_directory_under_the_same_number_starts_without_knowledge() {
        let (first, second) = (Incarnation::random(), Incarnation::random());
        let (five, vote) = (MemberId(5), Vote::new_committed(3, MemberId(1)));
        let followers = Followers::default();
        let known = followers.of(five, first);
        known.change(|known| {
            let exchange = known.begin(&vote, Instant::now());
            let matched = LogId::from(OpId::new(3, 9));
            known.learn(&exchange, &Ok(Some(matched)), None);
        });
        assert!(!followers.of(five, first).lock().is_blank(&vote));
        assert!(followers.of(five, second).lock().is_blank(&vote));
    }
}
