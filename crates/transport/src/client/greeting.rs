//! Connections that are there before they are needed. A member that is elected calls members that it never called before;
//! setting up a connection across regions first would cost a failover one round trip for each of the two, or more with TLS.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use consensus::Question;
use futures::future::join_all;
use raft_types::{MemberId, MemberRecord};

use super::network::GrpcNetworkFactory;
use super::peers::Peer;
use crate::wire;

/// How often every other member is greeted while all answer. A greeting wakes both ends twice, and is most of what idle members
/// do for each other beside heartbeats; a connection that broke unnoticed is found out by then.
const WHILE_ALL_ANSWER: Duration = Duration::from_secs(5);
/// The same while one does not: its connections are back so soon after it is.
const WHILE_ONE_IS_SILENT: Duration = Duration::from_secs(2);

impl GrpcNetworkFactory {
    /// Greets the `members` of the moment on both connections to each, again and again; never returns.
    pub async fn keep_connected(&self, members: impl Fn() -> BTreeMap<MemberId, MemberRecord>) {
        loop {
            let peers = members()
                .into_iter()
                .map(|(id, record)| self.peer(id, &record));
            let answered = join_all(peers.map(greet)).await;
            let interval = match answered.into_iter().all(|answers| answers) {
                true => WHILE_ALL_ANSWER,
                false => WHILE_ONE_IS_SILENT,
            };
            tokio::time::sleep(interval).await;
        }
    }
}

/// Whether it answers on both connections. Who does not is noted as any member that cannot be called.
async fn greet(peer: Arc<Peer>) -> bool {
    let on_each = [peer.urgent(), peer.bulk()].into_iter().flatten();
    let greetings = on_each.map(|mut client| {
        let peer = &peer;
        async move {
            let question = peer.sealed(wire::question(&Question::Greeting));
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
