//! Fault model, and the choice of the next fault. Pure: the dice decide from the state of the world.
//!
//! # The model
//!
//! Within the guarantee, for any number of members and at any time: processes killed between any two calls to their disk; power cut there,
//! with unsynced data lost, kept or torn; failing disk calls; full and slow disks; paused processes; clocks up to 3 % too fast or too slow;
//! messages delayed, lost, duplicated and reordered; links cut in one or both directions.
//!
//! Within it, for a minority: bit rot. In an old part of the log the member must refuse to start, and counts as lost from then on. At the
//! log's very end, bit rot is indistinguishable from a torn write: the member may truncate it, although it was acknowledged, and must then
//! not help to lose it. Also whole lost disks: a member with an empty disk is unknown to the ring, and an operator replaces it by another
//! member.
//!
//! Outside, and not played: a disk of a voter that acknowledges syncs falsely and then loses power. In a quorum of two of three it may have
//! had the only other copy; no consensus survives that. Also clocks that stop while a process runs.

mod proxies;

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use fastrand::Rng;
use raft_types::{MemberId, Region};
use testkit::disk::{CallFault, Survival};

use crate::dice::pick;
use crate::network::{Relayed, Weather};
use crate::record::News;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// It is killed; the machine keeps running, and refuses calls.
    Kill,
    /// The machine loses power, and no longer answers.
    PowerCut(Survival),
    /// It is asked to stop, and shuts down gracefully.
    Stop,
}

/// A fault of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MysqldFault {
    /// It is killed.
    Kill,
    /// It is killed, and its member with it.
    KillWithMember,
    /// Another process than its member asks it to stop.
    Terminate,
    /// It is paused, and resumes later.
    Pause(Duration),
    /// Its member is paused, and after this time the host loses power: the server's writes in between exist nowhere else.
    LosePowerBehindAHangingMember(Duration),
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// After this many more calls to its disk, or soon if there are fewer.
    Crash {
        member: MemberId,
        crash: Crash,
        after_calls: u64,
        down: Duration,
    },
    Pause {
        member: MemberId,
        time: Duration,
    },
    /// A fault of a member's server.
    Mysqld {
        member: MemberId,
        fault: MysqldFault,
    },
    /// Messages from the first group to the second do not arrive; `both`: in neither direction.
    Cut {
        from: Vec<MemberId>,
        to: Vec<MemberId>,
        both: bool,
        time: Duration,
    },
    /// A device between two members drops their connections' state, and no longer forwards their packets.
    ForgetConnections {
        one: MemberId,
        other: MemberId,
    },
    Weather {
        weather: Weather,
        time: Duration,
    },
    SlowDisk {
        member: MemberId,
        delay: Duration,
        time: Duration,
    },
    /// A member's entries take longer, as over a busy line; op ids for a proxy do not.
    Lag {
        member: MemberId,
        delay: Duration,
        time: Duration,
    },
    /// The disk has room for this many bytes.
    FullDisk {
        member: MemberId,
        room: u64,
        time: Duration,
    },
    /// A disk call fails.
    BadCall {
        member: MemberId,
        after_calls: u64,
        fault: CallFault,
    },
    /// The next restart finds a flipped bit in an old part of the log.
    Rot {
        member: MemberId,
        place: u64,
    },
    /// The others are disconnected for a while. Then a bit among this member's last acknowledged entries is flipped, at the log's end. The
    /// leader is down for longer than the member.
    RotTail {
        member: MemberId,
        place: u64,
        after: Duration,
        down: Duration,
    },
    /// The member loses its whole disk. With a time to be alone, the others are disconnected for that long before, and the leader fails
    /// afterwards: only those two had the commits in between.
    Wipe {
        member: MemberId,
        alone: Option<Duration>,
        down: Duration,
    },
    /// A possible leader is disconnected from the leader for this time, and campaigns without success. Then the leader is cut off from all
    /// others, which restart immediately. If they forget the granted lease, they elect the candidate while the leader still serves.
    Relapse {
        which: u64,
        alone: Duration,
        time: Duration,
    },
    /// For this time, only this member sees the living leader close connections repeatedly and its address refuse calls.
    FalseAlarm {
        member: MemberId,
        time: Duration,
    },
    /// The same for all members but the leader, which is disconnected in both directions. More than a minority gets false evidence, so only
    /// a deliberately broken ring is played so.
    FalseDeath {
        time: Duration,
    },
    /// A voter campaigns, or gets the leadership, although no member is missing.
    Campaign {
        member: MemberId,
    },
    /// An operator transfers the leadership to this member.
    Transfer {
        to: MemberId,
    },
    /// An operator promotes this member.
    Promote {
        to: MemberId,
    },
    /// An operator sets the policy of the quorum.
    SetPolicy {
        policy: QuorumPolicy,
    },
    /// An operator adds a new member.
    Add {
        member: MemberId,
    },
    /// An operator removes a member.
    Remove {
        member: MemberId,
    },
    /// This member purges the files before its last entries: those that all members have, or without waiting, those that are committed.
    Purge {
        member: MemberId,
        keep: u64,
        waits: bool,
    },
}

