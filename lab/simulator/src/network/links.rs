//! Decides whether a message arrives, how long it takes, and which faults it meets. Pure: random numbers and the clock are arguments.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use raft_types::{MemberId, Region};

/// One-way latencies, in steps of the world.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Distances {
    /// Latency within a region.
    pub(crate) inside: u64,
    /// Latency between regions.
    pub(crate) across: u64,
    /// Maximum random addition to the latency of each message.
    pub(crate) jitter: u64,
}

/// Faults of messages in addition to latency, as probabilities in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// A call or an answer is lost. On a stream, the message is retransmitted and arrives later.
    pub(crate) lost: u32,
    /// A call arrives twice.
    pub(crate) twice: u32,
    /// A message takes ten times as long, so that later messages overtake it.
    pub(crate) straggles: u32,
}

/// What happens to a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The message arrives once or twice, after these numbers of steps.
    Arrives(Vec<u64>),
    Lost,
}

/// For a mutation: a leader's entries and heartbeats for these voters are sent to a member without a vote. Its answers count as the voters'
/// answers.
#[derive(Debug, Clone)]
pub(crate) struct StandIn {
    pub(crate) leader: MemberId,
    pub(crate) voters: BTreeSet<MemberId>,
    pub(crate) learner: MemberId,
}

/// All links between the members.
#[derive(Default)]
pub(crate) struct Links {
    pub(crate) regions: BTreeMap<MemberId, Region>,
    distances: Distances,
    pub(crate) weather: Weather,
    /// The cut links, from the first member to the second. The number counts the reasons for the cut.
    cut: BTreeMap<(MemberId, MemberId), u32>,
    /// Members with blocked streams. Their calls are not blocked.
    stalled: BTreeSet<MemberId>,
    /// Members that send entries with this many additional steps of delay. Their other messages are not delayed.
    lagging: BTreeMap<MemberId, u64>,
    /// Members with false evidence of the leader's exit: every address refuses their calls, and leaders seem to close connections.
    pub(crate) alarmed: BTreeSet<MemberId>,
    /// Set only if the ring is broken deliberately.
    pub(crate) stand_in: Option<StandIn>,
}

/// Delay of a retransmitted stream message, in steps.
const RETRANSMISSION: u64 = 40;

impl Links {
    pub(crate) fn new(regions: BTreeMap<MemberId, Region>, distances: Distances) -> Self {
        Self {
            regions,
            distances,
            ..Self::default()
        }
    }

    /// Returns the member that receives a leader's messages for the voter `to`.
    pub(crate) fn stands_in_for(&self, from: MemberId, to: MemberId) -> MemberId {
        let stand_in = self.stand_in.as_ref();
        let stand_in = stand_in.filter(|one| one.leader == from && one.voters.contains(&to));
        stand_in.map_or(to, |one| one.learner)
    }

    /// Cuts a link in one direction.
    pub(crate) fn cut(&mut self, from: MemberId, to: MemberId) {
        *self.cut.entry((from, to)).or_default() += 1;
    }

    /// Removes one reason for the cut of a link in one direction.
    pub(crate) fn restore(&mut self, from: MemberId, to: MemberId) {
        if let Some(reasons) = self.cut.get_mut(&(from, to)) {
            *reasons -= 1;
            if *reasons == 0 {
                self.cut.remove(&(from, to));
            }
        }
    }

    /// Removes all reasons for the cut of a link in one direction.
    pub(crate) fn open_up(&mut self, from: MemberId, to: MemberId) {
        self.cut.remove(&(from, to));
    }

    /// Blocks or unblocks the streams of a member.
    pub(crate) fn stall(&mut self, member: MemberId, stalled: bool) {
        match stalled {
            true => self.stalled.insert(member),
            false => self.stalled.remove(&member),
        };
    }

    /// Sets the additional delay of a member's entries.
    pub(crate) fn lag(&mut self, member: MemberId, steps: u64) {
        self.lagging.insert(member, steps);
    }

