//! The calling end: one peer for each member, two connections for each peer, and the engine's network over them.

mod admin;
mod append_stream;
mod connector;
mod far;
mod network;
mod peers;
mod proxy_line;
mod stripes;

#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::admin::introduction;
pub use crate::client::admin::{AdminClient, AdminError, CommandEvents, LogPieces};
pub use crate::client::connector::{AddressError, ByteStream, Duplex, Streams};
pub use crate::client::far::FarOptions;
pub use crate::client::network::GrpcNetworkFactory;
pub use crate::client::peers::{LinkBytes, NetworkOptions, PeerTrouble};
pub(crate) use crate::client::proxy_line::{AbortOnDrop, Together};
