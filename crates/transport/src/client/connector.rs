//! Opens connections by address: looks up the name, uses the system's sockets or other streams, and adds TLS. Also describes connection
//! errors.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{future, io, iter};

use consensus::Knock;
use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use sockets::{Found, LOOKUP_LIMIT, Names};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::client::far::FarLine;
use crate::config::{CONNECTION_WINDOW_BYTES, FRAME_BYTES, STREAM_WINDOW_BYTES, TransportConfig};
use crate::tls::TlsMaterial;

/// A stream of bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A boxed stream.
pub type ByteStream = Box<dyn Duplex>;

/// Opens streams to other members, in place of the system's sockets.
pub trait Streams: Send + Sync + 'static {
    /// Opens a stream to the member at `address`, written as in its record. May never return, because the caller has a deadline. If sent
    /// data are not acknowledged for `given_up_after`, the stream fails; `None` means no such limit.
    ///
    /// # Errors
    /// The errors of a socket's `connect`: `ConnectionRefused` if no process listens.
    fn connect(
        &self,
        address: &str,
        given_up_after: Option<Duration>,
    ) -> BoxFuture<'static, io::Result<ByteStream>>;
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{address}` is not an address that can be called ({reason}); write it as HOST:PORT")]
pub struct AddressError {
    address: String,
    reason: String,
}

/// Returns a connection that is opened by its first call, and again after a failure. Must be called within its runtime.
///
/// The deadline for opening begins after the name lookup, which may take longer. If a call fails in the meantime, the next call waits for
/// the same lookup.
pub(crate) fn lazy(address: &str, connector: Connector) -> Result<Channel, AddressError> {
    let refused = |reason: &dyn Error| AddressError {
        address: address.to_owned(),
        reason: chain(reason),
    };
    // The scheme is `http` with TLS too. With `https`, the endpoint would use its own TLS, with fixed certificates.
    let mut endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| refused(&error))?
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    if !connector.carries_entries_far() {
        endpoint = endpoint
            .http2_keep_alive_interval(connector.config.keepalive)
            .keep_alive_timeout(connector.config.keepalive_deadline);
    }
    Ok(
        endpoint.connect_with_connector_lazy(service_fn(move |address: Uri| {
            let connecting = connector.clone().connect(address);
            async move { connecting.await.map(TokioIo::new) }
        })),
    )
}

/// How a connection is opened.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) config: TransportConfig,
    pub(crate) tls: Option<TlsMaterial>,
    /// Socket options, if the member is in another region.
    pub(crate) line: Option<FarLine>,
    /// Replaces the system's sockets.
    pub(crate) streams: Option<Arc<dyn Streams>>,
    pub(crate) names: Names,
}

impl Connector {
    /// Returns true if the connection carries entries to another region.
    pub(super) fn carries_entries_far(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.carries_entries)
    }

    async fn connect(self, address: Uri) -> Result<ByteStream, BoxError> {
        let found = match &self.streams {
            Some(_) => Found::default(),
            None => {
                let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
                let port = address.port_u16().unwrap_or_default();
                let found = self.names.find(host, port, LOOKUP_LIMIT).await;
                found.map_err(io::Error::from)?
            }
        };
        let limit = self.config.connect_deadline;
        let opened = tokio::time::timeout(limit, self.open(&address, found.addresses)).await;
        let late = |_| {
            let late = format!("no connection within {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, late).into())
        };
        opened.unwrap_or_else(late).map_err(|error| {
            let Some(lookup) = found.outdated else {
                return error;
            };
            let message = connection_message(&*error).unwrap_or_else(|| chain(&*error));
            io::Error::other(format!("{message} at its last known address; {lookup}")).into()
        })
    }

    async fn open(&self, address: &Uri, found: Vec<SocketAddr>) -> Result<ByteStream, BoxError> {
        let config = &self.config;
        let stream: ByteStream = match &self.streams {
            Some(streams) => {
                let authority = address.authority().map_or("", |one| one.as_str());
                let given_up_after = self.carries_entries_far().then_some(config.far_deadline);
                streams.connect(authority, given_up_after).await?
            }
            None => {
                let found =
                    move |_: Name| future::ready(Ok::<_, Infallible>(found.clone().into_iter()));
                let mut tcp = HttpConnector::new_with_resolver(service_fn(found));
                tcp.set_nodelay(true);
                tcp.set_connect_timeout(Some(config.connect_deadline));
                let stream = tcp.call(address.clone()).await?.into_inner();
                if let Some(line) = &self.line {
                    line.apply(&stream, config.far_deadline)?;
                }
                Box::new(stream)
            }
        };
        Ok(match &self.tls {
            None => stream,
            Some(tls) => {
                let host = address.host().unwrap_or_default();
                Box::new(tls.connect(host, stream).await?)
            }
        })
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Returns a status as text: the system's connection error if there is one, otherwise all causes.
pub(crate) fn message_of(status: &Status) -> String {
    if let Some(message) = status.source().and_then(connection_message) {
        return message;
    }
    match status.source() {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

/// Returns true if the other end does not support the protocol. Then either its answer is invalid, or it closed the connection during the
/// call. Which one occurs depends on whether the caller was still writing.
pub(crate) fn is_another_protocol(status: &Status) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    let closed = |error: &io::Error| matches!(error.kind(), BrokenPipe | ConnectionReset);
    status
        .source()
        .is_some_and(|source| connection_error(source).is_none_or(closed))
}

/// Returns the innermost connection error as text. For a system error, this is its kind ("connection refused"); otherwise, its message (an
/// unknown name, a certificate).
fn connection_message(error: &(dyn Error + 'static)) -> Option<String> {
    connection_error(error).map(|error| match error.raw_os_error() {
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    })
}

fn connection_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let causes = iter::successors(Some(error), |error| (*error).source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .last()
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

// Liveness probes: check whether a process listens at an address. A probe opens a connection of its own, and drops it unused. The
// connections for calls cannot be used, because they do not report how connecting failed.

/// Splits `HOST:PORT` into its parts; an IPv6 address is returned without brackets.
pub(super) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']), port.parse().ok()?))
}

/// Probes all addresses of a name in turn. Each address must refuse. Addresses without a route from this host, for example IPv6 without
/// support, are ignored. Earlier addresses of the name do not count, because a member may have moved.
pub(super) async fn knock(address: &str, names: &Names) -> Knock {
    let Some((host, port)) = host_and_port(address) else {
        return Knock::Silent;
    };
    let Ok(addresses) = names.find_anew(host, port).await else {
        return Knock::Silent;
    };
    let mut knocked = Knock::Silent;
    for address in addresses {
        match self::knocked(TcpStream::connect(address).await.err()) {
            Some(Knock::Refused) => knocked = Knock::Refused,
            Some(answer) => return answer,
            None => {}
        }
    }
    knocked
}

/// Returns the outcome of a connection attempt; `None` if there is no route to the address.
pub(super) fn knocked(error: Option<io::Error>) -> Option<Knock> {
    match error.map(|error| error.kind()) {
        None => Some(Knock::Answers),
        Some(io::ErrorKind::ConnectionRefused) => Some(Knock::Refused),
        Some(io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable) => None,
        Some(_) => Some(Knock::Silent),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::sleep;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_connect_deadline_begins_after_the_name_lookup() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let lookups = Arc::new(AtomicUsize::new(0));
        let count = lookups.clone();
        let names = Names::by(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(600));
            Ok(vec![Ipv4Addr::LOCALHOST.into()])
        });
        let connector = Connector {
            config: TransportConfig {
                connect_deadline: Duration::from_millis(200),
                ..TransportConfig::default()
            },
            tls: None,
            line: None,
            streams: None,
            names,
        };
        let address: Uri = format!("http://member.test:{port}").parse().unwrap();
        let connect = || connector.clone().connect(address.clone());
        connect().await.map(|_| ()).unwrap();
        connect().await.map(|_| ()).unwrap();
        assert_eq!(lookups.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_systems_connection_error_is_the_message() {
        #[derive(Debug, Error)]
        #[error("tcp connect error")]
        struct Connect(#[source] io::Error);
        const ECONNREFUSED: i32 = 111;
        let refused = io::Error::from_raw_os_error(ECONNREFUSED);
        let mut status = Status::unavailable("transport error");
        status.set_source(Arc::new(Connect(refused)));
        assert_eq!(message_of(&status), "connection refused");
        let mut status = Status::unavailable("broken");
        status.set_source(Arc::new(io::Error::other("bad certificate")));
        assert_eq!(message_of(&status), "bad certificate");
    }

    #[tokio::test]
    async fn an_address_answers_refuses_or_stays_silent() {
        let names = Names::of_the_system();
        let knock = async |address: &str| knock(address, &names).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(knock(&address.to_string()).await, Knock::Answers);
        drop(listener);
        assert_eq!(knock(&address.to_string()).await, Knock::Refused);
        assert_eq!(knock("no.such.name.invalid:1").await, Knock::Silent);
        assert_eq!(knock("not an address").await, Knock::Silent);
    }
}
