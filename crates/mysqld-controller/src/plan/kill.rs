//! When mysqld is killed for the ring's sake, and started again: pure. Readers of a primary whose member is gone are the guard's
//! ([`crate::read_fence`]); what is killed on the way of an ordered stop, the supervisor's.

use std::time::Duration;

use crate::leading::Leading;
use crate::plan::facts::{Applier, Facts, Kill, Writers};

/// How long the ring has from the moment in which a stop that nobody asked for was seen. mysqld gives waiting sessions ten
/// seconds; it may be seen late.
pub(crate) const UNASKED_STOP: Duration = Duration::from_secs(2);

/// For how long a server that lets nobody in is borne with here; `None`: for ever.
pub(super) fn borne_with(facts: &Facts) -> Option<Duration> {
    match facts.leading {
        Leading::Elsewhere(_) => Some(facts.lockout.elsewhere),
        Leading::Serving(_) if !facts.takes_in => facts.lockout.leading,
        Leading::Serving(_) | Leading::Silent(_) | Leading::No(_) => None,
    }
}

/// Whether commits wait in it that nobody acknowledges any more, so that it cannot be closed for writes.
pub(super) fn is_stuck(facts: &Facts) -> bool {
    facts.can_restart && Writers::of(&facts.write_fence, facts.seen()) == Writers::Stuck
}

/// Whether commits wait for an ACK in it, and a start ends them.
pub(super) fn waits_for_ack(facts: &Facts) -> bool {
    facts.can_restart && facts.sessions_wait
}

/// Whether commits wait in it although it is closed for writes, and no applier can begin before they have ended, which they do not
/// by themselves. `super_read_only` stops no `XA COMMIT`, so that one may begin behind the close of a planned switchover.
pub(super) fn waits_though_closed(facts: &Facts) -> bool {
    let closed = Writers::of(&facts.write_fence, facts.seen()) == Writers::None;
    let failed = matches!(facts.applier, Applier::Failed(_));
    waits_for_ack(facts) && closed && failed
}

/// A server that cannot be seen is left alone, but for one that lets nobody log in. In 9.7.4 that is what a statement about
/// accounts does while it waits for its ACK: it holds the lock that every login takes. A member that has no dump then gets none,
/// so that the ACK can never be sent, and sees no commit that waits, so that [`Writers::Stuck`] does not come about: nothing but a
/// kill ends it.
///
/// The kill is safe, whatever the reason for which nobody is let in. It is a crash. Nobody was told that what waits in the
/// server is committed: an ACK comes from a leader's dump only, and here another member leads, or this one has no dump. What the
/// ring has committed of it is recovered by the next start, and the rest is cut off before (decision 24), by what the ring says
/// then. While no quorum answers this member, its dump may still run; while nobody is known to lead, nobody says what is
/// committed, which the next start needs: then the server is left alone. A wrong verdict, as on a machine that is held up for the
/// whole patience, costs one recovery of a server that neither takes writes for the ring nor follows it.
pub(super) fn is_locked_out(facts: &Facts) -> bool {
    let applies = matches!(facts.applier, Applier::Applying(_));
    let over = match (facts.locked_out.filter(|_| !applies), borne_with(facts)) {
        (Some(so_far), Some(patience)) => so_far >= patience,
        _ => false,
    };
    facts.can_restart && over
}

/// A transaction that XA has prepared keeps every lock that its client took while this server was the primary, and the log's end of it
/// stands behind what waits for them. A start gives back the locks on changed rows alone, as the transaction has them at all other
/// servers. To be asked only while what the next start needs is known: where another member leads, or this one.
pub(super) fn waits_for_prepared(facts: &Facts) -> bool {
    let leads = matches!(facts.leading, Leading::Elsewhere(_) | Leading::Serving(_));
    facts.can_restart && facts.held_up_by_prepared && leads && facts.follows()
}

/// `SHUTDOWN` or `RESTART` by SQL at a primary whose commits wait for the ring: mysqld would let them through without an ACK,
/// tell their clients OK, and close its binlog file in good order, so that nothing of it is ever cut. It closes its sessions
/// and listens no more some ten seconds before that, while our dump goes on; if the ring does not have all of them by then,
/// it is killed.
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