/// The kind of faults in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stress {
    /// A little of everything.
    Everything,
    /// Leaders change quickly, voters restart immediately, and logs are purged: stress for the search for the matching point.
    Leaders,
    /// The quorum moves between regions that lose their connections.
    Moves,
    /// Power cuts, slow disks, and bit rot at the end of a log.
    Disks,
    /// A quorum is lost permanently and repaired, and the lost members return.
    Lost,
}

/// Intensity of the faults in this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intensity {
    pub(crate) stress: Stress,
    /// Mean time between two faults.
    pub(crate) pause: Duration,
    /// Maximum duration of faults.
    pub(crate) longest: Duration,
}

impl Intensity {
    pub(crate) fn choose(dice: &mut Rng) -> Self {
        let stress = match dice.u32(0..10) {
            0..=3 => Stress::Everything,
            4 => Stress::Disks,
            5..=6 => Stress::Leaders,
            // `Lost` has its own scenario.
            _ => Stress::Moves,
        };
        Self::of(stress, dice)
    }

    /// A move of the quorum takes time: it would never complete with permanent faults.
    pub(crate) fn of(stress: Stress, dice: &mut Rng) -> Self {
        let (pauses, longest): ([u64; 3], [u64; 3]) = match stress {
            Stress::Everything | Stress::Leaders | Stress::Disks => {
                ([60, 200, 700], [300, 1000, 3000])
            }
            Stress::Moves | Stress::Lost => ([300, 700, 1500], [300, 1000, 2500]),
        };
        Self {
            stress,
            pause: Duration::from_millis(*pick(dice, &pauses)),
            longest: Duration::from_millis(*pick(dice, &longest)),
        }
    }
}

/// Inputs of the choice.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) members: Vec<MemberId>,
    pub(crate) running: Vec<MemberId>,
    pub(crate) regions: BTreeMap<MemberId, Region>,
    pub(crate) leader: Option<MemberId>,
    /// Voting database members that do not lead, in other regions than the leader if there are any.
    pub(crate) primaries: Vec<MemberId>,
    /// Members whose disk may rot while the ring keeps its majorities.
    pub(crate) may_rot: Vec<MemberId>,
    /// Members whose log's end may rot, under the same condition.
    pub(crate) may_rot_tail: Vec<MemberId>,
    /// Members that can be added.
    pub(crate) spares: Vec<MemberId>,
    /// Members whose removal leaves the ring a possible primary.
    pub(crate) removable: Vec<MemberId>,
    /// The sessions with proxies.
    pub(crate) relayed: Vec<Relayed>,
}

