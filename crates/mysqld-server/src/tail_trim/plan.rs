//! Decides what to do with a crashed server's last binlog file. Pure. Transactions are passed in the file's order.
//!
//! ```text
//! header | committed in the ring … | not committed … | torn
//!                                  ^ the cut
//! ```

use std::fmt;

use binlog_format::gtid::{Gtid, GtidSet, SourceId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::tail_trim::undo::NotUndone;

/// An offset in a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileOffset(pub u64);

impl fmt::Display for FileOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What to do with the last binlog file before mysqld starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Leave the binlog as it is.
    Keep(Keep),
    /// Cut the last file here.
    Cut {
        /// Offset of the first transaction to cut off.
        at: FileOffset,
        /// The transactions in the part that is cut off.
        gtids: GtidSet,
    },
    /// mysqld must not start, and nothing is cut.
    Refuse(Refusal),
}

/// Why the binlog is left unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// No binlog exists, or its last file has no complete header, so it contains no transaction.
    NoTransactions,
    /// The server's options name no existing binlog. Either the server has never written one, or these are not its options.
    NoIndex,
    /// The ring has no transactions of any mysqld, so commits of this server did not wait for the ring.
    RingIsEmpty,
    /// The server closed its last file cleanly: all its transactions are committed in the engines.
    ClosedInOrder,
    /// This member has no record of the start that preceded the file, or another start followed. It is unknown whether commits in the file
    /// waited for the ring.
    NotOurStart,
    /// The ring has committed all transactions in the file.
    AllCommitted,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTransactions => "its last binlog file has no transactions",
            Self::NoIndex => "there is no binlog where its options name one",
            Self::RingIsEmpty => "the ring has not received anything from any mysqld yet",
            Self::ClosedInOrder => "it had closed its last binlog file cleanly",
            Self::NotOurStart => {
                "its last binlog file was not written after a start by this member"
            }
            Self::AllCommitted => "the ring has committed all that is in its last binlog file",
        })
    }
}

/// Why mysqld must not start before an operator acts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Earlier files contain errant transactions, which recovery does not undo.
    #[error(
        "the binlog has transactions in closed files that the ring has not committed ({gtids}): they are errant, and \
         cannot be undone; reprovision this mysqld: `witness reprovision MEMBER --from`"
    )]
    ErrantInClosedFiles {
        /// The errant transactions.
        gtids: GtidSet,
    },
    /// The order of commits shows that they did not wait for the ring.
    #[error(
        "transaction {committed} is committed and follows {uncommitted}, which is not: on this server commits did not wait \
         for the ring; reprovision it: `witness reprovision MEMBER --from`"
    )]
    CommittedBehindUncommitted {
        /// The later transaction, which the ring has.
        committed: Gtid,
        /// The first transaction that the ring lacks.
        uncommitted: Gtid,
    },
    /// A change that a cut of the binlog does not undo.
    #[error(
        "{gtid} is not committed in the ring and cannot be undone: {reason}; reprovision this mysqld: \
         `witness reprovision MEMBER --from`"
    )]
    CannotBeUndone {
        /// The transaction that cannot be undone.
        gtid: Gtid,
        /// The change that a cut does not undo.
        reason: NotUndone,
    },
    /// The last file is encrypted and was in use, so only mysqld can read it.
    #[error(
        "{file} is encrypted and was not closed cleanly, so it is unknown which of its transactions are committed. \
         Reprovision this member (`witness reprovision MEMBER --from`), and set binlog_encryption=OFF to avoid this after \
         the next crash"
    )]
    Encrypted {
        /// Path of the encrypted file.
        file: String,
    },
    /// A transaction without a GTID.
    #[error("{file} has a transaction without a GTID at {at}; set gtid_mode=ON")]
    WithoutGtid {
        /// Path of the file.
        file: String,
        /// Offset of the transaction in the file.
        at: FileOffset,
    },
    /// The file has damage other than the torn end of a crash.
    #[error(
        "{file} is damaged at {at} ({reason}), before its end; examine it with mysqlbinlog, or reprovision this \
         mysqld: `witness reprovision MEMBER --from`"
    )]
    Damaged {
        /// Path of the damaged file.
        file: String,
        /// Offset of the damage in the file.
        at: FileOffset,
        /// The kind of damage.
        reason: String,
    },
}

/// How reading the file ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// Reading ended after complete events, or in a write that the crash interrupted.
    WholeOrTorn,
    /// Reading ended at damage that is followed by more bytes. A power cut leaves such damage in data that were not synced yet. Recovery
    /// does not verify checksums, so the damage must be removed.
    Damaged {
        /// Offset of the damaged transaction, or of the damaged event outside transactions.
        at: FileOffset,
        within: Option<Gtid>,
        /// The result if a transaction that the ring has from this server is damaged or follows the damage.
        refusal: Refusal,
    },
    /// Reading ended with a refusal that holds whatever follows in the file.
    Refused(Refusal),
}

