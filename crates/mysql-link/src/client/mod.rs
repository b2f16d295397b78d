//! The client side: connecting, authentication, text queries.

mod authentication;
mod connect;
mod connection;
mod options;
mod result_set;
mod statements;

pub(crate) use crate::client::connect::wire_error;
pub use crate::client::connection::{Connection, Ran, literal};
pub use crate::client::options::{
    ConnectOptions, Dial, Dialer, Endpoint, EndpointParseError, PublicKeySource, Secret, Timeouts,
};
pub use crate::client::result_set::{QueryResult, Row};
pub use crate::client::statements::Statements;
