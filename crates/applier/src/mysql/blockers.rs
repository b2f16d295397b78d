//! Who holds the row locks that a session waits for. Pure but for the query.

use mysql_link::QueryResult;

use crate::backend::SessionId;

/// The sessions that a session waits for, as far as InnoDB's row locks go.
pub(super) fn blockers_query(waiting: SessionId) -> String {
    format!(
        "SELECT DISTINCT holder.processlist_id FROM performance_schema.data_lock_waits AS waits \
         JOIN performance_schema.threads AS waiter ON waiter.thread_id = waits.requesting_thread_id \
         JOIN performance_schema.threads AS holder ON holder.thread_id = waits.blocking_thread_id \
         WHERE waiter.processlist_id = {}",
        waiting.0
    )
}

/// The query's answer.
pub(super) fn read_blockers(answer: &QueryResult) -> Vec<SessionId> {
    let ids = answer
        .rows
        .iter()
        .filter_map(|row| row.text_at(0)?.parse().ok());
    ids.map(SessionId).collect()
}
