//! Decides when mysqld must be killed and restarted for the ring. Pure. The guard ([`crate::read_fence`]) handles readers of a primary
//! if its member hangs or is dead. The supervisor handles kills during an ordered stop.

use std::time::Duration;

use mysqld_server::supervisor::UNASKED_STOP;

use crate::plan::facts::{Applier, Facts, Kill, Writers};
use crate::ring::Leading;

/// How long a server that refuses every login is left running in the present role; `None`: indefinitely.
pub(super) fn borne_with(facts: &Facts) -> Option<Duration> {
    match facts.leading {
        Leading::Elsewhere(_) => Some(facts.lockout.elsewhere),
        Leading::Serving(_) if !facts.takes_in => facts.lockout.leading,
        Leading::Serving(_) | Leading::Silent(_) | Leading::No(_) => None,
    }
}

/// True if commits that no leader will acknowledge wait in the server, so that it cannot be closed for writes.
pub(super) fn is_stuck(facts: &Facts) -> bool {
    facts.can_restart && Writers::of(&facts.write_fence, facts.seen()) == Writers::Stuck
}

/// True if commits in the server wait for an ACK, and a restart can end them.
pub(super) fn waits_for_ack(facts: &Facts) -> bool {
    facts.can_restart && facts.sessions_wait
}

/// True if commits wait although the server is closed for writes. They do not end without a kill, and no applier can begin before they end.
/// `super_read_only` does not prevent `XA COMMIT`, so one may begin after the close of a planned switchover.
pub(super) fn waits_though_closed(facts: &Facts) -> bool {
    let closed = Writers::of(&facts.write_fence, facts.seen()) == Writers::None;
    let failed = matches!(facts.applier, Applier::Failed(_));
    waits_for_ack(facts) && closed && failed
}

/// True if the server has refused every login for too long. Any other unreachable server is left alone.
///
/// In 9.7.4, a statement about accounts that waits for its ACK causes this: it holds the lock that every login needs. If the member has no
/// dump, it cannot start one, so the ACK can never be sent. The member also sees no waiting commit, so [`Writers::Stuck`] does not arise.
/// Only a kill ends this state.
///
/// The kill is safe, whatever the reason for the refused logins. It is like a crash. No client received OK for a commit that waits in the
/// server: only a leader's dump delivers ACKs, and here another member leads, or this one has no dump. The next start cuts off what the
/// ring has not committed at that time, and recovers the rest (decision 24).
///
/// The server is left alone in two cases. While no quorum answers this member, its dump may still run. While no leader is known, the next
/// start cannot learn what is committed. A wrong verdict, for example on a machine that hangs for the whole patience, costs one recovery of
/// a server that neither takes writes for the ring nor follows it.
pub(super) fn is_locked_out(facts: &Facts) -> bool {
    let is_over = |(so_far, patience)| so_far >= patience;
    let over = facts.locked_out.zip(borne_with(facts)).is_some_and(is_over);
    facts.can_restart && over && !facts.follows()
}

/// True if the applier waits for locks of an XA-prepared transaction. Such a transaction keeps every lock that its client took while this
/// server was the primary. Its end is in the log after the transactions that wait for those locks. After a restart it has only the locks on
/// changed rows, as on all other servers.
///
/// A kill requires that this or another member leads, because the next start must learn what is committed.
pub(super) fn waits_for_prepared(facts: &Facts) -> bool {
    let leads = matches!(facts.leading, Leading::Elsewhere(_) | Leading::Serving(_));
    facts.can_restart && facts.held_up_by_prepared && leads && facts.follows()
}

/// Returns the kill for a `SHUTDOWN` or `RESTART` by SQL on a primary whose commits wait for the ring. mysqld would complete these commits
/// without an ACK, return OK to their clients, and close its binlog file cleanly, so that nothing is ever cut. About ten seconds before
/// that, mysqld closes its sessions and stops listening, while the member's dump continues. If the ring does not have all transactions
/// after [`UNASKED_STOP`], mysqld is killed.
pub(super) fn unasked_stop(facts: &Facts) -> Option<Kill> {
    let over = facts.ending.is_some_and(|ending| ending >= UNASKED_STOP);
    (facts.can_restart && facts.runs && facts.waits && over).then_some(Kill::UnaskedStop)
}

impl Kill {
    /// Returns the reason, for the log and the status.
    pub(crate) fn in_words(self, leading: Leading) -> &'static str {
        match (self, leading) {
            (Self::LockedOut, _) => {
                "no login succeeds; an account statement probably waits for an ACK that can no longer come"
            }
            (Self::Stuck, Leading::Serving(_)) => {
                "its commits wait for an ACK, and it must catch up with the ring first"
            }
            (Self::Stuck, _) => {
                "its commits wait for an ACK, and the primary is now beside another member"
            }
            (Self::HeldUpByPrepared, _) => {
                "a transaction that XA has prepared keeps locks of its session, what the ring has waits for them, and a start ends them"
            }
            (Self::UnaskedStop, _) => {
                "it is shutting down, this member did not ask for it, and commits that still wait for the ring would be reported as successful"
            }
        }
    }
}
