//! The leader queries the members' program versions while the ring's format could be raised, and raises it.

use std::sync::Arc;

use futures::future::join_all;
use raft_types::{FormatRange, FormatVersion, OpId};

use crate::calls::{Answer, Greeting, MemberCalls, Question};
use crate::engine::RoleSnapshot;
use crate::formats::{Program, Programs, of_membership, write};
use crate::history;
use crate::history::HistoryEvent;
use crate::history::notes::entry_now;
use crate::member::administration::Administration;

/// Queries whenever the member serves as the leader and supports a newer format than the ring's.
pub(crate) async fn ask_around(admin: Arc<Administration>, calls: Arc<dyn MemberCalls>) {
    let newest = admin.formats.program().formats.newest();
    if newest == FormatVersion::FIRST {
        return;
    }
    loop {
        let role = admin.engine.role();
        let serves = admin.elections.assess(&role).serving_term().is_some();
        let programs = match serves && newest > of_membership(&role.membership) {
            true => ask(&admin, &calls, &role).await,
            false => Programs::new(),
        };
        admin.formats.told(programs);
        tokio::time::sleep(admin.engine.timers.heartbeat * 4).await;
    }
}

/// Queries all others concurrently.
async fn ask(
    admin: &Administration,
    calls: &Arc<dyn MemberCalls>,
    role: &RoleSnapshot,
) -> Programs {
    let others = role
        .membership
        .nodes()
        .filter(|(id, _)| **id != admin.engine.id);
    let asked = others.map(async |(id, record)| {
        let greeted = calls.ask(
            *id,
            record,
            Question::Greeting(Greeting::default()),
            admin.engine.timers.lease,
        );
        match greeted.await {
            Ok(Answer::Greeting { program, .. }) => {
                Some((*id, program.unwrap_or_else(before_programs)))
            }
            Ok(_) | Err(_) => None,
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// A member that does not report its program.
fn before_programs() -> Program {
    Program {
        version: String::new(),
        formats: FormatRange::only(FormatVersion::FIRST),
    }
}

/// Raises the ring's format. The caller holds the reconfiguration lock.
///
/// # Errors
/// The reason as text; a later check retries.
pub(crate) async fn raise(admin: &Administration, to: FormatVersion) -> Result<OpId, String> {
    admin.formats.reach(to)?;
    let role = admin.engine.role();
    let mut members = admin.members_to_be(&role);
    write(&mut members, to);
    let event = HistoryEvent::FormatRaised { to };
    history::append(&mut members, &[entry_now(&admin.engine, "", event)]);
    let sets = role.voter_sets().to_vec();
    let raised = admin.append_membership(&role, sets, members).await;
    let op_id = raised.map_err(|error| error.to_string())?;
    tracing::info!(%to, "all members speak it: the ring's format is raised");
    Ok(op_id)
}
