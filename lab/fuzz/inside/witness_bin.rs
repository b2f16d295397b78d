//! What this crate reads from files and from callers over HTTP, for fuzzing. Nothing of the product calls it.

use member::status::MemberView;

use crate::cli::{certificates_are_read, journal_written_again};
use crate::config::{self, Sources, address_of, bytes_of, duration_of};
use crate::http::fuzzing::{connection, first_expiry_in, order_is_read, token};

/// Reads a configuration file, as on a host that has none of the files that it names; whether it is one without mistakes.
pub fn configuration(text: &str) -> bool {
    let sources = Sources {
        file: Some(("witness.toml".to_owned(), text.to_owned())),
        ..Sources::default()
    };
    let (config, problems) = config::read_without_files(&sources);
    assert_eq!(config.is_none(), problems.any_error());
    // What is found is told, with its place.
    let _told = problems.to_string();
    config.is_some()
}

/// Reads a duration, a size and an address as they stand in a configuration and on the command line; whether it is one of them.
pub fn value(text: &str) -> bool {
    duration_of(text).is_ok() | bytes_of(text).is_ok() | address_of(text).is_ok()
}

/// Reads the body of an order over HTTP, or what a question is asked with, which the first byte says; whether it is one.
pub fn http_order(bytes: &[u8]) -> bool {
    let Some((kind, body)) = bytes.split_first() else {
        return false;
    };
    order_is_read(*kind, body)
}

/// Reads the journal of a conversion, and writes it.
pub fn journal(bytes: &[u8]) -> Option<Vec<u8>> {
    journal_written_again(bytes)
}

/// Hands what somebody says on a connection to the HTTP port of a member, whose view this is in JSON; whether the first request was
/// answered with what it asked for.
pub fn http_connection(view: &str, says: &[u8]) -> bool {
    let view: MemberView = serde_json::from_str(view).expect("a member's view");
    connection(view, says)
}

/// Reads a file of certificates as `tls show` does, and when the first of them expires; whether it has one.
pub fn certificates(pem: &[u8]) -> bool {
    let shown = certificates_are_read(pem);
    let expires = first_expiry_in(pem);
    assert!(!shown || expires.is_some());
    shown
}

/// The token in a file's first line.
pub fn http_token(line: &str) -> Option<String> {
    token(line)
}
