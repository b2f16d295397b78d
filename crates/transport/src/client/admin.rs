//! The client for the calls of operators and of a bootstrapping member.

use bytes::BytesMut;
use raft_types::{FormatRange, FormatVersion, MemberId, RingId};
use ring_admin::{Identity, Introduction, LogOrigin, Party, RingState};
use sockets::Names;
use thiserror::Error;
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};

use crate::client::connector::{
    AddressError, Connector, host_and_port, is_another_protocol, lazy, message_of,
};
use crate::config::TransportConfig;
use crate::local_member::LogPiece;
use crate::schema::{self, admin_client};
use crate::tls::TlsMaterial;

/// A client for one member.
#[derive(Clone)]
pub struct AdminClient {
    client: admin_client::AdminClient<Channel>,
    address: String,
    names: Names,
    has_tls: bool,
    config: TransportConfig,
}

/// The text for a call without TLS to a TLS port. It replaces the HTTP/2 error.
const WITHOUT_TLS: &str = "it does not answer a call without TLS; if the ring has TLS, give --tls-certificate-file, --tls-key-file and \
                           --tls-ca-file, or a configuration with [tls]";

/// The answer to a call.
type Called<T = ()> = Result<T, AdminError>;

/// Why a call has no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdminError {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No process answers at the address, or not in time.
    #[error(
        "the member at {address} does not answer: {reason}; start it, or check its address and TLS settings"
    )]
    Unreachable {
        /// The called address.
        address: String,
        /// The error of the connection or the call.
        reason: String,
    },
    /// The name in the address cannot be resolved, so it is unknown whether the member is running.
    #[error(
        "the member at {address} cannot be called: {reason}; check the name, and the name servers of this host"
    )]
    Unresolved {
        /// The called address.
        address: String,
        /// The name and the resolver's error.
        reason: String,
    },
    /// The member refuses the call.
    #[error("the member at {address} refuses: {reason}")]
    Refused {
        /// The called address.
        address: String,
        /// The member's reason.
        reason: String,
    },
    /// The member refuses the call because of the caller's certificate.
    #[error("the member at {address} refuses: {reason}")]
    NotAllowed {
        /// The called address.
        address: String,
        /// The certificate's holder and the required right.
        reason: String,
    },
    /// The member's answer is invalid.
    #[error(
        "the member at {address} gave an answer that cannot be read ({reason}); run the same version on all members"
    )]
    Unreadable {
        /// The called address.
        address: String,
        /// The cause.
        reason: String,
    },
}

impl AdminError {
    /// Returns true if the same call may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unresolved { .. })
    }
}

impl AdminClient {
    /// Creates a client for the member at an address. The first call opens the connection.
    ///
    /// # Errors
    /// [`AdminError::Address`].
    pub fn new(address: &str, tls: Option<&TlsMaterial>, config: TransportConfig) -> Called<Self> {
        Self::looking_up_by(Names::of_the_system(), address, tls, config)
    }

    fn looking_up_by(
        names: Names,
        address: &str,
        tls: Option<&TlsMaterial>,
        config: TransportConfig,
    ) -> Called<Self> {
        let connector = Connector {
            config,
            tls: tls.cloned(),
            line: None,
            streams: None,
            names: names.clone(),
        };
        let channel = lazy(address, connector)?;
        Ok(Self {
            client: admin_client::AdminClient::new(channel),
            address: address.to_owned(),
            names,
            has_tls: tls.is_some(),
            config,
        })
    }

    /// Asks a member for its identity.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn identify(&self) -> Called<Introduction> {
        let mut client = self.client.clone();
        let asked = client.identify(schema::IdentifyRequest {});
        let answer = self.call(asked).await?;
        introduction(&answer).ok_or_else(|| AdminError::Unreadable {
            address: self.address.clone(),
            reason: format!("{answer:?}"),
        })
    }

    /// Assigns a new member to its ring, whose log begins at `origin`. Idempotent.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn adopt(&self, ring: RingId, member: Party, origin: &LogOrigin) -> Called {
        let mut client = self.client.clone();
        let request = schema::AdoptRequest {
            ring: ring.to_string(),
            member: member.member.0,
            incarnation: member.incarnation.to_string(),
            origin: origin.gtids().to_owned(),
        };
        self.call(client.adopt(request)).await?;
        Ok(())
    }

    /// Returns the member's status as a JSON document.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn status(&self) -> Called<bytes::Bytes> {
        let mut client = self.client.clone();
        let answer = self.call(client.status(schema::StatusRequest {})).await?;
        Ok(answer.json)
    }

    /// Gives a member a command. The deadline applies only to the start of the command. The command continues if the events are dropped.
    ///
    /// # Errors
    /// [`AdminError`]. The command did not start, unless the member failed while it answered.
    pub async fn command(&self, json: bytes::Bytes) -> Called<CommandEvents> {
        let mut client = self.client.clone();
        let given = client.command(schema::CommandRequest { json });
        let events = self.call(given).await?;
        Ok(CommandEvents {
            events,
            address: self.address.clone(),
        })
    }

    /// Reads the committed transactions that are not in `have` (a GTID set in MySQL's text format), and then later ones as they are
    /// committed. Transactions larger than `max_transaction_bytes` are refused.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn read_log(&self, have: String, max_transaction_bytes: u64) -> Called<LogPieces> {
        let mut client = self.client.clone();
        let asked = client.read_log(schema::ReadLogRequest { have });
        let parts = self.call(asked).await?;
        Ok(LogPieces {
            parts,
            address: self.address.clone(),
            open: BytesMut::new(),
            max_transaction_bytes,
        })
    }

    async fn call<T>(&self, call: impl Future<Output = Result<Response<T>, Status>>) -> Called<T> {
        let address = self.address.clone();
        // The lookup has its own limit, because a name server may take longer than a member may.
        let (host, _) = host_and_port(&address).unwrap_or_default();
        let known = self.names.wait_for_first(host, self.config.lookup_limit);
        if let Err(error) = known.await {
            let reason = error.to_string();
            return Err(AdminError::Unresolved { address, reason });
        }
        match tokio::time::timeout(self.config.call_deadline, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(match failed(address, &status) {
                AdminError::Unreachable { address, .. }
                    if !self.has_tls && is_another_protocol(&status) =>
                {
                    let reason = WITHOUT_TLS.to_owned();
                    AdminError::Unreachable { address, reason }
                }
                error => error,
            }),
            Err(_) => Err(AdminError::Unreachable {
                address,
                reason: format!("no answer within {:?}", self.config.call_deadline),
            }),
        }
    }
}