/// Returns the GTIDs that a server assigned itself.
pub fn of_source(gtids: &GtidSet, server: SourceId) -> GtidSet {
    let mut own = GtidSet::new();
    for (source, tag, interval) in gtids.intervals() {
        if source == server {
            own.add_interval(source, tag, interval);
        }
    }
    own
}

/// Computes the plan from the transactions of the last file.
#[derive(Debug)]
pub(super) struct Planner<'a> {
    committed: &'a GtidSet,
    /// The GTIDs of earlier files that the ring lacks.
    errant: GtidSet,
    /// Transactions that the ring has from this server and that were not found yet; `None` if the server's UUID is unknown.
    not_found: Option<GtidSet>,
    own: Option<SourceId>,
    cut: Option<(FileOffset, Gtid)>,
    gone: GtidSet,
    refusal: Option<Refusal>,
}

impl<'a> Planner<'a> {
    /// `committed` are the ring's committed transactions, `previous` those in earlier files, and `own` is the server's UUID.
    pub(super) fn new(committed: &'a GtidSet, previous: &GtidSet, own: Option<SourceId>) -> Self {
        Self {
            own,
            not_found: own.map(|own| of_source(committed, own).difference(previous)),
            committed,
            errant: previous.difference(committed),
            cut: None,
            gone: GtidSet::new(),
            refusal: None,
        }
    }

    /// Records that the next transaction begins. Returns true if the transaction is cut off, so that its events must be checked.
    pub(super) fn begins(&mut self, gtid: Gtid, at: FileOffset) -> bool {
        if let Some(not_found) = &mut self.not_found {
            not_found.remove(&gtid);
        }
        if self.committed.contains(&gtid) {
            if let Some((_, uncommitted)) = self.cut {
                self.refuse(Refusal::CommittedBehindUncommitted {
                    committed: gtid,
                    uncommitted,
                });
            }
            return false;
        }
        self.cut.get_or_insert((at, gtid));
        self.gone.add(gtid);
        true
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }

    /// Returns the plan after the file was read to this ending.
    pub(super) fn finish(mut self, ending: Ending) -> Plan {
        let mut place = self.cut.map(|(at, _)| at);
        match ending {
            Ending::WholeOrTorn => {}
            Ending::Refused(refusal) => self.refuse(refusal),
            Ending::Damaged {
                at,
                within,
                refusal,
            } => match self.is_all_in_front(within) {
                true => place = Some(place.map_or(at, |place| place.min(at))),
                false => self.refuse(refusal),
            },
        }
        let errant = (self.cut.is_some() && !self.errant.is_empty())
            .then_some(Refusal::ErrantInClosedFiles { gtids: self.errant });
        match (errant.or(self.refusal), place) {
            (Some(refusal), _) => Plan::Refuse(refusal),
            (None, None) => Plan::Keep(Keep::AllCommitted),
            (None, Some(at)) => Plan::Cut {
                at,
                gtids: self.gone,
            },
        }
    }

