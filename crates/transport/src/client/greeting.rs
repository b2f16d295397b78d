//! Opens connections in advance. A newly elected member calls members that it never called before; opening a connection across regions then
//! would delay a failover by a round trip for each of the two, or more with TLS.

use std::sync::Arc;
use std::time::Duration;

use consensus::{Greeting, Question};
use futures::future::join_all;
use ring_admin::Member;

use super::network::GrpcNetworkFactory;
use super::peers::Peer;
use crate::wire;

/// Greeting interval while all members answer. A greeting wakes both ends twice, and is most of an idle member's traffic apart from
/// heartbeats. It detects an unnoticed broken connection.
const WHILE_ALL_ANSWER: Duration = Duration::from_secs(5);
/// Interval while a member does not answer: bounds the time to reconnect.
const WHILE_ONE_IS_SILENT: Duration = Duration::from_secs(2);

impl GrpcNetworkFactory {
    /// Greets the other members periodically, on both connections to each, and immediately after a membership change or a member's start.
    /// Never returns.
    pub async fn keep_connected(&self, member: Member) {
        loop {
            let others = member.others();
            let peers = others.iter().map(|(id, record)| self.peer(*id, record));
            let answered = join_all(peers.map(greet)).await;
            let interval = match answered.into_iter().all(|answers| answers) {
                true => WHILE_ALL_ANSWER,
                false => WHILE_ONE_IS_SILENT,
            };
            let something_changes = async {
                tokio::select! {
                    () = member.others_change(&others) => {}
                    () = member.another_arrives() => {}
                }
            };
            let _ = tokio::time::timeout(interval, something_changes).await;
        }
    }
}

/// Whether it answers on both connections. A failure is recorded as for any call.
async fn greet(peer: Arc<Peer>) -> bool {
    let on_each = [peer.urgent(), peer.bulk()].into_iter().flatten();
    let greetings = on_each.map(|mut client| {
        let peer = &peer;
        async move {
            let question = peer.sealed(wire::question(&Question::Greeting(Greeting::default())));
            let deadline = peer.config.call_deadline;
            match tokio::time::timeout(deadline, client.ask(question)).await {
                Ok(Ok(_)) => {
                    peer.well();
                    true
                }
                Ok(Err(status)) => {
                    peer.failed(&status);
                    false
                }
                Err(_) => false,
            }
        }
    });
    join_all(greetings).await.into_iter().all(|answers| answers)
}
