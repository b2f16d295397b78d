//! The calling end: one peer a member, two connections a peer, and the engine's network over them.

mod admin;
mod answers;
mod endpoint;
mod greeting;
mod link_bytes;
mod network;
mod packing;
mod parts;
mod peers;
mod proxy_calls;
mod proxy_line;
mod trouble;
mod window;

pub use admin::{AdminClient, AdminError, CommandEvents, LogPieces};
pub use endpoint::AddressError;
pub use link_bytes::LinkBytes;
pub use network::{GrpcNetworkFactory, PeerClient};
pub use trouble::PeerTrouble;
