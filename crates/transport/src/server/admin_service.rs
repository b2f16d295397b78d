//! The service for operators and for the bootstrapping member: this member's identity, ring, status and commands.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use raft_types::{Incarnation, MemberId, RingId};
use ring_admin::{IdentityError, LogOrigin, RingState};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::callers::Right;
use crate::local_member::{CommandCaller, LocalMember, LogPiece};
use crate::schema::{self, admin_server::Admin};
use crate::server::incoming::{Callers, Reply, called_over};

pub(crate) struct AdminService {
    pub(crate) local: Arc<LocalMember>,
    pub(super) callers: Callers,
    /// Ends the event streams of running commands.
    pub(crate) shutdown: CancellationToken,
}

#[tonic::async_trait]
impl Admin for AdminService {
    type CommandStream = BoxStream<'static, Result<schema::CommandEvent, Status>>;
    type ReadLogStream = BoxStream<'static, Result<schema::LogPart, Status>>;

    async fn identify(
        &self,
        request: Request<schema::IdentifyRequest>,
    ) -> Reply<schema::IdentifyAnswer> {
        self.callers.allow(&request, Right::Read)?;
        let identity = self.local.book.identity();
        let ring_state = match identity.ring {
            RingState::Fresh => schema::RingState::Fresh,
            RingState::Bootstrapping { .. } => schema::RingState::Bootstrapping,
            RingState::Belongs { .. } => schema::RingState::Belongs,
        };
        let ring = identity.ring.ring();
        let log_is_empty = match self.local.inbound.get() {
            Some(inbound) => {
                let pristine = inbound.is_pristine().await;
                Some(pristine.map_err(|fault| Status::unavailable(fault.to_string()))?)
            }
            None => None,
        };
        Ok(Response::new(schema::IdentifyAnswer {
            member: identity.member.0,
            incarnation: identity.incarnation.to_string(),
            ring_state: ring_state.into(),
            ring: ring.map(|ring| ring.to_string()).unwrap_or_default(),
            log_is_empty,
            formats: self.local.book.speaks().to_string(),
        }))
    }

    async fn adopt(&self, request: Request<schema::AdoptRequest>) -> Reply<schema::AdoptAnswer> {
        self.callers.allow(&request, Right::SpeakAsMember)?;
        let request = request.into_inner();
        let unreadable = |_| Status::invalid_argument("the ring or the data directory is no UUID");
        let ring: RingId = request.ring.parse().map_err(unreadable)?;
        let incarnation: Incarnation = request.incarnation.parse().map_err(unreadable)?;
        let own = self.local.book.identity();
        if MemberId(request.member) != own.member || incarnation != own.incarnation {
            let message = format!(
                "the ring is for member {} with data directory {incarnation}, but this is member {} with {}",
                request.member, own.member, own.incarnation
            );
            return Err(Status::failed_precondition(message));
        }
        let book = &self.local.book;
        match book.adopt(ring, &LogOrigin::after(request.origin)) {
            Ok(()) => {
                tracing::info!(%ring, "this member belongs to a ring");
                Ok(Response::new(schema::AdoptAnswer {}))
            }
            Err(error @ IdentityError::File(_)) => Err(Status::internal(error.to_string())),
            Err(refusal) => Err(Status::failed_precondition(refusal.to_string())),
        }
    }

    async fn status(&self, request: Request<schema::StatusRequest>) -> Reply<schema::StatusAnswer> {
        self.callers.allow(&request, Right::Read)?;
        let json = self.local.status.status().await;
        Ok(Response::new(schema::StatusAnswer { json: json.into() }))
    }

    async fn command(
        &self,
        request: Request<schema::CommandRequest>,
    ) -> Reply<Self::CommandStream> {
        let caller = CommandCaller {
            address: called_over(&request).map(|over| over.address),
            certificate_name: self.callers.certificate_name(&request),
        };
        let commands = self.local.commands.get().ok_or_else(|| {
            Status::unavailable("this member is still starting; try again in a moment")
        })?;
        let right = commands.right(&request.get_ref().json);
        self.callers.allow(&request, right)?;
        let mut events = commands.command(caller, request.into_inner().json);
        let shutdown = self.shutdown.clone();
        let events = stream::poll_fn(move |context| events.poll_recv(context))
            .map(|json| Ok(schema::CommandEvent { json }))
            .take_until(shutdown.cancelled_owned());
        Ok(Response::new(events.boxed()))
    }

    async fn read_log(
        &self,
        request: Request<schema::ReadLogRequest>,
    ) -> Reply<Self::ReadLogStream> {
        self.callers.allow(&request, Right::ReadLog)?;
        let log = self.local.readable.get().ok_or_else(|| {
            Status::unavailable("this member is still opening its log; try again in a moment")
        })?;
        let pieces = log.read(request.into_inner().have);
        let shutdown = self.shutdown.clone();
        let parts = pieces
            .flat_map(|piece| {
                let parts: Vec<_> = match piece {
                    Ok(piece) => log_parts(piece).map(Ok).collect(),
                    Err(error) => vec![Err(Status::failed_precondition(error.to_string()))],
                };
                stream::iter(parts)
            })
            .take_until(shutdown.cancelled_owned());
        Ok(Response::new(parts.boxed()))
    }
}

/// Bytes of a transaction in each message. A small number limits memory, and the time for which a thread is blocked.
const PART_BYTES: usize = 1 << 20;

fn log_parts(piece: LogPiece) -> impl Iterator<Item = schema::LogPart> {
    let (mut rest, caught_up) = match piece {
        LogPiece::Transaction(payload) => (payload, false),
        LogPiece::CaughtUp => (Bytes::new(), true),
    };
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let body = rest.split_to(rest.len().min(PART_BYTES));
        over = rest.is_empty();
        Some(schema::LogPart {
            body,
            ends_transaction: over && !caught_up,
            caught_up,
        })
    })
}
