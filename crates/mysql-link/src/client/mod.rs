//! The client side: connecting, authentication, text queries. This file has its options: the address of a mysqld, the account, the limits.

mod authentication;
mod connect;
mod connection;
mod result_set;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sockets::LOOKUP_LIMIT;
use thiserror::Error;
use tokio::sync::watch;

pub use crate::client::authentication::PublicKeyError;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::authentication::{
    Authentication, TransportSecurity, check as check_public_key,
};
pub(crate) use crate::client::connect::wire_error;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::connect::{connect, foreign_in, parse_greeting, parse_switch};
pub use crate::client::connection::{Connection, Ran, Statements, literal};
#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::result_set::{Answer, parse_answer, parse_column_name, parse_row};
pub use crate::client::result_set::{QueryResult, Row};
use crate::tls::TlsOptions;
use crate::wire::ByteStream;

/// The address of a mysqld: a TCP host and port, or the path of a unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP; the host is a name or an address (IPv6 without brackets).
    Tcp {
        /// Host name or IP address; IPv6 without brackets.
        host: String,
        /// TCP port, usually 3306.
        port: u16,
    },
    /// A unix socket. It counts as a secure transport, as it does for mysqld.
    Unix(PathBuf),
}

impl Endpoint {
    /// An endpoint that is reached by TCP.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp {
            host: host.into(),
            port,
        }
    }

    /// True if connections to the endpoint do not leave this host.
    pub(crate) fn is_on_this_host(&self) -> bool {
        match self {
            Self::Tcp { host, .. } if host == "localhost" => true,
            Self::Tcp { host, .. } => {
                let address = host.parse::<IpAddr>();
                address.is_ok_and(|address| address.is_loopback())
            }
            Self::Unix(_) => true,
        }
    }

    /// An endpoint that is reached by a unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::Unix(path.into())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The error for a text that is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not the address of a mysqld: write HOST:PORT, [IPV6]:PORT, or the absolute path of its unix socket"
)]
pub struct EndpointParseError(String);

impl FromStr for Endpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || EndpointParseError(text.to_owned());
        if text.starts_with('/') {
            return Ok(Self::unix(text));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let port = port.parse::<u16>().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(refused)?;
        let host = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.strip_suffix(']').ok_or_else(refused)?,
            None if host.contains(':') => return Err(refused()),
            None => host,
        };
        if host.is_empty() || host.contains(['[', ']', '/']) {
            Err(refused())
        } else {
            Ok(Self::tcp(host, port))
        }
    }
}

// Options of a connection: the address, the account, the transport, and the limits.

/// A password that `Debug` does not show. Clones share the password: after [`Secret::renew`] on one clone, new connections of all clones
/// use the new password.
#[derive(Clone, Default)]
pub struct Secret(Arc<watch::Sender<Arc<str>>>);

impl Secret {
    /// Takes a password in plain text.
    pub fn new(password: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(watch::Sender::new(password.into())))
    }

    /// The password in plain text, for the login.
    pub fn reveal(&self) -> Arc<str> {
        self.0.borrow().clone()
    }

    /// Replaces the password by `newer`, in all clones.
    pub fn renew(&self, newer: &Self) {
        self.0.send_replace(newer.reveal());
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.reveal() == other.reveal()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl From<&str> for Secret {
    fn from(password: &str) -> Self {
        Self::new(password)
    }
}

/// The source of mysqld's RSA public key when a password must travel over a plain network
/// connection (`caching_sha2_password` without TLS).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PublicKeySource {
    /// Request it from the server, if that is on this host. From another host, a man in the middle could answer with its own key, and
    /// obtain the password.
    #[default]
    Request,
    /// This PEM file, a copy of mysqld's `public_key.pem`.
    File(PathBuf),
    /// No RSA key exchange; the login fails instead.
    Never,
}

/// Opens the byte streams of connections instead of the system's sockets. For a server inside this process.
pub trait Dial: Send + Sync {
    /// Opens a stream to the server at `endpoint`.
    ///
    /// # Errors
    /// As for a socket's `connect`.
    fn dial(&self, endpoint: &Endpoint) -> BoxFuture<'_, io::Result<ByteStream>>;
}