    /// Returns the additional delay of a member's entries.
    pub(crate) fn lag_of(&self, member: MemberId) -> u64 {
        self.lagging.get(&member).copied().unwrap_or_default()
    }

    /// Makes every address refuse new connections of this member, or ends this fault.
    pub(crate) fn alarm(&mut self, member: MemberId, alarmed: bool) {
        match alarmed {
            true => self.alarmed.insert(member),
            false => self.alarmed.remove(&member),
        };
    }

    /// Removes all faults.
    pub(crate) fn heal(&mut self) {
        *self = Self::new(std::mem::take(&mut self.regions), self.distances);
    }

    fn open(&self, from: MemberId, to: MemberId) -> bool {
        !self.cut.contains_key(&(from, to))
    }

    /// Returns whether a link is open for a message. Checked when the message is sent and when it arrives.
    pub(crate) fn lets_through(&self, from: MemberId, to: MemberId, streamed: bool) -> bool {
        self.open(from, to) && !(streamed && self.stalled.contains(&from))
    }

    /// Decides what happens to a message that is sent now. On an open link, a message of a stream is never lost or duplicated.
    pub(crate) fn fate(
        &self,
        from: MemberId,
        to: MemberId,
        streamed: bool,
        dice: &mut Rng,
    ) -> Fate {
        if !self.lets_through(from, to, streamed) {
            return Fate::Lost;
        }
        let mut strikes = |chance: u32| chance > 0 && dice.u32(0..1000) < chance;
        let (lost, twice, straggles) = (
            strikes(self.weather.lost),
            strikes(self.weather.twice),
            strikes(self.weather.straggles),
        );
        let mut latency = |factor: u64| self.latency(from, to, dice) * factor;
        let first = latency(if straggles { 10 } else { 1 });
        match (streamed, lost, twice) {
            (true, true, _) => Fate::Arrives(vec![first + RETRANSMISSION]),
            (false, true, _) => Fate::Lost,
            (false, false, true) => {
                let second = latency(3);
                Fate::Arrives(vec![first, second])
            }
            _ => Fate::Arrives(vec![first]),
        }
    }

    fn latency(&self, from: MemberId, to: MemberId, dice: &mut Rng) -> u64 {
        let same = self.regions.get(&from) == self.regions.get(&to);
        let base = if same {
            self.distances.inside
        } else {
            self.distances.across
        };
        base.max(1) + dice.u64(0..=self.distances.jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: MemberId = MemberId(1);
    const TWO: MemberId = MemberId(2);

    fn links(weather: Weather) -> Links {
        let home = |id| (id, Region("home".to_owned()));
        let distances = Distances {
            inside: 1,
            across: 8,
            jitter: 2,
        };
        let mut links = Links::new(BTreeMap::from([home(ONE), home(TWO)]), distances);
        links.weather = weather;
        links
    }

    #[test]
    fn a_cut_has_a_direction() {
        let mut links = links(Weather::default());
        links.cut(ONE, TWO);
        let mut dice = Rng::with_seed(1);
        assert_eq!(links.fate(ONE, TWO, false, &mut dice), Fate::Lost);
        assert_ne!(links.fate(TWO, ONE, false, &mut dice), Fate::Lost);
        // Each reason for a cut is removed separately.
        links.cut(ONE, TWO);
        links.restore(ONE, TWO);
        assert!(!links.open(ONE, TWO));
        links.restore(ONE, TWO);
        assert!(links.open(ONE, TWO));
    }

    #[test]
    fn a_stream_loses_nothing_on_an_open_link() {
        let links = links(Weather {
            lost: 1000,
            twice: 1000,
            straggles: 0,
        });
        let mut dice = Rng::with_seed(1);
        assert_eq!(links.fate(ONE, TWO, false, &mut dice), Fate::Lost);
        for _ in 0..100 {
            let Fate::Arrives(times) = links.fate(ONE, TWO, true, &mut dice) else {
                panic!("a message of a stream was lost");
            };
            assert!(times.len() == 1 && times[0] > RETRANSMISSION);
        }
    }
}
