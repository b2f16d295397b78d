//! PROXY_OP: a leader sends a member in another region its entries without their payloads, through a member there that has
//! them already. So each payload crosses the distance once. The leader keeps all bookkeeping; only the payload takes the shorter way.
//!
//! ```text
//!  leader ──── entries ────► proxy (its own log)
//!         ──── op ids ─────►   │ restores the payloads
//!                              ├── entries ──► member ── its answer ──┐
//!         ◄──────────────────────────────── passed on ────────────────┘
//! ```
//!
//! [`Proxying`] is the leader's end, in front of its network; [`Relay`] is the proxy's. The choice of a route is pure ([`routes`]);
//! its input is the [`RouteTable`], which records the results of real traffic. Votes, heartbeats and transfers are never proxied.

mod health;
mod leader;
mod policy;
mod proxy_op;
mod relay;
mod route_table;
pub mod routes;

pub use crate::health::Failure;
pub use crate::leader::Proxying;
pub use crate::policy::{EdgesError, ProxyMode, ProxyOptions, check_edges};
pub use crate::proxy_op::{
    LineBroken, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest, ProxyService,
};
pub use crate::relay::Relay;
pub use crate::route_table::{Counted, Records, Relayed, RouteTable, RouteView, Sent, Traffic};