/// How a server is reached: through the system's sockets by default. Clones share the [`Dial`].
#[derive(Clone, Default)]
pub struct Dialer(pub(crate) Option<Arc<dyn Dial>>);

impl Dialer {
    /// Uses `dial` instead of sockets.
    pub fn new(dial: Arc<dyn Dial>) -> Self {
        Self(Some(dial))
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "Dialer(…)",
            None => "Dialer(sockets)",
        })
    }
}

/// Limits of all waits on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// The limit for the lookup of a name that was never resolved. For other names, a slow lookup is replaced by the last known addresses.
    pub lookup: Duration,
    /// The limit for all steps from a known address to an authenticated connection.
    pub connect: Duration,
    /// The limit for one statement and its whole answer, unless the call has its own limit.
    pub statement: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            lookup: LOOKUP_LIMIT,
            connect: Duration::from_secs(5),
            statement: Duration::from_secs(10),
        }
    }
}

/// Address, account, TLS and limits of a connection.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The address of mysqld.
    pub endpoint: Endpoint,
    /// User name of the account.
    pub user: String,
    /// Password of the account; empty for none.
    pub password: Secret,
    /// TLS. Unused on a unix socket, which is already a secure transport.
    pub tls: TlsOptions,
    /// The source of the server's RSA key, for passwords over a plain network connection.
    pub public_key: PublicKeySource,
    /// The limits of the connection's steps.
    pub timeouts: Timeouts,
    /// The largest accepted answer packet, in bytes; limits the memory of one row.
    pub max_packet_bytes: usize,
    /// The `program_name` that mysqld shows for this connection.
    pub program_name: String,
    /// True if a packet may hold several statements ([`Connection::run_all`](crate::Connection::run_all)). Off unless needed, because it
    /// makes SQL injection more dangerous.
    pub several_statements: bool,
    /// How the server is reached.
    pub dialer: Dialer,
}

impl ConnectOptions {
    /// Options for this address and account, with defaults for all others.
    pub fn new(endpoint: Endpoint, user: impl Into<String>, password: impl Into<Secret>) -> Self {
        Self {
            endpoint,
            user: user.into(),
            password: password.into(),
            tls: TlsOptions::default(),
            public_key: PublicKeySource::default(),
            timeouts: Timeouts::default(),
            max_packet_bytes: 64 << 20,
            program_name: "witness".to_owned(),
            several_statements: false,
            dialer: Dialer::default(),
        }
    }

    /// Returns these options with another `program_name`. The name lookup, the connection and each statement get the time limit `limit`.
    #[must_use]
    pub fn bounded(mut self, program_name: &str, limit: Duration) -> Self {
        program_name.clone_into(&mut self.program_name);
        self.timeouts.lookup = self.timeouts.lookup.min(limit);
        self.timeouts.connect = self.timeouts.connect.min(limit);
        self.timeouts.statement = self.timeouts.statement.min(limit);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in [
            "127.0.0.1:3306",
            "db-1.example:33060",
            "[::1]:3306",
            "/run/mysqld/mysqld.sock",
        ] {
            assert_eq!(
                text.parse::<Endpoint>()
                    .map(|endpoint| endpoint.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn invalid_endpoints_are_refused() {
        for text in [
            "",
            "localhost",
            "localhost:",
            "localhost:0",
            "localhost:70000",
            "::1:3306",
            "[::1:3306",
            ":3306",
            "a.sock",
            "[[]:3306",
            "a]:3306",
            "a/b:3306",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}

#[cfg(test)]
mod options_tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let options = ConnectOptions::new(Endpoint::tcp("h", 1), "u", "hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[test]
    fn a_renewed_password_is_that_of_every_clone() {
        let options = ConnectOptions::new(Endpoint::tcp("h", 1), "u", "old");
        let elsewhere = options.clone().bounded("elsewhere", Duration::from_secs(1));
        options.password.renew(&"new".into());
        assert_eq!(&*elsewhere.password.reveal(), "new");
    }
}
