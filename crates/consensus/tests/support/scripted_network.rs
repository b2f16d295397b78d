//! A network whose far end is the test: it keeps what is sent, and answers what it was given. Without an
//! answer a call waits for ever, as one into a black hole does.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use consensus::log_probe::{Answered, Asked, ReportingNetwork, RpcResult};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult, VoteRequest,
    VoteResponse,
};
use openraft::type_config::alias::SnapshotOf;
use raft_types::{MemberId, MemberRecord, OfferedStart, TypeConfig, Vote};

/// Which of the engine's clients a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Entries,
    Heartbeats,
}

/// What was sent and what will be answered.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    sent: Vec<(Lane, Asked)>,
    answers: VecDeque<RpcResult<Answered>>,
}

impl Script {
    /// The next request with entries is answered like this.
    pub(crate) fn answers(&self, answer: RpcResult<Answered>) {
        self.lines().answers.push_back(answer);
    }

    /// What was sent since the last look.
    pub(crate) fn sent(&self) -> Vec<(Lane, Asked)> {
        std::mem::take(&mut self.lines().sent)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap()
    }
}

impl RaftNetworkFactory<TypeConfig> for Script {
    type Network = ScriptedClient;

    async fn new_client(&mut self, _: MemberId, _: &MemberRecord) -> ScriptedClient {
        ScriptedClient {
            script: self.clone(),
            lane: Lane::Entries,
        }
    }

    async fn new_heartbeat_client(&mut self, _: MemberId, _: &MemberRecord) -> ScriptedClient {
        ScriptedClient {
            script: self.clone(),
            lane: Lane::Heartbeats,
        }
    }
}

/// A client into the script.
pub(crate) struct ScriptedClient {
    script: Script,
    lane: Lane,
}

impl ReportingNetwork for ScriptedClient {
    fn stream_reported<'s, S>(
        &'s mut self,
        requests: S,
        _: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<Answered>>>>
    where
        S: Stream<Item = Asked> + Send + Unpin + 'static,
    {
        let answers = requests.then(|asked| async {
            let answer = {
                let mut lines = self.script.lines();
                lines.sent.push((self.lane, asked));
                lines.answers.pop_front()
            };
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        });
        async move { Ok(answers.boxed()) }.boxed()
    }
}

impl RaftNetworkV2<TypeConfig> for ScriptedClient {
    type SnapshotData = OfferedStart;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        std::future::pending().await
    }

    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        self.stream_without_reports(requests, option)
    }

    async fn vote(
        &mut self,
        _: VoteRequest<TypeConfig>,
        _: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        std::future::pending().await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        _: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Ok(SnapshotResponse::new(vote))
    }
}