    /// True if all transactions that the ring has from this server were found before the damaged one. The server receives transactions of
    /// other servers again, unless its engines have them with their GTIDs.
    fn is_all_in_front(&self, damaged: Option<Gtid>) -> bool {
        let found = self.not_found.as_ref().is_some_and(GtidSet::is_empty);
        let of_own = |gtid: Gtid| Some(gtid.source) == self.own && self.committed.contains(&gtid);
        found && !damaged.is_some_and(of_own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

    fn set(text: &str) -> GtidSet {
        text.replace("A:", &format!("{A}:")).parse().unwrap()
    }

    fn gtid(text: &str) -> Gtid {
        set(text).iter().next().unwrap()
    }

    fn plan(committed: &str, previous: &str, file: &[&str], ending: Ending) -> Plan {
        let committed = set(committed);
        let own = Some(gtid("A:1").source);
        let mut planner = Planner::new(&committed, &set(previous), own);
        for (place, text) in file.iter().enumerate() {
            let goes = planner.begins(gtid(text), FileOffset(1000 + 100 * place as u64));
            assert_eq!(goes, !committed.contains(&gtid(text)));
        }
        planner.finish(ending)
    }

    fn cut(at: u64, gtids: &str) -> Plan {
        Plan::Cut {
            at: FileOffset(at),
            gtids: set(gtids),
        }
    }

    #[test]
    fn the_first_that_the_ring_lacks_is_the_cut() {
        let all = Plan::Keep(Keep::AllCommitted);
        let table = [
            ("A:1-5", "A:1-3", vec!["A:4", "A:5"], all.clone()),
            ("A:1-5", "A:1-5", vec![], all.clone()),
            // The ring may have more transactions: the last ones, torn here, or those of another server.
            ("A:1-9", "A:1-3", vec!["A:4"], all),
            (
                "A:1-4",
                "A:1-3",
                vec!["A:4", "A:5", "A:6"],
                cut(1100, "A:5-6"),
            ),
            ("A:1-3", "A:1-3", vec!["A:4"], cut(1000, "A:4")),
            // GTIDs with tags, and numbers assigned out of order.
            (
                "A:1-4:tag:1",
                "A:1-3",
                vec!["A:4", "A:tag:1", "A:tag:2", "A:5"],
                cut(1200, "A:5:tag:2"),
            ),
        ];
        for (committed, previous, file, expected) in table {
            let found = plan(committed, previous, &file, Ending::WholeOrTorn);
            assert_eq!(found, expected, "{committed} {previous} {file:?}");
        }
    }

    #[test]
    fn what_cannot_be_proved_is_refused() {
        let errant = Refusal::ErrantInClosedFiles { gtids: set("A:3") };
        assert_eq!(
            plan("A:1-2", "A:1-3", &["A:4"], Ending::WholeOrTorn),
            Plan::Refuse(errant)
        );
        // If nothing is cut, recovery makes no new change.
        assert_eq!(
            plan("A:1-2:4", "A:1-3", &["A:4"], Ending::WholeOrTorn),
            Plan::Keep(Keep::AllCommitted)
        );
        let refused = Refusal::CommittedBehindUncommitted {
            committed: gtid("A:6"),
            uncommitted: gtid("A:4"),
        };
        assert_eq!(
            plan(
                "A:1-3:6",
                "A:1-3",
                &["A:4", "A:5", "A:6"],
                Ending::WholeOrTorn
            ),
            Plan::Refuse(refused)
        );
        let damaged = Refusal::Damaged {
            file: "f".to_owned(),
            at: FileOffset(7),
            reason: "bits".to_owned(),
        };
        for file in [&["A:4"][..], &["A:4", "A:5"]] {
            let ending = Ending::Refused(damaged.clone());
            assert_eq!(
                plan("A:1-4", "A:1-3", file, ending),
                Plan::Refuse(damaged.clone())
            );
        }
        let committed = set("A:1");
        let mut planner = Planner::new(&committed, &GtidSet::new(), None);
        assert!(planner.begins(gtid("A:2"), FileOffset(9)));
        planner.refuse(Refusal::CannotBeUndone {
            gtid: gtid("A:2"),
            reason: NotUndone::NotInBinlog,
        });
        assert!(matches!(
            planner.finish(Ending::WholeOrTorn),
            Plan::Refuse(Refusal::CannotBeUndone { .. })
        ));
    }

    #[test]
    fn damage_is_cut_if_nothing_that_the_ring_has_of_this_server_goes_with_it() {
        let refusal = Refusal::Damaged {
            file: "f".to_owned(),
            at: FileOffset(1250),
            reason: "bits".to_owned(),
        };
        let other = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";
        let foreign = format!("{other}:1");
        let refused = Plan::Refuse(refusal.clone());
        let table = [
            // The damage is between two transactions.
            ("A:1-5", vec!["A:4", "A:5"], None, cut(1250, "")),
            ("A:1-4", vec!["A:4", "A:5"], None, cut(1100, "A:5")),
            ("A:1-6", vec!["A:4", "A:5"], None, refused.clone()),
            ("A:1-3:5", vec!["A:4"], None, refused.clone()),
            // The damage is in the last transaction.
            ("A:1-4", vec!["A:4", "A:5"], Some("A:5"), cut(1100, "A:5")),
            ("A:1-5", vec!["A:4", "A:5"], Some("A:5"), refused),
            (
                "A:1-4",
                vec!["A:4", &foreign],
                Some(&foreign),
                cut(1100, ""),
            ),
        ];
        for (committed, file, within, expected) in table {
            let ending = Ending::Damaged {
                at: FileOffset(if within.is_some() { 1100 } else { 1250 }),
                within: within.map(gtid),
                refusal: refusal.clone(),
            };
            let committed = format!("{committed},{other}:1-9");
            let found = plan(&committed, "A:1-3", &file, ending);
            assert_eq!(found, expected, "{committed} {file:?}");
        }
        let committed = set("A:1");
        let planner = Planner::new(&committed, &committed, None);
        let plan = planner.finish(Ending::Damaged {
            at: FileOffset(9),
            within: None,
            refusal: refusal.clone(),
        });
        assert_eq!(plan, Plan::Refuse(refusal));
    }
}
