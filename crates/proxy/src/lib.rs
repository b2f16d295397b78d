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
//! from what the [`RouteTable`] knows by the results of real traffic. Votes, heartbeats and transfers are never proxied.

mod calls;
mod commit_news;
mod health;
mod leader;
mod patience;
mod policy;
mod reconstitution;
mod relay;
mod request;
mod route_table;
pub mod routes;
mod session;
mod traffic;

pub use calls::{LineBroken, ProxyAnswers, ProxyCalls, ProxyService};
pub use health::Failure;
pub use leader::{Proxying, ProxyingClient};
pub use policy::{EdgesError, ProxyMode, ProxyOptions, check_edges};
pub use relay::{Records, Relay};
pub use request::{ProxyAnswer, ProxyRequest};
pub use route_table::{RouteTable, RouteView};
pub use traffic::{Counted, Relayed, Sent, Traffic};
