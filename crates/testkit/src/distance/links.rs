//! Decides for each directed pair of places when a packet arrives, or whether it is lost. Pure; the router does the I/O.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The most bytes in flight over one link. Further packets are lost, as in a router with a full buffer.
const IN_FLIGHT_BYTES: usize = 64 << 20;

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(pub(super) usize);

impl Place {
    /// The place of the harness.
    pub const HARNESS: Self = Self(0);

    /// Returns the place of the member with this index, counted from 0.
    #[must_use]
    pub const fn member(index: usize) -> Self {
        Self(index + 1)
    }
}

/// The settings of one direction between two places.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Link {
    /// One-way delay of a packet.
    pub delay: Duration,
    /// Share of lost packets, from 0 to 1.
    pub loss: f64,
    /// True if all packets are lost.
    pub cut: bool,
}

/// Traffic over a link since the network was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets that arrived.
    pub packets: u64,
    /// The bytes of these packets, including headers.
    pub bytes: u64,
    /// Packets that did not arrive.
    pub lost_packets: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    link: Link,
    traffic: Traffic,
    in_flight_bytes: usize,
    /// Arrival time of the previous packet. The order of packets is kept even if the delay becomes shorter.
    last_due: Option<Instant>,
}

/// All links of a network.
#[derive(Debug)]
pub struct Links {
    places: usize,
    states: Vec<State>,
}

impl Links {
    pub(super) fn new(members: usize) -> Self {
        let places = members + 1;
        Self {
            places,
            states: vec![State::default(); places * places],
        }
    }

    /// Returns a link's current settings.
    #[must_use]
    pub fn link(&self, from: Place, to: Place) -> Link {
        self.states[self.slot(from, to)].link
    }

    /// Returns the traffic over a link.
    #[must_use]
    pub fn traffic(&self, from: Place, to: Place) -> Traffic {
        self.states[self.slot(from, to)].traffic
    }

    /// Sets the one-way delay of packets that leave from now on.
    pub fn set_delay(&mut self, from: Place, to: Place, delay: Duration) {
        self.link_mut(from, to).delay = delay;
    }

    /// Sets the share of lost packets, from 0 to 1.
    pub fn set_loss(&mut self, from: Place, to: Place, loss: f64) {
        self.link_mut(from, to).loss = loss;
    }

    /// Cuts the direction from one place to the other, including packets in flight. The other direction is unchanged.
    pub fn cut(&mut self, from: Place, to: Place) {
        self.link_mut(from, to).cut = true;
    }

    /// Ends the cut of one direction.
    pub fn restore(&mut self, from: Place, to: Place) {
        self.link_mut(from, to).cut = false;
    }

    /// Ends all cuts and all loss. Delays are unchanged.
    pub fn restore_all(&mut self) {
        for state in &mut self.states {
            state.link.cut = false;
            state.link.loss = 0.0;
        }
    }

    /// Sends a packet of `len` bytes at `now`. Returns its arrival time, or `None` if it is lost. `chance` is a random number from 0 to
    /// 1 for this packet.
    pub(super) fn send(
        &mut self,
        (from, to): (Place, Place),
        len: usize,
        now: Instant,
        chance: f64,
    ) -> Option<Instant> {
        let slot = self.slot(from, to);
        let state = &mut self.states[slot];
        let full = state.in_flight_bytes + len > IN_FLIGHT_BYTES;
        if state.link.cut || full || chance < state.link.loss {
            state.traffic.lost_packets += 1;
            return None;
        }
        let due = now + state.link.delay;
        let due = state.last_due.map_or(due, |last| last.max(due));
        state.last_due = Some(due);
        state.in_flight_bytes += len;
        Some(due)
    }

    /// Ends the transmission of a packet after [`Self::send`]. Returns whether the packet is delivered.
    pub(super) fn arrive(&mut self, from: Place, to: Place, len: usize) -> bool {
        let slot = self.slot(from, to);
        let state = &mut self.states[slot];
        state.in_flight_bytes = state.in_flight_bytes.saturating_sub(len);
        if state.link.cut {
            state.traffic.lost_packets += 1;
            return false;
        }
        state.traffic.packets += 1;
        state.traffic.bytes += len as u64;
        true
    }

    fn link_mut(&mut self, from: Place, to: Place) -> &mut Link {
        let slot = self.slot(from, to);
        &mut self.states[slot].link
    }

