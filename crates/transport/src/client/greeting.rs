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

/// How often every other member is greeted. A connection that broke is back by then.
const INTERVAL: Duration = Duration::from_secs(2);

impl GrpcNetworkFactory {
    /// Greets the `members` of the moment on both connections to each, again and again; never returns.
    pub async fn keep_connected(&self, members: impl Fn() -> BTreeMap<MemberId, MemberRecord>) {
        loop {
            let peers = members()
                .into_iter()
                .map(|(id, record)| self.peer(id, &record));
            join_all(peers.map(greet)).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Who does not answer is noted as any member that cannot be called.
async fn greet(peer: Arc<Peer>) {
    let on_each = [peer.urgent(), peer.bulk()].into_iter().flatten();
    let greetings = on_each.map(|mut client| {
        let peer = &peer;
        async move {
            let question = peer.sealed(wire::question(&Question::Greeting));
            let deadline = peer.config.call_deadline;
            match tokio::time::timeout(deadline, client.ask(question)).await {
                Ok(Ok(_)) => peer.well(),
                Ok(Err(status)) => {
                    peer.failed(&status);
                }
                Err(_) => {}
            }
        }
    });
    join_all(greetings).await;
}
