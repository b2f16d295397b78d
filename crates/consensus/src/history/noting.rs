//! Transfers the members' recorded events into the log. A member keeps an event until its log has it. A leader writes all pending events in
//! one entry; a follower sends them to the leader. Clients never wait for this, and it yields to all work that clients wait for.

use std::sync::Arc;
use std::time::Duration;

use crate::calls::{Answer, MemberCalls, Question};
use crate::history::{append, read};
use crate::member::administration::Administration;

/// A failover is over by then. An elected witness transfers the leadership as fast as it can. A history entry is a membership, and the
/// transfer would wait for it.
const SETTLED: Duration = Duration::from_secs(3);

/// Writes recorded events into the log while the member runs.
pub(crate) async fn write_down(admin: Arc<Administration>, calls: Arc<dyn MemberCalls>) {
    loop {
        admin.notes.noted().await;
        loop {
            // A returning member first learns the leader.
            tokio::time::sleep((admin.engine.timers.lease * 2).max(SETTLED)).await;
            match hand_on(&admin, &calls, admin.engine.timers.lease).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(why) => tracing::debug!(%why, "what was noted is not in the log yet"),
            }
        }
    }
}

/// Writes pending events, or sends them to the leader. True when the log has all of them.
pub(crate) async fn hand_on(
    admin: &Administration,
    calls: &Arc<dyn MemberCalls>,
    patience: Duration,
) -> Result<bool, String> {
    let role = admin.engine.role();
    let records = role
        .membership
        .membership()
        .nodes()
        .map(|(_, record)| record);
    let entries = admin.notes.not_in(&read(records));
    if entries.is_empty() {
        return Ok(true);
    }
    if admin.elections.leadership().serving_term().is_some() {
        let lock = tokio::time::timeout(patience, admin.reconfiguration_lock.lock());
        let _lock = lock.await.map_err(|_| "something else changes the ring")?;
        let role = admin.engine.role();
        let mut members = admin.members_to_be(&role);
        append(&mut members, &entries);
        let sets = role.voter_sets().to_vec();
        let written = admin.append_membership(&role, sets, members);
        written.await.map_err(|error| error.to_string())?;
        return Ok(false);
    }
    let leader = role.leader.filter(|leader| *leader != admin.engine.id);
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
