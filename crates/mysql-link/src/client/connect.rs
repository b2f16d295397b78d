//! Connects to an endpoint and authenticates. All steps have one common deadline, except the name lookup, which has its own.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use mysql_common::constants::{CapabilityFlags, MAX_PAYLOAD_LEN};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;
use sockets::Names;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

use crate::client::authentication::{Authentication, TransportSecurity};
use crate::client::{ConnectOptions, Endpoint};
use crate::error::{LinkError, ProtocolError, ServerError, Step, server_code};
use crate::tls;
use crate::tls::TlsMode;
use crate::versions::ServerVersion;
use crate::wire::{ByteStream, Packet, PacketReader, WireError, encode_packet};

/// The largest packet that a server may send before the login is complete.
const MAX_NEGOTIATION_PACKET: usize = 64 << 10;
/// `utf8mb4_general_ci`: the same number in every version.
const UTF8MB4: u8 = 45;
/// A server that sends more challenges than this is broken.
const MAX_AUTHENTICATION_STEPS: usize = 8;

const OK: u8 = 0x00;
const MORE_DATA: u8 = 0x01;
const SWITCH: u8 = 0xfe;
const ERROR: u8 = 0xff;

/// Connects and authenticates. Returns the stream after the login, and the server's greeting.
///
/// In mode `preferred`, a failed TLS handshake (an older server's protocol or certificate) continues without TLS, as in the `mysql` client.
/// That mode does not protect against a man in the middle, who could also pretend that the server offers no TLS. Without TLS, no password
/// is sent in clear text.
pub(crate) async fn connect(options: &ConnectOptions) -> Result<(ByteStream, Greeting), LinkError> {
    connect_by(&Names::of_the_system(), options).await
}

async fn connect_by(
    names: &Names,
    options: &ConnectOptions,
) -> Result<(ByteStream, Greeting), LinkError> {
    let found = look_up(names, options).await?;
    let until = Instant::now() + options.timeouts.connect;
    let connected = connect_in_mode(options, &found, until, options.tls.mode).await;
    if let Err(error @ LinkError::Tls { .. }) = &connected
        && options.tls.mode == TlsMode::Preferred
    {
        tracing::debug!("{error} Continuing without TLS, which is only preferred");
        return connect_in_mode(options, &found, until, TlsMode::Disabled).await;
    }
    connected
}

/// Returns the addresses of the server's host, which is a name or an address.
async fn look_up(names: &Names, options: &ConnectOptions) -> Result<Vec<SocketAddr>, LinkError> {
    let endpoint = &options.endpoint;
    let Endpoint::Tcp { host, port } = endpoint else {
        return Ok(Vec::new());
    };
    if options.dialer.0.is_some() {
        return Ok(Vec::new());
    }
    let found = names.find(host, *port, options.timeouts.lookup).await;
    let found = found.map_err(|error| LinkError::Unreachable {
        endpoint: endpoint.clone(),
        source: error.into(),
    });
    Ok(found?.addresses)
}

async fn connect_in_mode(
    options: &ConnectOptions,
    found: &[SocketAddr],
    until: Instant,
    mode: TlsMode,
) -> Result<(ByteStream, Greeting), LinkError> {
    let opened = within(options, until, Step::Connect, open(options, found));
    let mut negotiation = Negotiation {
        reader: PacketReader::new(opened.await??, MAX_NEGOTIATION_PACKET),
        options,
        until,
        mode,
    };
    let greeting = negotiation.greeting().await?;
    let (mut negotiation, next_sequence) = negotiation.secure(&greeting).await?;
    negotiation.authenticate(&greeting, next_sequence).await?;
    match negotiation.reader.into_inner() {
        (stream, true) => Ok((stream, greeting)),
        (_, false) => Err(malformed(options, "the login", "bytes follow its end")),
    }
}

