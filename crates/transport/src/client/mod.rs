//! The calling end: one peer per member, two connections per peer, and the engine's network over them.

mod admin;
mod append_stream;
mod far;
mod greeting;
mod knocking;
mod link_bytes;
mod network;
mod peers;
mod proxy_calls;
mod proxy_line;
mod stripes;

#[cfg(feature = "fuzzing")]
pub(crate) use crate::client::admin::introduction;
pub use crate::client::admin::{AdminClient, AdminError, CommandEvents, LogPieces};
pub use crate::client::far::FarOptions;
pub use crate::client::link_bytes::LinkBytes;
pub use crate::client::network::{GrpcNetworkFactory, PeerClient};
pub use crate::client::peers::{AddressError, PeerTrouble};
