//! Fuzzing entry points for the input from clients. The product does not call them.

use crate::dump::{Request, parse_register};
use crate::session::login_is_read;
use crate::statement::Statement;

/// Reads a client's first packet; returns whether it is a login, or a request for TLS.
pub fn login(bytes: &[u8]) -> bool {
    login_is_read(bytes)
}

/// Reads the body of a replica's command; the first byte selects one of three commands. Returns whether the body is valid.
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

/// Reads a statement; returns whether this server answers it.
pub fn statement(text: &[u8]) -> bool {
    Statement::recognise(text) != Statement::Unknown
}
