//! Ports for the demonstration's members. They go down and come back during it, so their ports come from below the range that
//! the kernel hands out from: one of those could be somebody's connection by then.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::terminal::Failure;

/// Where Linux begins to hand out, if nobody changed it.
const HANDED_OUT_FROM: u16 = 32_768;
const LOWEST: u16 = 10_000;

/// Addresses of loopback that nobody listens at now.
pub(crate) fn free_addresses<const N: usize>() -> Result<[SocketAddr; N], Failure> {
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
