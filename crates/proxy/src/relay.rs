//! The proxy's end: it accepts requests without payloads, restores them from its own log, and forwards them.
//!
//! It decides nothing: the leader keeps all bookkeeping, and the member's engine judges each request as if the leader itself
//! had sent it. An entry is read by its op id, which is unique in a ring. Its checksum is checked where it is read from
//! a file and where it arrives, so it need not be durable here.

use std::sync::Arc;

use consensus::log_probe::ReportingNetwork;
use futures::stream::BoxStream;
use futures::{StreamExt, TryFutureExt, stream};
use openraft::network::{RPCOption, RaftNetworkFactory};
use raft_types::{MemberId, MemberRecord, OwnLog, TypeConfig};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::proxy_op::{ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest, ProxyService};
use crate::reconstitution::{Reconstitution, SharedProgress, ended, lock};
use crate::route_table::RouteTable;

/// Answers that wait for the leader's connection.
const QUEUE: usize = 64;

/// A member as a proxy.
#[derive(Clone)]
pub struct Relay<F, C> {
    own: MemberId,
    log: Arc<dyn OwnLog>,
    network: F,
    calls: C,
    route_table: RouteTable,
}

impl<F, C> Relay<F, C>
where
    F: RaftNetworkFactory<TypeConfig, Network: ReportingNetwork> + Clone,
    C: ProxyCalls,
{
    /// Forwards over `network`, which is without proxies, and over `calls` to other proxies.
    pub fn new(
        own: MemberId,
        log: Arc<dyn OwnLog>,
        network: F,
        calls: C,
        route_table: RouteTable,
    ) -> Self {
        Self {
            own,
            log,
            network,
            calls,
            route_table,
        }
    }

    /// The next member, if the route is possible.
    fn next_of(&self, onward: &[MemberId]) -> Result<(MemberId, MemberRecord), String> {
        let limit = self.route_table.options().max_hops;
        if onward.len() > limit {
            let hops = onward.len();
            return Err(format!(
                "{hops} more hops are asked for, and {limit} are allowed"
            ));
        }
        if onward.contains(&self.own) {
            return Err(format!("the route leads back to member {}", self.own));
        }
        let next = *onward.first().ok_or("no member is named to forward to")?;
        let known = self.route_table.record_in_the_ring(next);
        let known = known.ok_or_else(|| format!("member {next} is not in this member's ring"))?;
        Ok((next, known))
    }

    async fn carry(
        self,
        next: MemberId,
        record: MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
        answers: mpsc::Sender<ProxyAnswer>,
    ) {
        let further = onward.get(1..).unwrap_or_default();
        let last = match further {
            [] => self.reconstitute(next, &record, requests, &answers).await,
            further => {
                let opened = self
                    .calls
                    .open(next, &record, further.to_vec(), requests)
                    .await;
                match opened {
                    Err(broken) => Some(cannot_call(next, broken)),
                    Ok(said) => hand_back(next, said, &answers).await,
                }
            }
        };
        let Some(last) = last else { return };
        self.route_table.traffic().relayed(|relayed| match &last {
            ProxyAnswer::Missing { .. } => relayed.missing += 1,
            ProxyAnswer::CannotCall { .. } => relayed.cannot_call += 1,
            ProxyAnswer::Refused(_) => relayed.refused += 1,
            ProxyAnswer::Answered(_) | ProxyAnswer::SentOn { .. } => {}
        });
        // A receiver that no longer listens does not need it.
        let _ = answers.send(last).await;
    }

    /// Forwards to the target of the entries. Returns the answer that ends the session, if any.
    async fn reconstitute(
        &self,
        target: MemberId,
        record: &MemberRecord,
        requests: BoxStream<'static, ProxyRequest>,
        answers: &mpsc::Sender<ProxyAnswer>,
    ) -> Option<ProxyAnswer> {
        let progress = SharedProgress::default();
        let options = self.route_table.options();
        let (log, route_table) = (self.log.clone(), self.route_table.clone());
        let reconstitution = Reconstitution::new(log, requests, progress.clone(), route_table);
        let whole = stream::unfold(reconstitution, |mut state| async move {
            let asked = state.next().await?;
            Some((asked, state))
        });
        let mut client = self.network.clone().new_client(target, record).await;
        let option = RPCOption::new(options.wait);
        // Opening is included: it waits for the first request to be assembled, and for the member to be reached.
        let mut coming = client
            .stream_reported(whole.boxed(), option)
            .try_flatten_stream();
        let mut sign = tokio::time::interval(options.sign_of_life());
        sign.reset();
        loop {
            let answer = tokio::select! {
                answer = coming.next() => answer,
                _ = sign.tick() => {
                    let said = lock(&progress).sign_of_life(Instant::now());
                    if let Some(said) = said && answers.send(said).await.is_err() {
                        return None;
                    }
                    continue;
                }
            };
            match answer {
                Some(Ok(answered)) => {
                    lock(&progress).answered(&answered);
                    sign.reset();
                    if answers.send(ProxyAnswer::Answered(answered)).await.is_err() {
                        return None;
                    }
                }
                Some(Err(error)) => {
                    return Some(ended(&progress).unwrap_or_else(|| cannot_call(target, error)));
                }
                None => return ended(&progress),
            }
        }
    }
}

impl<F, C> ProxyService for Relay<F, C>
where
    F: RaftNetworkFactory<TypeConfig, Network: ReportingNetwork> + Clone,
    C: ProxyCalls,
{
    fn part_arrives(&self) {
        self.route_table.part_arrives();
    }

    fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer> {
        self.route_table
            .traffic()
            .relayed(|relayed| relayed.sessions += 1);
        match self.next_of(&onward) {
            Err(why) => {
                self.route_table
                    .traffic()
                    .relayed(|relayed| relayed.refused += 1);
                stream::iter([ProxyAnswer::Refused(why)]).boxed()
            }
            Ok((next, record)) => {
                let (answers, answered) = mpsc::channel(QUEUE);
                let relay = self.clone();
                tokio::spawn(async move {
                    let stopped = answers.clone();
                    tokio::select! {
                        () = stopped.closed() => {}
                        () = relay.carry(next, record, onward, requests, answers) => {}
                    }
                });
                let receive = |mut answered: mpsc::Receiver<_>| async move {
                    let answer = answered.recv().await?;
                    Some((answer, answered))
                };
                stream::unfold(answered, receive).boxed()
            }
        }
    }
}

/// Passes on the answers of another proxy.
async fn hand_back(
    next: MemberId,
    mut said: ProxyAnswers,
    answers: &mpsc::Sender<ProxyAnswer>,
) -> Option<ProxyAnswer> {
    while let Some(answer) = said.next().await {
        match answer {
            Ok(answer) => answers.send(answer).await.ok()?,
            Err(broken) => return Some(cannot_call(next, broken)),
        }
    }
    None
}

fn cannot_call(member: MemberId, error: impl std::error::Error) -> ProxyAnswer {
    ProxyAnswer::CannotCall {
        member,
        why: error.to_string(),
    }
}
