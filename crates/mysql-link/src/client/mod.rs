//! The client side: connecting, authentication, text queries.

mod answer_packets;
mod authentication;
mod connect;
mod connection;
mod greeting;
mod literal;
mod options;
mod public_key;
mod result_set;
mod statements;

pub(crate) use connect::wire_error;
pub use connection::{Connection, Ran};
pub use literal::literal;
pub use options::{ConnectOptions, PublicKeySource, Secret, Timeouts};
pub use result_set::{QueryResult, Row};
pub use statements::Statements;
