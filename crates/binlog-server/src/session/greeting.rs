//! What the server says first, and how the client's answer is read. Pure.

use mysql_common::constants::{CapabilityFlags, StatusFlags};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;
use uuid::Uuid;

/// `utf8mb4_general_ci`.
const COLLATION: u8 = 45;
pub(super) const CACHING_SHA2: &str = "caching_sha2_password";

/// Twenty random bytes that a client's answer depends on. None of them is zero, as MySQL's own are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Challenge(pub(super) [u8; Challenge::LEN]);

impl Challenge {
    /// Its length, fixed by the authentication plugins.
    pub(super) const LEN: usize = 20;

    /// A new one.
    pub(super) fn random() -> Self {
        let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
        let random = one.as_bytes().iter().chain(other.as_bytes());
        // Two bytes of a random UUID are not random all through: they are left out.
        let random = random
            .enumerate()
            .filter(|(at, _)| !matches!(at % 16, 6 | 8));
        let mut challenge = [0; Self::LEN];
        for (byte, (_, random)) in challenge.iter_mut().zip(random) {
            *byte = (*random & 0x7f).max(1);
            if *byte == b'$' {
                *byte += 1;
            }
        }
        Self(challenge)
    }
}

/// What the server can do.
pub(super) fn capabilities(tls: bool) -> CapabilityFlags {
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

/// The first packet.
pub(super) fn packet(version: &str, connection: u32, challenge: &Challenge, tls: bool) -> Vec<u8> {
    let (first, rest) = challenge.0.split_at(8);
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

/// The client's first packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientGreeting {
    /// It wants TLS, and logs in afterwards.
    Tls,
    /// It logs in.
    Login(LoginRequest),
}

/// Who wants in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoginRequest {
    pub(super) user: Vec<u8>,
    /// The authentication plugin whose answer this is.
    pub(super) plugin: Vec<u8>,
    pub(super) answer: Vec<u8>,
    pub(super) deprecate_eof: bool,
}

/// Reads it; the error says what is wrong.
pub(super) fn parse(payload: &[u8], tls_offered: bool) -> Result<ClientGreeting, String> {
    let flags = payload
        .first_chunk::<4>()
        .map(|flags| CapabilityFlags::from_bits_truncate(u32::from_le_bytes(*flags)));
    let flags = flags.ok_or("it is cut off")?;
    if !flags.contains(CapabilityFlags::CLIENT_PROTOCOL_41) {
        return Err("the client's protocol is older than MySQL 4.1".to_owned());
    }
    if flags.contains(CapabilityFlags::CLIENT_SSL) && payload.len() == SSL_REQUEST_LEN {
        let request: Result<SslRequest, _> = ParseBuf(payload).parse(());
        request.map_err(|error| error.to_string())?;
        return match tls_offered {
            true => Ok(ClientGreeting::Tls),
            false => Err("TLS was not offered".to_owned()),
        };
    }
    let response: HandshakeResponse<'_> = ParseBuf(payload)
        .parse(())
        .map_err(|error| error.to_string())?;
    let plugin = response
        .auth_plugin()
        .map(|plugin| plugin.as_bytes().to_vec());
    Ok(ClientGreeting::Login(LoginRequest {
        user: response.user().to_vec(),
        plugin: plugin.unwrap_or_else(|| b"mysql_native_password".to_vec()),
        answer: response.scramble_buf().to_vec(),
        deprecate_eof: flags.contains(CapabilityFlags::CLIENT_DEPRECATE_EOF),
    }))
}

const SSL_REQUEST_LEN: usize = 32;

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
        let ClientGreeting::Login(login) = parse(&response(), false).unwrap() else {
            panic!("a login");
        };
        assert_eq!(login.user, b"witness");
        assert_eq!(login.plugin, CACHING_SHA2.as_bytes());
        assert_eq!(login.answer, b"0123456789");
        assert!(login.deprecate_eof);
    }

    #[test]
    fn challenges_differ_and_have_no_zeros() {
        let (one, other) = (Challenge::random(), Challenge::random());
        assert_ne!(one, other);
        assert!(one.0.iter().all(|byte| *byte != 0 && *byte != b'$'));
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
