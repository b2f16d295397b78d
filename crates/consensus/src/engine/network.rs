//! The engine's network: an adapter over any network with which a member is started. It passes the engine's calls on. Two observers can
//! read and change the calls. An observer records and decides, and sends nothing itself.
//!
//! The order is fixed. For a request:
//!
//! 1. [`Contacts::may_send`]: a leader without a quorum delays its streams.
//! 2. [`StreamContact::sends`](crate::lease::contacts::StreamContact::sends) records the time of a heartbeat. It follows the delay, because
//!    a lease counts from this time.
//! 3. [`AskedVoter::asks`] changes the declaration in a vote request. [`AskedVoter::is_late`] turns a pre-vote into a vote request.
//!
//! For the answer to the request:
//!
//! 1. [`AskedVoter`] checks whether a vote counts, and replaces votes that the engine must not receive.
//! 2. [`StreamContact::answered`](crate::lease::contacts::StreamContact::answered) receives the same answer as the engine.
//!
//! Networks that answer or redirect requests themselves are not observers. They are below this adapter: [`crate::log_probe`], and the
//! proxies.
//!
//! Openraft is generic over its network, as it is over its log. With this adapter, it is compiled only once: see [`super::any_log`].

use std::sync::Arc;

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
use crate::lease::contacts::Contacts;
use crate::log_probe::{Asked, Call, Lane, MemberClient, MemberNetwork, RpcResult};

type Answers<'a> = BoxStream<'a, RpcResult<StreamAppendResult<TypeConfig>>>;

/// The factory of the engine's clients.
pub(crate) struct EngineNetwork {
    pub(crate) inner: Arc<dyn MemberNetwork>,
    pub(crate) contacts: Contacts,
    pub(crate) votes: CountedVotes,
}

impl EngineNetwork {
    fn client(&self, lane: Lane, to: MemberId, record: &MemberRecord) -> EngineClient {
        EngineClient {
            inner: self.inner.client(lane, to, record),
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
        self.client(Lane::Entries, to, record)
    }

    async fn new_heartbeat_client(&mut self, to: MemberId, record: &MemberRecord) -> EngineClient {
        self.contacts.meet(to, record.incarnation);
        self.client(Lane::Heartbeats, to, record)
    }

    async fn new_snapshot_client(&mut self, to: MemberId, record: &MemberRecord) -> EngineClient {
        self.client(Lane::Starts, to, record)
    }
}

/// A client of [`EngineNetwork`].
pub(crate) struct EngineClient {
    inner: Box<dyn MemberClient>,
    contacts: Contacts,
    lane: Lane,
    member: MemberId,
    incarnation: Incarnation,
    voter: AskedVoter,
}

impl NetStreamAppend<TypeConfig> for EngineClient {
    fn stream_append<'s, S>(&'s mut self, requests: S, option: RPCOption) -> Call<'s, Answers<'s>>
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
                Asked::new(request, false)
            }
        });
        async move {
            let voter = self.voter.clone();
            let answers = self.inner.stream(requests.boxed(), option).await;
            if answers.is_err() {
                contact.fails();
            }
            let seen = answers?.map(move |answer| {
                let answer = answer.map(|answered| voter.follows(answered.result));
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
        let answer = self.inner.vote(request, false, option).await;
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
        let answer = self.inner.vote(request, !is_late, option).await?;
        Ok(self.voter.pre_votes(term, is_late, answer))
    }
}

impl NetSnapshot<TypeConfig> for EngineClient {
    type SnapshotData = OfferedStart;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        start: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let term = vote.leader_id.term;
        let answer = self.inner.begin(vote, start.snapshot, option).await?;
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
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use openraft::raft::StreamAppendError;
    use raft_types::Term;
    use tokio::time::Instant;

    use super::*;
    use crate::election::counted_votes::InterimTerm;
    use crate::election::restored_directory::Recorded;
    use crate::lease::promise::PromisedLease;
    use crate::log_probe::{AnswerStream, Answered};

    const OWN: MemberId = MemberId(1);
    const OTHER: MemberId = MemberId(2);
    const LEASE: Duration = Duration::from_secs(60);

    /// A voter with this stored vote. It follows the vote's leader, and grants the requests of the vote's candidate.
    #[derive(Clone, Copy)]
    struct Follower(Vote);

    impl MemberNetwork for Follower {
        fn client(&self, _: Lane, _: MemberId, _: &MemberRecord) -> Box<dyn MemberClient> {
            Box::new(*self)
        }
    }

    impl MemberClient for Follower {
        fn stream(
            &mut self,
            requests: BoxStream<'static, Asked>,
            _: RPCOption,
        ) -> Call<'_, AnswerStream<'_>> {
            let own = self.0;
            let answers = requests.map(move |asked| {
                let result = match asked.request.vote == own {
                    true => Ok(None),
                    false => Err(StreamAppendError::HigherVote(own)),
                };
                Ok(Answered {
                    result,
                    report: None,
                })
            });
            async move { Ok(answers.boxed()) }.boxed()
        }

        fn vote(
            &mut self,
            request: VoteRequest<TypeConfig>,
            _: bool,
            _: RPCOption,
        ) -> Call<'_, VoteResponse<TypeConfig>> {
            let answer = VoteResponse::new(self.0, None, request.vote == self.0);
            async move { Ok(answer) }.boxed()
        }

        fn transfer_leader(
            &mut self,
            _: TransferLeaderRequest<TypeConfig>,
            _: RPCOption,
        ) -> Call<'_, TransferLeaderResponse<TypeConfig>> {
            std::future::pending().boxed()
        }

        fn begin(
            &mut self,
            _: Vote,
            _: OfferedStart,
            _: RPCOption,
        ) -> Call<'_, SnapshotResponse<TypeConfig>> {
            let answer = SnapshotResponse::new(self.0);
            async move { Ok(answer) }.boxed()
        }
    }

    fn network(follower: Vote, contacts: &Contacts) -> EngineNetwork {
        EngineNetwork {
            inner: Arc::new(Follower(follower)),
            contacts: contacts.clone(),
            votes: CountedVotes::new(OWN, Recorded::default(), InterimTerm::default()),
        }
    }

    fn option() -> RPCOption {
        RPCOption::new(Duration::from_secs(1))
    }

    /// Returns the answer to one request of the leader of this term.
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
