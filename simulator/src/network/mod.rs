//! The network between the members: a wire for each direction of each pair, with latency and jitter by region, loss,
//! duplication, reordering and cuts; unary calls, streams whose requests are answered in order while more are under way, and
//! sessions with proxies.

mod answers;
mod called_proxy;
mod desk;
mod links;
mod message;
mod outbound;
mod post;
mod reception;
mod relaying;
mod reworded_memberships;
mod session_part;
mod sessions;
mod term_blind_log;
mod ungiven_answers;

pub(crate) use answers::dead_after;
pub(crate) use desk::Desk;
pub(crate) use links::{Distances, Links, StandIn, Weather};
pub(crate) use message::{Body, Message};
pub(crate) use outbound::Outbound;
pub(crate) use post::Post;
pub(crate) use reception::Reception;
pub(crate) use relaying::Relaying;
pub(crate) use session_part::SessionPart;
pub(crate) use sessions::Relayed;
