//! PROXY_OP: a leader sends a member in another region its entries without their payloads, by way of a member there that has
//! them already, so that each payload crosses the distance once. The leader keeps all bookkeeping; only the payload takes the shorter way.
//!
//! ```text
//!  leader ──── entries ────► proxy (its own log)
//!         ──── op ids ─────►   │ puts the payloads back
//!                              ├── entries ──► member ── its answer ──┐
//!         ◄──────────────────────────────── handed on ────────────────┘
//! ```
//!
//! [`Proxying`] is the leader's end, in front of its network; [`Relay`] is the proxy's. Which route is chosen is pure ([`routes`]),
//! from what the [`Board`] knows by the results of real traffic. Votes, heartbeats and transfers are never proxied.

mod board;
mod calls;
mod commit_news;
mod leader;
mod patience;
mod policy;
mod putting_back;
mod relay;
mod request;
pub mod routes;
mod session;
mod standing;
mod traffic;

pub use board::{Board, RouteView};
pub use calls::{LineBroken, ProxyAnswers, ProxyCalls, ProxyService};
pub use leader::{Proxying, ProxyingClient};
pub use policy::{EdgesError, ProxyMode, ProxyOptions, check_edges};
pub use relay::{Records, Relay};
pub use request::{ProxyAnswer, ProxyRequest};
pub use standing::Failure;
pub use traffic::{Counted, Relayed, Sent, Traffic};
