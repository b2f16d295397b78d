//! The service for the engine's calls: checks and decodes a call, passes it to the engine, and returns the answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use consensus::{Fault, Inbound, InstallRefusal};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use openraft::raft::AppendEntriesRequest;
use raft_types::{MemberId, TypeConfig, lock};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::callers::Right;
use crate::local_member::LocalMember;
use crate::schema::raft_server::Raft;
use crate::server::incoming::{Callers, Reply, called_over};
use crate::server::proxy_sessions::serve_line;
use crate::server::stripes::{Expected, Parts};
use crate::wire::{Assembly, WireError};
use crate::{envelope, schema, wire};

pub(crate) struct RaftService {
    pub(crate) local: Arc<LocalMember>,
    pub(super) callers: Callers,
    pub(crate) shutdown: CancellationToken,
    pub(super) stripes: Expected,
}

impl RaftService {
    /// Checks a call. Returns this member's Raft, the caller and the message.
    fn admitted<T>(&self, request: Request<T>) -> Result<(&Inbound, MemberId, T), Status> {
        self.received(request, |_, _| ())
    }

    /// Checks a call as `admitted` does, for calls that only a leader makes.
    fn led<T>(&self, request: Request<T>) -> Result<(&Inbound, MemberId, T), Status> {
        self.received(request, Inbound::leads)
    }

    fn received<T>(
        &self,
        request: Request<T>,
        on_arrival: impl FnOnce(&Inbound, MemberId),
    ) -> Result<(&Inbound, MemberId, T), Status> {
        self.callers.allow(&request, Right::SpeakAsMember)?;
        let (inbound, caller) = self.local.admitted(request.metadata())?;
        if let Some(over) = called_over(&request) {
            over.place.keep();
            let connections = &self.local.connections;
            connections.calls(over.connection, caller, |first| {
                if first {
                    inbound.arrives();
                }
                on_arrival(inbound, caller);
            });
        }
        Ok((inbound, caller, request.into_inner()))
    }
}

#[tonic::async_trait]
impl Raft for RaftService {
    type AppendStream = BoxStream<'static, Result<schema::AppendAnswer, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<schema::AppendPart>>,
    ) -> Reply<Self::AppendStream> {
        let (inbound, _, parts) = self.led(request)?;
        Ok(Response::new(self.answers(inbound, parts.boxed())))
    }

    type AppendStripedStream = BoxStream<'static, Result<schema::AppendAnswer, Status>>;

    async fn append_striped(
        &self,
        request: Request<Streaming<schema::AppendPart>>,
    ) -> Reply<Self::AppendStripedStream> {
        let stripes = envelope::stripes(request.metadata())?;
        let (inbound, caller, parts) = self.led(request)?;
        let session = (caller, stripes.session);
        let merged = self.stripes.open(session, stripes.number, parts.boxed())?;
        Ok(Response::new(self.answers(inbound, merged.boxed())))
    }

    async fn append_stripe(
        &self,
        request: Request<Streaming<schema::AppendPart>>,
    ) -> Reply<schema::StripeEnd> {
        let stripe = envelope::stripes(request.metadata())?;
        let (_, caller, parts) = self.led(request)?;
        let session = (caller, stripe.session);
        let arrives = self.stripes.arrives(session, stripe.number, parts.boxed());
        tokio::select! {
            ended = arrives => ended.map(|()| Response::new(schema::StripeEnd {})),
            () = self.shutdown.cancelled() => Err(Status::unavailable("the member is shutting down")),
        }
    }

    type ProxyStream = BoxStream<'static, Result<schema::ProxyAnswerFrame, Status>>;

    async fn proxy(
        &self,
        request: Request<Streaming<schema::ProxyFrame>>,
    ) -> Reply<Self::ProxyStream> {
        let (_, _, frames) = self.admitted(request)?;
        let service = self.local.proxy.get().ok_or_else(|| {
            Status::unavailable("this member does not forward entries yet; try again in a moment")
        })?;
        let ended = self.shutdown.clone().cancelled_owned();
        let answers = serve_line(service.clone(), frames).take_until(ended.boxed());
        Ok(Response::new(answers.boxed()))
    }

    async fn heartbeat(&self, request: Request<schema::AppendHead>) -> Reply<schema::AppendAnswer> {
        let (inbound, _, head) = self.led(request)?;
        let request = wire::heartbeat_request(head)?;
        let answer = inbound.heartbeat(request).await.map_err(fault_status)?;
        Ok(Response::new(wire::append_answer(answer, None)))
    }

    async fn vote(&self, request: Request<schema::VoteRequest>) -> Reply<schema::VoteAnswer> {
        let (inbound, _, request) = self.admitted(request)?;
        let request = wire::vote_request_from(request)?;
        let answer = inbound.vote(request).await.map_err(fault_status)?;
        Ok(Response::new(wire::vote_answer(&answer)))
    }

    async fn pre_vote(&self, request: Request<schema::VoteRequest>) -> Reply<schema::VoteAnswer> {
        let (inbound, _, request) = self.admitted(request)?;
        let request = wire::vote_request_from(request)?;
        let answer = inbound.pre_vote(request).await.map_err(fault_status)?;
        Ok(Response::new(wire::vote_answer(&answer)))
    }

    async fn transfer_leader(
        &self,
        request: Request<schema::TransferRequest>,
    ) -> Reply<schema::TransferAnswer> {
        let (inbound, _, request) = self.admitted(request)?;
        let request = wire::transfer_request_from(request)?;
        let answer = inbound.transfer_leader(request).await;
        let answer = answer.map_err(fault_status)?;
        Ok(Response::new(wire::transfer_answer(answer)))
    }

    async fn begin(&self, request: Request<schema::BeginRequest>) -> Reply<schema::BeginAnswer> {
        let (inbound, _, request) = self.led(request)?;
        let (vote, start) = wire::begin_request_from(request)?;
        let answer = inbound.install(vote, start).await;
        let answer = answer.map_err(|refusal| match refusal {
            InstallRefusal::Stopped(fault) => fault_status(fault),
            unfit @ InstallRefusal::Unfit { .. } => Status::failed_precondition(unfit.to_string()),
        })?;
        let vote = Some(wire::vote_to(&answer.vote));
        Ok(Response::new(schema::BeginAnswer { vote }))
    }

    async fn ask(&self, request: Request<schema::Question>) -> Reply<schema::Answer> {
        let (inbound, caller, request) = self.admitted(request)?;
        let question = wire::decode("question", &request.json)?;
        let answer = inbound.answer(caller, question).await;
        let answer = answer.map_err(|refusal| Status::failed_precondition(refusal.to_string()))?;
        let json = wire::encode(&answer);
        Ok(Response::new(schema::Answer { json }))
    }
}

