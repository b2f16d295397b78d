//! Connections that are there before they are needed. A member that is elected calls members that it never called before;
//! setting up a connection across regions first would cost a failover one round trip for each of the two, or more with TLS.

use std::sync::Arc;
use std::time::Duration;

use consensus::{Greeting, Member, Question};
use futures::future::join_all;

use super::network::GrpcNetworkFactory;
use super::peers::Peer;
use crate::wire;

/// How often every other member is greeted while all answer. A greeting wakes both ends twice, and is most of what idle members
/// do for each other beside heartbeats; a connection that broke unnoticed is found out by then.
const WHILE_ALL_ANSWER: Duration = Duration::from_secs(5);
/// The same while one does not: its connections are back so soon after it is.
const WHILE_ONE_IS_SILENT: Duration = Duration::from_secs(2);

impl GrpcNetworkFactory {
    /// Greets the others of this member on both connections to each, again and again, and at once when they are other ones or one of
    /// them was started; never returns.
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

/// Whether it answers on both connections. Who does not is noted as any member that cannot be called.
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
