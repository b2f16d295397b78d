//! Targets for both ends of MySQL's protocol, and for the files of a mysqld.

use binlog_format::event::RawEvent;
use binlog_server::fuzzing as server;
use bytes::Bytes;
use mysql_link::wire::{Packet, PacketDecoder, encode_packet};
use mysql_link::{Endpoint, ServerVersion, fuzzing as client, version_support};
use mysqld_server::fuzzing as mysqld;
use mysqld_server::settings::Grants;

use crate::{Target, repair};

/// Memory for the read-ahead in a file, in three concurrent readers.
const READ_AHEAD: usize = 5 << 20;

/// Memory for the regular expressions that find a key in PEM. They are compiled once.
const PATTERNS: usize = 1 << 20;

pub(crate) const TARGETS: &[Target] = &[
    // The bytes of a connection, as packets. The bytes arrive in one or several chunks.
    Target::new("packets", packets),
    // The first packet of a mysqld.
    Target::new("greeting", client::greeting),
    // Packets of a mysqld during a login: another plugin, the server's public key, an error.
    Target::new("login-answer", client::login_answer).within(PATTERNS, 128),
    // All packets of a mysqld until the end of the login, each after the client's answer.
    Target::new("login", client::login).within(2 * PATTERNS, 128),
    // A mysqld's answer to a statement, with columns and rows.
    Target::new("statement-answer", |bytes| client::answer(bytes).is_some()).within(512 << 10, 256),
    // A mysqld's answers about the columns, keys and foreign keys of tables.
    Target::new("table-shapes", table_shapes),
    // An event of a dump, after its semi-sync header.
    Target::new("dump-event", dump_event),
    // A mysqld's version, its address, and the lines of SHOW GRANTS, as text.
    Target::new("server-words", server_words),
    // The first packet of a client of the binlog server.
    Target::new("client-login", server::login),
    // The commands with which a replica registers and requests a dump.
    Target::new("dump-request", server::dump_request),
    // A statement to the binlog server.
    Target::new("binlog-server-sql", server::statement),
    // Files of a mysqld: its index, its UUID, its process in `/proc`, and its start options.
    Target::new("mysqld-files", mysqld::server_file),
    // The last binlog file of a mysqld that has ended. Its tail may have to be trimmed.
    Target::new("mysqld-binlog", mysqld_binlog).within(READ_AHEAD, 64),
];

/// Maximum size of an accepted packet, in bytes.
const MOST: usize = 1 << 16;

/// Asserts that the packets are the same however the bytes are split.
fn packets(bytes: &[u8]) -> bool {
    let whole = decoded(bytes, bytes.len().max(1));
    let in_pieces = decoded(bytes, 3);
    assert_eq!(whole, in_pieces);
    let mut written = Vec::new();
    for packet in &whole {
        encode_packet(packet.first_sequence, &packet.payload, &mut written);
    }
    assert!(bytes.starts_with(&written));
    !whole.is_empty()
}

/// Returns the packets up to the first fault, when the bytes arrive in chunks of `piece` bytes.
fn decoded(bytes: &[u8], piece: usize) -> Vec<Packet> {
    let mut decoder = PacketDecoder::new(MOST);
    let mut packets = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.buffer_mut().extend_from_slice(piece);
        loop {
            match decoder.next_packet() {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => break,
                Err(_) => return packets,
            }
        }
        assert!(decoder.missing() > 0);
    }
    packets
}

/// Reads a table of text: one row per line, with tab-separated values.
fn table_shapes(bytes: &[u8]) -> bool {
    let columns = ["number", "kind", "name", "place", "a", "b", "c"];
    std::str::from_utf8(bytes).is_ok_and(|text| {
        let rows = client::rows(&columns, text);
        applier::fuzzing::table_shapes(&rows)
    })
}

fn dump_event(bytes: &[u8]) -> bool {
    let event = &bytes[client::dump_prefix(bytes)..];
    RawEvent::new(Bytes::copy_from_slice(event)).is_ok()
}

fn server_words(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let version = text.parse::<ServerVersion>();
    if let Ok(version) = &version {
        assert_eq!(version.to_string().parse().as_ref(), Ok(version));
        let _support = version_support(*version, text, text);
    }
    let endpoint = text.parse::<Endpoint>();
    if let Ok(endpoint) = &endpoint {
        assert_eq!(endpoint.to_string().parse().as_ref(), Ok(endpoint));
    }
    let grants = Grants::parse("w@%", text.lines());
    version.is_ok() || endpoint.is_ok() || grants != Grants::parse("w@%", [])
}

fn mysqld_binlog(bytes: &[u8]) -> bool {
    mysqld::last_binlog(bytes) | mysqld::last_binlog(&repair::binlog_file(bytes))
}
