//! A network with delays between real processes with real sockets. Each place is one network namespace with one TUN device. A router thread
//! delivers every packet after the delay of its link.
//!
//! Delay, loss and cuts are set for each direction separately, while processes communicate. The harness has its own address in the same
//! network, without delay, so that it reaches all ports. Dropping the network removes everything. If a harness is killed, the next one
//! removes what it left. Requires root, `ip` and `/dev/net/tun`, but no traffic shaping in the kernel.

mod address_plan;
mod links;
mod namespace;
mod router;

use std::fs::OpenOptions;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::distance::address_plan::AddressPlan;
pub use crate::distance::links::{DelayLine, Link, Links, Place, Traffic};
use crate::distance::namespace::{Namespace, Wire};
use crate::distance::router::Router;

/// A network of places. End the processes inside before dropping it, because they lose their network.
#[derive(Debug)]
pub struct DistanceNetwork {
    // Dropped first, with its devices: a namespace ends with its last device and process.
    _router: Router,
    namespaces: Vec<Namespace>,
    plan: AddressPlan,
    links: Arc<Mutex<Links>>,
}

impl DistanceNetwork {
    /// Creates a network of `members` places, plus a place for the harness. No link has a delay yet.
    ///
    /// # Errors
    /// If the machine lacks a requirement, with what to do; or if `ip` fails, with its output.
    pub fn build(members: usize) -> Result<Self> {
        check_needs()?;
        namespace::remove_stale()?;
        let plan = AddressPlan::choose(members)?;
        let mut wires = vec![Wire::of_harness(&plan)?];
        let mut namespaces = Vec::with_capacity(members);
        for index in 0..members {
            let namespace = Namespace::make()?;
            wires.push(Wire::inside(&namespace, &plan, Place::member(index))?);
            namespaces.push(namespace);
        }
        let links = Arc::new(Mutex::new(Links::new(members)));
        let router = Router::start(wires, plan, links.clone())?;
        Ok(Self {
            _router: router,
            namespaces,
            plan,
            links,
        })
    }

    /// Returns the number of places, not counting the harness's place.
    #[must_use]
    pub fn size(&self) -> usize {
        self.namespaces.len()
    }

    /// Returns the address of a place. Each place has its own ports.
    #[must_use]
    pub fn address(&self, place: Place) -> Ipv4Addr {
        self.plan.address(place)
    }

    /// Returns the words to put before a command line so that it runs at the place of member `index`.
    #[must_use]
    pub fn wrapper(&self, index: usize) -> [&str; 2] {
        // Not `ip netns exec`: it copies all mounts for each process, so that no disk could be unmounted.
        ["nsenter", self.namespaces[index].option()]
    }

    /// Runs `work` on a separate thread at the place of member `index`, so that its sockets are created there.
    ///
    /// # Errors
    /// If the thread cannot be started. A failure to enter the place is in the thread's result.
    pub fn enter<T: Send + 'static>(
        &self,
        index: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        self.namespaces[index].enter(work)
    }

    /// Reads or changes the links. Packets wait during the call.
    pub fn links<T>(&self, use_them: impl FnOnce(&mut Links) -> T) -> T {
        use_them(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the one-way delay between all pairs of members: `inside` within a region, `across` between two regions.
    pub fn set_distances<R: PartialEq>(&self, regions: &[R], inside: Duration, across: Duration) {
        self.links(|links| {
            for (from, here) in regions.iter().enumerate() {
                for (to, there) in regions.iter().enumerate() {
                    let delay = if here == there { inside } else { across };
                    links.set_delay(Place::member(from), Place::member(to), delay);
                }
            }
        });
    }
}

/// Checks this machine's requirements for a distance network.
///
/// # Errors
/// If a requirement is missing; the message says what to do.
pub fn check_needs() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "network namespaces and TUN devices take root; run the same command as root"
    );
    let ip = Command::new("ip").arg("-Version").output();
    ip.context("`ip` does not run; install the package iproute2")?;
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    tun.context(
        "/dev/net/tun does not open; load the module (`modprobe tun`), or start the container with \
         `--device /dev/net/tun --cap-add NET_ADMIN --cap-add SYS_ADMIN`",
    )?;
    Ok(())
}
