//! The leader queries the members' program versions while the ring's format could be raised.

use std::sync::Arc;

use futures::future::join_all;
use raft_types::{FormatRange, FormatVersion};

use crate::calls::{Answer, Greeting, MemberCalls, Question};
use crate::engine::RoleSnapshot;
use crate::formats::{Program, Programs, of_membership};
use crate::member::core::MemberCore;

/// Queries whenever the member serves as the leader and supports a newer format than the ring's.
pub(crate) async fn ask_around(core: Arc<MemberCore>, calls: Arc<dyn MemberCalls>) {
    let newest = core.formats.program().formats.newest();
    if newest == FormatVersion::FIRST {
        return;
    }
    loop {
        let role = core.role();
        let serves = core.assess(&role).serving_term().is_some();
        let programs = match serves && newest > of_membership(&role.membership) {
            true => ask(&core, &calls, &role).await,
            false => Programs::new(),
        };
        core.formats.told(programs);
        tokio::time::sleep(core.timers.heartbeat * 4).await;
    }
}

/// Queries all others concurrently.
async fn ask(core: &MemberCore, calls: &Arc<dyn MemberCalls>, role: &RoleSnapshot) -> Programs {
    let others = role.membership.nodes().filter(|(id, _)| **id != core.id);
    let asked = others.map(async |(id, record)| {
        let greeted = calls.ask(
            *id,
            record,
            Question::Greeting(Greeting::default()),
            core.timers.lease,
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
