//! Where calls arrive: at a member of this project, or at plain openraft.

use consensus::{Answer, CallError, Inbound, Question};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use openraft::errors::{RPCError, Unreachable};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use raft_types::{MemberId, TypeConfig};

use super::plain::PlainRaft;

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;
type AppendResult = StreamAppendResult<TypeConfig>;

pub(crate) fn unreachable(reason: impl ToString) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(reason))
}

/// See the module.
#[derive(Clone)]
pub(crate) enum Receiver {
    Member(Inbound),
    Plain(PlainRaft),
}

impl Receiver {
    pub(crate) fn append(
        &self,
        requests: impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static,
    ) -> BoxStream<'static, RpcResult<AppendResult>> {
        match self {
            Self::Member(inbound) => inbound
                .append(requests)
                .map(|answer| answer.map_err(unreachable))
                .boxed(),
            Self::Plain(raft) => raft
                .stream_append(requests)
                .map(|answer| answer.map_err(unreachable))
                .boxed(),
        }
    }

    pub(crate) async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
    ) -> RpcResult<AppendResult> {
        let raft = match self {
            Self::Member(inbound) => return inbound.heartbeat(request).await.map_err(unreachable),
            Self::Plain(raft) => raft,
        };
        let named = request.prev_log_id;
        let answer = raft.append_entries(request).await.map_err(unreachable)?;
        Ok(match (answer, named) {
            (AppendEntriesResponse::Success, _) => Ok(named),
            (AppendEntriesResponse::PartialSuccess(matching), _) => Ok(matching),
            (AppendEntriesResponse::HigherVote(vote), _) => {
                Err(StreamAppendError::HigherVote(vote))
            }
            (AppendEntriesResponse::Conflict, Some(named)) => {
                Err(StreamAppendError::Conflict(named))
            }
            (AppendEntriesResponse::Conflict, None) => Ok(None),
        })
    }

    pub(crate) async fn vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        match self {
            Self::Member(inbound) => inbound.vote(request).await.map_err(unreachable),
            Self::Plain(raft) => raft.vote(request).await.map_err(unreachable),
        }
    }

    pub(crate) async fn pre_vote(
        &self,
        request: VoteRequest<TypeConfig>,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        match self {
            Self::Member(inbound) => inbound.pre_vote(request).await.map_err(unreachable),
            Self::Plain(raft) => raft.pre_vote(request).await.map_err(unreachable),
        }
    }

    pub(crate) async fn transfer_leader(
        &self,
        request: TransferLeaderRequest<TypeConfig>,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        match self {
            Self::Member(inbound) => inbound.transfer_leader(request).await.map_err(unreachable),
            Self::Plain(raft) => raft
                .handle_transfer_leader(request)
                .await
                .map_err(unreachable),
        }
    }

    pub(crate) async fn answer(
        &self,
        caller: MemberId,
        question: Question,
    ) -> Result<Answer, CallError> {
        match self {
            Self::Member(inbound) => inbound.answer(caller, question).await,
            Self::Plain(_) => Err(CallError("plain openraft is not asked".to_owned())),
        }
    }
}
