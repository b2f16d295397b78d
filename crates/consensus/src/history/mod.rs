//! The ring's history in its log: leaders, operator orders, truncations and repairs. It is stored in the membership, in one member's
//! record. So it is the same on every member, survives a log purge, and reaches joining members with the log. Only the newest entries are
//! kept.

pub(crate) mod notes;
pub(crate) mod noting;

use std::collections::BTreeMap;

use raft_types::{FormatVersion, MemberId, MemberKind, MemberRecord, OpId, Term, UnixSeconds};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One event in the ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Milliseconds since 1970, UTC, by the clock of the recording member.
    pub at_ms: u64,
    /// The term in which it was recorded; for a leadership, its own term.
    pub term: Term,
    /// The initiator named in the order; empty without an order.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The event.
    #[serde(flatten)]
    pub event: HistoryEvent,
}

impl HistoryEntry {
    /// Its position among the others: see [`append`].
    fn place(&self) -> (Term, u64) {
        (self.term, self.at_ms)
    }
}

/// A member with its name at the time of the event: it may have been removed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Its number.
    pub id: MemberId,
    /// Its name at that time.
    pub name: String,
}

impl Named {
    /// A member with its current name.
    pub fn of(id: MemberId, record: &MemberRecord) -> Self {
        let name = record.name.clone();
        Self { id, name }
    }
}

