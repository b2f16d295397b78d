//! What a server says first, read with care; and what of its capabilities is used. Pure.

use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::packets::HandshakePacket;

use crate::error::ProtocolError;
use crate::server_version::ServerVersion;
use crate::wire::Packet;

/// What the server says first.
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

/// What we want, as far as the server has it.
pub(crate) fn capabilities(offered: CapabilityFlags, several_statements: bool) -> CapabilityFlags {
    let mut wanted = CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_LONG_FLAG
        | CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_CONNECT_ATTRS
        | CapabilityFlags::CLIENT_DEPRECATE_EOF;
    wanted.set(CapabilityFlags::CLIENT_MULTI_STATEMENTS, several_statements);
    wanted & offered
}

/// Reads a greeting, and refuses a server that lacks what every MySQL since 5.7 has.
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
    let version = version_text
        .parse()
        .map_err(|reason: String| malformed(&reason))?;
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
