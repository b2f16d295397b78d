//! Fuzzing entry points for the input from files and HTTP clients. The product does not call them.

use std::path::Path;

use member::status::MemberView;

use crate::cli::tls::certificate::{Certificate, day};
use crate::config::{self, FileCheck, Sources, address_of, bytes_of, duration_of};
use crate::http::fuzzing::{connection, first_expiry_in, order_is_read, token};

/// Reads a configuration file on a host that has none of the files named in it. Returns whether the configuration is valid.
pub fn configuration(text: &str) -> bool {
    let sources = Sources {
        file: Some(("witness.toml".to_owned(), text.to_owned())),
        ..Sources::default()
    };
    let (config, problems) = config::read_with(&sources, FileCheck::Nothing);
    assert_eq!(config.is_none(), problems.any_error());
    // Formatting the problems with their locations must not panic.
    let _told = problems.to_string();
    config.is_some()
}

/// Reads a text as a duration, a size and an address of the configuration or the command line. Returns whether it is one of these.
pub fn value(text: &str) -> bool {
    duration_of(text).is_ok() | bytes_of(text).is_ok() | address_of(text).is_ok()
}

/// Reads the body of an HTTP order or the parameters of a query, selected by the first byte. Returns whether the input is valid.
pub fn http_order(bytes: &[u8]) -> bool {
    let Some((kind, body)) = bytes.split_first() else {
        return false;
    };
    order_is_read(*kind, body)
}

/// Reads the journal of a conversion. Returns the journal as written again.
pub fn journal(bytes: &[u8]) -> Option<Vec<u8>> {
    let entries: member::conversion::JournalEntries = serde_json::from_slice(bytes).ok()?;
    serde_json::to_vec(&entries).ok()
}

/// Sends a client's bytes to the HTTP port of a member. `view` is the member's status in JSON. Returns whether the first request succeeded.
pub fn http_connection(view: &str, says: &[u8]) -> bool {
    let view: MemberView = serde_json::from_str(view).expect("a member's view");
    connection(view, says)
}

/// Reads a file of certificates and their first expiry, as `tls show` does. Returns whether the file has an expiry.
pub fn certificates(pem: &[u8]) -> bool {
    let shown = certificates_are_read(pem);
    let expires = first_expiry_in(pem);
    assert!(!shown || expires.is_some());
    shown
}

/// Returns whether a file has at least one certificate and all are readable. Also searches for each certificate's CA.
fn certificates_are_read(pem: &[u8]) -> bool {
    let Ok(all) = Certificate::all_in(pem, Path::new("all.pem")) else {
        return false;
    };
    if let [first, .., last] = all.as_slice() {
        let _ = (first.is_signed_by(last), day(first.not_after));
    }
    true
}

/// The token in a file's first line.
pub fn http_token(line: &str) -> Option<String> {
    token(line)
}
