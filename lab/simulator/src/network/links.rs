//! The links: which way a message may go, how long it takes, and what may happen to it on the way. Pure: the dice and
//! the clock are arguments.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use raft_types::{MemberId, Region};

/// One-way latencies, in steps of the world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Distances {
    /// Inside a region.
    pub(crate) inside: u64,
    /// Between regions.
    pub(crate) across: u64,
    /// Up to this much is added to each message.
    pub(crate) jitter: u64,
}

/// What happens to messages beside their latency. Probabilities of 1,000.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// A call or an answer gets lost; on a stream it is sent again and arrives later.
    pub(crate) lost: u32,
    /// A call arrives twice.
    pub(crate) twice: u32,
    /// A message takes ten times as long, so that later ones overtake it.
    pub(crate) straggles: u32,
}

/// What becomes of one message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives after each of these many steps: once, or twice.
    Arrives(Vec<u64>),
    Lost,
}

/// A leader's entries and heartbeats for these voters arrive at a learner, whose answers it takes for theirs: so a leader sees
/// it that counts who has no vote.
#[derive(Debug, Clone)]
pub(crate) struct StandIn {
    pub(crate) leader: MemberId,
    pub(crate) voters: BTreeSet<MemberId>,
    pub(crate) learner: MemberId,
}

/// See the module.
pub(crate) struct Links {
    regions: BTreeMap<MemberId, Region>,
    distances: Distances,
    pub(crate) weather: Weather,
    /// Directed: the first does not reach the second, for so many reasons.
    cut: BTreeMap<(MemberId, MemberId), u32>,
    /// Members whose streams do not get through, while their calls do.
    stalled: BTreeSet<MemberId>,
    /// Members whose entries take so many steps longer; all else is as fast as ever.
    lagging: BTreeMap<MemberId, u64>,
    /// Members that every address refuses, and to which leaders seem to hang up.
    alarmed: BTreeSet<MemberId>,
    /// Nobody, unless the ring is broken on purpose.
    stand_in: Option<StandIn>,
}

/// How much later a message of a stream arrives that had to be sent again, in steps.
const RETRANSMISSION: u64 = 40;

impl Links {
    pub(crate) fn new(regions: BTreeMap<MemberId, Region>, distances: Distances) -> Self {
        Self {
            regions,
            distances,
            weather: Weather::default(),
            cut: BTreeMap::new(),
            stalled: BTreeSet::new(),
            lagging: BTreeMap::new(),
            alarmed: BTreeSet::new(),
            stand_in: None,
        }
    }

    /// Lets a learner stand in for voters, or nobody.
    pub(crate) fn stand_in(&mut self, stand_in: Option<StandIn>) {
        self.stand_in = stand_in;
    }

    /// Who gets what a leader sends to a voter.
    pub(crate) fn stands_in_for(&self, from: MemberId, to: MemberId) -> MemberId {
        let stand_in = self.stand_in.as_ref();
        let stand_in = stand_in.filter(|one| one.leader == from && one.voters.contains(&to));
        stand_in.map_or(to, |one| one.learner)
    }

    /// One more member, in this region.
    pub(crate) fn join(&mut self, member: MemberId, region: Region) {
        self.regions.insert(member, region);
    }

    /// Cuts one direction.
    pub(crate) fn cut(&mut self, from: MemberId, to: MemberId) {
        *self.cut.entry((from, to)).or_default() += 1;
    }

    /// Takes back one of the cuts of one direction.
    pub(crate) fn mend(&mut self, from: MemberId, to: MemberId) {
        if let Some(reasons) = self.cut.get_mut(&(from, to)) {
            *reasons -= 1;
            if *reasons == 0 {
                self.cut.remove(&(from, to));
            }
        }
    }

    /// Takes back every cut of one direction.
    pub(crate) fn open_up(&mut self, from: MemberId, to: MemberId) {
        self.cut.remove(&(from, to));
    }

    /// Lets no stream of this member through, or again.
    pub(crate) fn stall(&mut self, member: MemberId, stalled: bool) {
        match stalled {
            true => self.stalled.insert(member),
            false => self.stalled.remove(&member),
        };
    }

    /// Lets the entries that this member sends lag, or not any more.
    pub(crate) fn lag(&mut self, member: MemberId, steps: Option<u64>) {
        match steps {
            Some(steps) => self.lagging.insert(member, steps),
            None => self.lagging.remove(&member),
        };
    }

    /// How much longer the entries of this member take.
    pub(crate) fn lag_of(&self, member: MemberId) -> u64 {
        self.lagging.get(&member).copied().unwrap_or_default()
    }

    /// Lets every address refuse new connections of this member, or not any more.
    pub(crate) fn alarm(&mut self, member: MemberId, alarmed: bool) {
        match alarmed {
            true => self.alarmed.insert(member),
            false => self.alarmed.remove(&member),
        };
    }

    /// Whom every address refuses.
    pub(crate) fn alarmed(&self) -> &BTreeSet<MemberId> {
        &self.alarmed
    }

    /// Mends everything.
    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.stalled.clear();
        self.lagging.clear();
        self.alarmed.clear();
        self.stand_in = None;
        self.weather = Weather::default();
    }

    fn open(&self, from: MemberId, to: MemberId) -> bool {
        !self.cut.contains_key(&(from, to))
    }

    /// Whether a message gets through, at its start and at its end.
    pub(crate) fn lets_through(&self, from: MemberId, to: MemberId, streamed: bool) -> bool {
        self.open(from, to) && !(streamed && self.stalled.contains(&from))
    }

    /// What becomes of a message that is sent now; one of a stream is never lost or doubled on an open link.
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
        // Two cuts are mended one by one.
        links.cut(ONE, TWO);
        links.mend(ONE, TWO);
        assert!(!links.open(ONE, TWO));
        links.mend(ONE, TWO);
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
