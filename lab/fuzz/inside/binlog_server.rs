//! What this crate reads from clients, for fuzzing. Nothing of the product calls it.

use crate::dump::{Request, parse_register};
use crate::session::login_is_read;
use crate::statement::{Other, Statement};

/// Reads a client's first packet; whether it is a login, or the wish for TLS.
pub fn login(bytes: &[u8]) -> bool {
    login_is_read(bytes)
}

/// Reads the body of one of the three commands of replicas, which the first byte says; whether it is one.
pub fn dump_request(bytes: &[u8]) -> bool {
    let Some((kind, body)) = bytes.split_first() else {
        return false;
    };
    match kind % 3 {
        0 => parse_register(body).is_some(),
        1 => Request::by_position(body).is_some(),
        _ => Request::by_gtids(body).is_some(),
    }
}

/// Reads a statement; whether this server answers it.
pub fn statement(text: &[u8]) -> bool {
    !matches!(Statement::recognise(text), Statement::Other(Other::Unknown))
}
