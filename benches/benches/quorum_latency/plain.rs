//! Unmodified openraft with the same log and network. Its state machine only answers.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use binlog_store::BinlogStore;
use consensus::Timers;
use consensus::log_probe::{Asked, Call, Lane, MemberClient, MemberNetwork, RpcResult};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, ClientWriteResult, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{Config, OptionalSend, RaftSnapshotBuilder, SnapshotPolicy};
use raft_types::{
    AppEntry, LogId, MemberId, MemberRecord, OfferedStart, OpId, ProposalListener,
    ProposalResponder, StoredMembership, TypeConfig, Vote,
};
use tokio::sync::oneshot;

/// Longer than a successful bootstrap takes.
const READY_LIMIT: Duration = Duration::from_secs(20);

pub(crate) type PlainRaft = openraft::Raft<TypeConfig, Answering>;

/// Starts one member.
pub(crate) async fn start(
    id: MemberId,
    timers: Timers,
    log: BinlogStore,
    port: impl MemberNetwork,
) -> Result<PlainRaft> {
    let millis = |duration: Duration| duration.as_millis() as u64;
    let config = Config {
        heartbeat_interval: millis(timers.heartbeat),
        election_timeout_min: millis(timers.heartbeat) + 1,
        election_timeout_max: millis(timers.lease),
        enable_pre_vote: Some(true),
        snapshot_policy: SnapshotPolicy::Never,
        ..Config::default()
    };
    let config = Arc::new(config.validate()?);
    Ok(PlainRaft::new(id, config, PlainNetwork(port), log, Answering::default()).await?)
}

/// Bootstraps the ring, in which all members vote, and waits until `raft` is its leader.
pub(crate) async fn found(
    raft: &PlainRaft,
    records: BTreeMap<MemberId, MemberRecord>,
    own: MemberId,
) -> Result<()> {
    raft.initialize(records)
        .await
        .map_err(|error| anyhow!("{error}"))?;
    let metrics = raft.wait(Some(READY_LIMIT));
    let leads = metrics
        .current_leader(own, "the bootstrapping member leads")
        .await;
    leads.map_err(|error| anyhow!("{error}"))?;
    // The leader accepts no writes before the first entry of its term is committed.
    let taking = metrics.metrics(
        |seen| seen.last_applied.is_some_and(|at| at.index > 0),
        "the ring's first entry is committed",
    );
    taking.await.map_err(|error| anyhow!("{error}"))?;
    Ok(())
}

/// Writes one entry and waits until it is committed.
pub(crate) async fn commit(raft: &PlainRaft, entry: AppEntry) -> Result<()> {
    let (committed, waiting) = oneshot::channel();
    let responder = ProposalResponder::new(Waiting(Some(committed)));
    raft.write(entry).responder(responder).await?;
    waiting.await.context("openraft did not commit an entry")
}

/// Reports a commit as soon as openraft reports it, as this project's members do.
struct Waiting(Option<oneshot::Sender<()>>);

impl ProposalListener<ClientWriteResult<TypeConfig>> for Waiting {
    fn committed(&mut self, _: OpId) {
        if let Some(waiting) = self.0.take() {
            let _ = waiting.send(());
        }
    }

    fn completed(mut self: Box<Self>, result: ClientWriteResult<TypeConfig>) {
        if let (Some(waiting), Ok(_)) = (self.0.take(), result) {
            let _ = waiting.send(());
        }
    }
}

/// A state machine that stores nothing and answers each write immediately.
#[derive(Debug, Default)]
pub(crate) struct Answering {
    applied: Option<LogId>,
    membership: StoredMembership,
}

impl RaftStateMachine<TypeConfig> for Answering {
    type SnapshotData = OfferedStart;
    type SnapshotBuilder = Never;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            if let Some(membership) = entry.payload.as_membership() {
                self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
            }
            self.applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Never {
        Never
    }

    async fn install_snapshot(
        &mut self,
        _: &SnapshotMetaOf<TypeConfig>,
        _: OfferedStart,
    ) -> Result<(), io::Error> {
        Err(never())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, OfferedStart>>, io::Error> {
        Ok(None)
    }
}

/// A snapshot builder that is never used, because the snapshot policy builds no snapshots.
pub(crate) struct Never;

impl RaftSnapshotBuilder<TypeConfig> for Never {
    type SnapshotData = OfferedStart;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, OfferedStart>, io::Error> {
        Err(never())
    }
}

fn never() -> io::Error {
    io::Error::other("this bench makes no snapshots")
}

/// Adapts the members' network to openraft's interface.
struct PlainNetwork<N>(N);

/// Calls one member.
struct PlainClient(Box<dyn MemberClient>);

impl<N: MemberNetwork> RaftNetworkFactory<TypeConfig> for PlainNetwork<N> {
    type Network = PlainClient;

    async fn new_client(&mut self, to: MemberId, record: &MemberRecord) -> PlainClient {
        PlainClient(self.0.client(Lane::Entries, to, record))
    }

    async fn new_heartbeat_client(&mut self, to: MemberId, record: &MemberRecord) -> PlainClient {
        PlainClient(self.0.client(Lane::Heartbeats, to, record))
    }
}

impl NetStreamAppend<TypeConfig> for PlainClient {
    fn stream_append<'s, S>(
        &'s mut self,
        requests: S,
        option: RPCOption,
    ) -> Call<'s, BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let requests = requests.map(|request| Asked::new(request, false)).boxed();
        async move {
            let answers = self.0.stream(requests, option).await?;
            Ok(answers.map_ok(|answered| answered.result).boxed())
        }
        .boxed()
    }
}

impl NetVote<TypeConfig> for PlainClient {
    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.0.vote(request, false, option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        self.0.vote(request, true, option).await
    }
}

impl NetSnapshot<TypeConfig> for PlainClient {
    type SnapshotData = OfferedStart;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, OfferedStart>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        Ok(self.0.begin(vote, snapshot.snapshot, option).await?)
    }
}

impl NetTransferLeader<TypeConfig> for PlainClient {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        self.0.transfer_leader(request, option).await
    }
}

impl NetBackoff<TypeConfig> for PlainClient {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}
