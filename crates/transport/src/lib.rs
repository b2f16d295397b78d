//! gRPC between the members of a ring.
//!
//! The calling end is the engine's network ([`GrpcNetworkFactory`]). Entries use one connection, in bounded messages and a bounded window.
//! Heartbeats, votes and transfers use another, so that they never wait for entries. The receiving end is [`serve`] over a [`LocalMember`].
//! Every call names the ring and both data directories, and is refused with a reason if they do not match. With TLS, the caller's
//! certificate determines its rights. [`bootstrap_ring`] makes a ring; [`AdminClient`] asks a member about itself and gives it an
//! operator's commands.

mod bootstrap;
mod callers;
mod client;
mod compression;
mod config;
mod connections;
mod envelope;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/transport.rs"]
pub mod fuzzing;
mod local_member;
mod own_certificate;
mod schema;
mod server;
mod streams;
mod together;
mod wire;

pub use crate::bootstrap::{FounderCalls, RingBootstrapError, bootstrap_ring, bootstrap_ring_by};
pub use crate::callers::{NamedRoles, Right};
pub use crate::client::{
    AddressError, AdminClient, AdminError, CommandEvents, FarOptions, GrpcNetworkFactory,
    LinkBytes, LogPieces, PeerClient, PeerTrouble,
};
pub use crate::compression::{Compression, CompressionFigures};
pub use crate::config::{TlsMaterial, TransportConfig, server_tls};
pub use crate::local_member::{
    CommandCaller, CommandSource, LocalMember, LogPiece, LogSource, StatusSource,
};
pub use crate::own_certificate::{TlsError, TlsFiles, ValidFor};
pub use crate::server::{RunningServer, ServeError, serve, serve_streams};
pub use crate::streams::{ByteStream, Duplex, Listening, Streams};