/// Runs one step until the deadline, and returns its result.
async fn within<T>(
    options: &ConnectOptions,
    until: Instant,
    step: Step,
    work: impl Future<Output = T>,
) -> Result<T, LinkError> {
    let done = tokio::time::timeout_at(until, work).await;
    done.map_err(|_| LinkError::Timeout {
        endpoint: options.endpoint.clone(),
        step,
        limit: options.timeouts.connect,
    })
}

async fn open(options: &ConnectOptions, found: &[SocketAddr]) -> Result<ByteStream, LinkError> {
    let endpoint = &options.endpoint;
    let opened = match (&options.dialer.0, endpoint) {
        (Some(dial), _) => dial.dial(endpoint).await,
        (None, Endpoint::Tcp { .. }) => open_tcp(found).await.map(ByteStream::Tcp),
        (None, Endpoint::Unix(path)) => UnixStream::connect(path).await.map(ByteStream::Unix),
    };
    opened.map_err(|source| LinkError::Unreachable {
        endpoint: endpoint.clone(),
        source,
    })
}

async fn open_tcp(found: &[SocketAddr]) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(found).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

struct Negotiation<'a> {
    reader: PacketReader<ByteStream>,
    options: &'a ConnectOptions,
    /// The common deadline of all steps.
    until: Instant,
    /// The TLS mode of this attempt: the options' mode, or `disabled`.
    mode: TlsMode,
}

impl<'a> Negotiation<'a> {
    async fn greeting(&mut self) -> Result<Greeting, LinkError> {
        let packet = self.receive(Step::Greeting).await?;
        if packet.payload.first() == Some(&ERROR) {
            return Err(refused(self.options, &packet.payload));
        }
        if let Some(product) = foreign_in(&packet.payload) {
            return Err(LinkError::OtherProduct(
                self.options.endpoint.clone(),
                product,
            ));
        }
        parse_greeting(&packet).map_err(|error| protocol(self.options, error))
    }

    /// Changes to TLS if the mode and the server agree. Returns the number of the next packet.
    async fn secure(mut self, greeting: &Greeting) -> Result<(Self, u8), LinkError> {
        let mode = self.mode;
        let offered = greeting.capabilities.contains(CapabilityFlags::CLIENT_SSL);
        let next_sequence = greeting.sequence.wrapping_add(1);
        let Endpoint::Tcp { host, .. } = &self.options.endpoint else {
            return Ok((self, next_sequence));
        };
        match (mode, offered) {
            (TlsMode::Disabled, _) | (TlsMode::Preferred, false) => {
                return Ok((self, next_sequence));
            }
            (_, true) => {}
            (_, false) => {
                let endpoint = self.options.endpoint.clone();
                return Err(LinkError::TlsNotOffered(endpoint, mode));
            }
        }
        // Files are checked before the server is contacted, so that their errors differ from handshake errors.
        let (connector, name) = tls::connector(&self.options.tls, host)?;
        let capabilities = self.capabilities(greeting) | CapabilityFlags::CLIENT_SSL;
        let request = SslRequest::new(capabilities, MAX_PAYLOAD_LEN as u32, UTF8MB4);
        let next_sequence = self
            .send(Step::TlsHandshake, next_sequence, &serialized(&request))
            .await?;
        let (ByteStream::Tcp(stream), true) = self.reader.into_inner() else {
            let reason = "the server sends bytes before TLS";
            return Err(malformed(self.options, "the TLS request", reason));
        };
        let handshake = connector.connect(name, stream);
        let stream = within(self.options, self.until, Step::TlsHandshake, handshake).await?;
        let stream = stream.map_err(|source| LinkError::Tls {
            endpoint: self.options.endpoint.clone(),
            mode,
            advice: tls::advice(&source),
            source,
        })?;
        let stream = ByteStream::Tls(Box::new(stream.into()));
        self.reader = PacketReader::new(stream, MAX_NEGOTIATION_PACKET);
        Ok((self, next_sequence))
    }

