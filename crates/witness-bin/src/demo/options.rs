//! How a demonstration is played, and at which addresses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use crate::terminal::Failure;

/// How a demonstration is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoOptions {
    /// Around a real mysqld instead of the embedded database.
    pub mysql: bool,
    /// Where the members' files go and stay; a temporary directory otherwise.
    pub data_dir: Option<PathBuf>,
    /// How long the load runs between two events.
    pub pause: Duration,
    /// Nothing is shown but the report.
    pub silent: bool,
}

/// Where Linux begins to hand ports out, if nobody changed it. Members go down and come back during a demonstration, so their ports
/// come from below: one of those that the kernel hands out could be somebody's connection by then.
const HANDED_OUT_FROM: u16 = 32_768;
const LOWEST: u16 = 10_000;

/// Addresses of loopback that nobody listens at now.
pub(super) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], Failure> {
    // Any start will do; two demonstrations at once should not go through the same ports in step.
    let start = LOWEST + std::process::id() as u16 % (HANDED_OUT_FROM - LOWEST);
    // Each is held until the last is found.
    let mut held = (start..HANDED_OUT_FROM)
        .chain(LOWEST..start)
        .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let listeners: Vec<TcpListener> = held.by_ref().take(N).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().flat_map(TcpListener::local_addr).collect();
    addresses.try_into().map_err(|_| {
        Failure::error(format!(
            "no {N} free ports between {LOWEST} and {HANDED_OUT_FROM} on 127.0.0.1; end what listens there"
        ))
    })
}
