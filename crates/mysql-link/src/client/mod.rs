//! The client side: connecting, authentication, text queries.

mod authentication;
mod connect;
mod connection;
mod greeting;
mod options;
mod public_key;
mod result_set;

pub(crate) use connect::wire_error;
pub use connection::Connection;
pub use options::{ConnectOptions, PublicKeySource, Secret, Timeouts};
pub use result_set::{QueryResult, Row};