    fn slot(&self, from: Place, to: Place) -> usize {
        assert!(
            from.0 < self.places && to.0 < self.places,
            "no link {from:?} -> {to:?}"
        );
        from.0 * self.places + to.0
    }
}

// Items in flight. They are returned at their due time, and in the order of insertion if due times are equal. Pure.

/// Items that are each returned at their due time.
#[derive(Debug)]
pub struct DelayLine<T> {
    /// By due time and by number of insertion.
    under_way: BTreeMap<(Instant, u64), T>,
    pushed: u64,
}

impl<T> Default for DelayLine<T> {
    fn default() -> Self {
        Self {
            under_way: BTreeMap::new(),
            pushed: 0,
        }
    }
}

impl<T> DelayLine<T> {
    /// Inserts an item that is due at `due`.
    pub fn push(&mut self, due: Instant, what: T) {
        self.under_way.insert((due, self.pushed), what);
        self.pushed += 1;
    }

    /// Removes and returns the first item that is due by `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = self.under_way.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Returns the due time of the next item.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let ((due, _), _) = self.under_way.first_key_value()?;
        Some(*due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Place = Place::member(0);
    const B: Place = Place::member(1);
    const NEVER: f64 = 1.0;

    fn links(delay_ms: u64) -> Links {
        let mut links = Links::new(2);
        links.set_delay(A, B, Duration::from_millis(delay_ms));
        links
    }

    #[test]
    fn a_packet_arrives_after_the_delay_of_its_direction() {
        let now = Instant::now();
        let mut links = links(30);
        let due = links.send((A, B), 100, now, NEVER);
        assert_eq!(due, Some(now + Duration::from_millis(30)));
        assert_eq!(links.send((B, A), 100, now, NEVER), Some(now));
        assert!(links.arrive(A, B, 100));
        let traffic = Traffic {
            packets: 1,
            bytes: 100,
            lost_packets: 0,
        };
        assert_eq!(links.traffic(A, B), traffic);
    }

    #[test]
    fn a_shorter_delay_does_not_overtake() {
        let now = Instant::now();
        let mut links = links(30);
        let first = links.send((A, B), 1, now, NEVER).unwrap();
        links.set_delay(A, B, Duration::from_millis(1));
        assert_eq!(links.send((A, B), 1, now, NEVER), Some(first));
        let later = now + Duration::from_millis(40);
        assert_eq!(
            links.send((A, B), 1, later, NEVER),
            Some(later + Duration::from_millis(1))
        );
    }

    #[test]
    fn a_cut_is_of_one_direction_and_takes_what_is_on_its_way() {
        let now = Instant::now();
        let mut links = links(30);
        assert!(links.send((A, B), 10, now, NEVER).is_some());
        links.cut(A, B);
        assert!(!links.arrive(A, B, 10), "it was on its way");
        assert_eq!(links.send((A, B), 10, now, NEVER), None);
        assert!(links.send((B, A), 10, now, NEVER).is_some());
        assert_eq!(links.traffic(A, B).lost_packets, 2);
        links.restore_all();
        assert_eq!(links.link(A, B).delay, Duration::from_millis(30));
        assert!(links.send((A, B), 10, now, NEVER).is_some());
    }

    #[test]
    fn loss_takes_its_part_and_a_full_link_everything_more() {
        let now = Instant::now();
        let mut links = links(0);
        links.set_loss(A, B, 0.25);
        assert_eq!(links.send((A, B), 1, now, 0.2), None);
        assert!(links.send((A, B), IN_FLIGHT_BYTES, now, 0.3).is_some());
        assert_eq!(links.send((A, B), 1, now, 0.3), None, "full");
        assert!(links.arrive(A, B, IN_FLIGHT_BYTES));
        assert!(links.send((A, B), 1, now, 0.3).is_some());
    }
}

#[cfg(test)]
mod delay_line_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn things_come_out_by_time_and_then_by_order() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut line = DelayLine::default();
        for (ms, what) in [(20, 'c'), (10, 'a'), (30, 'e'), (10, 'b'), (20, 'd')] {
            line.push(at(ms), what);
        }
        assert_eq!(line.next_due(), Some(at(10)));
        assert_eq!(line.pop_due(at(9)), None);
        let mut out = String::new();
        while let Some(what) = line.pop_due(at(20)) {
            out.push(what);
        }
        assert_eq!(out, "abcd");
        assert_eq!(line.next_due(), Some(at(30)));
    }
}
