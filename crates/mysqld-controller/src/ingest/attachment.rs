//! Computes where the dump must start, and whether primary and ring belong together. Pure.
//!
//! ```text
//!  ring's log:   ███████████████████░░░░            ░ not committed yet
//!  mysqld:       ████████████████▒▒▒▒▒▒▒▒▒          ▒ in its binlog, waiting for an ACK
//!  told to have: ████████████████                   what both have: in the log, and executed
//! ```
//!
//! A transaction that waits on the primary is never reported as present, even if the ring has it. A dump that skips such a transaction does
//! not acknowledge it (9.7.4), so its session would wait indefinitely. An ACK for a later position would also cover everything before that
//! position, including transactions that the ring lacks or has not committed. So the dump sends the waiting transaction again, and it is
//! acknowledged in its turn.
//!
//! mysqld begins a dump in the newest file whose preceding transactions are all reported as present. Waiting transactions are not listed as
//! preceding a file, so after a rotation mysqld could begin after their file. Therefore one executed transaction is removed from the
//! reported set: its file, and all waiting transactions after it, are sent again.

use binlog_format::gtid::{Gtid, GtidSet, Interval, SourceId, Tag};
use mysqld_server::tail_trim::of_source;
use thiserror::Error;

/// How ring and primary fit together, and which transactions the dump has to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// GTIDs that the dump request reports as present.
    pub have: GtidSet,
    /// Transactions in the log that are sent again because they wait on the primary.
    pub expected_again: GtidSet,
    /// Transactions that the primary executed and the log lacks. Until they arrive, the ring lags.
    pub unproposed: GtidSet,
    /// Transactions that must arrive before any ACK is sent.
    pub awaited: Awaited,
}

/// Why primary and ring do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AttachRefusal {
    /// The ring has committed transactions that the primary lacks.
    #[error(
        "mysqld lacks committed transactions {missing}: it was restored from an old backup, or lost its disk. Reprovision \
         it before it serves clients"
    )]
    PrimaryLacks {
        /// The transactions that the primary lacks.
        missing: GtidSet,
    },
    /// The primary has transactions that it can no longer send.
    #[error(
        "mysqld has purged binlogs with {missing}, which the ring does not have yet, so the ring's log cannot be continued \
         from this server. Make a server that still has them the primary, or create a new ring from this one"
    )]
    PurgedOnPrimary {
        /// The unavailable transactions.
        missing: GtidSet,
    },
    /// The primary assigned GTIDs of the log to other transactions.
    #[error(
        "mysqld has given {again} to other transactions than those that the ring has of it, as after RESET BINARY LOGS AND \
         GTIDS: nothing of it can be derived from what the ring has. Reprovision it from another member"
    )]
    GivenAgain {
        /// The GTIDs that were assigned twice.
        again: GtidSet,
    },
}

/// Earlier observations of this leadership's primary. A GTID of the log that waits on the primary normally is the log's transaction, whose
/// ACK was lost. If the GTID was executed before, or was absent, it is a different transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EarlierLooks {
    executed: GtidSet,
    lacked: GtidSet,
}

impl EarlierLooks {
    /// Compares as [`attach`] does, and also uses the earlier observations.
    ///
    /// # Errors
    /// As [`attach`], and when a GTID was assigned twice.
    pub fn attach(
        &mut self,
        primary: &PrimaryGtids,
        log: &GtidSet,
    ) -> Result<Attachment, AttachRefusal> {
        let had = self.executed.union(&self.lacked);
        let again = log.difference(&primary.executed).intersection(&had);
        let again = again.intersection(&primary.owned);
        self.executed.union_with(&primary.executed);
        if !again.is_empty() {
            return Err(AttachRefusal::GivenAgain { again });
        }
        let compared = attach(primary, log);
        if let Err(AttachRefusal::PrimaryLacks { missing }) = &compared {
            self.lacked.union_with(missing);
        }
        compared
    }
}

/// Compares a primary with the ring's log.
///
/// # Errors
/// When the primary lacks transactions of the ring, or has purged some that the ring lacks.
pub fn attach(primary: &PrimaryGtids, log: &GtidSet) -> Result<Attachment, AttachRefusal> {
    let expected_again = log.difference(&primary.executed);
    let missing = expected_again.difference(&primary.owned);
    if !missing.is_empty() {
        return Err(AttachRefusal::PrimaryLacks { missing });
    }
    let missing = primary.purged.difference(log);
    if !missing.is_empty() {
        return Err(AttachRefusal::PurgedOnPrimary { missing });
    }
    let mut have = log.intersection(&primary.executed);
    if !primary.executed.contains_set(&primary.owned)
        && let Some(before) = last_before_what_waits(&have, primary)
    {
        have.remove(&before);
    }
    Ok(Attachment {
        have,
        expected_again,
        unproposed: primary.executed.difference(log),
        awaited: Awaited::of(primary),
    })
}

