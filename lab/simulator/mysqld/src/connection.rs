//! A client's connection: the login, and then commands until the client or the server closes the connection.

use bytes::Bytes;
use mysql_common::auth::plugins::caching_sha2_password::scramble_sha256;
use mysql_common::constants::{CapabilityFlags, StatusFlags};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{HandshakePacket, HandshakeResponse};
use mysql_common::proto::MySerialize;
use mysql_link::wire::{Outgoing, Packet, PacketReader};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::answers::{Answer, SqlError, code, eof_packet, ok_packet, put_answer};
use crate::client::{denied, too_many};
use crate::options::Rights;
use crate::process::Mysqld;
use crate::server::Server;
use crate::sessions::SessionId;

/// Maximum size of a command. A dump request contains a GTID set, and so may be large.
const MAX_COMMAND: usize = 16 << 20;
const PLUGIN: &str = "caching_sha2_password";
/// `utf8mb4_general_ci`.
const COLLATION: u8 = 45;
/// The packet that reports that fast authentication of `caching_sha2_password` succeeded.
const FAST_SUCCESS: &[u8] = &[0x01, 0x03];

mod command {
    pub(super) const QUIT: u8 = 0x01;
    pub(super) const QUERY: u8 = 0x03;
    pub(super) const PING: u8 = 0x0e;
    pub(super) const REGISTER: u8 = 0x15;
    pub(super) const SET_OPTION: u8 = 0x1b;
    pub(super) const BINLOG_DUMP_GTID: u8 = 0x1e;
}

/// A logged-in connection.
pub(crate) struct Connection<S> {
    pub(crate) seat: Seat,
    pub(crate) reader: PacketReader<ReadHalf<S>>,
    pub(crate) writer: WriteHalf<S>,
    deprecate_eof: bool,
}

/// A session in one start of the server. Dropping it disconnects the client.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) server: Mysqld,
    pub(crate) id: SessionId,
    pub(crate) start: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let (id, start) = (self.id, self.start);
        self.server.act(|server| {
            if server.starts == start {
                server.leave(id);
            }
        });
    }
}

impl Seat {
    /// Returns whether the session has ended, or its client must be disconnected.
    pub(crate) fn is_lost(&self, server: &mut Server) -> bool {
        server.starts != self.start || server.session(self.id).is_none_or(|session| session.gone)
    }
}

impl Mysqld {
    /// Serves one connection until the client disconnects, the server closes the connection, or the process ends. If the server does not
    /// listen, the future ends immediately; the caller must refuse the connection.
    pub fn serve<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = self.clone();
        async move {
            let (reader, mut writer) = tokio::io::split(stream);
            let mut reader = PacketReader::new(reader, MAX_COMMAND);
            if let Some(seat) = accept(&server, &mut writer).await
                && let Some(deprecate_eof) = enter(&seat, &mut reader, &mut writer).await
            {
                let connection = Connection {
                    seat,
                    reader,
                    writer,
                    deprecate_eof,
                };
                // When this function ends, the connection is closed for the client.
                connection.commands().await;
            }
        }
    }
}

/// Opens a session for a new connection. `None`: there are too many sessions, or the server does not listen.
async fn accept<S>(server: &Mysqld, writer: &mut WriteHalf<S>) -> Option<Seat>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let accepted = server.until(|state| {
        if !state.listens() {
            return Some(None);
        }
        if state.paused {
            return None;
        }
        let start = state.starts;
        if state.is_crowded() {
            return Some(Some(Err(too_many())));
        }
        let id = state.open_session("unauthenticated user", Rights::Client)?;
        Some(Some(Ok((id, start))))
    });
    match accepted.await? {
        Ok((id, start)) => Some(Seat {
            server: server.clone(),
            id,
            start,
        }),
        Err(error) => {
            let mut out = Outgoing::default();
            out.push(&error.packet());
            send(writer, &out.bytes).await;
            None
        }
    }
}

/// Sends bytes. `None`: the connection is lost.
pub(crate) async fn send<S: AsyncWrite>(writer: &mut WriteHalf<S>, bytes: &[u8]) -> Option<()> {
    writer.write_all(bytes).await.ok()?;
    writer.flush().await.ok()
}

/// Runs the login. Returns whether the client expects an OK packet at the end of results. `None`: the login is refused, or the connection
/// has ended.
async fn enter<S>(
    seat: &Seat,
    reader: &mut PacketReader<ReadHalf<S>>,
    writer: &mut WriteHalf<S>,
) -> Option<bool>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let challenge = challenge(seat.id);
    let version = seat.server.act(|state| state.options.version.clone());
    let mut out = Outgoing::default();
    out.push(&greeting(&version, seat.id, &challenge));
    send(writer, &out.bytes).await?;
    let packet = receive(seat, reader).await?;
    let mut out = Outgoing::answer_to(packet.last_sequence);
    let login = ParseBuf(&packet.payload).parse::<HandshakeResponse<'_>>(());
    let Ok(login) = login else {
        out.push(&SqlError::new(code::HANDSHAKE, "Bad handshake").packet());
        send(writer, &out.bytes).await?;
        return None;
    };
    let user = String::from_utf8_lossy(login.user()).into_owned();
    let answer = login.scramble_buf().to_vec();
    let deprecate_eof = login
        .capabilities()
        .contains(CapabilityFlags::CLIENT_DEPRECATE_EOF);
    let judged = seat.server.until(|state| {
        if seat.is_lost(state) {
            return Some(None);
        }
        if state.paused || state.accounts_are_locked() {
            return None;
        }
        Some(Some(judge(state, seat.id, &user, &answer, &challenge)))
    });
    let judged = judged.await?;
    if let Ok(true) = judged {
        out.push(FAST_SUCCESS);
    }
    out.push(&match &judged {
        Ok(_) => ok_packet(0, 0),
        Err(error) => error.packet(),
    });
    send(writer, &out.bytes).await?;
    judged.is_ok().then_some(deprecate_eof)
}

