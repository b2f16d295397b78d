//! The network that requests votes and counts them. It counts no vote of a member whose log ends before what is recorded of it
//! ([`super::put_back`]): that member may not have been informed yet, or its version lacks the message. It does not declare
//! leases over where this member is the interim leader ([`super::stand_in`]). It asks a late voter for its vote already in a
//! pre-vote ([`super::late_votes`]).
//!
//! So this member may hold votes of a term in which its engine has not campaigned, and never may if an earlier election succeeds. The
//! engine takes every vote for its own member as one that it requested, and would neither continue in its role nor give
//! it up. Such a vote is passed to it as the voter's own candidacy in that term, which only shows that the engine's term is old.

use std::future::Future;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::{
    NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendError, StreamAppendResult, VoteRequest,
    VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{Incarnation, MemberId, MemberRecord, OpId, TypeConfig, Vote};

use crate::election::interim_term::InterimTerm;
use crate::election::late_votes::LateVotes;
use crate::election::put_back::Memory;
use crate::lease::leadership::Term;
use crate::log_probe::RpcResult;

/// A factory of [`CountingClient`]s.
pub(crate) struct CountedVotes<F> {
    inner: F,
    own: MemberId,
    memory: Memory,
    interim_term: InterimTerm,
    late: LateVotes,
}

impl<F> CountedVotes<F> {
    /// Over another network, for the member `own`.
    pub(crate) fn new(inner: F, own: MemberId, memory: Memory, interim_term: InterimTerm) -> Self {
        Self {
            inner,
            own,
            memory,
            interim_term,
            late: LateVotes::default(),
        }
    }

    fn client<N>(&self, inner: N, target: MemberId, record: &MemberRecord) -> CountingClient<N> {
        CountingClient {
            inner,
            interim_term: self.interim_term.clone(),
            late: self.late.clone(),
            voter: Voter {
                own: self.own,
                memory: self.memory.clone(),
                member: target,
                whose: record.incarnation,
            },
        }
    }
}

impl<F: RaftNetworkFactory<TypeConfig>> RaftNetworkFactory<TypeConfig> for CountedVotes<F> {
    type Network = CountingClient<F::Network>;

    async fn new_client(&mut self, target: MemberId, record: &MemberRecord) -> Self::Network {
        let inner = self.inner.new_client(target, record).await;
        self.client(inner, target, record)
    }

    async fn new_heartbeat_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        let inner = self.inner.new_heartbeat_client(target, record).await;
        self.client(inner, target, record)
    }

    async fn new_snapshot_client(
        &mut self,
        target: MemberId,
        record: &MemberRecord,
    ) -> Self::Network {
        let inner = self.inner.new_snapshot_client(target, record).await;
        self.client(inner, target, record)
    }
}

/// A client of [`CountedVotes`].
pub(crate) struct CountingClient<N> {
    inner: N,
    interim_term: InterimTerm,
    late: LateVotes,
    voter: Voter,
}

#[derive(Clone)]
struct Voter {
    /// The asking member.
    own: MemberId,
    memory: Memory,
    member: MemberId,
    whose: Incarnation,
}

impl Voter {
    /// The answer as it counts.
    fn counted(&self, term: u64, mut answer: VoteResponse<TypeConfig>) -> VoteResponse<TypeConfig> {
        let end = answer.last_log_id.map(OpId::from);
        let lacks = self.memory.lacks(self.member, self.whose, term, end);
        if let (true, Some(known)) = (answer.vote_granted, lacks) {
            tracing::error!(
                member = %self.member,
                "its vote is not counted: its log has had {known}, and lacks it now, so that its data directory was put back to an \
                 earlier state. See the runbook data-directory-put-back"
            );
            answer.vote_granted = false;
        }
        answer
    }

    /// A vote as the engine may receive it if it campaigned in no term after `stood`.
    fn told(&self, vote: Vote, stood: u64) -> Vote {
        let leader = vote.leader_id;
        match leader.voted_for == self.own && leader.term > stood {
            true => Vote::new(leader.term, self.member),
            false => vote,
        }
    }
}

impl<N: NetVote<TypeConfig>> NetVote<TypeConfig> for CountingClient<N> {
    async fn vote(
        &mut self,
        mut request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        request.leadership_transfer &= !self.interim_term.asks_in(Term(term));
        let asked = self.late.ask(self.voter.member);
        let answer = self.inner.vote(request, option).await;
        if !matches!(answer, Err(RPCError::Timeout(_))) {
            asked.answered();
        }
        let mut answer = self.voter.counted(term, answer?);
        answer.vote = self.voter.told(answer.vote, term);
        Ok(answer)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        let is_late = self.late.is_late(self.voter.member);
        let answer = match is_late {
            true => self.inner.vote(request, option).await?,
            false => self.inner.pre_vote(request, option).await?,
        };
        let mut answer = self.voter.counted(term, answer);
        if !is_late {
            self.late.pre_voted(self.voter.member, answer.vote_granted);
        }
        if !answer.vote_granted {
            answer.vote = self.voter.told(answer.vote, term - 1);
        }
        Ok(answer)
    }
}

crate::passes_on_transfers!([N: NetTransferLeader<TypeConfig> + NetBackoff<TypeConfig>] CountingClient<N>);

impl<N: NetStreamAppend<TypeConfig>> NetStreamAppend<TypeConfig> for CountingClient<N> {
    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let voter = self.voter.clone();
        let told = move |error| match error {
            // It is later than this member's term.
            StreamAppendError::HigherVote(vote) => {
                StreamAppendError::HigherVote(voter.told(vote, u64::MIN))
            }
            StreamAppendError::Conflict(at) => StreamAppendError::Conflict(at),
        };
        let answers = self.inner.stream_append(requests, option);
        async move {
            let answers = answers.await?.map_ok(move |answer| answer.map_err(&told));
            Ok(answers.boxed())
        }
        .boxed()
    }
}