/// Events of a ring. Events of a later version are kept and shown as [`HistoryEvent::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HistoryEvent {
    /// The ring was bootstrapped.
    Bootstrapped {
        /// The initial number of members.
        members: usize,
    },
    /// A member began to lead: a witness when it served, a database member when clients could write.
    Led {
        /// The new leader.
        leader: Named,
        /// Whether it has a mysqld.
        kind: MemberKind,
        /// The end of its log at that moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_end: Option<OpId>,
        /// Milliseconds since the previous leader's last call; `None` if the member had received none since its start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leaderless_ms: Option<u64>,
        /// False if a database member's mysqld was still not open for client writes.
        writable: bool,
    },
    /// A leader transferred the leadership on purpose.
    GaveAway {
        /// The previous leader.
        from: Named,
        /// The new leader; the entry's term is its term.
        to: Named,
        /// The reason as text; empty for an order.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A member joined the ring.
    Added {
        /// The new member.
        member: Named,
    },
    /// A member was permanently removed.
    Removed {
        /// The removed member.
        member: Named,
    },
    /// A member's record was changed.
    Updated {
        /// The member with its new name.
        member: Named,
    },
    /// The quorum rules were changed.
    RulesSet {
        /// The new policy.
        policy: String,
    },
    /// Failover was paused, or the terms of its pause changed.
    Paused {
        /// The member whose place as the primary is reserved.
        primary: Named,
        /// End of the pause; `None`: until resumed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<UnixSeconds>,
        /// The operator's reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The pause ended.
    Resumed,
    /// A switchover was scheduled.
    Scheduled {
        /// The next leader.
        to: Named,
        /// The earliest time.
        at: UnixSeconds,
    },
    /// A scheduled switchover was cancelled or abandoned.
    Unscheduled {
        /// The reason if abandoned; empty if an operator cancelled it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A permanently lost quorum was repaired.
    Repaired {
        /// The survivor.
        survivor: Named,
        /// The end of its log; later entries may be lost.
        log_end: Option<OpId>,
    },
    /// Transactions that the ring never committed were truncated from a mysqld's binlog.
    Trimmed {
        /// The member of that mysqld.
        member: Named,
        /// How many transactions.
        transactions: u64,
    },
    /// A mysqld's data were replaced by a copy of another's.
    Provisioned {
        /// The member of that mysqld.
        member: Named,
        /// The member whose mysqld was copied.
        donor: Named,
    },
    /// Every member supported it, and the leader raised the ring's format.
    FormatRaised {
        /// The new format.
        to: FormatVersion,
    },
    /// Clients could no longer write to a member's mysqld. This and the following are in no log: each member keeps those it observed.
    WritesStopped {
        /// The member of that mysqld.
        member: Named,
        /// The reason, as text.
        why: String,
    },
    /// Clients can write to a member's mysqld again.
    WritesResumed {
        /// The member of that mysqld.
        member: Named,
    },
    /// Too few voters answered, or no leader was known.
    QuorumLost {
        /// The member that observed it.
        member: Named,
        /// The reason, as text.
        why: String,
    },
    /// Enough voters answer again, or a leader is known.
    QuorumBack {
        /// The member that observed it.
        member: Named,
    },
    /// The leader no longer receives answers from a member.
    MemberLost {
        /// The silent member.
        member: Named,
    },
    /// It answers the leader again.
    MemberBack {
        /// The member that was silent.
        member: Named,
    },
    /// A member's mysqld was started open for writes, and clients may have committed there without the ring.
    Exposed {
        /// The member of that mysqld.
        member: Named,
        /// Number of transactions that mysqld committed before the ring had them.
        transactions: u64,
    },
    /// An operator has acknowledged the exposure.
    ExposureAcknowledged {
        /// The member of that mysqld.
        member: Named,
    },
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

/// The number of kept entries: every membership carries them.
pub(crate) const KEPT: usize = 64;

/// The most bytes of free text in an entry: the initiator and the reason.
const MOST_TEXT_BYTES: usize = 200;

/// Key of the history in its record.
const NAME: &str = "history";

/// The logged events, oldest first.
pub(crate) fn read<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Vec<HistoryEntry> {
    let told = words(records).into_iter();
    told.filter_map(|entry| serde_json::from_value(entry).ok())
        .collect()
}

/// A record without the ring's history.
pub fn without(mut record: MemberRecord) -> MemberRecord {
    record.extras.remove(NAME);
    record
}

/// Merges entries into the history without duplicates, ordered by term, then by the recording clock. Entries of two members may reach the
/// log out of order. The result is stored in one record, regardless of the previous carrier.
pub(crate) fn append(members: &mut BTreeMap<MemberId, MemberRecord>, entries: &[HistoryEntry]) {
    let told = words(members.values());
    put(members, told, entries);
}

/// The same, if the carrier may have been removed: `told` is what it carried.
pub(crate) fn put(
    members: &mut BTreeMap<MemberId, MemberRecord>,
    mut told: Vec<Value>,
    entries: &[HistoryEntry],
) {
    for entry in entries {
        let Ok(entry) = serde_json::to_value(entry) else {
            continue;
        };
        if !told.contains(&entry) {
            told.push(entry);
        }
    }
    told.sort_by_key(|entry| ["term", "at_ms"].map(|key| entry.get(key).and_then(Value::as_u64)));
    told.drain(..told.len().saturating_sub(KEPT));
    let with_history = members
        .values_mut()
        .filter(|record| record.extras.get(NAME).is_some());
    with_history.for_each(|record| record.extras.remove(NAME));
    if let Some(first) = members.values_mut().next().filter(|_| !told.is_empty()) {
        first.extras.set(NAME, Value::Array(told));
    }
}

/// The raw entries of the history record, as written.
pub(crate) fn words<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Vec<Value> {
    let mut records = records.into_iter();
    let carried = records.find_map(|record| record.extras.get(NAME)?.as_array());
    carried.cloned().unwrap_or_default()
}

/// The entry with its texts truncated to the log's limit.
pub(crate) fn shortened(mut entry: HistoryEntry) -> HistoryEntry {
    let text = match &mut entry.event {
        HistoryEvent::GaveAway { why, .. } | HistoryEvent::Unscheduled { why } => Some(why),
        HistoryEvent::Paused { reason, .. } => Some(reason),
        HistoryEvent::RulesSet { policy } => Some(policy),
        _ => None,
    };
    for text in [Some(&mut entry.by), text].into_iter().flatten() {
        let end = text.floor_char_boundary(MOST_TEXT_BYTES);
        text.truncate(end);
    }
    entry
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn members(ids: &[u64]) -> BTreeMap<MemberId, MemberRecord> {
        let of = |id: &u64| (MemberId(*id), MemberRecord::default());
        ids.iter().map(of).collect()
    }

    fn resumed(at_ms: u64) -> HistoryEntry {
        HistoryEntry {
            at_ms,
            term: Term(3),
            by: "anna".to_owned(),
            event: HistoryEvent::Resumed,
        }
    }

    fn through_json(ring: &BTreeMap<MemberId, MemberRecord>) -> BTreeMap<MemberId, MemberRecord> {
        serde_json::from_str(&serde_json::to_string(ring).unwrap()).unwrap()
    }

    #[test]
    fn one_record_carries_it_and_the_next_one_when_that_member_goes() {
        let mut ring = members(&[2, 3]);
        append(&mut ring, &[resumed(1)]);
        let mut ring = through_json(&ring);
        let told = words(ring.values());
        ring.remove(&MemberId(2));
        put(&mut ring, told, &[resumed(2)]);
        ring.insert(MemberId(1), MemberRecord::default());
        append(&mut ring, &[resumed(3), resumed(2)]);
        let at: Vec<_> = read(ring.values())
            .iter()
            .map(|entry| entry.at_ms)
            .collect();
        assert_eq!(at, [1, 2, 3], "no entry twice");
        let carriers = ring
            .values()
            .filter(|record| record.extras.get(NAME).is_some());
        assert_eq!(carriers.count(), 1);
        let bare = without(ring[&MemberId(1)].clone());
        assert!(bare.extras.get(NAME).is_none());
    }

    #[test]
    fn what_comes_late_stands_where_it_happened() {
        let mut ring = members(&[1]);
        let of = |term, at_ms| HistoryEntry {
            term: Term(term),
            ..resumed(at_ms)
        };
        for late in [of(4, 30), of(3, 40), of(4, 20), of(1003, 10)] {
            append(&mut ring, &[late]);
        }
        let told = read(through_json(&ring).values());
        let order: Vec<_> = told.iter().map(|one| (one.term.0, one.at_ms)).collect();
        // Clocks of two members may differ; terms never decrease.
        assert_eq!(order, [(3, 40), (4, 20), (4, 30), (1003, 10)]);
    }

    #[test]
    fn the_oldest_go_and_long_words_are_cut() {
        let mut ring = members(&[1]);
        for at_ms in 0..KEPT as u64 + 5 {
            append(&mut ring, &[resumed(at_ms)]);
        }
        let kept = read(ring.values());
        assert_eq!((kept.len(), kept[0].at_ms), (KEPT, 5));
        let wordy = HistoryEntry {
            by: "ä".repeat(500),
            ..resumed(1000)
        };
        append(&mut ring, &[shortened(wordy)]);
        let last = read(ring.values()).pop().unwrap();
        assert_eq!(last.by.len(), MOST_TEXT_BYTES);
    }

    #[test]
    fn what_a_later_version_tells_is_kept_and_shown_as_unknown() {
        let mut ring = members(&[1]);
        let later = json!({"at_ms": 7, "term": 1, "event": "eclipse", "of": {"moon": true}});
        put(&mut ring, vec![later.clone()], &[resumed(8)]);
        let ring = through_json(&ring);
        assert_eq!(words(ring.values())[0], later);
        assert_eq!(read(ring.values())[0].event, HistoryEvent::Unknown);
    }

    #[test]
    fn every_event_comes_back() {
        let one = || Named {
            id: MemberId(1),
            name: "db-1".to_owned(),
        };
        let events = [
            HistoryEvent::Bootstrapped { members: 3 },
            HistoryEvent::Led {
                leader: one(),
                kind: MemberKind::Database,
                log_end: Some(OpId::new(4, 7)),
                leaderless_ms: Some(1200),
                writable: true,
            },
            HistoryEvent::GaveAway {
                from: one(),
                to: one(),
                why: "it stops".to_owned(),
            },
            HistoryEvent::Added { member: one() },
            HistoryEvent::Removed { member: one() },
            HistoryEvent::Updated { member: one() },
            HistoryEvent::RulesSet {
                policy: "majority".to_owned(),
            },
            HistoryEvent::Paused {
                primary: one(),
                until: Some(UnixSeconds(9)),
                reason: String::new(),
            },
            HistoryEvent::Resumed,
            HistoryEvent::Scheduled {
                to: one(),
                at: UnixSeconds(8),
            },
            HistoryEvent::Unscheduled {
                why: "too late".to_owned(),
            },
            HistoryEvent::Repaired {
                survivor: one(),
                log_end: None,
            },
            HistoryEvent::Trimmed {
                member: one(),
                transactions: 2,
            },
            HistoryEvent::Provisioned {
                member: one(),
                donor: one(),
            },
            HistoryEvent::FormatRaised {
                to: FormatVersion(2),
            },
        ];
        let entries = events.map(|event| HistoryEntry {
            event,
            ..resumed(1)
        });
        let mut ring = members(&[1]);
        append(&mut ring, &entries);
        assert_eq!(read(through_json(&ring).values()), entries);
    }
}