/// Chooses the next fault; `None` if the drawn one is not possible now.
pub(crate) fn choose(view: &View, intensity: Intensity, dice: &mut Rng) -> Option<Fault> {
    let time = |dice: &mut Rng| {
        let longest = u64::try_from(intensity.longest.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(dice.u64(10..longest.max(11)))
    };
    // Faults of the leader are the most harmful: it is chosen as often as all others together.
    let member = match view.leader {
        Some(leader) if view.running.contains(&leader) && dice.bool() => leader,
        _ if view.running.is_empty() => return None,
        _ => *pick(dice, &view.running),
    };
    if !view.relayed.is_empty() && dice.u32(0..6) == 0 {
        let time = time(dice);
        return Some(proxies::strike(pick(dice, &view.relayed), time, dice));
    }
    let drawn = match intensity.stress {
        Stress::Everything => dice.u32(0..115),
        Stress::Leaders => *pick(
            dice,
            &[
                0, 0, 10, 25, 35, 36, 36, 65, 82, 82, 95, 95, 100, 100, 100, 110, 112, 112,
            ],
        ),
        Stress::Disks => *pick(dice, &[0, 0, 0, 0, 25, 35, 65, 65, 65, 81, 81, 100, 108]),
        // No links are cut: lost members must not return where they cannot reach the repaired ring.
        Stress::Lost => *pick(dice, &[0, 0, 55, 65, 82, 85, 85, 85, 85, 100]),
        // Mostly promotions.
        Stress::Moves => *pick(
            dice,
            &[
                0, 10, 35, 36, 37, 55, 65, 85, 85, 85, 85, 85, 85, 85, 85, 100,
            ],
        ),
    };
    Some(match drawn {
        0..=24 => Fault::Crash {
            member,
            crash: match dice.u32(0..8) {
                0 => Crash::Stop,
                1..=3 => Crash::Kill,
                4 => Crash::PowerCut(Survival::Nothing),
                5 => Crash::PowerCut(Survival::Everything),
                _ => Crash::PowerCut(Survival::Seeded(dice.u64(..))),
            },
            after_calls: dice.u64(0..12),
            down: match dice.bool() {
                true => Duration::from_millis(dice.u64(5..60)),
                false => time(dice),
            },
        },
        25..=34 => Fault::Pause {
            member,
            time: time(dice),
        },
        35..=54 => {
            let (from, to) = groups(view, member, dice);
            if from.is_empty() || to.is_empty() {
                return None;
            }
            Fault::Cut {
                from,
                to,
                both: dice.bool(),
                time: time(dice),
            }
        }
        55..=64 => Fault::Weather {
            weather: Weather {
                lost: *pick(dice, &[0, 50, 300]),
                twice: *pick(dice, &[0, 50, 300]),
                straggles: *pick(dice, &[0, 50, 300]),
            },
            time: time(dice),
        },
        65..=72 => Fault::SlowDisk {
            member,
            delay: Duration::from_millis(dice.u64(1..300)),
            time: time(dice),
        },
        73..=75 => Fault::FullDisk {
            member,
            room: dice.u64(0..4000),
            time: time(dice),
        },
        76..=79 => Fault::BadCall {
            member,
            after_calls: dice.u64(1..20),
            fault: *pick(dice, &[CallFault::Io, CallFault::NoSpace]),
        },
        80 => Fault::Rot {
            member: *pick_some(dice, &view.may_rot)?,
            place: dice.u64(..),
        },
        81 => Fault::RotTail {
            member: *pick_some(dice, &view.may_rot_tail)?,
            place: dice.u64(..),
            after: Duration::from_millis(dice.u64(20..400)),
            down: Duration::from_millis(dice.u64(500..3_000)),
        },
        82..=84 => Fault::Transfer {
            to: *pick(dice, &view.members),
        },
        85..=90 => Fault::Promote {
            // Sometimes a member that cannot lead.
            to: match dice.u32(0..6) {
                0 => *pick(dice, &view.members),
                _ => *pick_some(dice, &view.primaries)?,
            },
        },
        91..=92 => Fault::Add {
            member: *pick_some(dice, &view.spares)?,
        },
        93..=94 => Fault::Remove {
            member: *pick_some(dice, &view.removable)?,
        },
        100..=102 => Fault::Campaign { member },
        110..=111 => relapse(dice, time),
        112..=114 => Fault::FalseAlarm {
            member,
            time: time(dice),
        },
        108..=109 => Fault::Wipe {
            member: *pick_some(dice, &view.may_rot_tail)?,
            alone: dice
                .bool()
                .then(|| Duration::from_millis(dice.u64(20..400))),
            down: Duration::from_millis(dice.u64(500..3_000)),
        },
        _ => Fault::Purge {
            member,
            keep: dice.u64(0..15),
            waits: dice.u32(0..4) == 0,
        },
    })
}

/// The machine loses power, and its disk some unsynced data.
pub(crate) fn power_cut(dice: &mut Rng) -> Crash {
    Crash::PowerCut(match dice.u32(0..4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Seeded(dice.u64(..)),
    })
}

/// Drops connections between two members; in half of the cases the leader's.
pub(crate) fn forget_connections(view: &View, dice: &mut Rng) -> Option<Fault> {
    let mut members = view.members.clone();
    dice.shuffle(&mut members);
    let leader = view.leader.filter(|_| dice.bool());
    let one = leader.or(members.first().copied())?;
    let other = members.into_iter().find(|member| *member != one)?;
    Some(Fault::ForgetConnections { one, other })
}

/// Voters forget a lease, if they can.
pub(crate) fn relapse(dice: &mut Rng, time: impl FnOnce(&mut Rng) -> Duration) -> Fault {
    Fault::Relapse {
        which: dice.u64(..),
        alone: Duration::from_millis(dice.u64(0..1_000)),
        time: time(dice),
    }
}

/// Chooses a reaction to a recent event; mostly none.
pub(crate) fn ambush(
    news: News,
    view: &View,
    intensity: Intensity,
    dice: &mut Rng,
) -> Option<Fault> {
    // A proxy gets the new leader's entries while it has an older leader's at their indexes.
    if let News::Leads(member) = news
        && dice.u32(0..4) == 0
    {
        return Some(Fault::Lag {
            member,
            delay: Duration::from_millis(dice.u64(20..300)),
            time: Duration::from_millis(dice.u64(100..1_000)),
        });
    }
    let chance = match intensity.stress {
        Stress::Everything | Stress::Disks => 20,
        Stress::Leaders => 8,
        Stress::Moves | Stress::Lost => 3,
    };
    if dice.u32(0..chance) > 0 {
        return None;
    }
    let time = Duration::from_millis(dice.u64(100..3_000));
    let cut = |(from, to): (Vec<MemberId>, Vec<MemberId>)| Fault::Cut {
        from,
        to,
        both: true,
        time,
    };
    let member = match news {
        News::Widens(member) | News::Narrows(member) | News::Leads(member) => member,
    };
    Some(match (news, dice.u32(0..4)) {
        (_, 0) => Fault::Crash {
            member,
            crash: Crash::PowerCut(Survival::Everything),
            after_calls: 0,
            down: Duration::from_millis(dice.u64(5..1_000)),
        },
        (News::Widens(_) | News::Narrows(_), _) => cut(alone(view, member)),
        (News::Leads(_), _) => cut(region(view, member)),
    })
}

/// One member against all others.
fn alone(view: &View, member: MemberId) -> (Vec<MemberId>, Vec<MemberId>) {
    view.members.iter().partition(|other| **other == member)
}

/// A region against all others.
fn region(view: &View, member: MemberId) -> (Vec<MemberId>, Vec<MemberId>) {
    let own = view.regions.get(&member);
    let at_home = |other: &&MemberId| view.regions.get(*other) == own;
    view.members.iter().partition(at_home)
}

/// Two groups without connections: one member against all others, or one random half against the other.
fn groups(view: &View, member: MemberId, dice: &mut Rng) -> (Vec<MemberId>, Vec<MemberId>) {
    if dice.u32(0..3) == 0 {
        return region(view, member);
    }
    if dice.bool() {
        let (one, others) = alone(view, member);
        return if dice.bool() {
            (one, others)
        } else {
            (others, one)
        };
    }
    view.members.iter().partition(|_| dice.bool())
}

fn pick_some<'a, T>(dice: &mut Rng, from: &'a [T]) -> Option<&'a T> {
    (!from.is_empty()).then(|| pick(dice, from))
}
