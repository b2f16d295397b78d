//! The engine's network: one adapter over any network with which a member is started. It passes the engine's calls on, and lets two
//! observers see and change them. An observer keeps what it has seen, decides, and sends nothing itself.
//!
//! The order is fixed. Of a request:
//!
//! 1. [`Contacts::may_send`]: a leader without a quorum holds its streams back.
//! 2. [`StreamContact::sends`](crate::lease::contacts::StreamContact::sends) notes the time of a heartbeat, after that wait: a lease
//!    counts from there.
//! 3. [`AskedVoter::asks`] changes what a vote request declares; [`AskedVoter::is_late`] turns a pre-vote into a request for the vote.
//!
//! Of its answer:
//!
//! 1. [`AskedVoter`] checks whether a vote counts, and replaces votes that the engine must not receive.
//! 2. [`StreamContact::answered`](crate::lease::contacts::StreamContact::answered) sees the answer as the engine receives it.
//!
//! Networks that answer or reroute requests themselves are no observers, and are below it: [`crate::log_probe`], and the proxies.
//!
//! Openraft is generic over its network, as over its log. Over this type it is compiled once: see [`super::any_log`].

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{Incarnation, MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};

use crate::election::counted_votes::{AskedVoter, CountedVotes};
use crate::lease::contacts::{Contacts, Lane};
use crate::log_probe::RpcResult;

type Call<'a, T> = BoxFuture<'a, RpcResult<T>>;
type Requests = BoxStream<'static, AppendEntriesRequest<TypeConfig>>;
type AnswerStream<'a> = BoxStream<'a, RpcResult<StreamAppendResult<TypeConfig>>>;
type Start = SnapshotOf<TypeConfig, OfferedStart>;
type StartAnswer = Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>>;

/// The network with which a member is started.
pub(crate) struct AnyNetwork(Box<dyn DynNetwork>);

impl AnyNetwork {
    pub(crate) fn new<N>(network: N) -> Self
    where
        N: RaftNetworkFactory<TypeConfig>,
        N::Network: NetSnapshot<TypeConfig, SnapshotData = OfferedStart>,
    {
        Self(Box::new(network))
    }
}

/// The factory of the engine's clients.
pub(crate) struct EngineNetwork {
    inner: AnyNetwork,
    contacts: Contacts,
    votes: CountedVotes,
}

impl EngineNetwork {
    pub(crate) fn new(inner: AnyNetwork, contacts: Contacts, votes: CountedVotes) -> Self {
        Self {
            inner,
            contacts,
            votes,
        }
    }

