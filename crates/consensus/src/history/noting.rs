//! Transfers the members' recorded events into the log. A member keeps an event until its log has it. A leader writes all pending events in
//! one entry; a follower sends them to the leader. Clients never wait for this, and it yields to all work that clients wait for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;

use crate::calls::{Answer, MemberCalls, Question};
use crate::history::{HistoryEntry, HistoryEvent, KEPT, append, read, shortened};
use crate::member::core::MemberCore;

/// A failover is over by then. An elected witness transfers the leadership as fast as it can. A history entry is a membership, and the
/// transfer would wait for it.
const SETTLED: Duration = Duration::from_secs(3);

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

    /// The pending entries, without logged ones and those older than all kept ones: the log would drop them again.
    fn not_in(&self, logged: &[HistoryEntry]) -> Vec<HistoryEntry> {
        let oldest = logged.first().filter(|_| logged.len() >= KEPT);
        let mut waiting = self.waiting();
        waiting.retain(|entry| {
            let is_kept = oldest.is_none_or(|oldest| entry.place() >= oldest.place());
            is_kept && !logged.contains(entry)
        });
        waiting.clone()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Vec<HistoryEntry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry with the current time.
pub(crate) fn entry_now(core: &MemberCore, by: &str, event: HistoryEvent) -> HistoryEntry {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    shortened(HistoryEntry {
        at_ms: u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
        term: core.role().term,
        by: by.to_owned(),
        event,
    })
}

/// Writes recorded events into the log while the member runs.
pub(crate) async fn write_down(core: Arc<MemberCore>, calls: Arc<dyn MemberCalls>) {
    loop {
        core.notes.noted.notified().await;
        loop {
            // A returning member first learns the leader.
            tokio::time::sleep((core.timers.lease * 2).max(SETTLED)).await;
            match hand_on(&core, &calls, core.timers.lease).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(why) => tracing::debug!(%why, "what was noted is not in the log yet"),
            }
        }
    }
}

/// Writes pending events, or sends them to the leader. True when the log has all of them.
pub(crate) async fn hand_on(
    core: &MemberCore,
    calls: &Arc<dyn MemberCalls>,
    patience: Duration,
) -> Result<bool, String> {
    let role = core.role();
    let records = role
        .membership
        .membership()
        .nodes()
        .map(|(_, record)| record);
    let entries = core.notes.not_in(&read(records));
    if entries.is_empty() {
        return Ok(true);
    }
    if core.leadership().serving_term().is_some() {
        let lock = tokio::time::timeout(patience, core.reconfiguration_lock.lock());
        let _lock = lock.await.map_err(|_| "something else changes the ring")?;
        let role = core.role();
        let mut members = core.members_to_be(&role);
        append(&mut members, &entries);
        let sets = role.voter_sets().to_vec();
        let written = core.append_membership(&role, sets, members);
        written.await.map_err(|error| error.to_string())?;
        return Ok(false);
    }
    let leader = role.leader.filter(|leader| *leader != core.id);
    let leader = leader.ok_or("nobody is known to lead")?;
    let record = role
        .membership
        .get_node(&leader)
        .ok_or("the leader is not in the membership")?;
    let told = calls.ask(leader, record, Question::Note { entries }, patience);
    match told.await.map_err(|error| error.to_string())? {
        Answer::Noted => Ok(false),
        other => Err(format!(
            "member {leader} gave an unexpected answer: {other:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::leadership::Term;

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
