//! When the ring requires mysqld to be killed and restarted: pure. The guard ([`crate::read_fence`]) handles readers of a primary
//! without its member; the supervisor handles kills during an ordered stop.

use std::time::Duration;

use mysqld_server::supervisor::UNASKED_STOP;

use crate::plan::facts::{Applier, Facts, Kill, Writers};
use crate::ring::Leading;

/// How long a server that refuses every login is tolerated here; `None`: indefinitely.
pub(super) fn borne_with(facts: &Facts) -> Option<Duration> {
    match facts.leading {
        Leading::Elsewhere(_) => Some(facts.lockout.elsewhere),
        Leading::Serving(_) if !facts.takes_in => facts.lockout.leading,
        Leading::Serving(_) | Leading::Silent(_) | Leading::No(_) => None,
    }
}

/// Whether commits wait in it that no leader will acknowledge, so that it cannot be closed for writes.
pub(super) fn is_stuck(facts: &Facts) -> bool {
    facts.can_restart && Writers::of(&facts.write_fence, facts.seen()) == Writers::Stuck
}

/// Whether commits wait for an ACK in it, and a start ends them.
pub(super) fn waits_for_ack(facts: &Facts) -> bool {
    facts.can_restart && facts.sessions_wait
}

/// True if commits wait although it is closed for writes; they do not end by themselves, and no applier can begin before.
/// `super_read_only` stops no `XA COMMIT`: one may begin after the close of a planned switchover.
pub(super) fn waits_though_closed(facts: &Facts) -> bool {
    let closed = Writers::of(&facts.write_fence, facts.seen()) == Writers::None;
    let failed = matches!(facts.applier, Applier::Failed(_));
    waits_for_ack(facts) && closed && failed
}

/// An unreachable server is left alone, except one that refuses every login. In 9.7.4 a statement about accounts causes that while
/// it waits for its ACK: it holds the lock that every login takes. A member without a dump then gets none, so the ACK can never be
/// sent. It also sees no waiting commit, so [`Writers::Stuck`] does not arise: only a kill ends it.
///
/// The kill is safe, whatever the reason for the refused logins. It is like a crash. No client received OK for a commit that
/// waits in the server: only a leader's dump delivers ACKs, and here another member leads, or this one has no dump. The next start
/// recovers what the ring has committed, after it cuts off the rest (decision 24), according to the ring at that time.
/// While no quorum answers this member, its dump may still run. While no leader is known, the next start cannot learn what is
/// committed: then the server is left alone. A wrong verdict, as on a machine that hangs for the whole patience, costs one
/// recovery of a server that neither takes writes for the ring nor follows it.
pub(super) fn is_locked_out(facts: &Facts) -> bool {
    let is_over = |(so_far, patience)| so_far >= patience;
    let over = facts.locked_out.zip(borne_with(facts)).is_some_and(is_over);
    facts.can_restart && over && !facts.follows()
}

/// An XA-prepared transaction keeps every lock that its client took while this server was the primary. Its end is in the log after the
/// transactions that wait for those locks. A restart keeps only the locks on changed rows, as at all other servers.
/// Call this only while the next start's inputs are known: where another member leads, or this one.
pub(super) fn waits_for_prepared(facts: &Facts) -> bool {
    let leads = matches!(facts.leading, Leading::Elsewhere(_) | Leading::Serving(_));
    facts.can_restart && facts.held_up_by_prepared && leads && facts.follows()
}

/// `SHUTDOWN` or `RESTART` by SQL at a primary whose commits wait for the ring: mysqld would complete them without an ACK,
/// return OK to their clients, and close its binlog file cleanly, so that nothing of it is ever cut. Some ten seconds before that it
/// closes its sessions and stops listening, while our dump continues. If the ring does not have all of them by then, it is killed.
pub(super) fn unasked_stop(facts: &Facts) -> Option<Kill> {
    let over = facts.ending.is_some_and(|ending| ending >= UNASKED_STOP);
    (facts.can_restart && facts.runs && facts.waits && over).then_some(Kill::UnaskedStop)
}

impl Kill {
    /// For the log and the status.
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
