//! The server's identity, account, certificate and limits.

use std::sync::Arc;
use std::time::Duration;

use mysql_link::Secret;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// The only account that may log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// User name that a client logs in with.
    pub user: String,
    /// The account's password. After a renewal, logins need the new one.
    pub password: Secret,
}

/// Server identity: stable, and different from every other server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The value of `@@server_id`, also used in generated events; never 0.
    pub server_id: u32,
    /// The value of `@@server_uuid`.
    pub server_uuid: Uuid,
    /// The member's name, for messages.
    pub name: String,
}

/// Configuration of a binlog server.
#[derive(Clone)]
pub struct ServerOptions {
    /// The account that may log in.
    pub account: Account,
    /// Server identity.
    pub identity: ServerIdentity,
    /// The server's TLS configuration; `None` if TLS is not offered.
    pub tls: Option<ServerTls>,
    /// True if a login without TLS is refused.
    pub require_tls: bool,
    /// Maximum number of clients that have logged in.
    pub max_connections: usize,
    /// Maximum number of queued bytes for one client.
    pub queue_bytes: usize,
    /// Login timeout.
    pub login_limit: Duration,
    /// Idle timeout between two commands.
    pub idle_limit: Duration,
    /// Send stall timeout.
    pub stall_limit: Duration,
    /// How long this log may take to catch up with a replica that is ahead of it.
    pub catch_up_limit: Duration,
}

impl ServerOptions {
    /// The defaults for an account and an identity, without TLS.
    pub fn new(account: Account, identity: ServerIdentity) -> Self {
        Self {
            account,
            identity,
            tls: None,
            require_tls: false,
            max_connections: 100,
            queue_bytes: 4 << 20,
            login_limit: Duration::from_secs(10),
            idle_limit: Duration::from_secs(8 * 3600),
            stall_limit: Duration::from_secs(60),
            catch_up_limit: Duration::from_secs(20),
        }
    }
}

/// The server's certificate and key. Clones share them: after a renewal, all new connections use the new ones.
#[derive(Clone)]
pub struct ServerTls(Arc<watch::Sender<TlsAcceptor>>);

impl ServerTls {
    /// Creates it with a loaded certificate and key.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(config).into())))
    }

    /// Replaces certificate and key for all clones.
    pub fn renew(&self, newer: &Self) {
        self.0.send_replace(newer.acceptor());
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.0.borrow().clone()
    }
}
