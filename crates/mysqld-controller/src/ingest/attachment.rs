//! The start position of the dump, and whether primary and ring belong together. Pure.
//!
//! ```text
//!  ring's log:   ███████████████████░░░░            ░ not committed yet
//!  mysqld:       ████████████████▒▒▒▒▒▒▒▒▒          ▒ in its binlog, waiting for an ACK
//!  told to have: ████████████████                   what both have: in the log, and executed
//! ```
//!
//! A transaction that waits on the primary is never reported as present, even when the ring has it. A dump that skips it does not
//! acknowledge it (9.7.4), so its session would wait indefinitely. An ACK would also cover everything before it, including what the ring
//! lacks or has not committed. Instead the dump sends it again, and it is acknowledged in its turn.
//!
//! mysqld begins a dump in the newest file whose preceding transactions are all reported as present. Waiting transactions are not listed as
//! preceding a file, so after a rotation that could be the file after theirs. Therefore one executed transaction is left out of the
//! reported set: its file, and all waiting ones after it, are sent again.

use binlog_format::gtid::{Gtid, GtidSet};
use thiserror::Error;

use crate::ingest::awaited::{Awaited, PrimaryGtids};

/// How ring and primary fit together, and which transactions the dump has to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// GTIDs that the dump request reports as present.
    pub have: GtidSet,
    /// In the log, and sent again because they wait on the primary.
    pub expected_again: GtidSet,
    /// Executed on the primary, and not in the log: until they arrive, the ring lags.
    pub behind: GtidSet,
    /// Transactions that have to arrive before anything is acknowledged.
    pub awaited: Awaited,
}

/// Primary and ring do not belong together.
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
    /// The primary has assigned earlier GTIDs to other transactions.
    #[error(
        "mysqld has given {again} to other transactions than those that the ring has of it, as behind RESET BINARY LOGS AND \
         GTIDS: nothing of it can be told from what the ring has. Reprovision it from another member"
    )]
    GivenAgain {
        /// The GTIDs that were assigned twice.
        again: GtidSet,
    },
}

/// Earlier observations of this leadership's primary. A GTID of the log that waits in the primary counts as the log's transaction with a
/// lost ACK. It is another one if the GTID had been executed before, or was absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EarlierLooks {
    executed: GtidSet,
    lacked: GtidSet,
}

impl EarlierLooks {
    /// [`attach`], with the earlier observations.
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
        behind: primary.executed.difference(log),
        awaited: Awaited::of(primary),
    })
}

/// An executed transaction in a binlog file. All waiting ones come after it: its ACK would have let earlier ones through. Prefers the
/// server's own last one: an earlier one would make mysqld send older files needlessly.
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

    /// executed, owned, purged; log; the result: have, expected again and behind, or the missing ones. Where a transaction waits, the one
    /// before it is not reported as present.
    #[test]
    fn where_to_begin() {
        let table = [
            (["", "", ""], "", Ok(["", "", ""])),
            (["1-5", "", ""], "", Ok(["", "", "1-5"])),
            (["1-5", "", ""], "1-3", Ok(["1-3", "", "4-5"])),
            (["1-5", "", "1-3"], "1-3", Ok(["1-3", "", "4-5"])),
            // The ACK for 6 was lost; 7 waits and never reached the ring.
            (["1-5", "6-7", ""], "1-6", Ok(["1-4", "6", ""])),
            // 6 is missing before 7.
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
                .map(|[have, again, behind]| Attachment {
                    have: set(have),
                    expected_again: set(again),
                    behind: set(behind),
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
        // The ACK of 3 was lost.
        let mut looks = begin.clone();
        assert!(looks.attach(&primary("1-2", "3"), &log).is_ok());
        assert!(looks.attach(&primary("1-2", "3"), &log).is_ok());
        assert!(looks.attach(&primary("1-3", ""), &log).is_ok());
        // They were executed, and wait again.
        assert_eq!(looks.attach(&primary("", "1-3"), &log), given_again("1-3"));
        // They were absent, and wait.
        let mut looks = begin;
        let missing = set("2-3");
        assert_eq!(
            looks.attach(&primary("", "1"), &log),
            Err(AttachRefusal::PrimaryLacks { missing })
        );
        assert_eq!(looks.attach(&primary("", "1-3"), &log), given_again("2-3"));
        // Another server's data after a restart.
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
