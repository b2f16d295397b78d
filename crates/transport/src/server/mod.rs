//! The receiving end: the services, and the listener that they share.

mod admin_service;
mod proxy_sessions;
mod raft_service;
mod requests;
mod serve;

pub use serve::{RunningServer, ServeError, serve};
