//! Delays packets in the router of `containers/compose.yaml` if the kernel lacks netem. Packets are routed into a TUN device, and this
//! program sends them back after a delay. Runs in the router's container, as root.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use tun_rs::{DeviceBuilder, SyncDevice};

/// Buffer size for a packet, in bytes. Packets of an Ethernet are smaller.
const PACKET: usize = 2048;

#[derive(Args)]
pub(crate) struct Options {
    /// Name of the device
    device: String,
    /// Delay of packets
    #[arg(value_parser = humantime::parse_duration)]
    delay: Duration,
}

/// Delays packets until the process is killed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let device = DeviceBuilder::new()
        .name(&options.device)
        .mtu(1500)
        .build_sync()
        .context("cannot make a TUN device")?;
    let device = Arc::new(device);
    let (in_order, packets) = channel();
    let late = device.clone();
    thread::spawn(move || give_back(&late, &packets));
    take(&device, options.delay, &in_order)
}

type Due = (Instant, Box<[u8]>);

fn take(device: &SyncDevice, delay: Duration, in_order: &Sender<Due>) -> Result<()> {
    let mut buffer = [0; PACKET];
    loop {
        let length = device.recv(&mut buffer)?;
        in_order.send((Instant::now() + delay, buffer[..length].into()))?;
    }
}

fn give_back(device: &SyncDevice, packets: &Receiver<Due>) {
    for (due, packet) in packets {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A packet that the kernel does not accept is lost, as on any network.
        let _ = device.send(&packet);
    }
}
