//! Network namespaces whose names identify the harness that created them. So a later harness recognises the namespaces of an ended one,
//! and removes them together with the processes that still run inside.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::{fs, io, thread};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::distance::address_plan::{AddressPlan, ip};
use crate::distance::links::Place;
use crate::owner::Owner;

/// The folder in which `ip netns` keeps the names of namespaces.
const FOLDER: &str = "/run/netns";

/// A namespace; its name is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
    option: String,
}

impl Namespace {
    /// Creates a namespace with only a loopback device, which is down.
    pub(super) fn make() -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let owner = Owner::this_process()?;
        let name = owner.name(NUMBER.fetch_add(1, Ordering::Relaxed));
        ip(&["netns", "add", &name])?;
        let option = format!("--net={FOLDER}/{name}");
        Ok(Self { name, option })
    }

    /// Returns the `nsenter` option that enters this namespace.
    pub(super) fn option(&self) -> &str {
        &self.option
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a new thread inside this namespace.
    pub(super) fn enter<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let path = PathBuf::from(FOLDER).join(&self.name);
        let thread = thread::Builder::new().spawn(move || {
            let entered = File::open(&path).and_then(|file| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .map_err(io::Error::from)
            });
            entered.with_context(|| format!("cannot enter {}", path.display()))?;
            Ok(work())
        })?;
        Ok(thread)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // If this fails, the next harness removes the namespace as stale.
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Removes the namespaces of ended harnesses, with the processes that still run inside.
pub(super) fn remove_stale() -> Result<()> {
    let Ok(entries) = fs::read_dir(FOLDER) else {
        return Ok(()); // no namespace was made on this machine yet
    };
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Owner::of(&name).is_some_and(|owner| owner.is_gone()) {
            // Another harness may be removing the same namespace.
            let left = ip(&["netns", "pids", &name]).unwrap_or_default();
            for pid in left.lines().filter_map(|line| line.trim().parse().ok()) {
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            let _ = ip(&["netns", "delete", &name]);
        }
    }
    Ok(())
}

// The TUN device of a place. Packets that are sent to the place are read here, and packets written here arrive at the place. A device
// ends with its `Wire` or its process.

/// The device's name inside a namespace.
const NAME: &str = "wire";
/// The harness's device is next to the machine's own devices and those of other harnesses, so the kernel assigns a number.
const NAME_OF_HARNESS: &str = "witness%d";
/// The most bytes of a packet, as in Ethernet.
pub(super) const MTU: usize = 1500;
/// The most packets that wait for the router. The kernel's default, 500, is less than a TCP burst over a long distance.
const QUEUED_PACKETS: &str = "10000";

/// The TUN device of one place.
pub(super) struct Wire {
    pub(super) device: SyncDevice,
}

impl Wire {
    /// Creates the harness's device, next to the machine's own devices.
    pub(super) fn of_harness(plan: &AddressPlan) -> Result<Self> {
        let wire = Self::make(NAME_OF_HARNESS)?;
        let name = wire.device.name()?;
        set_up(&[], &name, plan, Place::HARNESS)?;
        Ok(wire)
    }

    /// Creates the device of `place`, inside its namespace.
    pub(super) fn inside(namespace: &Namespace, plan: &AddressPlan, place: Place) -> Result<Self> {
        let making = namespace.enter(|| Self::make(NAME))?;
        let wire = making
            .join()
            .map_err(|_| anyhow!("making a TUN device panicked"))???;
        let here = ["-netns", namespace.name()];
        ip(&[&here[..], &["link", "set", "lo", "up"]].concat())?;
        set_up(&here, NAME, plan, place)?;
        Ok(wire)
    }

    fn make(name: &str) -> Result<Self> {
        let device = DeviceBuilder::new()
            .name(name)
            .enable(false)
            .build_sync()
            .context("cannot make a TUN device")?;
        device.set_nonblocking(true)?;
        Ok(Self { device })
    }
}

fn set_up(here: &[&str], device: &str, plan: &AddressPlan, place: Place) -> Result<()> {
    let address = format!("{}/24", plan.address(place));
    let mtu = MTU.to_string();
    ip(&[here, &["address", "add", &address, "dev", device]].concat())?;
    let link = [
        "link",
        "set",
        device,
        "mtu",
        &mtu,
        "txqueuelen",
        QUEUED_PACKETS,
        "up",
    ];
    ip(&[here, &link].concat())?;
    Ok(())
}
