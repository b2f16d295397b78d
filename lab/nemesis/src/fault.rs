//! The sequence of faults. It depends only on the seed and the requested kinds, not on the ring. Pure.

use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;

/// Range of the duration of most faults.
const SHORT: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(4));
/// Range of the duration of a frozen file system or an isolated member. The ring must react to the longer ones.
const STALL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(12));
/// Minimum duration of a long stop.
const LONG: Duration = Duration::from_secs(10);

/// The kinds of faults that need separate file systems on loop devices for mysqlds or members.
pub(crate) const NEED_LOOP_DEVICES: [Kind; 4] = [
    Kind::FreezeDisk,
    Kind::FullMysqld,
    Kind::FullDisk,
    Kind::CutPower,
];

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// SIGKILL of a member; its mysqld continues
    KillMember,
    /// SIGKILL of a mysqld
    KillMysqld,
    /// SIGKILL of a database member and its mysqld
    KillHost,
    /// A power cut of a member's host, with the loss of unsynced data
    CutPower,
    /// SIGSTOP of a member for a while
    StopMember,
    /// SIGSTOP of a mysqld for a while
    StopMysqld,
    /// SIGSTOP of a member, a mysqld, or both, for up to a minute
    LongStop,
    /// The file system with a mysqld's data is frozen
    FreezeDisk,
    /// The file system with a mysqld's data is full
    FullMysqld,
    /// A member and its mysqld are cut off from all other members
    CutMember,
    /// A region is cut off from all others
    CutRegion,
    /// A member receives from no other, sends to no other, or one link is cut one way
    OneWay,
    /// A member and one other are cut off from each other
    CutLink,
    /// A foreign semi-sync replica acknowledges all commits of a primary that is cut off from all other members
    ForeignReplica,
    /// A session at a follower's mysqld owns GTIDs that the follower must apply
    GtidOwner,
    /// The disk of a member's log is full
    FullDisk,
    /// SIGTERM of a member, and a restart
    Restart,
    /// SIGTERM of a member, and a restart with the other build of its program
    ChangeVersion,
    /// Another database member is promoted
    Promote,
    /// A witness is removed from the ring, and a new one joins
    ReplaceWitness,
}

/// The member that a fault affects. The numbers choose among the possible members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The current primary.
    Primary,
    /// Any member.
    Any(usize),
}

/// The packets that a one-way cut drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneWay {
    /// Packets to the member.
    Deaf,
    /// Packets from the member.
    Mute,
    /// Packets from the member to one other member, chosen by this number.
    OneLink(usize),
}

/// The processes of a long stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// A member; its mysqld continues.
    Member,
    /// A mysqld.
    Mysqld,
    /// A database member and its mysqld.
    Host,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    pub(crate) one_way: OneWay,
    /// The number that chooses the other end of a cut link.
    pub(crate) other: usize,
    pub(crate) stopped: Stopped,
    /// The minimum duration of the fault.
    pub(crate) hold: Duration,
    /// True if all members must recover before the next fault.
    pub(crate) settle: bool,
}

/// All faults of a seed, in order. Each kind occurs once before any kind repeats.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    random: Rng,
    kinds: Vec<Kind>,
    longest_stop: Duration,
    deck: Vec<Kind>,
}

impl Script {
    /// The faults of a seed, of these kinds only.
    pub(crate) fn new(seed: u64, kinds: Vec<Kind>, longest_stop: Duration) -> Self {
        Self {
            random: Rng::with_seed(seed),
            kinds,
            longest_stop,
            deck: Vec::new(),
        }
    }
}

impl Iterator for Script {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        if self.deck.is_empty() {
            self.deck.clone_from(&self.kinds);
            self.random.shuffle(&mut self.deck);
        }
        let kind = self.deck.pop()?;
        // Draws all random numbers for every kind, so that a fault's numbers do not depend on the previous fault's kind.
        let any = self.random.usize(..1 << 20);
        let target = match self.random.f64() < 0.6 {
            true => Target::Primary,
            false => Target::Any(any),
        };
        let one_way = match self.random.u8(..3) {
            0 => OneWay::Deaf,
            1 => OneWay::Mute,
            _ => OneWay::OneLink(self.random.usize(..1 << 20)),
        };
        let stopped = match self.random.u8(..3) {
            0 => Stopped::Member,
            1 => Stopped::Mysqld,
            _ => Stopped::Host,
        };
        let (least, most) = match kind {
            Kind::LongStop => (LONG.min(self.longest_stop), self.longest_stop),
            Kind::FreezeDisk
            | Kind::FullMysqld
            | Kind::CutMember
            | Kind::CutLink
            | Kind::ForeignReplica
            | Kind::GtidOwner => STALL,
            _ => SHORT,
        };
        Some(Fault {
            kind,
            target,
            one_way,
            other: any,
            stopped,
            hold: least + (most - least).mul_f64(self.random.f64()),
            settle: self.random.f64() < 0.7,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    fn all(seed: u64) -> Script {
        Script::new(seed, Kind::value_variants().to_vec(), LONGEST)
    }

    #[test]
    fn a_seed_is_always_the_same_and_another_one_is_not() {
        let faults = |seed| all(seed).take(60).collect::<Vec<_>>();
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        let number = Kind::value_variants().len();
        let kinds: Vec<Kind> = all(3).take(3 * number).map(|fault| fault.kind).collect();
        for round in kinds.chunks(number) {
            assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), number);
        }
        let mut one = Script::new(3, vec![Kind::Promote], LONGEST);
        assert_eq!(one.next().unwrap().kind, Kind::Promote);
        assert_eq!(one.next().unwrap().kind, Kind::Promote);
    }

    #[test]
    fn the_primary_and_others_are_met_and_only_what_is_long_by_its_name_stays() {
        let faults: Vec<Fault> = all(1).take(400).collect();
        let primaries = faults
            .iter()
            .filter(|fault| fault.target == Target::Primary);
        assert!((160..320).contains(&primaries.count()));
        let longest = |kinds: &[Kind]| {
            let of_kind = faults.iter().filter(|fault| kinds.contains(&fault.kind));
            of_kind.map(|fault| fault.hold).max().unwrap()
        };
        assert!(longest(&[Kind::StopMember, Kind::StopMysqld, Kind::CutRegion]) < SHORT.1);
        assert!(longest(&NEED_LOOP_DEVICES) < STALL.1);
        assert!(longest(&[Kind::CutMember]) > SHORT.1);
        let stops = longest(&[Kind::LongStop]);
        assert!(stops > LONG && stops < LONGEST, "{stops:?}");
        let mut shortened = Script::new(1, vec![Kind::LongStop], Duration::from_secs(5));
        assert_eq!(shortened.next().unwrap().hold, Duration::from_secs(5));
    }
}
