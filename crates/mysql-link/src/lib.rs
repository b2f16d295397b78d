//! The client side of MySQL's wire protocol: connecting, text queries, and the replication stream
//! with semi-sync ACKs. [`wire`] has the code that both sides share. The server side is the crate
//! `binlog-server`.
//!
//! Every wait has a limit, and every length from the network is checked.

pub mod client;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/mysql_link.rs"]
pub mod fuzzing;
pub mod replication;
pub mod tls;
mod versions;
pub mod wire;

pub use crate::client::{
    ConnectOptions, Connection, Dial, Dialer, Endpoint, EndpointParseError, PublicKeyError,
    PublicKeySource, QueryResult, Ran, Row, Secret, Statements, Timeouts, literal,
};
pub use crate::error::{LinkError, ProtocolError, ServerError, Step, not_followed, server_code};
pub use crate::replication::{
    Acker, DumpError, DumpEvent, DumpOptions, DumpRefusal, EventReader, ReplicationStream,
};
pub use crate::tls::{ClientCertificate, TlsConfigError, TlsMode, TlsModeError, TlsOptions};
pub use crate::versions::{
    Product, ServerVersion, VersionError, VersionSupport, cannot_apply, foreign, may_take_over,
    product, version_support,
};
