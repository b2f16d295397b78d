//! The shape of a ring, which the seed chooses: regions, database members and witnesses, latencies, timers, clocks, proxies.

mod proxying;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::Timers;
use consensus::quorum::{QuorumPolicy, RingRules};
use fastrand::Rng;
use proxy::{ProxyMode, ProxyOptions};
use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, Region};

use crate::dice::pick;
use crate::faults::Stress;
use crate::member::{ClockRate, LogOptions};
use crate::network::Distances;

/// The choices for one member.
#[derive(Debug, Clone)]
pub(crate) struct MemberShape {
    pub(crate) record: MemberRecord,
    /// True if the member is not in the ring at the beginning. It may be added later.
    pub(crate) spare: bool,
    pub(crate) rate: ClockRate,
    pub(crate) log: LogOptions,
}

/// The choices for a ring.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) members: BTreeMap<MemberId, MemberShape>,
    pub(crate) distances: Distances,
    pub(crate) timers: Timers,
    pub(crate) rules: RingRules,
    /// If true, the leader's own log probe answers openraft's search for the matching point, as in the product.
    pub(crate) searches_itself: bool,
    pub(crate) proxies: ProxyOptions,
    /// If true, starting members first ask the other members whether the ring continued without them, as in the product.
    pub(crate) returns: bool,
}

impl Shape {
    pub(crate) fn choose(stress: Stress, dice: &mut Rng) -> Self {
        let regions: Vec<usize> = match dice.u32(0..10) {
            0..=6 if stress == Stress::Moves => vec![3, 3],
            _ if stress == Stress::Moves => vec![3, 3, 3],
            0..=2 if stress == Stress::Lost => vec![3],
            3..=7 if stress == Stress::Lost => vec![3, 3],
            _ if stress == Stress::Lost => vec![3, 2, 1],
            0..=4 => vec![3],
            5 => vec![5],
            6 => vec![1, 1, 1],
            7 => vec![2, 2, 1],
            8 => vec![3, 2],
            _ => vec![3, 3, 3],
        };
        let skewed = dice.bool();
        let heartbeat = Duration::from_millis(*pick(dice, &[200, 300, 500]));
        let mut members = BTreeMap::new();
        for (region, size) in regions.iter().enumerate() {
            for setup in 0..*size {
                let id = MemberId((10 * (region + 1) + setup + 1) as u64);
                // The first member of each region is a voting database member, so that each region has a possible primary.
                let kind = kind(dice, setup == 0);
                let votes = setup == 0 || dice.u32(0..6) > 0;
                let record = record(id, region, kind, votes);
                members.insert(id, MemberShape::choose(record, false, skewed, dice));
            }
        }
        for spare in 0..dice.u64(0..=2) {
            let (id, region) = (MemberId(91 + spare), dice.usize(0..regions.len()));
            let (kind, votes) = (kind(dice, false), dice.u32(0..4) > 0);
            let record = record(id, region, kind, votes);
            members.insert(id, MemberShape::choose(record, true, skewed, dice));
        }
        let distances = Distances {
            inside: 1,
            across: dice.u64(2..=7),
            jitter: dice.u64(0..=3),
        };
        let (rules, searches_itself) = (rules(stress, dice, regions.len()), dice.u32(0..4) > 0);
        Self {
            proxies: proxying::choose(&members, dice),
            members,
            distances,
            timers: Timers::from_heartbeat(heartbeat),
            rules,
            searches_itself,
            returns: stress == Stress::Lost,
        }
    }

    /// The number of regions that have members.
    pub(crate) fn regions(&self) -> usize {
        let members = self.members.values().filter(|member| !member.spare);
        let regions: BTreeSet<&Region> = members.map(|member| &member.record.region).collect();
        regions.len()
    }

    /// Makes all members voting database members, whatever the seed has chosen.
    pub(crate) fn with_databases_only(&mut self) {
        for member in self.members.values_mut() {
            member.record.kind = MemberKind::Database;
            member.record.votes = true;
        }
    }

    /// Enables proxies, whatever the seed has chosen.
    pub(crate) fn proxy(&mut self, dice: &mut Rng) {
        while self.proxies.mode == ProxyMode::Off {
            self.proxies = proxying::choose(&self.members, dice);
        }
    }
}

impl MemberShape {
    fn choose(record: MemberRecord, spare: bool, skewed: bool, dice: &mut Rng) -> Self {
        Self {
            record,
            spare,
            rate: ClockRate(if skewed { dice.u32(970..=1030) } else { 1000 }),
            log: LogOptions {
                cache_bytes: *pick(dice, &[1, 4 << 10, 1 << 20]),
                read_batch_bytes: *pick(dice, &[600, 4 << 10, 1 << 20]),
                disk_reserve_bytes: 0,
            },
        }
    }
}

fn rules(stress: Stress, dice: &mut Rng, regions: usize) -> RingRules {
    let policy = match dice.u32(0..10) {
        _ if stress == Stress::Moves => QuorumPolicy::SingleRegionDynamic,
        0..=5 => QuorumPolicy::SingleRegionDynamic,
        6..=7 => QuorumPolicy::Majority,
        _ => {
            let all = (0..regions).map(region_name);
            // The bootstrapping member is in the first region, which must be one of the chosen regions.
            let some: BTreeSet<Region> = all
                .filter(|name| *name == region_name(0) || dice.bool())
                .collect();
            // With three regions, two of them are sufficient.
            match some.len() {
                3 => QuorumPolicy::SomeRegions {
                    required: 2,
                    regions: some,
                },
                _ => QuorumPolicy::Regions(some),
            }
        }
    };
    let mut region_preference: Vec<Region> = (0..regions).map(region_name).collect();
    dice.shuffle(&mut region_preference);
    RingRules {
        policy,
        region_preference,
        ..RingRules::default()
    }
}

fn kind(dice: &mut Rng, first: bool) -> MemberKind {
    match first || dice.u32(0..4) == 0 {
        true => MemberKind::Database,
        false => MemberKind::Witness,
    }
}

fn region_name(region: usize) -> Region {
    Region(format!("region-{}", region + 1))
}

fn record(id: MemberId, region: usize, kind: MemberKind, votes: bool) -> MemberRecord {
    MemberRecord {
        name: format!("member-{id}"),
        region: region_name(region),
        kind,
        votes,
        address: format!("simulated:{id}"),
        incarnation: Incarnation::random(),
        ..MemberRecord::default()
    }
}
