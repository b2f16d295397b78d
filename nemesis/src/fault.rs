//! Which fault comes when: from the seed alone, whatever the ring does. Pure.

use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;

/// What is done to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// SIGKILL of a member; its mysqld goes on
    KillMember,
    /// SIGKILL of a mysqld
    KillMysqld,
    /// SIGKILL of a database member and its mysqld
    KillHost,
    /// SIGSTOP of a member for a while
    StopMember,
    /// SIGSTOP of a mysqld for a while
    StopMysqld,
    /// A member and its mysqld reach no other member
    CutMember,
    /// A region reaches no other
    CutRegion,
    /// A member hears nobody, or nobody hears it, or one does not hear another
    OneWay,
    /// The disk of a member's log is full
    FullDisk,
    /// SIGTERM of a member, and its start
    Restart,
    /// Another database member is promoted
    Promote,
    /// A witness is removed from the ring, and a new one taken in
    ReplaceWitness,
}

/// Whom a fault meets. The numbers choose among those who fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Who is the primary at that moment.
    Primary,
    /// Anybody.
    Any(usize),
}

/// Which packets a one-way cut takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneWay {
    /// Those to the member.
    Deaf,
    /// Those from it.
    Mute,
    /// Those from it to one other member, chosen by this number.
    OneLink(usize),
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) target: Target,
    pub(crate) one_way: OneWay,
    /// How long it stays at least, where it stays.
    pub(crate) hold: Duration,
    /// Whether everybody shall have recovered before the next one.
    pub(crate) settle: bool,
}

/// All faults of a seed, one after the other. Each kind comes once before any comes again.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    random: Rng,
    kinds: Vec<Kind>,
    deck: Vec<Kind>,
}

impl Script {
    /// Of these kinds, or of all when there are none.
    pub(crate) fn new(seed: u64, only: &[Kind]) -> Self {
        let kinds = match only {
            [] => Kind::value_variants().to_vec(),
            only => only.to_vec(),
        };
        Self {
            random: Rng::with_seed(seed),
            kinds,
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
        // Everything is drawn for every kind, so that a fault does not depend on what became of the one before.
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
        Some(Fault {
            kind,
            target,
            one_way,
            hold: Duration::from_millis(self.random.u64(300..4_000)),
            settle: self.random.f64() < 0.7,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_always_the_same_and_another_one_is_not() {
        let faults = |seed| Script::new(seed, &[]).take(60).collect::<Vec<_>>();
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn every_kind_comes_before_any_comes_again() {
        let all = Kind::value_variants().len();
        let kinds: Vec<Kind> = Script::new(3, &[])
            .take(3 * all)
            .map(|fault| fault.kind)
            .collect();
        for round in kinds.chunks(all) {
            assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), all);
        }
        let mut one = Script::new(3, &[Kind::Promote]);
        assert_eq!(one.next().unwrap().kind, Kind::Promote);
        assert_eq!(one.next().unwrap().kind, Kind::Promote);
    }

    #[test]
    fn the_primary_and_others_are_met_and_nothing_stays_for_long() {
        let faults: Vec<Fault> = Script::new(1, &[]).take(200).collect();
        let primaries = faults
            .iter()
            .filter(|fault| fault.target == Target::Primary);
        assert!((80..160).contains(&primaries.count()));
        let longest = faults.iter().map(|fault| fault.hold).max().unwrap();
        assert!(longest < Duration::from_secs(4));
    }
}
