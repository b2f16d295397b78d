//! The client side: connecting, authentication, text queries.

mod authentication;
mod connect;
mod connection;
mod options;
mod result_set;
mod statements;

pub use crate::client::authentication::PublicKeyError;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::authentication::{
    Authentication, AuthenticationError, TransportSecurity, check as check_public_key,
};
pub(crate) use crate::client::connect::wire_error;
#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::connect::{connect, foreign_in, parse_greeting, parse_switch};
pub use crate::client::connection::{Connection, Ran, literal};
pub use crate::client::options::{
    ConnectOptions, Dial, Dialer, Endpoint, EndpointParseError, PublicKeySource, Secret, Timeouts,
};
#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::result_set::{Answer, parse_answer, parse_column_name, parse_row};
pub use crate::client::result_set::{QueryResult, Row};
pub use crate::client::statements::Statements;
