//! What may go wrong, and the choice of the next thing that does. Pure: the dice decide from what is running.
//!
//! # The model
//!
//! Within the guarantee, for any number of members and at any time: processes killed between any two calls to their disk;
//! power cut there, with what was not synced lost, kept or torn; calls to the disk that fail; full and slow disks; processes
//! that are stopped and go on; clocks that run up to 3 % too fast or too slow; messages that are late, lost, doubled and
//! overtaken; links that are cut in one or both directions.
//!
//! Within it, for a minority: disks that rot. In an old part of the log the member must refuse to start, and counts as lost
//! from then on. At the log's very end, in what may be the torn end of a write, nothing on the disk tells the two apart: the
//! member may cut it off, although it was acknowledged, and must then not help to lose it. And disks that are lost as a whole: whoever comes back
//! with an empty one is nobody that the ring knows, and an operator puts another member in its place.
//!
//! Outside, and not played: a disk that lies about syncing and then loses power, on a member that votes. In a quorum of two
//! of three it may have held the only other copy; no consensus survives that. Clocks that stand still while a process
//! runs.

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
    /// It is killed; the machine goes on, and refuses calls.
    Kill,
    /// The machine loses its power, and says nothing any more.
    PowerCut(Survival),
    /// It is told to stop and does so in good order.
    Stop,
}

/// What happens to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MysqldFault {
    /// It is killed.
    Kill,
    /// It is killed, and its member with it.
    KillWithMember,
    /// Somebody else than its member asks it to stop.
    Terminate,
    /// It is stopped where it stands, and goes on later.
    Pause(Duration),
    /// Its member is stopped where it stands, and so much later the host loses its power: what the server has written meanwhile nobody
    /// else has.
    LosePowerBehindAHangingMember(Duration),
}

/// One thing that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// After so many more calls to its disk, or soon if there are not so many.
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
    /// Something happens to the server beside a member.
    Mysqld {
        member: MemberId,
        fault: MysqldFault,
    },
    /// Messages from the first group to the second do not arrive; `both`: nor the other way.
    Cut {
        from: Vec<MemberId>,
        to: Vec<MemberId>,
        both: bool,
        time: Duration,
    },
    /// What is between two members forgets the connections that they have, and lets nothing of these through any more.
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
    /// Entries that a member sends take longer, as when its line is busy; op ids for a proxy do not.
    Lag {
        member: MemberId,
        delay: Duration,
        time: Duration,
    },
    /// So many bytes fit and no more.
    FullDisk {
        member: MemberId,
        room: u64,
        time: Duration,
    },
    /// A call to the disk fails.
    BadCall {
        member: MemberId,
        after_calls: u64,
        fault: CallFault,
    },
    /// The next restart finds one bit of an old part of the log turned around.
    Rot {
        member: MemberId,
        place: u64,
    },
    /// Others do not hear from the ring for a while; then a bit of the end of this member's log is turned around, in what it
    /// has acknowledged last, and the leader dies for longer than the member.
    RotTail {
        member: MemberId,
        place: u64,
        after: Duration,
        down: Duration,
    },
    /// The member loses its whole disk. With a time to be alone, the others do not hear from the ring for so long before,
    /// and the leader dies behind it: what was committed meanwhile, only those two had.
    Wipe {
        member: MemberId,
        alone: Option<Duration>,
        down: Duration,
    },
    /// One that could lead hears nothing from the leader for so long, and campaigns in vain; then the leader is cut off from all
    /// others, and these are killed and are back at once. Whoever forgot what lease it granted elects the one while the other still serves.
    Relapse {
        which: u64,
        alone: Duration,
        time: Duration,
    },
    /// For so long this member, and no other, sees the leader hang up again and again, and its address refuse, although it lives.
    FalseAlarm {
        member: MemberId,
        time: Duration,
    },
    /// The same for all but the leader, which nobody hears and who hears nobody: no minority is lied to any more, and only a ring
    /// that is broken on purpose is played so.
    FalseDeath {
        time: Duration,
    },
    /// A voter campaigns, or is given the leadership, although nobody is missing.
    Campaign {
        member: MemberId,
    },
    /// An operator gives the leadership to this member.
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
    /// This member purges the files before its last entries: as far as everybody has them, or, when it waits for nobody, as
    /// far as they are committed.
    Purge {
        member: MemberId,
        keep: u64,
        waits: bool,
    },
}

