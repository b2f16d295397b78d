//! The network that counts no vote of a member whose log ends before what is remembered of it ([`super::put_back`]). That member may
//! not have been told yet, or run a program that does not know the words.

use futures::Stream;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use openraft::OptionalSend;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{
    NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{Incarnation, MemberId, MemberRecord, OpId, TypeConfig, Vote};

use crate::election::put_back::Memory;
use crate::log_probe::RpcResult;

/// A factory whose clients count votes so.
pub(crate) struct CountedVotes<F> {
    inner: F,
    memory: Memory,
}

impl<F> CountedVotes<F> {
    pub(crate) fn new(inner: F, memory: Memory) -> Self {
        Self { inner, memory }
    }

    fn client<N>(&self, inner: N, target: MemberId, record: &MemberRecord) -> CountingClient<N> {
        CountingClient {
            inner,
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
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        let answer = self.inner.vote(request, option).await?;
        Ok(self.voter.counted(term, answer))
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let term = request.vote.leader_id.term;
        let answer = self.inner.pre_vote(request, option).await?;
        Ok(self.voter.counted(term, answer))
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
