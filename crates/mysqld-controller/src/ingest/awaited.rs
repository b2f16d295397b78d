//! Transactions that waited in the primary when an attachment began, and have to arrive before anything is acknowledged. Pure.
//!
//! ```text
//!  binlog.3: … 4 5 │ binlog.4: 6      5 waits, the binlog was rotated behind it; 4 is executed, 6 is new
//!                  └─ a dump of binlog.4 alone: an ACK for 6 would let 5 through, which nobody was given
//! ```
//!
//! An ACK covers everything before its position, whether the dump has sent it or not. Where the dump begins too late, skipped transactions
//! must not be let through. mysqld assigns GTIDs in write order: after a transaction newer than one that waited at the start, that one has
//! arrived or never will.

use binlog_format::gtid::{Gtid, GtidSet, Interval, SourceId, Tag};
use thiserror::Error;

/// The GTIDs of a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryGtids {
    /// `gtid_executed`: committed in the engine, visible.
    pub executed: GtidSet,
    /// `gtid_owned`: held by sessions, among them those that wait for an ACK.
    pub owned: GtidSet,
    /// `gtid_purged`: executed and no longer in any binlog file.
    pub purged: GtidSet,
    /// Source of the GTIDs of its own transactions: its `server_uuid`.
    pub server: SourceId,
}

/// The awaited transactions, and the sets that show when one is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Awaited {
    /// Numbered by the primary itself, so in its binlog, and not executed.
    waiting: GtidSet,
    /// GTIDs executed on the primary when the attachment began.
    executed: GtidSet,
    /// GTIDs owned there by then.
    owned: GtidSet,
}

/// The dump skipped a transaction that waits for an ACK.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "mysqld did not send {missing}, which wait in it for an ACK, and has sent newer ones: its binlog was rotated behind them. Nothing \
     is acknowledged, or they would be let through without the ring having them. Kill this mysqld, so that another one becomes the \
     primary"
)]
pub struct NeverSent {
    /// The waiting transactions.
    pub missing: GtidSet,
}

impl Awaited {
    /// The transactions that wait in this primary.
    pub fn of(primary: &PrimaryGtids) -> Self {
        let waiting = of_source(&primary.owned, primary.server).difference(&primary.executed);
        if waiting.is_empty() {
            return Self::default();
        }
        Self {
            waiting,
            executed: primary.executed.clone(),
            owned: primary.owned.clone(),
        }
    }

    /// Whether all have arrived.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Records that a transaction arrived.
    ///
    /// # Errors
    /// When it is newer than an awaited one that has not arrived.
    pub fn came(&mut self, gtid: &Gtid) -> Result<(), NeverSent> {
        self.waiting.remove(gtid);
        match self.is_newer(gtid) {
            false => Ok(()),
            true => Err(NeverSent {
                missing: self.waiting.clone(),
            }),
        }
    }

    /// Whether an awaited transaction was written before it.
    fn is_newer(&self, gtid: &Gtid) -> bool {
        if self.is_over() || self.executed.contains(gtid) {
            return false;
        }
        let lower = |(source, tag, interval): (SourceId, Tag, Interval)| {
            (source, tag) == (gtid.source, gtid.tag) && interval.first() < gtid.gno
        };
        !self.owned.contains(gtid) || self.waiting.intervals().any(lower)
    }
}

/// The GTIDs that a server assigned itself. A session that sets a GTID of its own choice owns it long before anything is written.
fn of_source(gtids: &GtidSet, server: SourceId) -> GtidSet {
    let mut own = GtidSet::new();
    for (source, tag, interval) in gtids.intervals() {
        if source == server {
            own.add_interval(source, tag, interval);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const OTHER: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

    fn set(source: &str, numbers: &str) -> GtidSet {
        format!("{source}:{numbers}").parse().unwrap()
    }

    fn gtid(source: &str, number: u32) -> Gtid {
        set(source, &number.to_string()).iter().next().unwrap()
    }

    #[test]
    fn a_newer_one_tells_that_what_waits_does_not_come() {
        let primary = PrimaryGtids {
            executed: set(SERVER, "1-4"),
            // A session has set its next GTID to this, and may never commit it.
            owned: set(SERVER, "5-6").union(&set(OTHER, "1")),
            purged: GtidSet::new(),
            server: gtid(SERVER, 1).source,
        };
        let begin = Awaited::of(&primary);
        let mut awaited = begin.clone();
        for known in [gtid(SERVER, 4), gtid(OTHER, 1)] {
            assert_eq!(awaited.came(&known), Ok(()));
            assert!(!awaited.is_over());
        }
        // The first began after the waiting ones; the second waits itself, after another.
        let refused = awaited.clone().came(&gtid(SERVER, 7)).unwrap_err();
        assert_eq!(refused.missing, set(SERVER, "5-6"));
        let refused = awaited.came(&gtid(SERVER, 6)).unwrap_err();
        assert_eq!(refused.missing, set(SERVER, "5"));

        let mut awaited = begin;
        awaited.came(&gtid(SERVER, 5)).unwrap();
        awaited.came(&gtid(SERVER, 6)).unwrap();
        assert!(awaited.is_over());
        awaited.came(&gtid(SERVER, 7)).unwrap();
    }
}
