//! The engine's calls: admission, decoding, the engine, the answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use consensus::{Fault, Inbound, InstallRefusal};
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt, stream};
use openraft::raft::{AppendEntriesRequest, VoteResponse};
use raft_types::{MemberId, TypeConfig};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::callers::Right;
use crate::connections::Arrival;
use crate::local_member::LocalMember;
use crate::schema::raft_server::Raft;
use crate::server::authorization::{Callers, called_over};
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
    /// The engine, the caller and the message of an admitted call.
    fn admitted<T>(&self, request: Request<T>) -> Result<(&Inbound, MemberId, T), Status> {
        self.listened_to(request, |_, _| ())
    }

    /// The same for calls that only a leader makes.
    fn led<T>(&self, request: Request<T>) -> Result<(&Inbound, MemberId, T), Status> {
        self.listened_to(request, Inbound::leads)
    }

    fn listened_to<T>(
        &self,
        request: Request<T>,
        heard: impl FnOnce(&Inbound, MemberId),
    ) -> Result<(&Inbound, MemberId, T), Status> {
        self.callers.allow(&request, Right::SpeakAsMember)?;
        let (inbound, caller) = self.local.admitted(request.metadata())?;
        if let Some(over) = called_over(&request) {
            over.place.keep();
            let connections = &self.local.connections;
            connections.calls(over.connection, caller, |arrival| {
                if arrival == Arrival::First {
                    inbound.arrives();
                }
                heard(inbound, caller);
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
    ) -> Result<Response<Self::AppendStream>, Status> {
        let (inbound, _, parts) = self.led(request)?;
        Ok(Response::new(self.answers(inbound, parts.boxed())))
    }

    type AppendStripedStream = BoxStream<'static, Result<schema::AppendAnswer, Status>>;

    async fn append_striped(
        &self,
        request: Request<Streaming<schema::AppendPart>>,
    ) -> Result<Response<Self::AppendStripedStream>, Status> {
        let stripes = envelope::stripes(request.metadata())?;
        let (inbound, caller, parts) = self.led(request)?;
        let session = (caller, stripes.session);
        let merged = self.stripes.open(session, stripes.number, parts.boxed())?;
        Ok(Response::new(self.answers(inbound, merged.boxed())))
    }

    async fn append_stripe(
        &self,
        request: Request<Streaming<schema::AppendPart>>,
    ) -> Result<Response<schema::StripeEnd>, Status> {
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
    ) -> Result<Response<Self::ProxyStream>, Status> {
        let (_, _, frames) = self.admitted(request)?;
        let service = self.local.proxy().ok_or_else(|| {
            Status::unavailable("this member does not forward entries yet; try again in a moment")
        })?;
        let ended = self.shutdown.clone().cancelled_owned();
        let answers = serve_line(service, frames).take_until(ended.boxed());
        Ok(Response::new(answers.boxed()))
    }

    async fn heartbeat(
        &self,
        request: Request<schema::AppendHead>,
    ) -> Result<Response<schema::AppendAnswer>, Status> {
        let (inbound, _, head) = self.led(request)?;
        let request = wire::heartbeat_request(head).map_err(wire_status)?;
        let answer = inbound.heartbeat(request).await.map_err(fault_status)?;
        Ok(Response::new(wire::append_answer(answer)))
    }

    async fn vote(
        &self,
        request: Request<schema::VoteRequest>,
    ) -> Result<Response<schema::VoteAnswer>, Status> {
        let (inbound, _, request) = self.admitted(request)?;
        let request = wire::vote_request_from(request).map_err(wire_status)?;
        vote_answer(inbound.vote(request).await)
    }

    async fn pre_vote(
        &self,
        request: Request<schema::VoteRequest>,
    ) -> Result<Response<schema::VoteAnswer>, Status> {
        let (inbound, _, request) = self.admitted(request)?;
        let request = wire::vote_request_from(request).map_err(wire_status)?;
        vote_answer(inbound.pre_vote(request).await)
    }

    async fn transfer_leader(
        &self,
        request: Request<schema::TransferRequest>,
    ) -> Result<Response<schema::TransferAnswer>, Status> {
        let (inbound, _, request) = self.admitted(request)?;
        let request = wire::transfer_request_from(request).map_err(wire_status)?;
        let answer = inbound.transfer_leader(request).await;
        let answer = answer.map_err(fault_status)?;
        Ok(Response::new(wire::transfer_answer(answer)))
    }

    async fn begin(
        &self,
        request: Request<schema::BeginRequest>,
    ) -> Result<Response<schema::BeginAnswer>, Status> {
        let (inbound, _, request) = self.led(request)?;
        let (vote, start) = wire::begin_request_from(request).map_err(wire_status)?;
        let answer = inbound.install(vote, start).await;
        let answer = answer.map_err(|refusal| match refusal {
            InstallRefusal::Stopped(fault) => fault_status(fault),
            unfit @ InstallRefusal::Unfit { .. } => Status::failed_precondition(unfit.to_string()),
        })?;
        Ok(Response::new(wire::begin_answer(&answer.vote)))
    }

    async fn ask(
        &self,
        request: Request<schema::Question>,
    ) -> Result<Response<schema::Answer>, Status> {
        let (inbound, caller, request) = self.admitted(request)?;
        let question = wire::question_from(&request).map_err(wire_status)?;
        let answer = inbound.answer(caller, question).await;
        let answer = answer.map_err(|refusal| Status::failed_precondition(refusal.to_string()))?;
        Ok(Response::new(wire::answer(&answer)))
    }
}

impl RaftService {
    /// The engine's answers to a leader's stream.
    fn answers(
        &self,
        inbound: &Inbound,
        parts: Parts,
    ) -> BoxStream<'static, Result<schema::AppendAnswer, Status>> {
        let (wanted, end) = (Wanted::default(), EndReason::default());
        let requests = Requests::new(parts, self.local.clone(), wanted.clone(), end.clone());
        let local = self.local.clone();
        let answers = inbound.append(requests).map(move |answer| {
            let result = answer.map_err(fault_status)?;
            // Now that the answer's entries are durable: the report must not be older.
            let report = wanted.take().then(|| local.log_report()).flatten();
            Ok(wire::reported_answer(result, report.as_ref()))
        });
        // After the pending answers: why the stream ends.
        let reason = stream::once(async move { end.take() })
            .filter_map(|reason| async move { reason.map(Err) });
        let ended = self.shutdown.clone().cancelled_owned();
        let last_word = Status::unavailable("the member is shutting down");
        answers
            .chain(reason)
            .take_until(ended.boxed())
            .chain(self.unless_running(last_word))
            .boxed()
    }

    /// A status if the server is shutting down when the stream ends, otherwise nothing.
    fn unless_running(
        &self,
        status: Status,
    ) -> impl futures::Stream<Item = Result<schema::AppendAnswer, Status>> + use<> {
        let shutdown = self.shutdown.clone();
        stream::once(async move { shutdown.is_cancelled().then_some(Err(status)) })
            .filter_map(|status| async move { status })
    }
}

fn vote_answer(
    answer: Result<VoteResponse<TypeConfig>, Fault>,
) -> Result<Response<schema::VoteAnswer>, Status> {
    let answer = answer.map_err(fault_status)?;
    Ok(Response::new(wire::vote_answer(&answer)))
}

/// The engine has stopped: the caller treats this member as unavailable.
fn fault_status(fault: Fault) -> Status {
    Status::unavailable(fault.to_string())
}

fn wire_status(error: WireError) -> Status {
    Status::invalid_argument(error.to_string())
}

// An append stream as whole requests, until it ends or fails. The failure is kept and sent after the pending answers.

/// Why this end closed a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndReason(Arc<Mutex<Option<Status>>>);

impl EndReason {
    fn set(&self, status: Status) {
        let mut reason = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reason.get_or_insert(status);
    }

    pub(crate) fn take(&self) -> Option<Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Which unanswered requests ask for a report, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted(Arc<Mutex<VecDeque<bool>>>);

impl Wanted {
    fn push(&self, wants_report: bool) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.push_back(wants_report);
    }

    /// Whether the next answer includes a report.
    pub(crate) fn take(&self) -> bool {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.pop_front().unwrap_or(false)
    }
}

/// An append stream as the engine reads it.
pub(crate) struct Requests {
    parts: Option<Parts>,
    assembly: Assembly,
    /// From the head of the request being assembled.
    wants_report: bool,
    wanted: Wanted,
    end: EndReason,
    local: Arc<LocalMember>,
}

impl Requests {
    fn new(parts: Parts, local: Arc<LocalMember>, wanted: Wanted, end: EndReason) -> Self {
        Self {
            parts: Some(parts),
            assembly: Assembly::spilling(local.spill()),
            local,
            wants_report: false,
            wanted,
            end,
        }
    }
}

impl Stream for Requests {
    type Item = AppendEntriesRequest<TypeConfig>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while let Some(parts) = &mut this.parts {
            let part = match ready!(parts.poll_next_unpin(context)) {
                Some(Ok(part)) => part,
                // The caller is gone, so there is no recipient for a reason.
                Some(Err(_)) | None => break,
            };
            if let Some(head) = &part.head {
                this.wants_report = head.wants_report;
            }
            match this.assembly.push(part) {
                Ok(Some(request)) => {
                    this.wanted.push(this.wants_report);
                    return Poll::Ready(Some(request));
                }
                Ok(None) => {
                    if let Some(proxy) = this.local.proxy() {
                        proxy.part_arrives();
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a leader's stream of entries is refused");
                    this.end.set(Status::data_loss(error.to_string()));
                    break;
                }
            }
        }
        this.parts = None;
        Poll::Ready(None)
    }
}
