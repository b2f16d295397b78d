//! From where on to ask the primary, and whether primary and ring belong together. Pure.
//!
//! ```text
//!  ring's log:   ███████████████████░░░░            ░ not committed yet
//!  mysqld:       ████████████████▒▒▒▒▒▒▒▒▒          ▒ in its binlog, waiting for an ACK
//!  told to have: ████████████████                   what both have: in the log, and executed
//! ```
//!
//! A transaction that waits on the primary is never said to be there, not even when the ring has it.
//! What a dump passes over is not acknowledged by that (9.7.4), so its session would wait for ever;
//! and if it were, everything before it would be too, also what the ring lacks or has not committed.
//! It comes again instead, and is acknowledged in its turn.
//!
//! mysqld begins a dump in its newest file before which everything is said to be there. What waits is not named among what is before
//! a file, so where the binlog was rotated behind it, that would be the file behind it. Something that was executed before is left out
//! of what is said to be there: the file that has it, and whatever waits behind it, comes again.

use binlog_format::gtid::{Gtid, GtidSet, SourceId};
use thiserror::Error;

use crate::ingest::awaited::Awaited;

/// The GTIDs of a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryGtids {
    /// `gtid_executed`: committed in the engine, visible.
    pub executed: GtidSet,
    /// `gtid_owned`: held by sessions, among them those that wait for an ACK.
    pub owned: GtidSet,
    /// `gtid_purged`: executed and in no binlog any more.
    pub purged: GtidSet,
    /// Whose numbers it gives to its own transactions: its `server_uuid`.
    pub server: SourceId,
}

/// How ring and primary fit together, and what the dump has to bring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// What the dump request says we have.
    pub have: GtidSet,
    /// In the log, and will come again because they wait on the primary.
    pub expected_again: GtidSet,
    /// Executed on the primary, and not in the log: until these have come, the ring is behind.
    pub behind: GtidSet,
    /// What has to come before anything is acknowledged.
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
    /// The primary has more than it can send.
    #[error(
        "mysqld has purged binlogs with {missing}, which the ring does not have yet, so the ring's log cannot be continued \
         from this server. Make a server that still has them the primary, or create a new ring from this one"
    )]
    PurgedOnPrimary {
        /// What cannot be had any more.
        missing: GtidSet,
    },
    /// The primary has numbered other transactions as it had numbered earlier ones.
    #[error(
        "mysqld has given {again} to other transactions than those that the ring has of it, as behind RESET BINARY LOGS AND \
         GTIDS: nothing of it can be told from what the ring has. Reprovision it from another member"
    )]
    GivenAgain {
        /// What is given a second time.
        again: GtidSet,
    },
}

/// What was found at earlier looks at the primary of this leadership. A GTID of the log that waits in the primary is taken for the
/// log's transaction, whose ACK was lost; it is another one if that had been executed before, or was not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EarlierLooks {
    executed: GtidSet,
    lacked: GtidSet,
}

impl EarlierLooks {
    /// [`attach`], with what is remembered.
    ///
    /// # Errors
    /// As [`attach`], and when a GTID was given again.
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
/// When the primary lacks what the ring has, or has purged what the ring lacks.
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

/// Something executed that is in a file, and so before whatever waits: an ACK for it would have let that through, too. Of the server's
/// own ones the last, since files before the one that has it come again for nothing.
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
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(intervals: &str) -> GtidSet {
        if intervals.is_empty() {
            GtidSet::new()
        } else {
            format!("{UUID}:{intervals}").parse().unwrap()
        }
    }

    /// executed, owned, purged; log; what comes of it: have, expected again and behind, or what is missing. Where something waits, what
    /// is before it is not said to be there.
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
            // Nothing that is executed can be had any more.
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
        // They were not there, and wait.
        let mut looks = begin;
        let missing = set("2-3");
        assert_eq!(
            looks.attach(&primary("", "1"), &log),
            Err(AttachRefusal::PrimaryLacks { missing })
        );
        assert_eq!(looks.attach(&primary("", "1-3"), &log), given_again("2-3"));
        // Another server's data behind a restart.
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
