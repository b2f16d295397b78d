//! Targets for input from operators and their programs: configuration, orders, and the members' documents.

use member::protocol::{CommandEvent, Order};
use member::status::MemberView;
use mysqld_server::fuzzing as server;
use witness_bin::fuzzing as program;

use crate::{Target, document, is_written_the_same};

pub(crate) const TARGETS: &[Target] = &[
    // The configuration file.
    Target::new("configuration", |bytes| {
        std::str::from_utf8(bytes).is_ok_and(program::configuration)
    })
    .within(256 << 10, 4096),
    // A duration, size or address in a configuration or on the command line.
    Target::new("configuration-value", |bytes| {
        std::str::from_utf8(bytes).is_ok_and(program::value)
    }),
    // The body of an order over HTTP.
    Target::new("http-order", program::http_order),
    // The bytes of a client of the HTTP port.
    Target::new("http-connection", |bytes| {
        program::http_connection(MEMBER, bytes)
    })
    .within(2 << 20, 256),
    // A file of certificates and keys in PEM.
    Target::new("tls-files", tls_files).within(512 << 10, 256),
    // A file with a password or a token.
    Target::new("secret-file", secret_file),
    // A command of an operator, its events, and a member's status.
    Target::new("command", command),
    // The identity file of a data directory.
    Target::new("identity", |bytes| {
        is_written_the_same(bytes, member::fuzzing::identity)
    }),
    // A member's records about its mysqld: its state, a clone, a start, its events, a trimmed tail.
    Target::new("mysqld-note", |bytes| {
        is_written_the_same(bytes, server::note)
    }),
    // The journal of a conversion of servers to a ring or back.
    Target::new("conversion-journal", |bytes| {
        is_written_the_same(bytes, program::journal)
    }),
];

/// The status of the fuzzed member, as its HTTP port reports it.
const MEMBER: &str = include_str!("member.json");

/// Reads a file of certificates and keys with all readers: members, HTTP, the client of a mysqld, and `tls show`.
fn tls_files(pem: &[u8]) -> bool {
    let [usable, shown] = [
        transport::fuzzing::tls_files(pem),
        program::certificates(pem),
    ];
    let to_mysqld = mysql_link::fuzzing::certificates(pem);
    assert!(!usable || to_mysqld > 0);
    usable | shown
}

fn secret_file(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let password = member::fuzzing::password(text);
    assert!(text.starts_with(password) && !password.contains('\n'));
    // A carriage return at the end of the password would count as a part of the line's end.
    let written = format!("{password}\n");
    assert!(password.ends_with('\r') || member::fuzzing::password(&written) == password);
    program::http_token(password).is_some_and(|token| password.contains(&token))
}

/// Reads one of three documents, selected by the first byte.
fn command(bytes: &[u8]) -> bool {
    let Some((which, json)) = bytes.split_first() else {
        return false;
    };
    is_written_the_same(
        json,
        match which % 3 {
            0 => document::<Order>,
            1 => document::<CommandEvent>,
            _ => document::<MemberView>,
        },
    )
}
