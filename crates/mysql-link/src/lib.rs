//! MySQL's wire protocol. Its client side is here: connecting, text queries, and the replication
//! stream with semi-sync ACKs. What both directions share lives in [`wire`]; the server side is the
//! crate `binlog-server`.
//!
//! Nothing here waits without a bound, and no length from the network is trusted.

pub mod client;
mod endpoint;
mod error;
mod not_followed;
mod proven;
pub mod replication;
mod server_version;
pub mod tls;
pub mod wire;

pub use client::{
    ConnectOptions, Connection, PublicKeySource, QueryResult, Ran, Row, Secret, Statements,
    Timeouts, literal,
};
pub use endpoint::{Endpoint, EndpointParseError};
pub use error::{LinkError, ProtocolError, ServerError, Step, server_code};

pub use not_followed::not_followed;
pub use proven::{
    CRASH_SAFE_XA, GTIDS_IN_INNODB, Mechanism, PROVEN, Product, Proof, Standing, cannot_apply,
    foreign, product, standing,
};
pub use replication::{
    Acker, DumpError, DumpEvent, DumpOptions, DumpRefusal, EventReader, ReplicationStream,
};
pub use server_version::{ServerVersion, may_take_over};
pub use tls::{ClientCertificate, TlsConfigError, TlsMode, TlsOptions};
