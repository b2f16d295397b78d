//! Accepts connections, up to a limit, and ends all of them when it is stopped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sockets::ConnectionLimit;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::committed_files::{CommittedFiles, LogCommands};
use crate::consumers::Consumers;
use crate::options::ServerOptions;
use crate::session::{Client, Ended, Shared};

/// Limit of connections that have not logged in.
const MOST_LOGINS: usize = 100;
/// Time for the sessions to end when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A server that speaks MySQL's protocol and serves the committed part of a log.
pub struct BinlogServer {
    shared: Arc<Shared>,
    listener: TcpListener,
}

impl BinlogServer {
    /// On an open listener; serves nothing yet.
    ///
    /// # Errors
    /// If the listener has no address.
    pub fn new(
        listener: TcpListener,
        options: ServerOptions,
        log: Arc<dyn CommittedFiles>,
        commands: Arc<dyn LogCommands>,
    ) -> io::Result<Self> {
        let shared = Shared {
            log,
            commands,
            places: Semaphore::new(options.max_connections),
            options,
            consumers: Consumers::default(),
            address: listener.local_addr()?,
            stop: CancellationToken::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            listener,
        })
    }

    /// Attached clients, now and later.
    #[must_use]
    pub fn consumers(&self) -> Consumers {
        self.shared.consumers.clone()
    }

    /// The address that is listened at, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Serves until `stop`. Consumers then lose their connection, and reconnect to another member.
    pub async fn serve(self, stop: CancellationToken) {
        let logins = ConnectionLimit::new("the binlog server, before the login,", MOST_LOGINS);
        let mut sessions = JoinSet::new();
        let mut connection = 0_u32;
        loop {
            let (stream, address, login) = tokio::select! {
                accepted = logins.accept(&self.listener) => accepted,
                Some(_) = sessions.join_next(), if !sessions.is_empty() => continue,
                () = stop.cancelled() => break,
            };
            connection = connection.wrapping_add(1).max(1);
            let shared = self.shared.clone();
            sessions.spawn(async move {
                match Client::serve(&shared, stream, address, connection, login).await {
                    Ended::Goodbye => {
                        tracing::debug!(%address, connection, "a client of the binlog server has disconnected")
                    }
                    // The limit says so for all of them. Probes of the port are no failures.
                    ended @ (Ended::Crowded | Ended::Silent) => {
                        tracing::debug!(%address, connection, "{ended}")
                    }
                    ended @ (Ended::Login(_) | Ended::Stalled) => {
                        tracing::warn!(%address, connection, "closing a connection of the binlog server: {ended}");
                    }
                    ended => {
                        tracing::info!(%address, connection, "a client of the binlog server has disconnected: {ended}")
                    }
                }
            });
        }
        self.shared.stop.cancel();
        let ended = async { while sessions.join_next().await.is_some() {} };
        drop(tokio::time::timeout(STOP_LIMIT, ended).await);
    }
}