/// Returns an executed transaction in a binlog file. All waiting transactions come after it, because its ACK would have released earlier
/// ones. Prefers the server's own last transaction: an earlier one would make mysqld send older files needlessly.
fn last_before_what_waits(have: &GtidSet, primary: &PrimaryGtids) -> Option<Gtid> {
    let in_files = have.difference(&primary.purged);
    let last = in_files
        .intervals()
        .max_by_key(|(source, _, interval)| (*source == primary.server, interval.last()));
    last.map(|(source, tag, interval)| Gtid {
        source,
        tag,
        gno: interval.last(),
    })
}

// Transactions that waited on the primary when an attachment began. They must arrive before anything is acknowledged. Pure.
//
// ```text
//  binlog.3: … 4 5 │ binlog.4: 6      5 waits, the binlog was rotated after it; 4 is executed, 6 is new
//                  └─ a dump of binlog.4 alone: an ACK for 6 would release 5, which no member has
// ```
//
// An ACK covers everything before its position, even transactions that the dump did not send. If the dump begins too late, the skipped
// transactions must not be released. mysqld assigns GTIDs in write order. So when a transaction arrives that is newer than a waiting one,
// the waiting one has arrived or never will.

/// The GTIDs of a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryGtids {
    /// `gtid_executed`: committed in the engine, visible.
    pub executed: GtidSet,
    /// `gtid_owned`: owned by sessions, including those that wait for an ACK.
    pub owned: GtidSet,
    /// `gtid_purged`: executed and no longer in any binlog file.
    pub purged: GtidSet,
    /// The source id in the GTIDs of the primary's own transactions: its `server_uuid`.
    pub server: SourceId,
}

/// The awaited transactions, and the sets that show whether one is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Awaited {
    /// Transactions with GTIDs of the primary itself that are not executed. Such transactions are in its binlog.
    waiting: GtidSet,
    /// GTIDs executed on the primary when the attachment began.
    executed: GtidSet,
    /// GTIDs owned on the primary when the attachment began.
    owned: GtidSet,
}

/// The dump skipped a transaction that waits for an ACK.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "mysqld did not send {missing}, which wait in it for an ACK, and has sent newer ones: its binlog was rotated after them. Nothing \
     is acknowledged, or they would be let through without the ring having them. Kill this mysqld, so that another one becomes the \
     primary"
)]
pub struct NeverSent {
    /// The waiting transactions.
    pub missing: GtidSet,
}

impl Awaited {
    /// Returns the transactions that wait on this primary.
    pub fn of(primary: &PrimaryGtids) -> Self {
        // A session that sets a GTID of another source may own it long before it writes anything.
        let own = of_source(&primary.owned, primary.server);
        let waiting = own.difference(&primary.executed);
        if waiting.is_empty() {
            return Self::default();
        }
        Self {
            waiting,
            executed: primary.executed.clone(),
            owned: primary.owned.clone(),
        }
    }

    /// True if all awaited transactions have arrived.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Records that a transaction arrived.
    ///
    /// # Errors
    /// When the transaction is newer than an awaited one that has not arrived.
    pub fn came(&mut self, gtid: &Gtid) -> Result<(), NeverSent> {
        self.waiting.remove(gtid);
        if self.is_newer(gtid) {
            let missing = self.waiting.clone();
            return Err(NeverSent { missing });
        }
        Ok(())
    }

    /// True if an awaited transaction was written before this one.
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

#[cfg(test)]
mod tests {
    use binlog_format::gtid::SourceId;

    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(intervals: &str) -> GtidSet {
        if intervals.is_empty() {
            GtidSet::new()
        } else {
            format!("{UUID}:{intervals}").parse().unwrap()
        }
    }

