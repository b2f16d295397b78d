//! The network between the members: a wire for each direction of each pair, with latency and jitter by region, loss,
//! duplication, reordering and cuts; unary calls, streams whose requests are answered in order while more are under way, and
//! sessions with proxies. In their place there may be connections ([`ByteStreams`]), over which the real transport runs.

mod answers;
mod byte_streams;
mod called_proxy;
mod links;
mod message;
mod message_queue;
mod outbound;
mod pending_calls;
mod premature_answers;
mod reception;
mod relaying;
mod reworded_memberships;
mod session_part;
mod sessions;
mod term_blind_log;

pub(crate) use answers::dead_after;
pub(crate) use byte_streams::{ByteStreams, Machine};
pub(crate) use links::{Distances, Links, StandIn, Weather};
pub(crate) use message::{Body, Message};
pub(crate) use message_queue::MessageQueue;
pub(crate) use outbound::Outbound;
pub(crate) use pending_calls::PendingCalls;
pub(crate) use reception::Reception;
pub(crate) use relaying::Relaying;
pub(crate) use session_part::SessionPart;
pub(crate) use sessions::Relayed;