/// Checks a login. Returns whether the client sent a password.
fn judge(
    server: &mut Server,
    id: SessionId,
    user: &str,
    answer: &[u8],
    challenge: &[u8; 20],
) -> Result<bool, SqlError> {
    let account = server.account(user);
    let password = account.map(|account| account.password.clone());
    let password = password.ok_or_else(|| denied(user))?;
    // For an empty password, the expected answer is empty.
    let expected = scramble_sha256(challenge, password.as_bytes());
    let expected = expected.map_or(Vec::new(), |hash| hash.to_vec());
    // For an empty password, some clients send a zero byte.
    if answer != expected && !(password.is_empty() && answer == [0]) {
        return Err(denied(user));
    }
    let rights = server.admit(user)?;
    if let Some(session) = server.session(id) {
        session.rights = rights;
        user.clone_into(&mut session.user);
    }
    Ok(!password.is_empty())
}

/// Returns the challenge of a connection: twenty nonzero bytes, different for each connection of a server.
fn challenge(id: SessionId) -> [u8; 20] {
    let mut challenge = [b'x'; 20];
    for (byte, digit) in challenge.iter_mut().zip(format!("{id:020}").bytes()) {
        *byte = digit;
    }
    challenge
}

fn greeting(version: &str, id: SessionId, challenge: &[u8; 20]) -> Vec<u8> {
    let capabilities = CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_FOUND_ROWS
        | CapabilityFlags::CLIENT_LONG_FLAG
        | CapabilityFlags::CLIENT_CONNECT_WITH_DB
        | CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_MULTI_RESULTS
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_CONNECT_ATTRS
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_DEPRECATE_EOF;
    let (first, rest) = challenge.split_at(8);
    let mut begin = [0; 8];
    begin.copy_from_slice(first);
    let mut end = rest.to_vec();
    end.push(0);
    let mut bytes = Vec::new();
    HandshakePacket::new(
        10,
        version.as_bytes(),
        id,
        begin,
        Some(end),
        capabilities,
        COLLATION,
        StatusFlags::SERVER_STATUS_AUTOCOMMIT,
        Some(PLUGIN.as_bytes()),
    )
    .serialize(&mut bytes);
    bytes
}

/// Returns the next packet. `None`: the session has ended.
async fn receive<S: AsyncRead>(
    seat: &Seat,
    reader: &mut PacketReader<ReadHalf<S>>,
) -> Option<Packet> {
    let over = seat.server.until(|state| seat.is_lost(state).then_some(()));
    let packet = tokio::select! {
        biased;
        () = over => return None,
        packet = reader.read() => packet.ok()?,
    };
    // While the process is paused, it does not read the packet.
    let is_lost = seat.server.until(|state| {
        let is_lost = seat.is_lost(state);
        (is_lost || !state.paused).then_some(is_lost)
    });
    (!is_lost.await).then_some(packet)
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    /// Runs commands until the connection ends. The result is always `None`.
    async fn commands(mut self) -> Option<()> {
        loop {
            let packet = receive(&self.seat, &mut self.reader).await?;
            let mut body = packet.payload;
            let mut out = Outgoing::answer_to(packet.last_sequence);
            let kind = body.first().copied()?;
            let body = body.split_off(1);
            match kind {
                command::QUIT => return None,
                command::QUERY => {
                    let answer = self.query(&body).await?;
                    put_answer(&mut out, &answer, self.deprecate_eof);
                }
                command::PING => out.push(&ok_packet(0, 0)),
                command::SET_OPTION => out.push(&eof_packet()),
                command::REGISTER => {
                    self.wait_for_accounts().await?;
                    out.push(&ok_packet(0, 0));
                }
                command::BINLOG_DUMP_GTID => return self.dump(&body, out.sequence).await,
                other => {
                    self.seat
                        .server
                        .act(|state| state.unknown.push(format!("command {other:#04x}")));
                    out.push(&SqlError::new(code::UNKNOWN_COMMAND, "Unknown command").packet());
                }
            }
            send(&mut self.writer, &out.bytes).await?;
            if kind == command::PING {
                let seat = &self.seat;
                seat.server.act(|state| state.has_pinged(seat.id));
            }
        }
    }

    async fn query(&mut self, text: &Bytes) -> Option<Result<Answer, SqlError>> {
        let text = String::from_utf8_lossy(text);
        let Seat { server, id, start } = &self.seat;
        server.act(|state| state.run(*id, &text));
        let outcome = server.until(|state| state.outcome(*id, *start)).await;
        match outcome {
            Err(error) if error.code == code::LOST => None,
            outcome => Some(outcome.map(|(answer, _)| answer)),
        }
    }

    /// Waits for the account lock, which the registration of a replica acquires. Accounts with all privileges do not need it.
    async fn wait_for_accounts(&mut self) -> Option<()> {
        let waited = self.seat.server.until(|state| {
            if self.seat.is_lost(state) {
                return Some(None);
            }
            let session = state.session(self.seat.id);
            let all = session.is_some_and(|session| session.rights == Rights::All);
            (all || !state.accounts_are_locked()).then_some(Some(()))
        });
        waited.await
    }
}