    /// Columns: executed, owned and purged GTIDs; the log; then either the reported set, the expected and the unproposed transactions, or
    /// the missing ones. If a transaction waits, the one before it is not reported as present.
    #[test]
    fn where_to_begin() {
        let table = [
            (["", "", ""], "", Ok(["", "", ""])),
            (["1-5", "", ""], "", Ok(["", "", "1-5"])),
            (["1-5", "", ""], "1-3", Ok(["1-3", "", "4-5"])),
            (["1-5", "", "1-3"], "1-3", Ok(["1-3", "", "4-5"])),
            // The ACK for 6 was lost. 7 waits and never reached the ring.
            (["1-5", "6-7", ""], "1-6", Ok(["1-4", "6", ""])),
            // 6 is missing, and 7 follows it.
            (["1-5", "6-7", ""], "1-5:7", Ok(["1-4", "7", ""])),
            // No executed transaction is available any longer.
            (["1-5", "6", "1-5"], "1-5", Ok(["1-5", "", ""])),
            (["1-5", "6", "1-4"], "1-5", Ok(["1-4", "", ""])),
            (["1-5", "6", "1-2"], "1-3", Ok(["1-2", "", "4-5"])),
            (
                ["1-5:blue:1-2", "", ""],
                "1-4:blue:1",
                Ok(["1-4:blue:1", "", "5:blue:2"]),
            ),
            (["1-5", "", ""], "1-6", Err("6")),
            (["1-5", "7", ""], "1-6", Err("6")),
            (["1-5", "", "1-4"], "1-3", Err("4")),
            (["1-5", "", "1-4"], "", Err("1-4")),
        ];
        for ([executed, owned, purged], log, expected) in table {
            let primary = PrimaryGtids {
                executed: set(executed),
                owned: set(owned),
                purged: set(purged),
                server: SourceId(UUID.parse().unwrap()),
            };
            let found = attach(&primary, &set(log)).map_err(|refusal| match refusal {
                AttachRefusal::PrimaryLacks { missing }
                | AttachRefusal::PurgedOnPrimary { missing }
                | AttachRefusal::GivenAgain { again: missing } => missing,
            });
            let expected = expected
                .map(|[have, again, unproposed]| Attachment {
                    have: set(have),
                    expected_again: set(again),
                    unproposed: set(unproposed),
                    awaited: Awaited::of(&primary),
                })
                .map_err(set);
            assert_eq!(found, expected, "{primary:?} {log}");
        }
    }

    #[test]
    fn a_gtid_that_is_given_again_is_another_transaction() {
        let primary = |executed, owned| PrimaryGtids {
            executed: set(executed),
            owned: set(owned),
            purged: GtidSet::new(),
            server: SourceId(UUID.parse().unwrap()),
        };
        let log = set("1-3");
        let given_again = |numbers| {
            Err(AttachRefusal::GivenAgain {
                again: set(numbers),
            })
        };
        let begin = EarlierLooks::default();
        // The ACK for 3 was lost.
        let mut looks = begin.clone();
        assert!(looks.attach(&primary("1-2", "3"), &log).is_ok());
        assert!(looks.attach(&primary("1-2", "3"), &log).is_ok());
        assert!(looks.attach(&primary("1-3", ""), &log).is_ok());
        // The transactions were executed before, and wait now.
        assert_eq!(looks.attach(&primary("", "1-3"), &log), given_again("1-3"));
        // The transactions were absent before, and wait now.
        let mut looks = begin;
        let missing = set("2-3");
        assert_eq!(
            looks.attach(&primary("", "1"), &log),
            Err(AttachRefusal::PrimaryLacks { missing })
        );
        assert_eq!(looks.attach(&primary("", "1-3"), &log), given_again("2-3"));
        // After a restart, the server has another server's data.
        assert!(looks.attach(&primary("1-3", ""), &log).is_ok());
    }

    #[test]
    fn of_what_was_executed_before_what_waits_the_servers_own_last_one_comes_again() {
        const OTHER: &str = "ffffffff-71ca-11e1-9e33-c80aa9429562";
        let other: GtidSet = format!("{OTHER}:1-90").parse().unwrap();
        let executed = set("1-5:blue:1-7").union(&other);
        let primary = PrimaryGtids {
            executed: executed.clone(),
            owned: set("6"),
            purged: GtidSet::new(),
            server: SourceId(UUID.parse().unwrap()),
        };
        let have = attach(&primary, &executed).unwrap().have;
        assert_eq!(executed.difference(&have), set("blue:7"));
        let of_another_time = PrimaryGtids {
            purged: set("1-5:blue:1-7"),
            ..primary
        };
        let have = attach(&of_another_time, &executed).unwrap().have;
        assert_eq!(
            executed.difference(&have).to_string(),
            format!("{OTHER}:90")
        );
    }
}

#[cfg(test)]
mod awaited_tests {
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
            // A session has set its next GTID to this value, and may never commit it.
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
        // The first transaction began after the waiting ones. The second is waiting, and follows another waiting one.
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
