//! A client that was let in: what is known of it, and the way to it.

use std::io;
use std::net::SocketAddr;

use binlog_format::events::shown_statement;
use bytes::Bytes;
use mysql_link::wire::{ByteReader, ByteWriter, PacketReader, WireError};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::session::Shared;
use crate::session::values::UserVariables;

/// Why a client's session is over.
#[derive(Debug, Error)]
pub(crate) enum Ended {
    #[error("it said goodbye")]
    Goodbye,
    #[error("the dump has ended: {0}")]
    DumpOver(String),
    #[error("the login failed: {0}")]
    Login(String),
    /// As a probe of the port does.
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

/// Of the login, which has the reason why a client is refused.
impl From<String> for Ended {
    fn from(why: String) -> Self {
        Self::Login(why)
    }
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
    pub(super) writer: ByteWriter,
}

impl Client<'_> {
    /// Hands bytes to the operating system. Memory is that of the bytes, however slowly the client reads.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        self.send_telling(bytes, |_| ()).await
    }

    /// As [`Self::send`]; `left` hears how many bytes still wait.
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

    /// Waits for a sign that the client has left or has something to say. Safe to cancel.
    pub(crate) async fn stirs(&mut self) -> Ended {
        match self.reader.read_more().await {
            Ok(()) => Ended::Goodbye,
            Err(error) => Ended::Lost(error),
        }
    }

    /// A text of a statement, for messages.
    pub(super) fn shown(text: &Bytes) -> String {
        shown_statement(text, 80)
    }
}
