//! The leader asks the voters how much room their disks have.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use raft_types::MemberId;

use crate::calls::{Answer, MemberCalls, Question};
use crate::member::administration::Administration;

/// Asks the voters for as long as the member serves as the leader.
pub(crate) async fn ask_around(admin: Arc<Administration>, calls: Arc<dyn MemberCalls>) {
    loop {
        tokio::time::sleep(admin.engine.timers.heartbeat * 2).await;
        let rooms = &admin.rooms;
        let Some(own) = rooms.own() else {
            continue;
        };
        // Always reads the disk: other programs write to it, too.
        own.room(u64::MAX);
        let role = admin.engine.role();
        let Some(term) = admin.elections.assess(&role).serving_term() else {
            continue;
        };
        let voters: BTreeSet<MemberId> = role.voter_sets().iter().flatten().copied().collect();
        let round = rooms.begin_round(term, &voters);
        let asked = voters.into_iter().filter(|id| *id != admin.engine.id);
        let asked = asked.filter_map(|id| Some((id, role.membership.get_node(&id)?)));
        let committed = admin.engine.mark.get();
        let asked = asked.map(async |(id, record)| {
            let answer = calls.ask(id, record, Question::Room, admin.engine.timers.lease);
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
