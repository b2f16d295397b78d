//! The receiving end: both gRPC services on one listener.

mod admin_service;
mod incoming;
mod proxy_sessions;
mod raft_service;
mod stripes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use raft_types::MAX_MESSAGE_BYTES;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use crate::config::{CONNECTION_WINDOW_BYTES, FRAME_BYTES, STREAM_WINDOW_BYTES, TransportConfig};
use crate::local_member::LocalMember;
use crate::schema::admin_server::AdminServer;
use crate::schema::raft_server::RaftServer;
use crate::server::admin_service::AdminService;
pub use crate::server::incoming::Listening;
use crate::server::incoming::{Caller, Callers};
use crate::server::raft_service::RaftService;
use crate::server::stripes::Expected;
use crate::tls::TlsMaterial;

// Serves both services on one listener. A shutdown is graceful: new calls are rejected, running calls are answered, and streams end with a
// status. Remaining connections are dropped after [`GRACE`].

/// Time for running calls after a shutdown begins.
const GRACE: Duration = Duration::from_secs(2);

/// Maximum number of concurrent calls per connection. A member needs only a few.
const STREAMS_PER_CONNECTION: u32 = 64;

/// A server that runs until it is shut down or dropped.
#[derive(Debug)]
pub struct RunningServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    /// Cancelled after the server has ended for any reason.
    over: CancellationToken,
}

impl RunningServer {
    /// Returns the address of the listener, with the port that the system chose if port 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until the server has ended, by a shutdown or a failure.
    pub async fn ended(&self) {
        self.over.cancelled().await;
    }

    /// Shuts the server down, and waits for its end, for at most two seconds.
    pub async fn shutdown(mut self) {
        self.shutdown.cancel();
        // The task ends without a result.
        let _ = (&mut self.serving).await;
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Serves calls to `local` on `listener`, with TLS if material is given.
///
/// # Errors
/// If the listener has no address.
pub fn serve(
    listener: TcpListener,
    local: Arc<LocalMember>,
    tls: Option<&TlsMaterial>,
    config: &TransportConfig,
) -> io::Result<RunningServer> {
    let address = listener.local_addr()?;
    let callers = incoming::at_the_port(listener);
    Ok(serve_callers(address, callers, local, tls, config))
}

/// Serves calls to `local` over streams that replace sockets, without TLS.
pub fn serve_streams(
    listening: Listening,
    local: Arc<LocalMember>,
    config: &TransportConfig,
) -> RunningServer {
    let address = listening.address;
    let callers = incoming::at_the_place(listening);
    serve_callers(address, callers, local, None, config)
}

fn serve_callers(
    address: SocketAddr,
    arriving: BoxStream<'static, Caller>,
    local: Arc<LocalMember>,
    tls: Option<&TlsMaterial>,
    config: &TransportConfig,
) -> RunningServer {
    let shutdown = CancellationToken::new();
    let tls = tls.cloned();
    let callers = Callers {
        tls: tls.clone(),
        refused: Arc::default(),
    };
    let raft = RaftServer::new(RaftService {
        local: local.clone(),
        callers: callers.clone(),
        shutdown: shutdown.clone(),
        stripes: Expected::default(),
    })
    .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let admin = AdminServer::new(AdminService {
        local: local.clone(),
        callers,
        shutdown: shutdown.clone(),
    });

    let mut server = Server::builder()
        .http2_keepalive_interval(Some(config.caller_keepalive))
        .http2_keepalive_timeout(Some(config.stall_deadline))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    let router = server.add_service(raft).add_service(admin);
    let until = shutdown.clone().cancelled_owned();
    let incoming = incoming::connections(arriving, local, tls, config.call_deadline);
    let serve = router.serve_with_incoming_shutdown(incoming, until);
    let over = CancellationToken::new();
    let (ends, shut_down) = (over.clone(), shutdown.clone());
    let serving = tokio::spawn(async move {
        let _ends = ends.drop_guard();
        let end_of_grace = async {
            shut_down.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = serve => if let Err(error) = served {
                tracing::error!(%error, "serving other members ended");
            },
            () = end_of_grace => {
                tracing::warn!("calls of other members were still under way at the shutdown");
            }
        }
    });
    RunningServer {
        address,
        shutdown,
        serving,
        over,
    }
}
