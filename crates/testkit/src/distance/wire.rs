//! The TUN device of a place: what a process there sends comes out here, and what is put in here reaches it. A device is gone
//! when its wire is dropped, or its process ends.

use anyhow::{Context, Result, anyhow};
use tun_rs::{DeviceBuilder, SyncDevice};

use super::address_plan::AddressPlan;
use super::ip::ip;
use super::links::Place;
use super::namespace::Namespace;

/// The device's name inside a namespace.
const NAME: &str = "wire";
/// The harness's device stands beside the machine's own and those of other harnesses: the kernel puts a number.
const NAME_OF_HARNESS: &str = "witness%d";
/// Bytes of a packet, as on an Ethernet.
pub(super) const MTU: usize = 1500;
/// Packets that wait for the router at most; the kernel's own choice, 500, is less than a burst of TCP at a long distance.
const QUEUED_PACKETS: &str = "10000";

/// See the module.
pub(super) struct Wire {
    pub(super) device: SyncDevice,
}

impl Wire {
    /// The harness's, beside the machine's own devices.
    pub(super) fn of_harness(plan: &AddressPlan) -> Result<Self> {
        let wire = Self::make(NAME_OF_HARNESS)?;
        let name = wire.device.name()?;
        set_up(&[], &name, plan, Place::HARNESS)?;
        Ok(wire)
    }

    /// That of `place`, inside its namespace.
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
