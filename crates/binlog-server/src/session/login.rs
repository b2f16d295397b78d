//! The login of a client, with one deadline for all steps.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use mysql_common::auth::plugins::caching_sha2_password::scramble_sha256;
use mysql_common::auth::plugins::mysql_native_password::scramble_native;
use mysql_common::constants::{CapabilityFlags, StatusFlags};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;
use mysql_link::wire::{ByteStream, encode_packet};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::SemaphorePermit;
use tokio::time::Duration;
use uuid::Uuid;

use crate::answers::{ErrorAnswer, code, ok_packet};
use crate::session::{Ended, LoginError, Shared};

/// Maximum size of packets before the login is complete.
const MAX_LOGIN_PACKET: usize = 64 << 10;
/// Delay after a wrong password, which limits guessing.
const PENALTY: Duration = Duration::from_millis(300);
/// Reports that the fast path of `caching_sha2_password` succeeded.
const FAST_SUCCESS: &[u8] = &[0x01, 0x03];

/// A client that has logged in.
pub(super) struct LoggedIn<'a> {
    pub(super) stream: ByteStream,
    pub(super) user: String,
    pub(super) deprecate_eof: bool,
    /// The client's permit, of which there are `max_connections`.
    pub(super) place: SemaphorePermit<'a>,
}

/// Sends the handshake, and authenticates the client.
pub(super) async fn log_in(
    shared: &Shared,
    stream: TcpStream,
    address: SocketAddr,
    connection: u32,
) -> Result<LoggedIn<'_>, Ended> {
    let entering = Entering {
        shared,
        address,
        challenge: random_challenge(),
        stream: ByteStream::Tcp(stream),
    };
    let limit = shared.options.login_limit;
    tokio::time::timeout(limit, entering.enter(connection))
        .await
        .unwrap_or_else(|_| Err(LoginError::Late(limit).into()))
}

struct Entering<'a> {
    shared: &'a Shared,
    address: SocketAddr,
    challenge: Challenge,
    stream: ByteStream,
}

