//! The leader asks the voters how much room their disks have.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use raft_types::MemberId;

use crate::calls::{Answer, MemberCalls, Question};
use crate::member::core::MemberCore;

/// Asks the voters for as long as the member serves as the leader.
pub(crate) async fn ask_around(core: Arc<MemberCore>, calls: Arc<dyn MemberCalls>) {
    loop {
        tokio::time::sleep(core.timers.heartbeat * 2).await;
        let rooms = &core.rooms;
        let Some(own) = rooms.own() else {
            continue;
        };
        // Always reads the disk: other programs write to it, too.
        own.room(u64::MAX);
        let role = core.role();
        let Some(term) = core.assess(&role).serving_term() else {
            continue;
        };
        let voters: BTreeSet<MemberId> = role.voter_sets().iter().flatten().copied().collect();
        let round = rooms.begin_round(term, &voters);
        let asked = voters.into_iter().filter(|id| *id != core.id);
        let asked = asked.filter_map(|id| Some((id, role.membership.get_node(&id)?)));
        let committed = core.mark.get();
        let asked = asked.map(async |(id, record)| {
            let answer = calls.ask(id, record, Question::Room, core.timers.lease);
            if let Ok(Answer::Room {
                transactions: Some(room),
                end,
            }) = answer.await
            {
                rooms.told(id, room, end < committed, round);
            }
        });
        join_all(asked).await;
        rooms.end_round();
    }
}