/// What mostly goes wrong in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stress {
    /// A little of everything.
    Everything,
    /// Leaders come and go quickly, voters restart at once, logs are purged meanwhile: what the search for the matching point
    /// has to bear.
    Leaders,
    /// The quorum moves between regions that lose sight of each other.
    Moves,
    /// Power cuts, slow disks, and one that rots at its end.
    Disks,
    /// A quorum is lost for good and repaired, and those that were lost come back.
    Lost,
}

/// How much goes wrong in this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intensity {
    pub(crate) stress: Stress,
    /// The mean time between two faults.
    pub(crate) pause: Duration,
    /// How long faults last at most.
    pub(crate) longest: Duration,
}

impl Intensity {
    pub(crate) fn choose(dice: &mut Rng) -> Self {
        let stress = match dice.u32(0..10) {
            0..=3 => Stress::Everything,
            4 => Stress::Disks,
            5..=6 => Stress::Leaders,
            // `Lost` has a scenario of its own.
            _ => Stress::Moves,
        };
        Self::of(stress, dice)
    }

    /// A move of the quorum takes a while: it would never come about if everything broke all the time.
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

/// What the choice looks at.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) members: Vec<MemberId>,
    pub(crate) running: Vec<MemberId>,
    pub(crate) regions: BTreeMap<MemberId, Region>,
    pub(crate) leader: Option<MemberId>,
    /// Voting database members that do not lead, in other regions than the leader if there are such.
    pub(crate) primaries: Vec<MemberId>,
    /// Members whose disk may rot without the ring losing its majorities.
    pub(crate) may_rot: Vec<MemberId>,
    /// Members the end of whose log may rot, likewise.
    pub(crate) may_rot_tail: Vec<MemberId>,
    /// Members that can be added.
    pub(crate) spares: Vec<MemberId>,
    /// Members that may be removed without leaving the ring without a primary.
    pub(crate) removable: Vec<MemberId>,
    /// The sessions with proxies.
    pub(crate) relayed: Vec<Relayed>,
}

/// Chooses the next fault; `None` when what was drawn cannot be now.
pub(crate) fn choose(view: &View, intensity: Intensity, dice: &mut Rng) -> Option<Fault> {
    let time = |dice: &mut Rng| {
        let longest = u64::try_from(intensity.longest.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(dice.u64(10..longest.max(11)))
    };
    // The leader is where faults hurt: it is chosen as often as all others together.
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
        // No links are cut: who was lost must not come back where it cannot reach who went on.
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
            // Now and then somebody who cannot.
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

/// The machine loses its power, and its disk some of what was not synced.
pub(crate) fn power_cut(dice: &mut Rng) -> Crash {
    Crash::PowerCut(match dice.u32(0..4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Seeded(dice.u64(..)),
    })
}

/// Connections of two members are forgotten between them; half of the times those of the leader.
pub(crate) fn forget_connections(view: &View, dice: &mut Rng) -> Option<Fault> {
    let mut members = view.members.clone();
    dice.shuffle(&mut members);
    let leader = view.leader.filter(|_| dice.bool());
    let one = leader.or(members.first().copied())?;
    let other = members.into_iter().find(|member| *member != one)?;
    Some(Fault::ForgetConnections { one, other })
}

/// Voters forget a lease, if they do.
pub(crate) fn relapse(dice: &mut Rng, time: impl FnOnce(&mut Rng) -> Duration) -> Fault {
    Fault::Relapse {
        which: dice.u64(..),
        alone: Duration::from_millis(dice.u64(0..1_000)),
        time: time(dice),
    }
}

/// Chooses what to do about something that has just happened; mostly nothing.
pub(crate) fn ambush(
    news: News,
    view: &View,
    intensity: Intensity,
    dice: &mut Rng,
) -> Option<Fault> {
    // A proxy is asked for the new leader's entries while it has an older one's at their places.
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

/// Two groups that cannot talk: one member against all others, or any half against the other.
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