    async fn client(&mut self, lane: Lane, to: MemberId, record: &MemberRecord) -> EngineClient {
        EngineClient {
            inner: self.inner.0.client(lane, to, record).await,
            contacts: self.contacts.clone(),
            lane,
            member: to,
            incarnation: record.incarnation,
            voter: self.votes.of(to, record.incarnation),
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for EngineNetwork {
    type Network = EngineClient;

    async fn new_client(&mut self, to: MemberId, record: &MemberRecord) -> EngineClient {
        self.client(Lane::Entries, to, record).await
    }

    async fn new_heartbeat_client(&mut self, to: MemberId, record: &MemberRecord) -> EngineClient {
        self.contacts.meet(to, record.incarnation);
        self.client(Lane::Heartbeats, to, record).await
    }

    async fn new_snapshot_client(&mut self, to: MemberId, record: &MemberRecord) -> EngineClient {
        self.client(Lane::Starts, to, record).await
    }
}

/// A client of [`EngineNetwork`].
pub(crate) struct EngineClient {
    inner: Box<dyn DynClient>,
    contacts: Contacts,
    lane: Lane,
    member: MemberId,
    incarnation: Incarnation,
    voter: AskedVoter,
}

impl NetStreamAppend<TypeConfig> for EngineClient {
    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> Call<'s, AnswerStream<'s>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let contact = self
            .contacts
            .stream(self.lane, self.member, self.incarnation);
        let (contacts, sending) = (self.contacts.clone(), contact.clone());
        let requests = requests.then(move |request| {
            let (contacts, sending) = (contacts.clone(), sending.clone());
            async move {
                contacts.may_send().await;
                sending.sends(&request.vote);
                request
            }
        });
        async move {
            let voter = self.voter.clone();
            let answers = self.inner.append(requests.boxed(), option).await;
            if answers.is_err() {
                contact.fails();
            }
            let seen = answers?.map(move |answer| {
                let answer = answer.map(|answer| voter.follows(answer));
                contact.answered(&answer);
                answer
            });
            Ok(seen.boxed())
        }
        .boxed()
    }
}

impl NetVote<TypeConfig> for EngineClient {
    async fn vote(
        &mut self,
        mut request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        self.voter.asks(&mut request);
        let asked = self.voter.is_asked();
        let answer = self.inner.vote(request, option).await;
        if !matches!(answer, Err(RPCError::Timeout(_))) {
            asked.answered();
        }
        Ok(self.voter.votes(term, answer?))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        let is_late = self.voter.is_late();
        let answer = match is_late {
            true => self.inner.vote(request, option).await?,
            false => self.inner.pre_vote(request, option).await?,
        };
        Ok(self.voter.pre_votes(term, is_late, answer))
    }
}

impl NetSnapshot<TypeConfig> for EngineClient {
    type SnapshotData = OfferedStart;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        start: Start,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> StartAnswer {
        let term = vote.leader_id.term;
        let sent = self.inner.start(vote, start, cancel.boxed(), option);
        let answer = sent.await?;
        Ok(SnapshotResponse::new(self.voter.told(answer.vote, term)))
    }
}

impl NetTransferLeader<TypeConfig> for EngineClient {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        self.inner.transfer_leader(request, option).await
    }
}

impl NetBackoff<TypeConfig> for EngineClient {
    fn backoff(&self) -> Option<Backoff> {
        self.inner.backoff()
    }
}

/// [`RaftNetworkFactory`] with boxed clients.
trait DynNetwork: Send + Sync {
    fn client<'a>(
        &'a mut self,
        lane: Lane,
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, Box<dyn DynClient>>;
}

impl<N> DynNetwork for N
where
    N: RaftNetworkFactory<TypeConfig>,
    N::Network: NetSnapshot<TypeConfig, SnapshotData = OfferedStart>,
{
    fn client<'a>(
        &'a mut self,
        lane: Lane,
        to: MemberId,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, Box<dyn DynClient>> {
        let client = async move {
            let client = match lane {
                Lane::Entries => self.new_client(to, record).await,
                Lane::Heartbeats => self.new_heartbeat_client(to, record).await,
                Lane::Starts => self.new_snapshot_client(to, record).await,
            };
            let boxed: Box<dyn DynClient> = Box::new(client);
            boxed
        };
        client.boxed()
    }
}

/// Openraft's client traits with boxed answers.
trait DynClient: Send + Sync {
    fn append(&mut self, requests: Requests, option: RPCOption) -> Call<'_, AnswerStream<'_>>;
    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>>;
    fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>>;
    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>>;
    fn start(
        &mut self,
        vote: Vote,
        start: Start,
        cancel: BoxFuture<'static, ReplicationClosed>,
        option: RPCOption,
    ) -> BoxFuture<'_, StartAnswer>;
    fn backoff(&self) -> Option<Backoff>;
}

impl<C> DynClient for C
where
    C: NetBackoff<TypeConfig>
        + NetStreamAppend<TypeConfig>
        + NetVote<TypeConfig>
        + NetSnapshot<TypeConfig, SnapshotData = OfferedStart>
        + NetTransferLeader<TypeConfig>,
{
    fn append(&mut self, requests: Requests, option: RPCOption) -> Call<'_, AnswerStream<'_>> {
        self.stream_append(requests, option)
    }

    fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>> {
        NetVote::vote(self, request, option).boxed()
    }

    fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, VoteResponse<TypeConfig>> {
        NetVote::pre_vote(self, request, option).boxed()
    }

    fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Call<'_, TransferLeaderResponse<TypeConfig>> {
        NetTransferLeader::transfer_leader(self, request, option).boxed()
    }