impl<'a> Entering<'a> {
    async fn enter(mut self, connection: u32) -> Result<LoggedIn<'a>, Ended> {
        let version = self.shared.log.server_version();
        let tls = self.shared.options.tls.is_some();
        let hello = packet(&version, connection, &self.challenge, tls);
        let greeted = async {
            self.send(0, &hello).await?;
            self.stream.read_u8().await
        };
        let first = greeted.await.map_err(|_| Ended::Silent)?;
        let (mut sequence, mut payload) = self.receive_after(first).await?;
        let mut login = parse(&payload, tls);
        if matches!(login, Ok(None)) {
            self = self.secure().await?;
            (sequence, payload) = self.receive().await?;
            login = parse(&payload, false);
        }
        let sequence = sequence.wrapping_add(1);
        let login = match login {
            Ok(Some(login)) => login,
            Ok(None) => return Err(LoginError::TlsWithinTls.into()),
            Err(why) => {
                let error = ErrorAnswer::new(code::HANDSHAKE, format!("Bad handshake: {why}"));
                return Err(self.refuse(sequence, error).await.into());
            }
        };
        if self.shared.options.require_tls && !self.stream.is_tls() {
            let message = "Connections using insecure transport are prohibited: this binlog server requires TLS \
                           (for a replica: SOURCE_SSL = 1)";
            let error = ErrorAnswer::new(code::INSECURE_TRANSPORT, message);
            return Err(self.refuse(sequence, error).await.into());
        }
        Ok(self.authenticate(login, sequence).await?)
    }

    async fn authenticate(
        mut self,
        login: LoginRequest,
        mut sequence: u8,
    ) -> Result<LoggedIn<'a>, LoginError> {
        let (plugin, answer) = match login.plugin {
            Some(plugin) => (plugin, login.answer.into()),
            None => {
                self.challenge = random_challenge();
                let request = switch_packet(&self.challenge);
                self.send(sequence, &request).await?;
                let (answered, payload) = self.receive().await?;
                sequence = answered.wrapping_add(1);
                (Plugin::CachingSha2, payload)
            }
        };
        let account = &self.shared.options.account;
        let user = String::from_utf8_lossy(&login.user).into_owned();
        let right = knows(plugin, &self.challenge, &answer, &account.password.reveal());
        if !right || user != account.user {
            tokio::time::sleep(PENALTY).await;
            let sent_password = if answer.is_empty() { "NO" } else { "YES" };
            let host = self.address.ip();
            let message = format!(
                "Access denied for user '{user}'@'{host}' (using password: {sent_password})"
            );
            let error = ErrorAnswer::new(code::ACCESS_DENIED, message);
            return Err(self.refuse(sequence, error).await);
        }
        // The permit is acquired only now, because a client that cannot log in must not take one.
        let shared = self.shared;
        let Ok(place) = shared.places.try_acquire() else {
            let error = ErrorAnswer::new(code::TOO_MANY_CONNECTIONS, "Too many connections");
            return Err(self.refuse(sequence, error).await);
        };
        if plugin == Plugin::CachingSha2 {
            self.send(sequence, FAST_SUCCESS).await?;
            sequence = sequence.wrapping_add(1);
        }
        self.send(sequence, &ok_packet(0, "")).await?;
        Ok(LoggedIn {
            stream: self.stream,
            user,
            deprecate_eof: login.deprecate_eof,
            place,
        })
    }

    async fn secure(self) -> Result<Self, LoginError> {
        let tls = self.shared.options.tls.as_ref();
        let (ByteStream::Tcp(stream), Some(tls)) = (self.stream, tls) else {
            return Err(LoginError::NoTls);
        };
        let secured = tls.acceptor().accept(stream).await;
        let secured = secured.map_err(LoginError::TlsHandshake)?;
        Ok(Self {
            stream: ByteStream::Tls(Box::new(secured.into())),
            ..self
        })
    }

    async fn refuse(mut self, sequence: u8, error: ErrorAnswer) -> LoginError {
        // An error is ignored: the client may have disconnected.
        drop(self.send(sequence, &error.packet()).await);
        LoginError::Refused(error)
    }

    /// Receives a packet's number and payload. Reads no further byte, because the client may begin TLS immediately after the packet.
    async fn receive(&mut self) -> Result<(u8, Bytes), LoginError> {
        let first = self.stream.read_u8().await?;
        self.receive_after(first).await
    }

    /// As [`Self::receive`], after the first byte was read.
    async fn receive_after(&mut self, one: u8) -> Result<(u8, Bytes), LoginError> {
        let mut header = [0; 3];
        self.stream.read_exact(&mut header).await?;
        let [two, three, sequence] = header;
        let length = usize::from(one) | usize::from(two) << 8 | usize::from(three) << 16;
        if length > MAX_LOGIN_PACKET {
            return Err(LoginError::TooLong(length));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await?;
        Ok((sequence, payload.into()))
    }

    async fn send(&mut self, sequence: u8, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_packet(sequence, payload, &mut bytes);
        self.stream.write_all(&bytes).await?;
        self.stream.flush().await
    }
}

// Encodes the handshake and decodes the client's response. Pure.

/// Number of the collation `utf8mb4_general_ci`.
const COLLATION: u8 = 45;
const CACHING_SHA2: &str = "caching_sha2_password";

/// Twenty random bytes, which the client's response depends on. None of them is zero, as in MySQL.
type Challenge = [u8; 20];

/// Creates a random challenge. Its bytes have 7 bits and are neither NUL nor `$`.
fn random_challenge() -> Challenge {
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    let random = one.as_bytes().iter().chain(other.as_bytes());
    // In a random UUID, two bytes contain fixed bits, so they are not used.
    let random = random
        .enumerate()
        .filter(|(at, _)| !matches!(at % 16, 6 | 8));
    let mut challenge = Challenge::default();
    for (byte, (_, random)) in challenge.iter_mut().zip(random) {
        *byte = (*random & 0x7f).max(1);
        if *byte == b'$' {
            *byte += 1;
        }
    }
    challenge
}

