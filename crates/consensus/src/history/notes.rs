//! Events that this member has recorded for the ring's history, until the log has them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use crate::engine::handle::EngineHandle;
use crate::history::{HistoryEntry, HistoryEvent, KEPT, shortened};

/// Events that are recorded but not known to be in the log.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    waiting: Mutex<Vec<HistoryEntry>>,
    noted: Notify,
}

impl Notes {
    /// Adds pending entries; the oldest are dropped if there are more than a log keeps.
    pub(crate) fn take(&self, entries: Vec<HistoryEntry>) {
        let mut waiting = self.waiting();
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

    /// Waits until an entry is added. One task waits.
    pub(super) async fn noted(&self) {
        self.noted.notified().await;
    }

    /// The pending entries, without logged ones and those older than all kept ones: the log would drop them again.
    pub(super) fn not_in(&self, logged: &[HistoryEntry]) -> Vec<HistoryEntry> {
        let oldest = logged.first().filter(|_| logged.len() >= KEPT);
        let mut waiting = self.waiting();
        waiting.retain(|entry| {
            let is_kept = oldest.is_none_or(|oldest| entry.place() >= oldest.place());
            is_kept && !logged.contains(entry)
        });
        waiting.clone()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<HistoryEntry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry with the current time.
pub(crate) fn entry_now(engine: &EngineHandle, by: &str, event: HistoryEvent) -> HistoryEntry {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    shortened(HistoryEntry {
        at_ms: u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
        term: engine.role().term,
        by: by.to_owned(),
        event,
    })
}

#[cfg(test)]
mod tests {
    use raft_types::Term;

    use super::*;

    /// Regression: the leader rewrote such an event each time, in an unchanged membership.
    #[test]
    fn what_is_older_than_all_that_is_kept_waits_no_longer() {
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
