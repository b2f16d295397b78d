//! One connection from its login to its end: the commands of a client, one after the other.

use std::net::SocketAddr;

use mysql_link::wire::{Outgoing, PacketReader};
use sockets::Place;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answers::{ErrorAnswer, code, eof_packet, ok_packet};
use crate::dump;
use crate::session::Shared;
use crate::session::client::{Client, Ended};
use crate::session::login::{LoggedIn, log_in};
use crate::session::values::UserVariables;

/// A dump request holds a GTID set, of which each interval takes sixteen bytes; a million of them fit.
const MAX_COMMAND: usize = 16 << 20;

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
        login: Place,
    ) -> Ended {
        let logged_in = tokio::select! {
            logged_in = log_in(shared, stream, address, connection) => logged_in,
            () = login.lost() => return Ended::Crowded,
            () = shared.stop.cancelled() => return Ended::Stopping,
        };
        drop(login);
        let LoggedIn {
            stream,
            user,
            deprecate_eof,
            place: _place,
        } = match logged_in {
            Ok(logged_in) => logged_in,
            Err(ended) => return ended,
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
}
