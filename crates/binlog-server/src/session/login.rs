//! From a connected socket to a client that is let in, all of it within one deadline.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use mysql_link::wire::{ByteStream, encode_packet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Duration;

use super::authentication::{Plugin, knows, switch_packet};
use super::greeting::{self, Challenge, ClientGreeting, LoginRequest};
use crate::answers::{ErrorAnswer, code, ok_packet};
use crate::server::Shared;

/// Nothing that a client sends before it is let in is larger.
const MAX_LOGIN_PACKET: usize = 64 << 10;
/// Somebody who tries passwords shall not try many.
const PENALTY: Duration = Duration::from_millis(300);
/// The short way of `caching_sha2_password` was enough.
const FAST_SUCCESS: &[u8] = &[0x01, 0x03];

/// A client that was let in.
pub(super) struct LoggedIn {
    pub(super) stream: ByteStream,
    pub(super) user: String,
    pub(super) deprecate_eof: bool,
}

/// Greets a client and lets it in; the error says why not, for the log.
pub(super) async fn log_in(
    shared: &Shared,
    stream: TcpStream,
    address: SocketAddr,
    connection: u32,
) -> Result<LoggedIn, String> {
    let entering = Entering {
        shared,
        address,
        challenge: Challenge::random(),
        stream: ByteStream::Tcp(stream),
    };
    let limit = shared.options.login_limit;
    tokio::time::timeout(limit, entering.enter(connection))
        .await
        .unwrap_or_else(|_| Err(format!("the login took longer than {limit:?}")))
}

struct Entering<'a> {
    shared: &'a Shared,
    address: SocketAddr,
    challenge: Challenge,
    stream: ByteStream,
}

impl Entering<'_> {
    async fn enter(mut self, connection: u32) -> Result<LoggedIn, String> {
        let version = self.shared.log.server_version();
        let tls = self.shared.tls.is_some();
        let hello = greeting::packet(&version, connection, &self.challenge, tls);
        self.send(0, &hello).await.map_err(lost)?;
        let (mut sequence, mut payload) = self.receive().await?;
        let mut said = greeting::parse(&payload, tls);
        if matches!(said, Ok(ClientGreeting::Tls)) {
            self = self.secure().await?;
            (sequence, payload) = self.receive().await?;
            said = greeting::parse(&payload, false);
        }
        let sequence = sequence.wrapping_add(1);
        let login = match said {
            Ok(ClientGreeting::Login(login)) => login,
            Ok(ClientGreeting::Tls) => return Err("it wanted TLS inside of TLS".to_owned()),
            Err(why) => {
                let error = ErrorAnswer::new(code::HANDSHAKE, format!("Bad handshake: {why}"));
                return Err(self.refuse(sequence, error).await);
            }
        };
        if self.shared.options.require_tls && !self.stream.is_tls() {
            let message = "Connections using insecure transport are prohibited: this binlog server requires TLS \
                           (for a replica: SOURCE_SSL = 1)";
            let error = ErrorAnswer::new(code::INSECURE_TRANSPORT, message);
            return Err(self.refuse(sequence, error).await);
        }
        self.authenticate(login, sequence).await
    }

    async fn authenticate(
        mut self,
        login: LoginRequest,
        mut sequence: u8,
    ) -> Result<LoggedIn, String> {
        let mut plugin = Plugin::of(&login.plugin);
        let mut answer = login.answer;
        if plugin.is_none() {
            self.challenge = Challenge::random();
            let request = switch_packet(&self.challenge);
            self.send(sequence, &request).await.map_err(lost)?;
            let (answered, payload) = self.receive().await?;
            sequence = answered.wrapping_add(1);
            answer = payload.to_vec();
            plugin = Some(Plugin::CachingSha2);
        }
        let account = &self.shared.options.account;
        let user = String::from_utf8_lossy(&login.user).into_owned();
        let plugin = plugin.unwrap_or(Plugin::CachingSha2);
        let right = knows(plugin, &self.challenge, &answer, &account.password);
        if !right || user != account.user {
            tokio::time::sleep(PENALTY).await;
            let said = if answer.is_empty() { "NO" } else { "YES" };
            let host = self.address.ip();
            let message =
                format!("Access denied for user '{user}'@'{host}' (using password: {said})");
            let error = ErrorAnswer::new(code::ACCESS_DENIED, message);
            return Err(self.refuse(sequence, error).await);
        }
        if plugin == Plugin::CachingSha2 {
            self.send(sequence, FAST_SUCCESS).await.map_err(lost)?;
            sequence = sequence.wrapping_add(1);
        }
        self.send(sequence, &ok_packet(0, "")).await.map_err(lost)?;
        Ok(LoggedIn {
            stream: self.stream,
            user,
            deprecate_eof: login.deprecate_eof,
        })
    }

    async fn secure(self) -> Result<Self, String> {
        let (ByteStream::Tcp(stream), Some(tls)) = (self.stream, &self.shared.tls) else {
            return Err("there is no TLS for it".to_owned());
        };
        let secured = tls.accept(stream).await;
        let secured = secured.map_err(|error| format!("the TLS handshake failed: {error}"))?;
        Ok(Self {
            stream: ByteStream::Tls(Box::new(secured.into())),
            ..self
        })
    }

    async fn refuse(mut self, sequence: u8, error: ErrorAnswer) -> String {
        // The client may be gone; it is told once.
        drop(self.send(sequence, &error.packet()).await);
        error.message
    }

    /// A packet's number and payload. Not a byte more is read: a client that wants TLS does not wait before it begins.
    async fn receive(&mut self) -> Result<(u8, Bytes), String> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await.map_err(lost)?;
        let [one, two, three, sequence] = header;
        let length = usize::from(one) | usize::from(two) << 8 | usize::from(three) << 16;
        if length > MAX_LOGIN_PACKET {
            return Err(format!("a packet of {length} bytes is no login"));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.map_err(lost)?;
        Ok((sequence, payload.into()))
    }

    async fn send(&mut self, sequence: u8, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_packet(sequence, payload, &mut bytes);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }
}

fn lost(error: io::Error) -> String {
    format!("it left during the login: {error}")
}