/// The server's capability flags.
fn capabilities(tls: bool) -> CapabilityFlags {
    let mut offered = CapabilityFlags::CLIENT_LONG_PASSWORD
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
    offered.set(CapabilityFlags::CLIENT_SSL, tls);
    offered
}

/// The handshake packet, with the server's version, capabilities and challenge.
fn packet(version: &str, connection: u32, challenge: &Challenge, tls: bool) -> Vec<u8> {
    let (first, rest) = challenge.split_at(8);
    let mut begin = [0; 8];
    begin.copy_from_slice(first);
    let mut end = rest.to_vec();
    end.push(0);
    let mut bytes = Vec::new();
    HandshakePacket::new(
        10,
        version.as_bytes(),
        connection,
        begin,
        Some(end),
        capabilities(tls),
        COLLATION,
        StatusFlags::SERVER_STATUS_AUTOCOMMIT,
        Some(CACHING_SHA2.as_bytes()),
    )
    .serialize(&mut bytes);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
struct LoginRequest {
    user: Vec<u8>,
    /// The authentication plugin of the response; `None` if it is not supported.
    plugin: Option<Plugin>,
    answer: Vec<u8>,
    deprecate_eof: bool,
}

/// Why a client's handshake response is invalid.
#[derive(Debug, Error)]
enum BadHandshake {
    #[error("it is cut off")]
    CutOff,
    #[error("the client's protocol is older than MySQL 4.1")]
    OldProtocol,
    #[error("TLS was not offered")]
    TlsNotOffered,
    #[error(transparent)]
    Unreadable(#[from] io::Error),
}

/// Decodes a handshake response. `None` if the client requests TLS; the response then follows inside TLS.
fn parse(payload: &[u8], tls_offered: bool) -> Result<Option<LoginRequest>, BadHandshake> {
    let flags = payload
        .first_chunk::<4>()
        .map(|flags| CapabilityFlags::from_bits_truncate(u32::from_le_bytes(*flags)));
    let flags = flags.ok_or(BadHandshake::CutOff)?;
    if !flags.contains(CapabilityFlags::CLIENT_PROTOCOL_41) {
        return Err(BadHandshake::OldProtocol);
    }
    if flags.contains(CapabilityFlags::CLIENT_SSL) && payload.len() == SSL_REQUEST_LEN {
        let request: Result<SslRequest, _> = ParseBuf(payload).parse(());
        request?;
        return match tls_offered {
            true => Ok(None),
            false => Err(BadHandshake::TlsNotOffered),
        };
    }
    let response: HandshakeResponse<'_> = ParseBuf(payload).parse(())?;
    let plugin = response.auth_plugin();
    Ok(Some(LoginRequest {
        user: response.user().to_vec(),
        plugin: plugin.map_or(Some(Plugin::Native), |plugin| Plugin::of(plugin.as_bytes())),
        answer: response.scramble_buf().to_vec(),
        deprecate_eof: flags.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF),
    }))
}

const SSL_REQUEST_LEN: usize = 32;

/// True if a client's first packet is valid when TLS is offered.
#[cfg(feature = "fuzzing")]
pub(crate) fn is_read(payload: &[u8]) -> bool {
    parse(payload, true).is_ok()
}

// Password checks. Pure.
//
// The server knows the password, so the fast path of `caching_sha2_password` always works: the response to the challenge proves that the
// client knows the password. No password is ever sent, with or without TLS. See decision 23.

/// The supported authentication plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plugin {
    CachingSha2,
    /// Clients up to 8.x may still use it.
    Native,
}

impl Plugin {
    fn of(name: &[u8]) -> Option<Self> {
        match name {
            name if name == CACHING_SHA2.as_bytes() => Some(Self::CachingSha2),
            b"mysql_native_password" => Some(Self::Native),
            _ => None,
        }
    }
}

