//! The ring's history in its log: leaders, operator orders, truncations and repairs. The membership stores it in one member's record. So it
//! is the same on every member, survives a log purge, and joining members receive it with the log. Only the newest [`KEPT`] entries are
//! kept.
//!
//! A member keeps each event that it has recorded until the event is in its log ([`Notes`]).

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use consensus::{HistoryEntry, HistoryEvent};
use raft_types::{MemberId, MemberRecord, Term, lock};
use serde_json::Value;
use tokio::sync::Notify;

/// The number of kept entries. It is small, because every membership contains them.
pub(crate) const KEPT: usize = 64;

/// The most bytes of each free text in an entry, such as the initiator or the reason.
const MOST_TEXT_BYTES: usize = 200;

/// The key of the history in the record that contains it.
const NAME: &str = "history";

/// Returns the logged events, oldest first.
pub(crate) fn read<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Vec<HistoryEntry> {
    let told = words(records).into_iter();
    told.filter_map(|entry| serde_json::from_value(entry).ok())
        .collect()
}

/// Returns a record without the ring's history.
pub fn without(mut record: MemberRecord) -> MemberRecord {
    record.extras.remove(NAME);
    record
}

/// Merges entries into the history without duplicates, and sorts them by term and then by the recording member's clock: entries of two
/// members may reach the log out of order. The result is stored in the first record, whichever record had the history before.
pub(crate) fn append(members: &mut BTreeMap<MemberId, MemberRecord>, entries: &[HistoryEntry]) {
    let told = words(members.values());
    put(members, told, entries);
}

/// Merges entries into the history `told`, like [`append`]. For a change that may have removed the record with the history.
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

/// Returns the JSON values of the history's entries, as they are stored.
pub(crate) fn words<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Vec<Value> {
    let mut records = records.into_iter();
    let carried = records.find_map(|record| record.extras.get(NAME)?.as_array());
    carried.cloned().unwrap_or_default()
}

/// Returns the entry with its texts truncated to [`MOST_TEXT_BYTES`].
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

/// Events that are recorded but not known to be in the log.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    waiting: Mutex<Vec<HistoryEntry>>,
    /// Notified when an entry was added. Only one task waits for it.
    pub(crate) noted: Notify,
}

impl Notes {
    /// Adds pending entries; the oldest are dropped if there are more than a log keeps.
    pub(crate) fn take(&self, entries: Vec<HistoryEntry>) {
        let mut waiting = lock(&self.waiting);
        for entry in entries.into_iter().map(shortened) {
            if !waiting.contains(&entry) {
                waiting.push(entry);
            }
        }
        let surplus = waiting.len().saturating_sub(KEPT);
        waiting.drain(..surplus);
        drop(waiting);
        self.noted.notify_one();
    }

    /// Returns the pending entries. First removes entries that are in the log, and entries that are older than a full history in the log,
    /// which would drop them again.
    pub(crate) fn not_in(&self, logged: &[HistoryEntry]) -> Vec<HistoryEntry> {
        let oldest = logged.first().filter(|_| logged.len() >= KEPT);
        let mut waiting = lock(&self.waiting);
        waiting.retain(|entry| {
            let is_kept = oldest
                .is_none_or(|oldest| (entry.term, entry.at_ms) >= (oldest.term, oldest.at_ms));
            is_kept && !logged.contains(entry)
        });
        waiting.clone()
    }
}

/// Creates an entry with the current time.
pub(crate) fn entry_now(term: Term, by: &str, event: HistoryEvent) -> HistoryEntry {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    shortened(HistoryEntry {
        at_ms: u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
        term,
        by: by.to_owned(),
        event,
    })
}

#[cfg(test)]
mod tests {
    use consensus::Named;
    use raft_types::{FormatVersion, MemberKind, OpId, UnixSeconds};
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
    fn one_record_stores_the_history_and_the_next_one_after_a_removal() {
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
    fn late_entries_are_sorted_by_term_and_time() {
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
        // The clocks of two members may differ, so the term, which never decreases, is compared first.
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
    fn events_of_a_later_version_are_kept_and_shown_as_unknown() {
        let mut ring = members(&[1]);
        let later = json!({"at_ms": 7, "term": 1, "event": "eclipse", "of": {"moon": true}});
        put(&mut ring, vec![later.clone()], &[resumed(8)]);
        let ring = through_json(&ring);
        assert_eq!(words(ring.values())[0], later);
        assert_eq!(read(ring.values())[0].event, HistoryEvent::Unknown);
    }

    #[test]
    fn every_event_is_restored_from_the_log() {
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

    /// Regression test: the leader wrote an event that was too old again and again, each time in an unchanged membership.
    #[test]
    fn events_older_than_the_log_are_dropped() {
        let of = |term, at_ms| HistoryEntry {
            at_ms,
            term: Term(term),
            by: String::new(),
            event: HistoryEvent::Resumed,
        };
        let mut logged: Vec<_> = (0..KEPT as u64).map(|at_ms| of(5, at_ms)).collect();
        let notes = Notes::default();
        notes.take(vec![of(4, 100), of(5, 0), of(5, 100)]);
        let full = logged.pop().unwrap();
        assert_eq!(notes.not_in(&logged), [of(4, 100), of(5, 100)]);
        logged.push(full);
        assert_eq!(notes.not_in(&logged), [of(5, 100)]);
        assert_eq!(notes.not_in(&[]), [of(5, 100)]);
    }
}
