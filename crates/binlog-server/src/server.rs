//! Accepts connections, up to a limit, and ends all of them when the server stops.

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

/// Maximum number of connections that have not logged in yet.
const MOST_LOGINS: usize = 100;
/// Time limit for the sessions to end when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// A server for the committed part of a log, over MySQL's protocol.
pub struct BinlogServer {
    shared: Arc<Shared>,
    listener: TcpListener,
}

impl BinlogServer {
    /// Creates a server with an open listener; it accepts no connections yet.
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

    /// The attached clients; the handle always shows the current ones.
    #[must_use]
    pub fn consumers(&self) -> Consumers {
        self.shared.consumers.clone()
    }

    /// The listener's address. If the configured port is 0, contains the port that the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Serves until `stop` is cancelled. Consumers then lose their connections, and reconnect to another member.
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
                    // For `Crowded`, the connection limit logs one warning for all of them. For `Silent`, a probe of the port is no
                    // failure.
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
