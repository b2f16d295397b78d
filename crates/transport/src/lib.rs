//! gRPC between the members of a ring.
//!
//! The calling end is the engine's network ([`GrpcNetworkFactory`]): entries on one connection, in
//! bounded messages and a bounded window; heartbeats, votes and transfers on another, so that they
//! never wait behind entries. The receiving end is [`serve`] over a [`LocalMember`]. Every call names
//! the ring and both data directories, and is refused with its reason when they do not fit.
//! [`found_ring`] makes a ring; [`AdminClient`] asks a member about itself and
//! gives it an operator's commands.

mod client;
mod compression;
mod envelope;
mod founding;
mod local_member;
mod schema;
mod server;
mod tls;
mod together;
mod transport_config;
mod wire;

pub use client::{
    AddressError, AdminClient, AdminError, CommandEvents, GrpcNetworkFactory, LinkBytes, LogPieces,
    PeerClient, PeerTrouble,
};
pub use compression::{Compression, CompressionFigures};
pub use founding::{FoundingError, found_ring};
pub use local_member::{CommandSource, LocalMember, LogPiece, LogSource, StatusSource};
pub use server::{RunningServer, ServeError, serve};
pub use tls::{TlsError, TlsFiles, TlsMaterial};
pub use transport_config::TransportConfig;