    /// Answers challenges until the login succeeds or fails.
    async fn authenticate(
        &mut self,
        greeting: &Greeting,
        mut sequence: u8,
    ) -> Result<(), LinkError> {
        let stream = &self.reader.stream;
        let security = TransportSecurity {
            tls: stream.is_tls(),
            local_socket: stream.is_local_socket(),
        };
        let mut in_force = self.capabilities(greeting);
        in_force.set(CapabilityFlags::CLIENT_SSL, security.tls);
        let offered = greeting
            .plugin
            .as_deref()
            .map(mysql_common::packets::AuthPlugin::from_bytes);
        let scramble = greeting.scramble.clone();
        let mut authentication = Authentication::new(self.options, security, offered, scramble)?;
        let answer = authentication.first_answer()?;
        let response = HandshakeResponse::new(
            Some(answer),
            (8, 0, 0), // chooses utf8mb4
            Some(self.options.user.as_bytes()),
            None::<&[u8]>,
            Some(authentication.plugin.clone()),
            in_force,
            Some(self.attributes()),
            MAX_PAYLOAD_LEN as u32,
        );
        sequence = self
            .send(Step::Authentication, sequence, &serialized(&response))
            .await?;
        for _ in 0..MAX_AUTHENTICATION_STEPS {
            let packet = self.receive(Step::Authentication).await?;
            if packet.first_sequence != sequence {
                let error = ProtocolError::Sequence {
                    expected: sequence,
                    found: packet.first_sequence,
                };
                return Err(protocol(self.options, error));
            }
            let answer = match packet.payload.first() {
                Some(&OK) => return Ok(()),
                Some(&ERROR) => return Err(refused(self.options, &packet.payload)),
                Some(&MORE_DATA) => authentication.answer(&packet.payload[1..]),
                Some(&SWITCH) => {
                    let request = parse_switch(&packet.payload)
                        .map_err(|error| protocol(self.options, error))?;
                    authentication
                        .switch(request.auth_plugin(), request.plugin_data())
                        .map(Some)
                }
                _ => {
                    let reason = "an answer of an unknown kind";
                    return Err(malformed(self.options, "the login", reason));
                }
            };
            sequence = packet.last_sequence.wrapping_add(1);
            if let Some(answer) = answer? {
                sequence = self.send(Step::Authentication, sequence, &answer).await?;
            }
        }
        let reason = "the server asks without an end";
        Err(malformed(self.options, "the login", reason))
    }

    /// Returns the wanted capabilities that the server has.
    fn capabilities(&self, greeting: &Greeting) -> CapabilityFlags {
        let mut wanted = CapabilityFlags::CLIENT_LONG_PASSWORD
            | CapabilityFlags::CLIENT_LONG_FLAG
            | CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_TRANSACTIONS
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            | CapabilityFlags::CLIENT_PLUGIN_AUTH
            | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
            | CapabilityFlags::CLIENT_CONNECT_ATTRS
            | CapabilityFlags::CLIENT_DEPRECATE_EOF;
        let several = self.options.several_statements;
        wanted.set(CapabilityFlags::CLIENT_MULTI_STATEMENTS, several);
        wanted & greeting.capabilities
    }