impl RaftService {
    /// Returns the engine's answers to a leader's stream.
    fn answers(
        &self,
        inbound: &Inbound,
        parts: Parts,
    ) -> BoxStream<'static, Result<schema::AppendAnswer, Status>> {
        let state = Arc::<Mutex<StreamState>>::default();
        let spill = self.local.spill.get().cloned();
        let requests = Requests {
            parts: Some(parts),
            assembly: Assembly::spilling(spill.unwrap_or_default()),
            wants_report: false,
            state: state.clone(),
            local: self.local.clone(),
        };
        let (local, answered) = (self.local.clone(), state.clone());
        let answers = inbound.append(requests).map(move |answer| {
            let result = answer.map_err(fault_status)?;
            let wants_report = lock(&answered).wanted.pop_front();
            // The report is read after the answer's entries are durable, because it must not be older than the answer.
            let report = wants_report.filter(|wanted| *wanted);
            let report = report.and_then(|_| Some(local.log.get()?.report()));
            Ok(wire::append_answer(result, report.as_ref()))
        });
        let ended = self.shutdown.clone().cancelled_owned();
        let shutdown = self.shutdown.clone();
        let stopping = async move {
            let status = Status::unavailable("the member is shutting down");
            shutdown.is_cancelled().then_some(status)
        };
        answers
            // A failure is sent after the pending answers.
            .chain(last(async move { lock(&state).failure.take() }))
            .take_until(ended.boxed())
            .chain(last(stopping))
            .boxed()
    }
}

/// Returns a stream that only sends a status, if there is one.
fn last(
    status: impl Future<Output = Option<Status>> + Send,
) -> impl Stream<Item = Result<schema::AppendAnswer, Status>> + Send {
    stream::once(status).filter_map(|status| async move { status.map(Err) })
}

/// Returns the status of a stopped engine. The caller then treats this member as unavailable.
fn fault_status(fault: Fault) -> Status {
    Status::unavailable(fault.to_string())
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

// Reads an append stream as whole requests, until it ends or fails. A failure is stored, and sent after the pending answers.

/// State that the requests and answers of a stream share.
#[derive(Debug, Default)]
struct StreamState {
    /// For each unanswered request, in order: true if it wants a report.
    wanted: VecDeque<bool>,
    /// Why this end closed the stream, if it did.
    failure: Option<Status>,
}

/// An append stream, as the engine reads it.
struct Requests {
    parts: Option<Parts>,
    assembly: Assembly,
    /// True if the request that is being assembled wants a report, according to its head.
    wants_report: bool,
    state: Arc<Mutex<StreamState>>,
    local: Arc<LocalMember>,
}

impl Stream for Requests {
    type Item = AppendEntriesRequest<TypeConfig>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while let Some(parts) = &mut this.parts {
            let part = match ready!(parts.poll_next_unpin(context)) {
                Some(Ok(part)) => part,
                // The caller has closed the stream, so the reason cannot be sent.
                Some(Err(_)) | None => break,
            };
            if let Some(head) = &part.head {
                this.wants_report = head.wants_report;
            }
            match this.assembly.push(part) {
                Ok(Some(request)) => {
                    lock(&this.state).wanted.push_back(this.wants_report);
                    return Poll::Ready(Some(request));
                }
                Ok(None) => {
                    if let Some(proxy) = this.local.proxy.get() {
                        proxy.part_arrives();
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a leader's stream of entries is refused");
                    lock(&this.state).failure = Some(Status::data_loss(error.to_string()));
                    break;
                }
            }
        }
        this.parts = None;
        Poll::Ready(None)
    }
}
