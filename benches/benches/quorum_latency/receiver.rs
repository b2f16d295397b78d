//! The receiver of calls: a member of this project, or plain openraft.

use consensus::log_probe::RpcResult;
use consensus::{CallError, Inbound};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, StreamAppendResult,
};
use raft_types::{LogId, MemberId, TypeConfig};
use testkit::network::{Call, Reply, receive, unreachable};

use super::plain::PlainRaft;

/// The receiving end of one member.
#[derive(Clone)]
pub(crate) enum Receiver {
    Member(Inbound),
    Plain(PlainRaft),
}

impl Receiver {
    pub(crate) fn append(
        &self,
        requests: impl Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + 'static,
    ) -> BoxStream<'static, RpcResult<StreamAppendResult<TypeConfig>>> {
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

    pub(crate) async fn take(&self, caller: MemberId, call: Call) -> Reply {
        let raft = match self {
            Self::Member(inbound) => return receive(inbound, caller, call).await,
            Self::Plain(raft) => raft,
        };
        let stopped = |error: &dyn ToString| Reply::Unreachable(error.to_string());
        match call {
            Call::Vote(request) => {
                let answer = raft.vote(request).await;
                answer.map_or_else(|error| stopped(&error), Reply::Vote)
            }
            Call::PreVote(request) => {
                let answer = raft.pre_vote(request).await;
                answer.map_or_else(|error| stopped(&error), Reply::Vote)
            }
            Call::Heartbeat(request) => {
                let named = request.prev_log_id;
                let answer = raft.append_entries(request).await;
                let answer = answer.map(|answer| as_of_a_stream(answer, named));
                answer.map_or_else(|error| stopped(&error), Reply::Heartbeat)
            }
            Call::Transfer(request) => {
                let answer = raft.handle_transfer_leader(request).await;
                answer.map_or_else(|error| stopped(&error), Reply::Transfer)
            }
            Call::Begin(..) => Reply::Unreachable("nothing is purged in this bench".to_owned()),
            Call::Ask(_) => Reply::Ask(Err(CallError("plain openraft is not asked".to_owned()))),
            Call::Knock => Reply::Answers,
        }
    }
}

fn as_of_a_stream(
    answer: AppendEntriesResponse<TypeConfig>,
    named: Option<LogId>,
) -> StreamAppendResult<TypeConfig> {
    match (answer, named) {
        (AppendEntriesResponse::Success, _) => Ok(named),
        (AppendEntriesResponse::PartialSuccess(matching), _) => Ok(matching),
        (AppendEntriesResponse::HigherVote(vote), _) => Err(StreamAppendError::HigherVote(vote)),
        (AppendEntriesResponse::Conflict, Some(named)) => Err(StreamAppendError::Conflict(named)),
        (AppendEntriesResponse::Conflict, None) => Ok(None),
    }
}
