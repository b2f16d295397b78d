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

use binlog_format::gtid::GtidSet;
use thiserror::Error;

/// The GTIDs of a primary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrimaryGtids {
    /// `gtid_executed`: committed in the engine, visible.
    pub executed: GtidSet,
    /// `gtid_owned`: held by sessions, among them those that wait for an ACK.
    pub owned: GtidSet,
    /// `gtid_purged`: executed and in no binlog any more.
    pub purged: GtidSet,
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
    Ok(Attachment {
        have: log.intersection(&primary.executed),
        expected_again,
        behind: primary.executed.difference(log),
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

    /// executed, owned, purged; log; what comes of it: have, expected again and behind, or what is missing.
    #[test]
    fn where_to_begin() {
        let table = [
            (["", "", ""], "", Ok(["", "", ""])),
            (["1-5", "", ""], "", Ok(["", "", "1-5"])),
            (["1-5", "", ""], "1-3", Ok(["1-3", "", "4-5"])),
            (["1-5", "", "1-3"], "1-3", Ok(["1-3", "", "4-5"])),
            // The ACK for 6 was lost; 7 waits and never reached the ring.
            (["1-5", "6-7", ""], "1-6", Ok(["1-5", "6", ""])),
            // 6 is missing before 7.
            (["1-5", "6-7", ""], "1-5:7", Ok(["1-5", "7", ""])),
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
            };
            let found = attach(&primary, &set(log)).map_err(|refusal| match refusal {
                AttachRefusal::PrimaryLacks { missing }
                | AttachRefusal::PurgedOnPrimary { missing } => missing,
            });
            let expected = expected
                .map(|[have, again, behind]| Attachment {
                    have: set(have),
                    expected_again: set(again),
                    behind: set(behind),
                })
                .map_err(set);
            assert_eq!(found, expected, "{primary:?} {log}");
        }
    }
}
