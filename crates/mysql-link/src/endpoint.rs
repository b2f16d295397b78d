//! Where a mysqld listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// The address of a mysqld: a TCP host and port, or the path of a unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// TCP; the host is a name or an address (IPv6 without brackets).
    Tcp {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// A unix socket. It counts as a secure transport, as it does for mysqld.
    Unix(PathBuf),
}

impl Endpoint {
    /// A TCP endpoint.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp {
            host: host.into(),
            port,
        }
    }

    /// A unix socket.
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

/// A text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not the address of a mysqld: write HOST:PORT, [IPV6]:PORT, or the absolute path of its unix socket"
)]
pub struct EndpointParseError {
    text: String,
}

impl FromStr for Endpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || EndpointParseError {
            text: text.to_owned(),
        };
        if text.starts_with('/') {
            return Ok(Self::unix(text));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(refused)?;
        let host = match host.strip_prefix('[') {
            Some(bracketed) => bracketed.strip_suffix(']').ok_or_else(refused)?,
            None if host.contains(':') => return Err(refused()),
            None => host,
        };
        if host.is_empty() {
            Err(refused())
        } else {
            Ok(Self::tcp(host, port))
        }
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
    fn what_is_no_endpoint_is_refused() {
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
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