/// Events of a running command.
#[derive(Debug)]
pub struct CommandEvents {
    events: Streaming<schema::CommandEvent>,
    address: String,
}

impl CommandEvents {
    /// Returns the next event as a JSON document; `None` at the end.
    ///
    /// # Errors
    /// [`AdminError::Unreachable`] if the connection is lost; the command may continue.
    pub async fn next(&mut self) -> Called<Option<bytes::Bytes>> {
        let event = self.events.message().await;
        let event = event.map_err(|status| failed(self.address.clone(), &status))?;
        Ok(event.map(|event| event.json))
    }
}

/// A stream of pieces of a member's log.
#[derive(Debug)]
pub struct LogPieces {
    parts: Streaming<schema::LogPart>,
    address: String,
    /// The received part of a transaction that is not complete yet.
    open: BytesMut,
    max_transaction_bytes: u64,
}

impl LogPieces {
    /// Returns the next piece; `None` if the member stops. Cancel-safe.
    ///
    /// # Errors
    /// [`AdminError`]; no piece follows an error.
    pub async fn next(&mut self) -> Called<Option<LogPiece>> {
        loop {
            let part = self.parts.message().await;
            let part = part.map_err(|status| failed(self.address.clone(), &status))?;
            let Some(part) = part else {
                return Ok(None);
            };
            if part.caught_up {
                return Ok(Some(LogPiece::CaughtUp));
            }
            let size = (self.open.len() + part.body.len()) as u64;
            if size > self.max_transaction_bytes {
                let limit = self.max_transaction_bytes;
                return Err(AdminError::Unreadable {
                    address: self.address.clone(),
                    reason: format!("a transaction has more than {limit} bytes"),
                });
            }
            if part.ends_transaction && self.open.is_empty() {
                return Ok(Some(LogPiece::Transaction(part.body)));
            }
            self.open.extend_from_slice(&part.body);
            if part.ends_transaction {
                return Ok(Some(LogPiece::Transaction(self.open.split().freeze())));
            }
        }
    }
}

fn failed(address: String, status: &Status) -> AdminError {
    let reason = status.message().to_owned();
    match status.code() {
        Code::PermissionDenied => AdminError::NotAllowed { address, reason },
        Code::FailedPrecondition | Code::InvalidArgument => AdminError::Refused { address, reason },
        _ => {
            let reason = message_of(status);
            AdminError::Unreachable { address, reason }
        }
    }
}

pub(crate) fn introduction(answer: &schema::IdentifyAnswer) -> Option<Introduction> {
    let ring = || answer.ring.parse::<RingId>().ok();
    let ring = match answer.ring_state() {
        schema::RingState::Fresh => RingState::Fresh,
        schema::RingState::Bootstrapping => RingState::Bootstrapping { ring: ring()? },
        schema::RingState::Belongs => RingState::Belongs { ring: ring()? },
        schema::RingState::Unspecified => return None,
    };
    Some(Introduction {
        identity: Identity {
            member: MemberId(answer.member),
            incarnation: answer.incarnation.parse().ok()?,
            ring,
        },
        log_is_empty: answer.log_is_empty,
        speaks: match answer.formats.as_str() {
            "" => FormatRange::only(FormatVersion::FIRST),
            formats => formats.parse().ok()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_call_deadline_begins_after_the_name_lookup() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("member.test:{}", listener.local_addr().unwrap().port());
        let names = Names::by(|_| {
            std::thread::sleep(Duration::from_millis(600));
            Ok(vec![Ipv4Addr::LOCALHOST.into()])
        });
        let config = TransportConfig {
            connect_deadline: Duration::from_millis(200),
            call_deadline: Duration::from_millis(200),
            ..TransportConfig::default()
        };
        let client = AdminClient::looking_up_by(names, &address, None, config).unwrap();
        let called = tokio::time::timeout(Duration::from_secs(10), listener.accept());
        let (status, called) = tokio::join!(client.status(), called);
        called.unwrap().unwrap();
        // A process listens at the address, but does not answer.
        let silent = AdminError::Unreachable {
            address,
            reason: "no answer within 200ms".to_owned(),
        };
        assert_eq!(status.unwrap_err(), silent);
    }

    #[tokio::test]
    async fn a_failed_name_lookup_is_reported() {
        let names = Names::by(|_| Err(io::Error::other("no such name")));
        let config = TransportConfig::default();
        let client = AdminClient::looking_up_by(names, "member.test:7400", None, config).unwrap();
        let error = client.status().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the member at member.test:7400 cannot be called: the name `member.test` cannot be looked up: no such name; check \
             the name, and the name servers of this host"
        );
        assert!(error.may_pass());
    }
}
