//! The network between the members. Each direction between two members is a link with latency and jitter by region. Links lose, duplicate
//! and reorder messages, and can be cut. They transmit unary calls, pipelined streams with ordered answers, and sessions with proxies.
//! Instead, the real transport can run over simulated connections ([`ByteStreams`]).

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
pub(crate) use byte_streams::ByteStreams;
pub(crate) use links::{Distances, Links, StandIn, Weather};
pub(crate) use message::{Body, Message};
pub(crate) use message_queue::MessageQueue;
pub(crate) use outbound::Outbound;
pub(crate) use pending_calls::PendingCalls;
pub(crate) use reception::Reception;
pub(crate) use relaying::Relaying;
pub(crate) use session_part::SessionPart;
pub(crate) use sessions::Relayed;