    fn start(
        &mut self,
        vote: Vote,
        start: Start,
        cancel: BoxFuture<'static, ReplicationClosed>,
        option: RPCOption,
    ) -> BoxFuture<'_, StartAnswer> {
        self.full_snapshot(vote, start, cancel, option).boxed()
    }

    fn backoff(&self) -> Option<Backoff> {
        NetBackoff::backoff(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use openraft::network::RaftNetworkV2;
    use openraft::raft::{AppendEntriesResponse, StreamAppendError};
    use raft_types::Term;
    use tokio::time::Instant;

    use super::*;
    use crate::election::counted_votes::InterimTerm;
    use crate::election::put_back::Recorded;
    use crate::lease::promise::PromisedLease;

    const OWN: MemberId = MemberId(1);
    const OTHER: MemberId = MemberId(2);
    const LEASE: Duration = Duration::from_secs(60);

    /// A voter with this vote: it follows that leader, and grants that candidate's requests.
    #[derive(Clone, Copy)]
    struct Follower(Vote);

    impl RaftNetworkFactory<TypeConfig> for Follower {
        type Network = Self;

        async fn new_client(&mut self, _: MemberId, _: &MemberRecord) -> Self {
            *self
        }
    }

    impl RaftNetworkV2<TypeConfig> for Follower {
        type SnapshotData = OfferedStart;

        async fn append_entries(
            &mut self,
            request: AppendEntriesRequest<TypeConfig>,
            _: RPCOption,
        ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
            Ok(match request.vote == self.0 {
                true => AppendEntriesResponse::Success,
                false => AppendEntriesResponse::HigherVote(self.0),
            })
        }

        async fn full_snapshot(
            &mut self,
            _: Vote,
            _: Start,
            _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
            _: RPCOption,
        ) -> StartAnswer {
            Ok(SnapshotResponse::new(self.0))
        }

        async fn vote(
            &mut self,
            request: VoteRequest<TypeConfig>,
            _: RPCOption,
        ) -> RpcResult<VoteResponse<TypeConfig>> {
            Ok(VoteResponse::new(self.0, None, request.vote == self.0))
        }
    }

    fn network(follower: Vote, contacts: &Contacts) -> EngineNetwork {
        let votes = CountedVotes::new(OWN, Recorded::default(), InterimTerm::default());
        let inner = AnyNetwork::new(Follower(follower));
        EngineNetwork::new(inner, contacts.clone(), votes)
    }

    fn option() -> RPCOption {
        RPCOption::new(Duration::from_secs(1))
    }

    /// The answer to one request of the leader of this term.
    async fn append(client: &mut EngineClient, term: u64) -> StreamAppendResult<TypeConfig> {
        let request = AppendEntriesRequest {
            vote: Vote::new_committed(term, OWN),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let requests = futures::stream::iter([request]);
        let answers = client.stream_append(requests, option()).await;
        let mut answers = answers.expect("the follower answers");
        let answer = answers.next().await.expect("an answer to the request");
        answer.expect("the follower answers")
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_counts_from_after_the_pause_of_a_quiet_leader() {
        let contacts = Contacts::default();
        let record = MemberRecord::default();
        let lease = LEASE;
        let term = Term(7);
        let promised = PromisedLease { term, lease };
        contacts.promised(OTHER, record.incarnation, promised);
        let mut network = network(Vote::new_committed(7, OWN), &contacts);
        let mut client = network.new_heartbeat_client(OTHER, &record).await;
        contacts.keep_quiet(true);
        let began = Instant::now();
        let released = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            contacts.keep_quiet(false);
        };
        let (answer, ()) = tokio::join!(append(&mut client, 7), released);
        assert_eq!(answer, Ok(None));
        assert!(began.elapsed() >= Duration::from_secs(2));
        let sets = [BTreeSet::from([OWN, OTHER])];
        let quorum = contacts.quorum(OWN, term, &sets, LEASE);
        assert!(quorum.is_some_and(|quorum| quorum.age < Duration::from_secs(1)));
    }

    #[tokio::test]
    async fn every_answer_hides_a_vote_for_this_member_in_a_term_of_no_campaign() {
        let contacts = Contacts::default();
        let record = MemberRecord::default();
        let mut network = network(Vote::new(8, OWN), &contacts);
        let mut client = network.new_heartbeat_client(OTHER, &record).await;
        let hidden = Vote::new(8, OTHER);
        assert_eq!(
            append(&mut client, 7).await,
            Err(StreamAppendError::HigherVote(hidden))
        );
        let request = |term| VoteRequest::<TypeConfig> {
            vote: Vote::new(term, OWN),
            last_log_id: None,
            leadership_transfer: false,
        };
        let refused = NetVote::vote(&mut client, request(7), option())
            .await
            .unwrap();
        assert_eq!((refused.vote, refused.vote_granted), (hidden, false));
        let granted = NetVote::vote(&mut client, request(8), option())
            .await
            .unwrap();
        assert_eq!(granted.vote, Vote::new(8, OWN));
        assert!(granted.vote_granted);
    }
}
