//! A network with distance between processes that have real sockets: one network namespace per place, one TUN device
//! in each, and a router thread that carries every packet to where it goes after the delay of its link.
//!
//! Delay, loss and cuts are set for each direction by itself, while processes talk. The harness has an address of its own in
//! the same network, without delay, so that it reaches everybody's ports. All of it goes when the network is dropped; what a
//! killed harness left behind is removed by the next one. It needs root, `ip` and `/dev/net/tun`, and nothing else: the kernel
//! needs no traffic shaping.

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

use anyhow::Result;

use crate::distance::address_plan::AddressPlan;
pub use crate::distance::links::{DelayLine, Link, Links, Place, Traffic};
use crate::distance::namespace::{Namespace, Wire};
use crate::distance::router::Router;

/// A network of places. Processes inside it should end before it is dropped: they would be left without a network.
#[derive(Debug)]
pub struct DistanceNetwork {
    namespaces: Vec<Namespace>,
    plan: AddressPlan,
    links: Arc<Mutex<Links>>,
    router: Option<Router>,
}

impl DistanceNetwork {
    /// Makes a network of `members` places beside the harness's own. No link has a delay yet.
    ///
    /// # Errors
    /// [`Lacking`], when the machine lacks something, which then says what to do; or what `ip` said.
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
            namespaces,
            plan,
            links,
            router: Some(router),
        })
    }

    /// How many places it has beside the harness's.
    #[must_use]
    pub fn size(&self) -> usize {
        self.namespaces.len()
    }

    /// The address of a place. Ports are each place's own.
    #[must_use]
    pub fn address(&self, place: Place) -> Ipv4Addr {
        self.plan.address(place)
    }

    /// The words before a command line that make it run at the place of member `index`.
    #[must_use]
    pub fn wrapper(&self, index: usize) -> [&str; 2] {
        // Not `ip netns exec`: that gives each process copies of all mounts, so that no disk could be unmounted.
        ["nsenter", self.namespaces[index].option()]
    }

    /// Runs `work` on a thread of its own at the place of member `index`: the sockets that it makes are that place's.
    ///
    /// # Errors
    /// When the thread cannot be started. That it cannot enter the place is the thread's own result.
    pub fn enter<T: Send + 'static>(
        &self,
        index: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        self.namespaces[index].enter(work)
    }

    /// Looks at the links or changes them. Packets wait meanwhile.
    pub fn links<T>(&self, use_them: impl FnOnce(&mut Links) -> T) -> T {
        use_them(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the one-way delay of every pair of members by their regions: `inside` within one, `across` between two.
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

impl Drop for DistanceNetwork {
    fn drop(&mut self) {
        // The wires first: a namespace goes when its last device and process are gone.
        drop(self.router.take());
    }
}

// What the machine must have for a distance network, and what to do where it has not.

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// The user is not root.
    Root,
    /// The program `ip` cannot be run.
    Ip(String),
    /// `/dev/net/tun` cannot be opened.
    Tun(String),
}

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the network with distance cannot be made: ")?;
        match self {
            Self::Root => f.write_str(
                "network namespaces and TUN devices take root; run the same command as root",
            ),
            Self::Ip(why) => {
                write!(f, "`ip` does not run ({why}); install the package iproute2")
            }
            Self::Tun(why) => write!(
                f,
                "/dev/net/tun does not open ({why}); load the module (`modprobe tun`), or start the container with \
                 `--device /dev/net/tun --cap-add NET_ADMIN --cap-add SYS_ADMIN`"
            ),
        }
    }
}

impl std::error::Error for Lacking {}

/// Whether a distance network can be made here.
///
/// # Errors
/// The first thing that is missing.
pub fn check_needs() -> Result<(), Lacking> {
    if !rustix::process::geteuid().is_root() {
        return Err(Lacking::Root);
    }
    let ip = Command::new("ip").arg("-Version").output();
    ip.map_err(|error| Lacking::Ip(error.to_string()))?;
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    tun.map_err(|error| Lacking::Tun(error.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_to_do() {
        let why = || "no such file".to_owned();
        for (lacking, advice) in [
            (Lacking::Root, "as root"),
            (Lacking::Ip(why()), "install the package iproute2"),
            (Lacking::Tun(why()), "modprobe tun"),
        ] {
            assert!(lacking.to_string().contains(advice), "{lacking}");
        }
    }
}