impl<N: NetSnapshot<TypeConfig>> NetSnapshot<TypeConfig> for CountingClient<N> {
    type SnapshotData = N::SnapshotData;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, Self::SnapshotData>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let term = vote.leader_id.term;
        let sent = self.inner.full_snapshot(vote, snapshot, cancel, option);
        let answer = sent.await?;
        Ok(SnapshotResponse::new(self.voter.told(answer.vote, term)))
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Standing;

    use super::*;

    /// Grants a vote exactly where the request declares leases over.
    struct Told;

    impl NetVote<TypeConfig> for Told {
        async fn vote(
            &mut self,
            request: VoteRequest<TypeConfig>,
            _option: RPCOption,
        ) -> RpcResult<VoteResponse<TypeConfig>> {
            let told = request.leadership_transfer;
            Ok(VoteResponse::new(request.vote, None, told))
        }

        async fn pre_vote(
            &mut self,
            request: VoteRequest<TypeConfig>,
            option: RPCOption,
        ) -> RpcResult<VoteResponse<TypeConfig>> {
            self.vote(request, option).await
        }
    }

    #[tokio::test]
    async fn a_lease_is_kept_from_who_stands_in() {
        let interim_term = InterimTerm::default();
        interim_term.campaigns_in(Term(5));
        let votes = CountedVotes::new((), MemberId(1), Memory::default(), interim_term);
        let mut client = votes.client(Told, MemberId(2), &MemberRecord::default());
        let mut told = Vec::new();
        for term in 4..7 {
            let request = VoteRequest::<TypeConfig> {
                vote: Vote::new(term, MemberId(1)),
                last_log_id: None,
                leadership_transfer: true,
            };
            let option = RPCOption::new(std::time::Duration::from_secs(1));
            let answer = client.vote(request, option).await.unwrap();
            told.push(answer.vote_granted);
        }
        assert_eq!(told, [true, false, true]);
    }

    #[test]
    fn the_vote_of_a_member_that_lacks_what_it_had_is_not_counted() {
        let (memory, member, whose) = (Memory::default(), MemberId(2), Incarnation::random());
        let voter = Voter {
            own: MemberId(1),
            memory: memory.clone(),
            member,
            whose,
        };
        let granted = |end| {
            let end = OpId::new(3, end).into();
            let answer = VoteResponse::new(Vote::new(4, MemberId(1)), Some(end), true);
            voter.counted(4, answer).vote_granted
        };
        assert!(granted(50), "nothing is known of it");
        let end = Some(OpId::new(3, 80));
        memory.acknowledged(member, whose, Standing { term: 3, end });
        assert!(!granted(79));
        assert!(granted(80));
    }

    /// Has voted for member 1 in term 8, and agrees to nothing else.
    struct VotedInTerm8;

    impl NetVote<TypeConfig> for VotedInTerm8 {
        async fn vote(
            &mut self,
            request: VoteRequest<TypeConfig>,
            _option: RPCOption,
        ) -> RpcResult<VoteResponse<TypeConfig>> {
            let own = Vote::new(8, MemberId(1));
            Ok(VoteResponse::new(own, None, request.vote == own))
        }

        async fn pre_vote(
            &mut self,
            _request: VoteRequest<TypeConfig>,
            _option: RPCOption,
        ) -> RpcResult<VoteResponse<TypeConfig>> {
            Ok(VoteResponse::new(Vote::new(8, MemberId(1)), None, false))
        }
    }

    impl NetStreamAppend<TypeConfig> for VotedInTerm8 {
        fn stream_append<'s, S>(
            &'s mut self,
            _requests: S,
            _option: RPCOption,
        ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
        where
            S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
        {
            let own = Vote::new(8, MemberId(1));
            let rejects = Ok(Err(StreamAppendError::HigherVote(own)));
            std::future::ready(Ok(futures::stream::iter([rejects]).boxed())).boxed()
        }
    }

    #[tokio::test]
    async fn the_engine_hears_of_no_vote_for_it_in_a_term_in_which_it_has_not_stood() {
        let votes = CountedVotes::new((), MemberId(1), Memory::default(), InterimTerm::default());
        let mut client = votes.client(VotedInTerm8, MemberId(2), &MemberRecord::default());
        let option = || RPCOption::new(std::time::Duration::from_secs(1));
        let request = |term| VoteRequest::<TypeConfig> {
            vote: Vote::new(term, MemberId(1)),
            last_log_id: None,
            leadership_transfer: false,
        };
        let [own, anothers] = [1, 2].map(|member| Vote::new(8, MemberId(member)));
        // Its engine campaigns in the term for which it requests votes, and in the one before that of its pre-votes.
        let mut heard = Vec::new();
        for term in [7, 8] {
            heard.push(client.vote(request(term), option()).await.unwrap().vote);
        }
        for term in [8, 9] {
            let answer = client.pre_vote(request(term), option()).await.unwrap();
            heard.push(answer.vote);
        }
        assert_eq!(heard, [anothers, own, anothers, own]);
        let appends = futures::stream::empty();
        let mut answers = client.stream_append(appends, option()).await.unwrap();
        let answer = answers.next().await.unwrap().unwrap();
        assert_eq!(answer, Err(StreamAppendError::HigherVote(anothers)));
    }
}
