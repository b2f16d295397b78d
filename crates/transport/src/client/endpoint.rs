//! Connections by address, and what their errors say.

use std::error::Error;

use thiserror::Error;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use crate::tls::TlsMaterial;
use crate::transport_config::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES, STREAM_WINDOW_BYTES, TransportConfig,
};

/// An address that cannot be called.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{address}` is not an address that can be called ({reason}); write it as HOST:PORT")]
pub struct AddressError {
    address: String,
    reason: String,
}

/// A connection that comes up with the first call on it, and again after it broke. Must be called
/// within the runtime that carries it.
pub(crate) fn lazy(
    address: &str,
    tls: Option<&TlsMaterial>,
    config: &TransportConfig,
) -> Result<Channel, AddressError> {
    let refused = |reason: &dyn Error| AddressError {
        address: address.to_owned(),
        reason: chain(reason),
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}"))
        .map_err(|error| refused(&error))?
        .tcp_nodelay(true)
        .connect_timeout(config.connect_deadline)
        .http2_keep_alive_interval(config.keepalive)
        .keep_alive_timeout(config.keepalive_deadline)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    if let Some(tls) = tls {
        endpoint = endpoint
            .tls_config(tls.client())
            .map_err(|error| refused(&error))?;
    }
    Ok(endpoint.connect_lazy())
}

/// A status in words, with all of its causes.
pub(crate) fn words(status: &Status) -> String {
    match status.source() {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
