//! What happened to the ring, as its log tells it: who led when, who ordered what, what was cut off and repaired. It stands in the
//! membership, in the record of one member, so that it is the same on every member, survives the purge of the log, and comes with the
//! log to whoever joins. The last entries are kept; the oldest go.

pub(crate) mod noting;

use std::collections::BTreeMap;

use raft_types::{FormatVersion, MemberId, MemberKind, MemberRecord, OpId, UnixSeconds};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lease::leadership::Term;

/// One thing that happened to the ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Milliseconds since 1970, UTC, by the clock of the member that noted it.
    pub at_ms: u64,
    /// The term in which it was noted; of a leadership, its own.
    pub term: Term,
    /// Who ordered it, as the order says; empty where nobody did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// What happened.
    #[serde(flatten)]
    pub event: HistoryEvent,
}

impl HistoryEntry {
    /// Where it stands among the others: see [`append`].
    fn place(&self) -> (Term, u64) {
        (self.term, self.at_ms)
    }
}

/// A member as it was called when something happened to it: it may have gone since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Its number.
    pub id: MemberId,
    /// Its name at that time.
    pub name: String,
}

impl Named {
    /// A member under its present name.
    pub fn of(id: MemberId, record: &MemberRecord) -> Self {
        let name = record.name.clone();
        Self { id, name }
    }
}

/// What can happen to a ring. Entries of a later version are kept and shown as [`HistoryEvent::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HistoryEvent {
    /// The ring was made.
    Bootstrapped {
        /// How many members it began with.
        members: usize,
    },
    /// A member began to lead: a witness, to serve; a database member, to let clients write.
    Led {
        /// The new leader.
        leader: Named,
        /// Whether it has a mysqld.
        kind: MemberKind,
        /// The end of its log at that moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_end: Option<OpId>,
        /// Milliseconds from the last call of the leader before it until now; nothing where the member had heard none since its start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leaderless_ms: Option<u64>,
        /// False for a database member whose mysqld was not open for clients' writes even then.
        writable: bool,
    },
    /// A leader gave the leadership away on purpose.
    GaveAway {
        /// Who led before.
        from: Named,
        /// Who leads now; the entry's term is its term.
        to: Named,
        /// Why, in words; empty for an order.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A member joined the ring.
    Added {
        /// The new one.
        member: Named,
    },
    /// A member left the ring for good.
    Removed {
        /// The one that left.
        member: Named,
    },
    /// The log says something else of a member now.
    Updated {
        /// The member under its new name.
        member: Named,
    },
    /// The rules of the quorum are others.
    RulesSet {
        /// The policy from then on.
        policy: String,
    },
    /// Failover was paused, or the terms of its pause changed.
    Paused {
        /// Whose place as the primary is kept.
        primary: Named,
        /// Until when; nothing: until somebody resumes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<UnixSeconds>,
        /// Why, in the operator's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The pause ended.
    Resumed,
    /// A switchover was put off to a time.
    Scheduled {
        /// Who is to lead.
        to: Named,
        /// From when on.
        at: UnixSeconds,
    },
    /// A scheduled switchover was taken back, or given up.
    Unscheduled {
        /// Why it was given up; empty where an operator took it back.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A quorum that was lost for good was repaired.
    Repaired {
        /// The member that went on alone.
        survivor: Named,
        /// The end of its log; entries behind it may be lost.
        log_end: Option<OpId>,
    },
    /// Transactions that the ring never committed were cut off the end of a mysqld's binlog.
    Trimmed {
        /// The member beside that mysqld.
        member: Named,
        /// How many transactions.
        transactions: u64,
    },
    /// The data of a mysqld were replaced by a copy of another one's.
    Provisioned {
        /// The member beside that mysqld.
        member: Named,
        /// The member whose mysqld was copied.
        donor: Named,
    },
    /// Every member spoke it, and the leader raised the ring's format.
    FormatRaised {
        /// The ring's format from then on.
        to: FormatVersion,
    },
    /// Clients could no longer write at a member's mysqld. This and the following are in no log: each member keeps what it saw.
    WritesStopped {
        /// The member of that mysqld.
        member: Named,
        /// The reason, for people.
        why: String,
    },
    /// Clients can write at a member's mysqld from now on.
    WritesResumed {
        /// The member of that mysqld.
        member: Named,
    },
    /// Too few voters answered, or no leader was known.
    QuorumLost {
        /// The member that saw it.
        member: Named,
        /// The reason, for people.
        why: String,
    },
    /// Enough voters answer again, or a leader is known.
    QuorumBack {
        /// The member that saw it.
        member: Named,
    },
    /// The leader had no more answers from a member.
    MemberLost {
        /// The silent one.
        member: Named,
    },
    /// It answers the leader again.
    MemberBack {
        /// The one that was silent.
        member: Named,
    },
    /// A member's mysqld was started open for writes, and clients may have committed there without the ring.
    Exposed {
        /// The member of that mysqld.
        member: Named,
        /// Transactions that mysqld had committed before the ring had them.
        transactions: u64,
    },
    /// An operator has taken note of that.
    ExposureAcknowledged {
        /// The member of that mysqld.
        member: Named,
    },
    /// Something that only a later version knows.
    #[serde(other)]
    Unknown,
}

/// So many entries are kept: every membership carries them.
pub(crate) const KEPT: usize = 64;

/// The most bytes of an entry's text that somebody wrote: whoever ordered it, and why.
const MOST_TEXT_BYTES: usize = 200;

/// Under which name the one record carries them.
const NAME: &str = "history";

/// What the log tells, the oldest first.
pub(crate) fn read<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Vec<HistoryEntry> {
    let told = words(records).into_iter();
    told.filter_map(|entry| serde_json::from_value(entry).ok())
        .collect()
}

/// A record without the history that it may carry for the ring.
pub fn without(mut record: MemberRecord) -> MemberRecord {
    record.extras.remove(NAME);
    record
}

/// Puts entries to those that are there, but for those that are there already, in the order of their terms and then of the clocks
/// that they were noted by: what two members noted may come into the log the other way round. All of it stands in one record
/// then, whoever carried it before.
pub(crate) fn append(members: &mut BTreeMap<MemberId, MemberRecord>, entries: &[HistoryEntry]) {
    let told = words(members.values());
    put(members, told, entries);
}

/// The same, where whoever carried it may have been taken out: `told` is what it carried.
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

/// What the one record carries, in the words of whoever wrote it.
pub(crate) fn words<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Vec<Value> {
    let mut records = records.into_iter();
    let carried = records.find_map(|record| record.extras.get(NAME)?.as_array());
    carried.cloned().unwrap_or_default()
}

/// The entry with its texts cut to what a log carries.
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
        // The clocks of two members may differ; terms never run back.
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