/// True if `answer` proves that the client knows the password.
fn knows(plugin: Plugin, challenge: &Challenge, answer: &[u8], password: &str) -> bool {
    let password = password.as_bytes();
    let expected = match plugin {
        Plugin::CachingSha2 => scramble_sha256(challenge, password).map(|answer| answer.to_vec()),
        Plugin::Native => scramble_native(challenge, password).map(|answer| answer.to_vec()),
    };
    expected.is_some_and(|expected| same(&expected, answer))
}

/// Compares in constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .fold(0, |different, (one, other)| different | (one ^ other))
            == 0
}

/// Requests a response to another challenge, with the plugin that every client supports.
fn switch_packet(challenge: &Challenge) -> Vec<u8> {
    let mut packet = vec![0xfe];
    packet.extend_from_slice(CACHING_SHA2.as_bytes());
    packet.push(0);
    packet.extend_from_slice(challenge);
    packet.push(0);
    packet
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use mysql_common::packets::AuthPlugin;
    use proptest::prelude::*;

    use super::*;

    fn response() -> Vec<u8> {
        let attributes = HashMap::from([("_os".to_owned(), "x".to_owned())]);
        let mut bytes = Vec::new();
        HandshakeResponse::new(
            Some(&b"0123456789"[..]),
            (8, 0, 0),
            Some(&b"witness"[..]),
            None::<&[u8]>,
            Some(AuthPlugin::CachingSha2Password),
            capabilities(false),
            Some(attributes),
            1 << 24,
        )
        .serialize(&mut bytes);
        bytes
    }

    #[test]
    fn a_login_is_read() {
        let login = parse(&response(), false).unwrap().unwrap();
        assert_eq!(login.user, b"witness");
        assert_eq!(login.plugin, Some(Plugin::CachingSha2));
        assert_eq!(login.answer, b"0123456789");
        assert!(login.deprecate_eof);
    }

    #[test]
    fn challenges_differ_and_have_no_zeros() {
        let (one, other) = (random_challenge(), random_challenge());
        assert_ne!(one, other);
        assert!(one.iter().all(|byte| *byte != 0 && *byte != b'$'));
    }

    proptest! {
        #[test]
        fn damaged_logins_never_panic(at in 0_usize..200, with in any::<u8>(), cut in 0_usize..200) {
            let mut payload = response();
            let place = at % payload.len();
            payload[place] = with;
            payload.truncate(payload.len() - cut % payload.len());
            let _ = parse(&payload, true);
        }

        #[test]
        fn no_bytes_make_it_panic(payload in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&payload, true);
        }
    }
}

#[cfg(test)]
mod authentication_tests {
    use super::*;

    #[test]
    fn only_the_right_answer_is_right() {
        let challenge = *b"0123456789abcdefghij";
        // SHA1(password) XOR SHA1(challenge, SHA1(SHA1(password))) for "secret".
        let native = [
            0xf5, 0xca, 0xc3, 0xf3, 0xb3, 0xdf, 0x21, 0x33, 0xfe, 0xb5, 0x7d, 0xb6, 0x82, 0xc7,
            0x1e, 0x6e, 0xd4, 0x33, 0xa9, 0x88,
        ];
        assert!(knows(Plugin::Native, &challenge, &native, "secret"));
        let sha2 = scramble_sha256(&challenge, b"secret").unwrap();
        assert!(knows(Plugin::CachingSha2, &challenge, &sha2, "secret"));
        for plugin in [Plugin::Native, Plugin::CachingSha2] {
            assert!(!knows(plugin, &challenge, &[], "secret"));
            assert!(!knows(plugin, &challenge, &sha2[..20], "secret"));
            assert!(!knows(plugin, &challenge, &[], ""));
            let other = *b"abcdefghij0123456789";
            assert!(!knows(plugin, &other, &sha2, "secret"));
            assert!(!knows(plugin, &other, &native, "secret"));
        }
    }
}
