//! Incoming connections: the calling member of each, and the end of a member's last one. A leader's exiting process closes its connections,
//! so that followers need not wait for missing heartbeats.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use raft_types::MemberId;

/// Connection number, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// Whether a calling member already had an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    First,
    Known,
}

/// All open connections, with the member that calls over each, once known.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    callers: BTreeMap<ConnectionId, Option<MemberId>>,
}

impl Connections {
    /// Records a new connection.
    pub(crate) fn opens(&self) -> ConnectionId {
        let mut open = self.lock();
        open.next += 1;
        let id = ConnectionId(open.next);
        open.callers.insert(id, None);
        id
    }

    /// Records a member's call over a connection. If the connection is still open, `heard` receives whether the member had no other open
    /// one. This is ordered with the end of the last connection, so that earlier calls of a dead process do not count as a sign of life.
    pub(crate) fn calls(&self, id: ConnectionId, caller: MemberId, heard: impl FnOnce(Arrival)) {
        let mut open = self.lock();
        let known = open.callers.values().any(|other| *other == Some(caller));
        if let Some(of_this) = open.callers.get_mut(&id) {
            *of_this = Some(caller);
            heard(match known {
                true => Arrival::Known,
                false => Arrival::First,
            });
        }
    }

    /// Records a closed connection. If it was a member's last one, `hung_up` receives the member.
    pub(crate) fn closes(&self, id: ConnectionId, hung_up: impl FnOnce(MemberId)) {
        let mut open = self.lock();
        let caller = open.callers.remove(&id).flatten();
        let last = caller.filter(|_| !open.callers.values().any(|other| *other == caller));
        if let Some(caller) = last {
            hung_up(caller);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Each change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_member_hangs_up_with_the_last_connection_over_which_it_called() {
        let connections = Connections::default();
        let [urgent, bulk, stranger, silent] = [(); 4].map(|()| connections.opens());
        use Arrival::{First, Known};
        let heard = RefCell::new(Vec::new());
        let calls = |id, caller| {
            connections.calls(id, MemberId(caller), |arrival| {
                heard.borrow_mut().push(arrival);
            });
        };
        calls(urgent, 1);
        calls(bulk, 1);
        calls(stranger, 2);
        let mut gone = Vec::new();
        let mut closes = |id| {
            connections.closes(id, |member| gone.push(member));
            gone.clone()
        };
        assert_eq!(closes(silent), []);
        assert_eq!(closes(bulk), [], "the other one is open");
        assert_eq!(closes(urgent), [MemberId(1)]);
        assert_eq!(*heard.borrow(), [First, Known, First]);
        // A call read before the end, and processed only now.
        calls(urgent, 1);
        assert_eq!(*heard.borrow(), [First, Known, First]);
        assert_eq!(closes(urgent), [MemberId(1)], "once");
        let again = connections.opens();
        calls(again, 1);
        assert_eq!(*heard.borrow(), [First, Known, First, First]);
        assert_eq!(closes(stranger), [MemberId(1), MemberId(2)]);
    }
}
