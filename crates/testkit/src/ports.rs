//! Ports for servers that a test starts, kills and starts again.
//!
//! A port that the kernel hands out is anybody's as soon as its server is down: another server of the same test run is given
//! it, or a client's connection. So these are taken from below the range that the kernel hands out from, each is given once
//! by a process, and it is locked by that process against other test processes on the machine, until so many more were given.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// Where the kernel says which ports it hands out.
const HANDED_OUT: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The lowest that is taken: above the ports of services.
const LOWEST: u16 = 10_000;
/// Linux's own default, where it does not say.
const FIRST_HANDED_OUT: u16 = 32_768;

/// So many ports stay locked. Each takes a file descriptor, of which a process may have no more than 1,024 on many machines,
/// and a program of fifty tests asks for more ports than that; no test uses a port of so many ports ago.
const KEPT: usize = 300;

/// What this process has been given.
static GIVEN: Mutex<Given> = Mutex::new(Given {
    ports: BTreeSet::new(),
    locks: VecDeque::new(),
});

struct Given {
    /// Every one: none is given twice.
    ports: BTreeSet<u16>,
    /// Of the last ones.
    locks: VecDeque<File>,
}

/// A loopback address whose port nobody listens at. This process gets it once, and no other one gets it for long enough.
///
/// # Errors
/// When there is none.
pub fn free_address() -> Result<SocketAddr> {
    let above = fs::read_to_string(HANDED_OUT)
        .ok()
        .as_deref()
        .and_then(first)
        .filter(|first| *first > LOWEST)
        .unwrap_or(FIRST_HANDED_OUT);
    let locks = locks();
    fs::create_dir_all(&locks).with_context(|| format!("cannot make {}", locks.display()))?;
    let count = above - LOWEST;
    let start = LOWEST + fastrand::u16(..count);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    for port in (start..above).chain(LOWEST..start) {
        if given.ports.contains(&port) {
            continue;
        }
        let lock = File::create(locks.join(port.to_string()))
            .with_context(|| format!("cannot lock a port in {}", locks.display()))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if lock.try_lock().is_ok() && is_free(address)? {
            given.ports.insert(port);
            given.locks.push_back(lock);
            while given.locks.len() > KEPT {
                given.locks.pop_front();
            }
            return Ok(address);
        }
    }
    bail!("no port between {LOWEST} and {above} is free on loopback")
}

/// As many different ones.
///
/// # Errors
/// When there are not that many.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    (0..count).map(|_| free_address()).collect()
}

/// One file for each port that was ever given. Other users have a folder of their own.
fn locks() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("witness-test-ports-{user}"))
}

fn first(range: &str) -> Option<u16> {
    range.split_whitespace().next()?.parse().ok()
}

fn is_free(address: SocketAddr) -> Result<bool> {
    match TcpListener::bind(address) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error).context("cannot bind to loopback"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::collections::BTreeSet;

    use super::*;

    /// So many are asked for here that the other test's port would no longer be locked.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Two rings of one test run had the same port once: a server that was down when the other one asked lost its own.
    #[test]
    fn a_port_is_given_once_and_never_one_that_the_kernel_hands_out() {
        let _turn = ONE_AT_A_TIME.lock();
        let given = free_addresses(2 * KEPT).unwrap();
        let ports: BTreeSet<u16> = given.iter().map(SocketAddr::port).collect();
        assert_eq!(ports.len(), given.len());
        let locks = GIVEN.lock().unwrap().locks.len();
        assert!(locks <= KEPT, "{locks} file descriptors");
        let handed_out = first(&fs::read_to_string(HANDED_OUT).unwrap()).unwrap();
        assert!(ports.last().unwrap() < &handed_out, "{ports:?}");
        for address in given {
            TcpListener::bind(address).unwrap();
        }
    }

    #[test]
    fn a_port_that_another_process_has_locked_is_not_given() {
        let _turn = ONE_AT_A_TIME.lock();
        let address = free_address().unwrap();
        let other = File::create(locks().join(address.port().to_string())).unwrap();
        assert!(other.try_lock().is_err(), "it is this process's");
    }
}
