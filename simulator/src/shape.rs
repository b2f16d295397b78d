//! The shape of a ring, chosen by the seed: regions, members of both kinds, distances, timers, clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::Timers;
use fastrand::Rng;
use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, Region};

use crate::member::{ClockRate, LogOptions};
use crate::network::Distances;

/// What is chosen for one member.
#[derive(Debug, Clone)]
pub(crate) struct MemberShape {
    pub(crate) record: MemberRecord,
    pub(crate) rate: ClockRate,
    pub(crate) log: LogOptions,
}

/// What is chosen for a ring.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) members: BTreeMap<MemberId, MemberShape>,
    pub(crate) distances: Distances,
    pub(crate) timers: Timers,
}

impl Shape {
    pub(crate) fn choose(dice: &mut Rng) -> Self {
        let regions: Vec<usize> = match dice.u32(0..10) {
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
            for seat in 0..*size {
                let id = MemberId((10 * (region + 1) + seat + 1) as u64);
                // The first of a region is a database member, so that there is one that can take over.
                let kind = match seat == 0 || dice.u32(0..4) == 0 {
                    true => MemberKind::Database,
                    false => MemberKind::Witness,
                };
                let shape = MemberShape {
                    record: record(id, region, kind),
                    rate: ClockRate(if skewed { dice.u32(970..=1030) } else { 1000 }),
                    log: LogOptions {
                        cache_bytes: *pick(dice, &[1, 4 << 10, 1 << 20]),
                        read_batch_bytes: *pick(dice, &[600, 4 << 10, 1 << 20]),
                    },
                };
                members.insert(id, shape);
            }
        }
        Self {
            members,
            distances: Distances {
                inside: 1,
                across: dice.u64(2..=7),
                jitter: dice.u64(0..=3),
            },
            timers: Timers::from_heartbeat(heartbeat),
        }
    }
}

fn record(id: MemberId, region: usize, kind: MemberKind) -> MemberRecord {
    MemberRecord {
        name: format!("member-{id}"),
        region: Region(format!("region-{}", region + 1)),
        kind,
        votes: true,
        address: format!("simulated:{id}"),
        incarnation: Incarnation::random(),
        ..MemberRecord::default()
    }
}

/// One of several.
pub(crate) fn pick<'a, T>(dice: &mut Rng, from: &'a [T]) -> &'a T {
    &from[dice.usize(0..from.len())]
}
