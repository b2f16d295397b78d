//! Incoming connections: the calling member of each, and the end of a member's last one. A leader's exiting process closes its connections,
//! so that followers need not wait for missing heartbeats.

use std::collections::BTreeMap;
use std::io;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use connection_limit::Place;
use raft_types::MemberId;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use crate::local_member::LocalMember;
use crate::streams::ByteStream;

/// Connection number, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// Whether a calling member already had an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    First,
    Known,
}

/// All open connections, with the member that calls over each, once known.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    callers: BTreeMap<ConnectionId, Option<MemberId>>,
}

impl Connections {
    fn opens(&self) -> ConnectionId {
        let mut open = self.lock();
        open.next += 1;
        let id = ConnectionId(open.next);
        open.callers.insert(id, None);
        id
    }

    /// Records a member's call over a connection. If the connection is still open, `heard` receives whether the member had no other open
    /// one. This is ordered with the end of the last connection, so that earlier calls of a dead process do not count as a sign of life.
    pub(crate) fn calls(&self, id: ConnectionId, caller: MemberId, heard: impl FnOnce(Arrival)) {
        let mut open = self.lock();
        let known = open.callers.values().any(|other| *other == Some(caller));
        if let Some(of_this) = open.callers.get_mut(&id) {
            *of_this = Some(caller);
            heard(match known {
                true => Arrival::Known,
                false => Arrival::First,
            });
        }
    }

    /// Records a closed connection. If it was a member's last one, `hung_up` receives the member.
    fn closes(&self, id: ConnectionId, hung_up: impl FnOnce(MemberId)) {
        let mut open = self.lock();
        let caller = open.callers.remove(&id).flatten();
        let last = caller.filter(|_| !open.callers.values().any(|other| *other == caller));
        if let Some(caller) = last {
            hung_up(caller);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        // Each change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection until it is closed.
pub(super) struct Connection<S> {
    stream: S,
    from: SocketAddr,
    id: ConnectionId,
    local: Arc<LocalMember>,
    place: Arc<Place>,
    /// Resolves when another connection takes its place; `None` once it keeps its place.
    lost: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<S> Connection<S> {
    pub(super) fn new(stream: S, from: SocketAddr, place: Place, local: Arc<LocalMember>) -> Self {
        let id = local.connections.opens();
        let lost = Some(Box::pin(place.lost()));
        Self {
            stream,
            from,
            id,
            local,
            place: Arc::new(place),
            lost,
        }
    }

    /// Whether it must close to free its place.
    fn is_lost(&mut self, context: &mut Context<'_>) -> bool {
        if self.place.is_kept() {
            self.lost = None;
        }
        let lost = self.lost.as_mut();
        lost.is_some_and(|lost| lost.as_mut().poll(context).is_ready())
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        let local = &self.local;
        local.connections.closes(self.id, |caller| {
            if let Some(inbound) = local.inbound() {
                inbound.hung_up(caller);
            }
        });
    }
}

/// Connection properties available to each call.
#[derive(Debug, Clone)]
pub(super) struct CalledOver {
    pub(super) connection: ConnectionId,
    pub(super) address: SocketAddr,
    /// The caller's certificate first; empty without TLS.
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
    /// A member's connection keeps its place after its first call.
    pub(super) place: Arc<Place>,
}

/// A stream that exposes properties of its other end.
pub(super) trait OtherEnd {
    fn certificates(&self) -> Arc<[CertificateDer<'static>]>;
}

impl OtherEnd for ByteStream {
    fn certificates(&self) -> Arc<[CertificateDer<'static>]> {
        Arc::default()
    }
}

impl OtherEnd for TlsStream<ByteStream> {
    fn certificates(&self) -> Arc<[CertificateDer<'static>]> {
        self.get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default()
            .into()
    }
}

impl<S: OtherEnd> Connected for Connection<S> {
    type ConnectInfo = CalledOver;

    fn connect_info(&self) -> CalledOver {
        CalledOver {
            connection: self.id,
            address: self.from,
            certificates: self.stream.certificates(),
            place: self.place.clone(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_lost(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_member_hangs_up_with_the_last_connection_over_which_it_called() {
        let connections = Connections::default();
        let [urgent, bulk, stranger, silent] = [(); 4].map(|()| connections.opens());
        use Arrival::{First, Known};
        let heard = RefCell::new(Vec::new());
        let calls = |id, caller| {
            connections.calls(id, MemberId(caller), |arrival| {
                heard.borrow_mut().push(arrival);
            });
        };
        calls(urgent, 1);
        calls(bulk, 1);
        calls(stranger, 2);
        let mut gone = Vec::new();
        let mut closes = |id| {
            connections.closes(id, |member| gone.push(member));
            gone.clone()
        };
        assert_eq!(closes(silent), []);
        assert_eq!(closes(bulk), [], "the other one is open");
        assert_eq!(closes(urgent), [MemberId(1)]);
        assert_eq!(*heard.borrow(), [First, Known, First]);
        // A call read before the end, and processed only now.
        calls(urgent, 1);
        assert_eq!(*heard.borrow(), [First, Known, First]);
        assert_eq!(closes(urgent), [MemberId(1)], "once");
        let again = connections.opens();
        calls(again, 1);
        assert_eq!(*heard.borrow(), [First, Known, First, First]);
        assert_eq!(closes(stranger), [MemberId(1), MemberId(2)]);
    }
}
