//! The thread that carries packets between the devices of the places. One call waits for packets and for the next arrival time, with a
//! precision of some tens of microseconds.

use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::distance::address_plan::AddressPlan;
use crate::distance::links::{DelayLine, Links, Place};
use crate::distance::namespace::{MTU, Wire};

/// How many packets are read from one device before the others have their turn.
const TURN: usize = 64;
/// The longest time until the router observes that it should stop.
const STOP_PATIENCE: Duration = Duration::from_millis(50);
/// The highest priority: a delay of the router would be measured as distance.
const NICENESS: i32 = -20;
/// How late the kernel may wake a thread to save wake-ups; 50 µs by default.
const TIMER_SLACK_NS: Option<NonZeroU64> = NonZeroU64::new(1);

/// The running router. Dropping it ends the router and removes its devices.
#[derive(Debug)]
pub(super) struct Router {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Packet {
    from: Place,
    to: Place,
    bytes: Box<[u8]>,
}

struct Carrier {
    wires: Vec<Wire>,
    plan: AddressPlan,
    links: Arc<Mutex<Links>>,
    under_way: DelayLine<Packet>,
    buffer: Vec<u8>,
}

impl Router {
    /// Starts the router; wire `n` is the device of place `n`.
    pub(super) fn start(
        wires: Vec<Wire>,
        plan: AddressPlan,
        links: Arc<Mutex<Links>>,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let carrier = Carrier {
            wires,
            plan,
            links,
            under_way: DelayLine::default(),
            buffer: vec![0; MTU],
        };
        let stopping = stop.clone();
        let thread = thread::Builder::new()
            .name("distance".to_owned())
            .spawn(move || carrier.carry(&stopping))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The router's thread has printed its panic.
            let _ = thread.join();
        }
    }
}

impl Carrier {
    fn carry(mut self, stop: &AtomicBool) {
        // Both calls affect only this thread. If they fail, the router works, but delivers slightly later.
        let _ = rustix::thread::set_current_timer_slack(TIMER_SLACK_NS);
        let _ = rustix::process::setpriority_process(None, NICENESS);
        while !stop.load(Ordering::Relaxed) {
            self.deliver();
            for place in self.readable() {
                self.take(place);
            }
        }
    }

    /// Delivers all packets that are due.
    fn deliver(&mut self) {
        while let Some(packet) = self.under_way.pop_due(Instant::now()) {
            self.hand_over(&packet);
        }
    }

    fn hand_over(&self, packet: &Packet) {
        let Packet { from, to, bytes } = packet;
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let arrives = links.arrive(*from, *to, bytes.len());
        drop(links);
        if arrives {
            // If the device is full or removed, the packet is lost, as in any network.
            let _ = self.wires[to.0].device.send(bytes);
        }
    }

    /// Waits until a device has packets or a packet is due. Returns the places whose devices have packets.
    fn readable(&self) -> Vec<Place> {
        let wait = self.under_way.next_due().map_or(STOP_PATIENCE, |due| {
            due.saturating_duration_since(Instant::now())
                .min(STOP_PATIENCE)
        });
        let mut waiting: Vec<_> = self
            .wires
            .iter()
            .map(|wire| PollFd::new(&wire.device, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(wait).ok();
        // If the wait is interrupted, it just ends earlier.
        let _ = poll(&mut waiting, timeout.as_ref());
        let ready = waiting.iter().enumerate();
        ready
            .filter(|(_, descriptor)| descriptor.revents().contains(PollFlags::IN))
            .map(|(index, _)| Place(index))
            .collect()
    }

    /// Reads packets from a device, at most `TURN`.
    fn take(&mut self, from: Place) {
        for _ in 0..TURN {
            let Ok(len) = self.wires[from.0].device.recv(&mut self.buffer) else {
                return; // no packets left
            };
            let now = Instant::now();
            let bytes = &self.buffer[..len];
            let Some(to) = destination(bytes).and_then(|address| self.plan.place(address)) else {
                continue;
            };
            let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            let due = links.send((from, to), len, now, fastrand::f64());
            drop(links);
            if let Some(due) = due {
                let bytes = bytes.into();
                self.under_way.push(due, Packet { from, to, bytes });
            }
        }
    }
}

// The destination of an IPv4 packet.

const VERSION_4: u8 = 4;
const DESTINATION: std::ops::Range<usize> = 16..20;

/// Returns the destination of an IPv4 packet; `None` for other packets (the kernel also sends IPv6 packets by itself).
pub(super) fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    if packet.first()? >> 4 != VERSION_4 {
        return None;
    }
    let octets: [u8; 4] = packet.get(DESTINATION)?.try_into().ok()?;
    Some(octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_ipv4_header_has_a_destination() {
        let mut packet = [0_u8; 20];
        packet[0] = 0x45;
        packet[DESTINATION].copy_from_slice(&[198, 18, 7, 9]);
        assert_eq!(destination(&packet), Some(Ipv4Addr::new(198, 18, 7, 9)));
        assert_eq!(destination(&packet[..19]), None);
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None);
        assert_eq!(destination(&[]), None);
    }
}
