//! The calls of operators, and of a member that makes a ring.

use bytes::BytesMut;
use consensus::{Identity, Introduction, LogOrigin, Party, RingState};
use raft_types::{FormatRange, FormatVersion, MemberId, RingId};
use thiserror::Error;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::client::peers;
use crate::client::peers::{AddressError, Connector};
use crate::config::{TlsMaterial, TransportConfig};
use crate::local_member::LogPiece;
use crate::schema;
use crate::schema::admin_client;

/// Asks one member about itself.
#[derive(Debug, Clone)]
pub struct AdminClient {
    client: admin_client::AdminClient<Channel>,
    address: String,
    config: TransportConfig,
}

/// Why a member gave no answer that could be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AdminError {
    /// The address has no meaning.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Nobody answers there, or not in time.
    #[error(
        "the member at {address} does not answer: {reason}; start it, or check its address and TLS settings"
    )]
    Unreachable {
        /// The address that was called.
        address: String,
        /// The error of the connection or the call.
        reason: String,
    },
    /// The member answers, and refuses the call.
    #[error("the member at {address} refuses: {reason}")]
    Refused {
        /// The address that was called.
        address: String,
        /// The reason that the member gives.
        reason: String,
    },
    /// The member answers, and the certificate that was shown may not make this call.
    #[error("the member at {address} refuses: {reason}")]
    NotAllowed {
        /// The address that was called.
        address: String,
        /// Whose certificate it is, and what the call takes.
        reason: String,
    },
    /// Its answer has no meaning.
    #[error(
        "the member at {address} gave an answer that cannot be read ({reason}); run the same version on all members"
    )]
    Unreadable {
        /// The address that was called.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl AdminClient {
    /// A client for the member at an address; the connection comes up with the first call.
    ///
    /// # Errors
    /// [`AdminError::Address`].
    pub fn new(
        address: &str,
        tls: Option<&TlsMaterial>,
        config: TransportConfig,
    ) -> Result<Self, AdminError> {
        let connector = Connector {
            tls: tls.cloned(),
            ..Connector::default()
        };
        let channel = peers::lazy(address, connector, &config)?;
        Ok(Self {
            client: admin_client::AdminClient::new(channel),
            address: address.to_owned(),
            config,
        })
    }

    /// Asks a member who it is.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn identify(&self) -> Result<Introduction, AdminError> {
        let mut client = self.client.clone();
        let answer = self
            .call(client.identify(schema::IdentifyRequest {}))
            .await?;
        introduction(&answer).ok_or_else(|| AdminError::Unreadable {
            address: self.address.clone(),
            reason: format!("{answer:?}"),
        })
    }

    /// Gives a fresh member its ring, whose log begins at `origin`. Giving it again changes nothing.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn adopt(
        &self,
        ring: RingId,
        member: Party,
        origin: &LogOrigin,
    ) -> Result<(), AdminError> {
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

    /// A member's status, a JSON document.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn status(&self) -> Result<bytes::Bytes, AdminError> {
        let mut client = self.client.clone();
        let answer = self.call(client.status(schema::StatusRequest {})).await?;
        Ok(answer.json)
    }

    /// Gives a member a command. Only its beginning has a deadline; what it takes is for the caller to
    /// judge. It goes on there when the events are dropped.
    ///
    /// # Errors
    /// [`AdminError`]; the command has not begun then, unless the member stopped to answer just there.
    pub async fn command(&self, json: bytes::Bytes) -> Result<CommandEvents, AdminError> {
        let mut client = self.client.clone();
        let events = self
            .call(client.command(schema::CommandRequest { json }))
            .await?;
        Ok(CommandEvents {
            events,
            address: self.address.clone(),
        })
    }

    /// Reads the committed transactions that are not in `have`, a GTID set in MySQL's words; what is committed later
    /// follows. Transactions of more than `max_transaction_bytes` are refused.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn read_log(
        &self,
        have: String,
        max_transaction_bytes: u64,
    ) -> Result<LogPieces, AdminError> {
        let mut client = self.client.clone();
        let parts = self
            .call(client.read_log(schema::ReadLogRequest { have }))
            .await?;
        Ok(LogPieces {
            parts,
            address: self.address.clone(),
            open: BytesMut::new(),
            max_transaction_bytes,
        })
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AdminError> {
        let address = self.address.clone();
        match tokio::time::timeout(self.config.call_deadline, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) if status.code() == tonic::Code::PermissionDenied => {
                Err(AdminError::NotAllowed {
                    address,
                    reason: status.message().to_owned(),
                })
            }
            Ok(Err(status)) if is_refusal(&status) => Err(AdminError::Refused {
                address,
                reason: status.message().to_owned(),
            }),
            Ok(Err(status)) => Err(AdminError::Unreachable {
                address,
                reason: peers::words(&status),
            }),
            Err(_) => Err(AdminError::Unreachable {
                address,
                reason: format!("no answer within {:?}", self.config.call_deadline),
            }),
        }
    }
}

/// What happens while a command is carried out.
#[derive(Debug)]
pub struct CommandEvents {
    events: Streaming<schema::CommandEvent>,
    address: String,
}

impl CommandEvents {
    /// The next event, a JSON document; none when there are no more.
    ///
    /// # Errors
    /// [`AdminError::Unreachable`] when the connection is lost; the command may go on.
    pub async fn next(&mut self) -> Result<Option<bytes::Bytes>, AdminError> {
        match self.events.message().await {
            Ok(event) => Ok(event.map(|event| event.json)),
            Err(status) => Err(AdminError::Unreachable {
                address: self.address.clone(),
                reason: peers::words(&status),
            }),
        }
    }
}

/// A member's log as it is read.
#[derive(Debug)]
pub struct LogPieces {
    parts: Streaming<schema::LogPart>,
    address: String,
    /// The transaction that is coming in.
    open: BytesMut,
    max_transaction_bytes: u64,
}

impl LogPieces {
    /// The next piece; none when the member stops. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`AdminError`]; nothing follows then.
    pub async fn next(&mut self) -> Result<Option<LogPiece>, AdminError> {
        loop {
            let address = || self.address.clone();
            let part = match self.parts.message().await {
                Ok(Some(part)) => part,
                Ok(None) => return Ok(None),
                Err(status) if is_refusal(&status) => {
                    return Err(AdminError::Refused {
                        address: address(),
                        reason: status.message().to_owned(),
                    });
                }
                Err(status) => {
                    return Err(AdminError::Unreachable {
                        address: address(),
                        reason: peers::words(&status),
                    });
                }
            };
            if part.caught_up {
                return Ok(Some(LogPiece::CaughtUp));
            }
            let size = (self.open.len() + part.body.len()) as u64;
            if size > self.max_transaction_bytes {
                let limit = self.max_transaction_bytes;
                return Err(AdminError::Unreadable {
                    address: address(),
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

fn is_refusal(status: &Status) -> bool {
    use tonic::Code;
    matches!(
        status.code(),
        Code::FailedPrecondition | Code::InvalidArgument
    )
}

pub(crate) fn introduction(answer: &schema::IdentifyAnswer) -> Option<Introduction> {
    let ring = || answer.ring.parse::<RingId>().ok();
    let ring = match answer.ring_state() {
        schema::RingState::Fresh => RingState::Fresh,
        schema::RingState::Founding => RingState::Bootstrapping { ring: ring()? },
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
