//! A client that was let in, and its commands.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use mysql_link::wire::{ByteReader, ByteWriter, PacketReader, WireError};
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answers::{ErrorAnswer, Outgoing, code, eof_packet, ok_packet};
use crate::dump;
use crate::server::Shared;
use crate::session::login::{LoggedIn, log_in};
use crate::session::values::UserVariables;

/// A dump request holds a GTID set, of which each interval takes sixteen bytes; a million of them fit.
const MAX_COMMAND: usize = 16 << 20;

/// Why a client's session is over.
#[derive(Debug, Error)]
pub(crate) enum Ended {
    #[error("it said goodbye")]
    Goodbye,
    #[error("the dump has ended: {0}")]
    DumpOver(String),
    #[error("the login failed: {0}")]
    Login(String),
    #[error("the connection was lost: {0}")]
    Lost(#[from] WireError),
    #[error("it took nothing for too long")]
    Stalled,
    #[error("it was silent for too long")]
    Idle,
    #[error("the server stops")]
    Stopping,
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Lost(WireError::Io(error))
    }
}

/// A client's session.
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

mod command {
    pub(super) const QUIT: u8 = 0x01;
    pub(super) const QUERY: u8 = 0x03;
    pub(super) const STATISTICS: u8 = 0x09;
    pub(super) const PING: u8 = 0x0e;
    pub(super) const BINLOG_DUMP: u8 = 0x12;
    pub(super) const REGISTER: u8 = 0x15;
    pub(super) const STATEMENT_CLOSE: u8 = 0x19;
    pub(super) const SET_OPTION: u8 = 0x1b;
    pub(super) const BINLOG_DUMP_GTID: u8 = 0x1e;
    pub(super) const RESET_CONNECTION: u8 = 0x1f;
}

impl<'a> Client<'a> {
    /// Serves a connection to its end.
    pub(crate) async fn serve(
        shared: &'a Shared,
        stream: TcpStream,
        address: SocketAddr,
        connection: u32,
    ) -> Ended {
        let logged_in = tokio::select! {
            logged_in = log_in(shared, stream, address, connection) => logged_in,
            () = shared.stop.cancelled() => return Ended::Stopping,
        };
        let LoggedIn {
            stream,
            user,
            deprecate_eof,
        } = match logged_in {
            Ok(logged_in) => logged_in,
            Err(why) => return Ended::Login(why),
        };
        let (reader, writer) = stream.into_split();
        let mut client = Self {
            shared,
            connection,
            address,
            user,
            deprecate_eof,
            variables: UserVariables::default(),
            reader: PacketReader::new(reader, MAX_COMMAND),
            writer,
        };
        let ended = client.commands().await;
        shared.consumers.leave(connection);
        ended
    }

    async fn commands(&mut self) -> Ended {
        loop {
            if let Err(ended) = self.command().await {
                return ended;
            }
        }
    }

    async fn command(&mut self) -> Result<(), Ended> {
        let (limit, stop) = (self.shared.options.idle_limit, self.shared.stop.clone());
        let packet = tokio::select! {
            packet = timeout(limit, self.reader.read()) => packet.map_err(|_| Ended::Idle)??,
            () = stop.cancelled() => return Err(Ended::Stopping),
        };
        let mut body = packet.payload;
        let mut out = Outgoing::answer_to(packet.last_sequence);
        let Some(kind) = body.first().copied() else {
            return self
                .refuse(out, code::UNKNOWN_COMMAND, "an empty command")
                .await;
        };
        let body = body.split_off(1);
        match kind {
            command::QUIT => return Err(Ended::Goodbye),
            command::STATEMENT_CLOSE => return Ok(()),
            command::QUERY => return self.answer(&body, out).await,
            command::PING => out.push(&ok_packet(0, "")),
            command::STATISTICS => out.push(b"witness: the binlog of a ring"),
            command::SET_OPTION => out.push(&eof_packet()),
            command::RESET_CONNECTION => {
                self.variables = UserVariables::default();
                out.push(&ok_packet(0, ""));
            }
            command::REGISTER => match dump::parse_register(&body) {
                Some(registration) => {
                    let uuid = self.variables.replica_uuid();
                    let consumers = &self.shared.consumers;
                    consumers.register(self.connection, self.address, uuid, registration);
                    out.push(&ok_packet(0, ""));
                }
                None => return self.malformed(out).await,
            },
            command::BINLOG_DUMP => return self.dump(dump::Request::by_position(&body), out).await,
            command::BINLOG_DUMP_GTID => {
                return self.dump(dump::Request::by_gtids(&body), out).await;
            }
            _ => {
                let message = "this command is not known to a server of binlogs";
                return self.refuse(out, code::UNKNOWN_COMMAND, message).await;
            }
        }
        self.send(&out.bytes).await
    }

    /// A dump is the last thing that a connection does.
    async fn dump(&mut self, request: Option<dump::Request>, out: Outgoing) -> Result<(), Ended> {
        match request {
            Some(request) => Err(dump::run(self, request, out.sequence).await),
            None => self.malformed(out).await,
        }
    }

    async fn malformed(&mut self, out: Outgoing) -> Result<(), Ended> {
        let message = "Malformed communication packet";
        self.refuse(out, code::MALFORMED_PACKET, message).await
    }

    async fn refuse(&mut self, mut out: Outgoing, code: u16, message: &str) -> Result<(), Ended> {
        out.push(&ErrorAnswer::new(code, message).packet());
        self.send(&out.bytes).await
    }

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
        const LONGEST: usize = 80;
        let text =
            String::from_utf8_lossy(text.get(..text.len().min(4 * LONGEST)).unwrap_or_default());
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(LONGEST).collect()
    }
}
