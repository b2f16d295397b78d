//! The network that asks for votes and counts them. It counts no vote of a member whose log ends before what is remembered of it
//! ([`super::put_back`]): that member may not have been told yet, or run a program that does not know the words. And it does not say that
//! leases are over where this member stands in for those that vote ([`super::stand_in`]). Of a voter that is late it asks the vote
//! already in a pre-vote ([`super::late_votes`]).

use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use openraft::OptionalSend;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError};
use openraft::network::{
    NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{Incarnation, MemberId, MemberRecord, OpId, TypeConfig, Vote};

use crate::election::late_votes::LateVotes;
use crate::election::put_back::Memory;
use crate::election::stand_in::StandIn;
use crate::lease::leadership::Term;
use crate::log_probe::RpcResult;

/// A factory whose clients count votes so.
pub(crate) struct CountedVotes<F> {
    inner: F,
    memory: Memory,
    stand_in: StandIn,
    late: LateVotes,
}

impl<F> CountedVotes<F> {
    pub(crate) fn new(inner: F, memory: Memory, stand_in: StandIn) -> Self {
        Self {
            inner,
            memory,
            stand_in,
            late: LateVotes::default(),
        }
    }

    fn client<N>(&self, inner: N, target: MemberId, record: &MemberRecord) -> CountingClient<N> {
        CountingClient {
            inner,
            stand_in: self.stand_in.clone(),
            late: self.late.clone(),
            voter: Voter {
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
    stand_in: StandIn,
    late: LateVotes,
    voter: Voter,
}

struct Voter {
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
}

impl<N: NetVote<TypeConfig>> NetVote<TypeConfig> for CountingClient<N> {
    async fn vote(
        &mut self,
        mut request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        request.leadership_transfer &= !self.stand_in.asks_in(Term(term));
        let asked = self.late.ask(self.voter.member);
        let answer = self.inner.vote(request, option).await;
        if !matches!(answer, Err(RPCError::Timeout(_))) {
            asked.answered();
        }
        Ok(self.voter.counted(term, answer?))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        if self.late.is_late(self.voter.member) {
            let answer = self.inner.vote(request, option).await?;
            return Ok(self.voter.counted(term, answer));
        }
        let answer = self.inner.pre_vote(request, option).await?;
        let answer = self.voter.counted(term, answer);
        self.late.pre_voted(self.voter.member, answer.vote_granted);
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
        self.inner.stream_append(requests, option)
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
        self.inner
            .full_snapshot(vote, snapshot, cancel, option)
            .await
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Standing;

    use super::*;

    /// Says whether it was told that leases are over, by whom it names.
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
        let stand_in = StandIn::default();
        stand_in.campaigns_in(Term(5));
        let votes = CountedVotes::new((), Memory::default(), stand_in);
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
}