    fn attributes(&self) -> HashMap<String, String> {
        [
            ("_client_name", "witness".to_owned()),
            ("_client_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("_pid", std::process::id().to_string()),
            ("program_name", self.options.program_name.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    async fn receive(&mut self, step: Step) -> Result<Packet, LinkError> {
        let read = within(self.options, self.until, step, self.reader.read()).await?;
        read.map_err(|error| wire_error(&self.options.endpoint, step, error))
    }

    async fn send(&mut self, step: Step, sequence: u8, payload: &[u8]) -> Result<u8, LinkError> {
        let mut bytes = Vec::new();
        let next = encode_packet(sequence, payload, &mut bytes);
        let stream = &mut self.reader.stream;
        let write = async {
            stream.write_all(&bytes).await?;
            stream.flush().await
        };
        let written = within(self.options, self.until, step, write).await?;
        let failed = |error| wire_error(&self.options.endpoint, step, WireError::Io(error));
        written.map(|()| next).map_err(failed)
    }
}

/// Returns the product that the greeting's version names, if that product does not replicate as MySQL does. Parses only the version,
/// because the rest of such a greeting may have another format.
pub(crate) fn foreign_in(greeting: &[u8]) -> Option<&'static str> {
    let version = greeting.get(1..)?.split(|byte| *byte == 0).next()?;
    let product = crate::product(&String::from_utf8_lossy(version), "")?;
    (!product.replicates_as_mysql).then_some(product.name)
}

pub(crate) fn parse_switch(payload: &[u8]) -> Result<AuthSwitchRequest<'_>, ProtocolError> {
    ParseBuf(payload).parse(()).map_err(|error| {
        ProtocolError::malformed("the request to switch the authentication plugin", error)
    })
}

fn refused(options: &ConnectOptions, payload: &[u8]) -> LinkError {
    let error = match ServerError::parse(payload) {
        Ok(error) => error,
        Err(error) => return protocol(options, error),
    };
    let endpoint = options.endpoint.clone();
    match error.code {
        server_code::ACCESS_DENIED | server_code::ACCESS_DENIED_NO_PASSWORD => {
            LinkError::AccessDenied {
                endpoint,
                user: options.user.clone(),
                error,
            }
        }
        _ => LinkError::Refused { endpoint, error },
    }
}

fn malformed(options: &ConnectOptions, what: &'static str, reason: &str) -> LinkError {
    protocol(options, ProtocolError::malformed(what, reason))
}

fn protocol(options: &ConnectOptions, error: ProtocolError) -> LinkError {
    LinkError::Protocol(options.endpoint.clone(), error)
}

fn serialized(packet: &impl MySerialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.serialize(&mut bytes);
    bytes
}

pub(crate) fn wire_error(endpoint: &Endpoint, step: Step, error: WireError) -> LinkError {
    let endpoint = endpoint.clone();
    match error {
        WireError::Io(source) => LinkError::Closed {
            endpoint,
            step,
            source,
        },
        WireError::Protocol(error) => LinkError::Protocol(endpoint, error),
    }
}

// A server's greeting, parsed with every length checked. Pure.

/// The server's greeting.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) version: ServerVersion,
    pub(crate) version_text: String,
    pub(crate) connection_id: u32,
    pub(crate) capabilities: CapabilityFlags,
    pub(crate) scramble: Vec<u8>,
    pub(crate) plugin: Option<Vec<u8>>,
    pub(crate) sequence: u8,
}

/// Parses a greeting. Refuses a server that lacks a capability of every MySQL since 5.7.
pub(crate) fn parse_greeting(packet: &Packet) -> Result<Greeting, ProtocolError> {
    let payload = &packet.payload[..];
    let malformed = |reason: &str| ProtocolError::malformed("the server's greeting", reason);
    // mysql_common computes with this length byte as a signed number.
    let version_end = payload
        .iter()
        .position(|byte| *byte == 0)
        .ok_or_else(|| malformed("it has no version"))?;
    match payload.get(version_end + 21) {
        None => return Err(malformed("it is cut off")),
        Some(length) if *length >= 0x80 => return Err(malformed("its challenge is too long")),
        Some(_) => {}
    }
    let greeting: HandshakePacket<'_> = ParseBuf(payload)
        .parse(())
        .map_err(|error| malformed(&error.to_string()))?;
    let needed = CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_DEPRECATE_EOF;
    if greeting.protocol_version() != 10 || !greeting.capabilities().contains(needed) {
        return Err(malformed("it is not that of a MySQL 5.7 or later"));
    }
    let version_text = greeting.server_version_str().into_owned();
    let version = version_text.parse::<ServerVersion>();
    let version = version.map_err(|error| malformed(&error.to_string()))?;
    Ok(Greeting {
        version,
        version_text,
        connection_id: greeting.connection_id(),
        capabilities: greeting.capabilities(),
        scramble: greeting.nonce(),
        plugin: greeting.auth_plugin_name_ref().map(<[u8]>::to_vec),
        sequence: packet.last_sequence,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn another_product_is_recognised_by_its_greeting() {
        assert_eq!(
            foreign_in(b"\x0a5.5.5-10.11.6-MariaDB-1\0rest"),
            Some("MariaDB")
        );
        assert_eq!(foreign_in(b"\x0a8.0.11-TiDB-v7.5.0\0"), Some("TiDB"));
        assert_eq!(foreign_in(b"\x0a9.7.4-2\0MariaDB"), None);
        assert_eq!(foreign_in(b""), None);
    }

    proptest! {
        #[test]
        fn any_switch_request_is_parsed_or_refused(payload in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(request) = parse_switch(&payload) {
                let _ = (request.auth_plugin(), request.plugin_data());
            }
        }
    }
}

#[cfg(test)]
mod greeting_tests {
    use bytes::Bytes;
    use mysql_common::constants::StatusFlags;
    use mysql_common::proto::MySerialize;
    use proptest::prelude::*;

    use super::*;

    fn packet(payload: Vec<u8>) -> Packet {
        Packet {
            first_sequence: 0,
            last_sequence: 0,
            payload: Bytes::from(payload),
        }
    }

    fn greeting() -> Vec<u8> {
        let mut bytes = Vec::new();
        HandshakePacket::new(
            10,
            &b"9.7.4-2"[..],
            42,
            *b"abcdefgh",
            Some(&b"ijklmnopqrst\0"[..]),
            CapabilityFlags::all(),
            45,
            StatusFlags::SERVER_STATUS_AUTOCOMMIT,
            Some(&b"caching_sha2_password"[..]),
        )
        .serialize(&mut bytes);
        bytes
    }

    #[test]
    fn a_greeting_is_read() {
        let greeting = parse_greeting(&packet(greeting())).unwrap();
        assert_eq!(greeting.version, ServerVersion::new(9, 7, 4));
        assert_eq!(greeting.connection_id, 42);
        assert_eq!(greeting.scramble, b"abcdefghijklmnopqrst");
        assert_eq!(
            greeting.plugin.as_deref(),
            Some(&b"caching_sha2_password"[..])
        );
    }

    proptest! {
        #[test]
        fn damaged_greetings_never_panic(at in 0_usize..80, with in any::<u8>(), cut in 0_usize..80) {
            let mut payload = greeting();
            let place = at % payload.len();
            payload[place] = with;
            payload.truncate(payload.len() - cut % payload.len());
            let _ = parse_greeting(&packet(payload));
        }
    }
}

#[cfg(test)]
mod lookup_tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_name_lookup_has_its_own_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let names = Names::by(|_| {
            std::thread::sleep(Duration::from_millis(600));
            Ok(vec![Ipv4Addr::LOCALHOST.into()])
        });
        let mut options = ConnectOptions::new(Endpoint::tcp("mysqld.test", port), "w", "");
        options.timeouts.connect = Duration::from_millis(200);
        let called = tokio::time::timeout(Duration::from_secs(10), listener.accept());
        let (connected, called) = tokio::join!(connect_by(&names, &options), called);
        called.unwrap().unwrap();
        // A server that listens there sends nothing.
        let error = connected.map(|_| ()).unwrap_err();
        let step = Step::Greeting;
        assert!(
            matches!(&error, LinkError::Timeout { step: at, .. } if *at == step),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_failed_name_lookup_is_reported() {
        let names = Names::by(|_| Err(io::Error::other("no such name")));
        let options = ConnectOptions::new(Endpoint::tcp("mysqld.test", 3306), "w", "");
        let connected = connect_by(&names, &options).await;
        assert_eq!(
            connected.map(|_| ()).unwrap_err().to_string(),
            "cannot reach mysqld at mysqld.test:3306: the name `mysqld.test` cannot be looked up: no such name. Is it running, and \
             does it listen there?"
        );
    }
}
