//! One client's session: its login, then its commands until it disconnects.

mod commands;
mod login;
mod values;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mysql_link::wire::{ByteReader, ByteWriter, PacketReader, WireError};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::answers::ErrorAnswer;
use crate::committed_files::{CommittedFiles, LogCommands};
use crate::consumers::Consumers;
use crate::options::ServerOptions;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::session::login::is_read as login_is_read;
use crate::session::values::UserVariables;

pub(crate) struct Shared {
    pub(crate) log: Arc<dyn CommittedFiles>,
    pub(crate) commands: Arc<dyn LogCommands>,
    pub(crate) options: ServerOptions,
    /// Permits for clients that have logged in.
    pub(crate) places: Semaphore,
    pub(crate) consumers: Consumers,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
}

/// Why a client's session has ended.
#[derive(Debug, Error)]
pub(crate) enum Ended {
    #[error("it said goodbye")]
    Goodbye,
    #[error("the dump has ended: {0}")]
    DumpOver(String),
    #[error("the login failed: {0}")]
    Login(#[from] LoginError),
    /// The client sent nothing, as a probe of the port does.
    #[error("it closed the connection before it sent anything")]
    Silent,
    #[error("it had not logged in, and others needed its place")]
    Crowded,
    #[error("the connection was lost: {0}")]
    Lost(#[from] WireError),
    #[error("it took nothing for too long")]
    Stalled,
    #[error("it was silent for too long")]
    Idle,
    #[error("the server stops")]
    Stopping,
}

/// Why a login failed.
#[derive(Debug, Error)]
pub(crate) enum LoginError {
    #[error("the login took longer than {0:?}")]
    Late(Duration),
    #[error("it left during the login: {0}")]
    Left(#[from] io::Error),
    #[error("a packet of {0} bytes is no login")]
    TooLong(usize),
    #[error("there is no TLS for it")]
    NoTls,
    #[error("it wanted TLS inside of TLS")]
    TlsWithinTls,
    #[error("the TLS handshake failed: {0}")]
    TlsHandshake(io::Error),
    /// Refused with this error, which the client received.
    #[error(transparent)]
    Refused(ErrorAnswer),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Lost(WireError::Io(error))
    }
}

pub(crate) struct Client<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) connection: u32,
    pub(crate) address: SocketAddr,
    pub(crate) user: String,
    pub(crate) deprecate_eof: bool,
    pub(crate) variables: UserVariables,
    pub(crate) reader: PacketReader<ByteReader>,
    writer: ByteWriter,
}

impl Client<'_> {
    /// Passes bytes to the operating system. Needs no memory in addition to `bytes`, however slowly the client reads.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.send_telling(bytes, |_| ()).await
    }

    /// As [`Self::send`]; calls `left` with the number of bytes that are not sent yet.
    pub(crate) async fn send_telling(
        &mut self,
        mut bytes: &[u8],
        left: impl Fn(usize),
    ) -> Result<(), Ended> {
        let limit = self.shared.options.stall_limit;
        let stop = self.shared.stop.clone();
        let writer = &mut self.writer;
        while !bytes.is_empty() {
            left(bytes.len());
            let written = tokio::select! {
                written = timeout(limit, writer.write(bytes)) => written.map_err(|_| Ended::Stalled)??,
                () = stop.cancelled() => return Err(Ended::Stopping),
            };
            if written == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            bytes = bytes.get(written..).unwrap_or_default();
        }
        left(0);
        timeout(limit, writer.flush())
            .await
            .map_err(|_| Ended::Stalled)??;
        Ok(())
    }

    /// Waits until the client disconnects or sends anything. The call may be cancelled.
    pub(crate) async fn disconnects(&mut self) -> Ended {
        match self.reader.read_more().await {
            Ok(()) => Ended::Goodbye,
            Err(error) => Ended::Lost(error),
        }
    }
}
