//! Ports for servers that a test starts, kills and restarts.
//!
//! After a server is down, the kernel may assign its ephemeral port to another server or client. Ports of this module are therefore below
//! the kernel's ephemeral range. A process returns each port only once. A lock file keeps other test processes on the machine from using
//! the port, until `KEPT` further ports were returned.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

/// The kernel's ephemeral port range.
const HANDED_OUT: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The lowest port used: above the ports of common services.
const LOWEST: u16 = 10_000;
/// The start of the ephemeral range if it cannot be read: Linux's default.
const FIRST_HANDED_OUT: u16 = 32_768;

/// The number of locked ports. Each lock needs a file descriptor; on many machines a process may have only 1,024. A program of fifty tests
/// needs more ports than that. No test still uses a port after `KEPT` further ones were returned.
const KEPT: usize = 300;

/// The ports returned by this process.
static GIVEN: Mutex<Given> = Mutex::new(Given {
    ports: BTreeSet::new(),
    locks: VecDeque::new(),
});

struct Given {
    /// All ports returned so far; none is returned twice.
    ports: BTreeSet<u16>,
    /// The locks of the last ports.
    locks: VecDeque<File>,
}

/// Returns a loopback address with a free port. The port is returned once in this process, and locked against other test processes.
///
/// # Errors
/// If no port is free.
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

/// Returns `count` different addresses.
///
/// # Errors
/// If fewer ports are free.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    (0..count).map(|_| free_address()).collect()
}

/// Returns the folder of the lock files: one file for each port that was ever used. Each user has its own folder.
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
    #![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

    use std::collections::BTreeSet;

    use super::*;

    /// These tests take so many ports that the locks of another test's ports would be released.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    /// Regression: two rings of one test run used the same port. A stopped server lost its port to the other ring.
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
