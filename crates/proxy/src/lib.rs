//! PROXY_OP: a leader sends entries without their payloads to a member in another region, through a proxy in that region that has the
//! payloads already. So each payload is sent over the long distance only once. The leader keeps all replication state; only payloads take
//! another way.
//!
//! ```text
//!  leader ──── entries ────► proxy (its own log)
//!         ──── op ids ─────►   │ restores the payloads
//!                              ├── entries ──► member ── its answer ──┐
//!         ◄──────────────────────────────── passed on ────────────────┘
//! ```
//!
//! [`Proxying`] is the leader's end, which wraps its network. [`Relay`] is the proxy's end. The choice of a route is a pure function
//! ([`routes`]). Its input is the [`RouteTable`], which records the results of real traffic. Votes, heartbeats and transfers are never sent
//! over proxies.

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
