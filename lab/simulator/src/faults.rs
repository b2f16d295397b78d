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

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use fastrand::Rng;
use raft_types::{MemberId, Region};
use testkit::disk::{CallFault, Survival};

use crate::dice::{millis, pick, pick_some};
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

/// One fault. A last duration is its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// After this many more calls to its disk, or soon if there are fewer; then it is down for this time.
    Crash(MemberId, Crash, u64, Duration),
    Pause(MemberId, Duration),
    /// A fault of a member's server.
    Mysqld(MemberId, MysqldFault),
    /// Messages between the two groups do not arrive.
    Cut(Vec<MemberId>, Vec<MemberId>, Duration),
    /// Messages from the first group to the second do not arrive.
    CutOneWay(Vec<MemberId>, Vec<MemberId>, Duration),
    /// A device between two members drops their connections' state, and no longer forwards their packets.
    ForgetConnections(MemberId, MemberId),
    Weather(Weather, Duration),
    /// Each sync of a member's disk takes this much longer.
    SlowDisk(MemberId, Duration, Duration),
    /// A member's entries take this much longer, as over a busy line; op ids for a proxy do not.
    Lag(MemberId, Duration, Duration),
    /// The disk has room for this many bytes.
    FullDisk(MemberId, u64, Duration),
    /// The disk call after this many others fails.
    BadCall(MemberId, u64, CallFault),
    /// The next restart finds a flipped bit in an old part of the log, chosen by this number.
    Rot(MemberId, u64),
    /// The others are disconnected for a while. Then a bit among this member's last acknowledged entries is flipped, at the log's end. The
    /// leader is down for longer than the member.
    RotTail(MemberId, u64, Duration, Duration),
    /// The member loses its whole disk. With a time to be alone, the others are disconnected for that long before, and the leader fails
    /// afterwards: only those two had the commits in between.
    Wipe(MemberId, Option<Duration>, Duration),
    /// A possible leader is disconnected from the leader for this time, and campaigns without success. Then the leader is cut off from all
    /// others, which restart immediately. If they forget the granted lease, they elect the candidate while the leader still serves.
    Relapse(u64, Duration, Duration),
    /// For this time, only this member sees the living leader close connections repeatedly and its address refuse calls.
    FalseAlarm(MemberId, Duration),
    /// The same for all members but the leader, which is disconnected in both directions. More than a minority gets false evidence, so only
    /// a deliberately broken ring is played so.
    FalseDeath(Duration),
    /// A voter campaigns, or gets the leadership, although no member is missing.
    Campaign(MemberId),
    /// An operator transfers the leadership to this member.
    Transfer(MemberId),
    /// An operator promotes this member.
    Promote(MemberId),
    /// An operator sets the policy of the quorum.
    SetPolicy(QuorumPolicy),
    /// An operator adds a new member.
    Add(MemberId),
    /// An operator removes a member.
    Remove(MemberId),
    /// This member purges the files before this many of its last entries: those that all members have if it waits for them, otherwise those
    /// that are committed.
    Purge(MemberId, u64, bool),
}

impl Fault {
    /// Both directions, or one.
    pub(crate) fn cut(from: Vec<MemberId>, to: Vec<MemberId>, both: bool, time: Duration) -> Self {
        match both {
            true => Self::Cut(from, to, time),
            false => Self::CutOneWay(from, to, time),
        }
    }

    /// An immediate crash.
    pub(crate) fn crash(member: MemberId, crash: Crash, down: Duration) -> Self {
        Self::Crash(member, crash, 0, down)
    }
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
            Stress::Moves | Stress::Lost => ([300, 700, 1500], [300, 1000, 2500]),
            _ => ([60, 200, 700], [300, 1000, 3000]),
        };
        Self {
            stress,
            pause: Duration::from_millis(*pick(dice, &pauses)),
            longest: Duration::from_millis(*pick(dice, &longest)),
        }
    }

    /// The maximum duration of faults, in milliseconds.
    pub(crate) fn longest_ms(&self) -> u64 {
        u64::try_from(self.longest.as_millis()).unwrap_or(u64::MAX)
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

/// The numbers of `choose` from which a stress draws; each number is a kind of fault there.
fn drawn(stress: Stress, dice: &mut Rng) -> u32 {
    let numbers: &[u32] = match stress {
        Stress::Everything => return dice.u32(0..115),
        Stress::Leaders => &[
            0, 0, 10, 25, 35, 36, 36, 65, 82, 82, 95, 95, 100, 100, 100, 110, 112, 112,
        ],
        Stress::Disks => &[0, 0, 0, 0, 25, 35, 65, 65, 65, 81, 81, 100, 108],
        // No links are cut: lost members must not return where they cannot reach the repaired ring.
        Stress::Lost => &[0, 0, 55, 65, 82, 85, 85, 85, 85, 100],
        // Mostly promotions.
        Stress::Moves => &[
            0, 10, 35, 36, 37, 55, 65, 85, 85, 85, 85, 85, 85, 85, 85, 100,
        ],
    };
    *pick(dice, numbers)
}

/// Chooses the next fault; `None` if the drawn one is not possible now.
pub(crate) fn choose(view: &View, intensity: Intensity, dice: &mut Rng) -> Option<Fault> {
    let time = |dice: &mut Rng| millis(dice, 10..intensity.longest_ms().max(11));
    // Faults of the leader are the most harmful: it is chosen as often as all others together.
    let member = match view.leader {
        Some(leader) if view.running.contains(&leader) && dice.bool() => leader,
        _ => pick_some(dice, &view.running)?,
    };
    if !view.relayed.is_empty() && dice.u32(0..6) == 0 {
        let time = time(dice);
        return Some(of_a_proxy(pick(dice, &view.relayed), time, dice));
    }
    Some(match drawn(intensity.stress, dice) {
        0..=24 => {
            let crash = match dice.u32(0..8) {
                0 => Crash::Stop,
                1..=3 => Crash::Kill,
                _ => power_cut(dice),
            };
            let (after_calls, is_short) = (dice.u64(0..12), dice.bool());
            let down = if is_short {
                millis(dice, 5..60)
            } else {
                time(dice)
            };
            Fault::Crash(member, crash, after_calls, down)
        }
        25..=34 => Fault::Pause(member, time(dice)),
        35..=54 => {
            let (from, to) = groups(view, member, dice);
            if from.is_empty() || to.is_empty() {
                return None;
            }
            Fault::cut(from, to, dice.bool(), time(dice))
        }
        55..=64 => {
            let weather = Weather {
                lost: *pick(dice, &[0, 50, 300]),
                twice: *pick(dice, &[0, 50, 300]),
                straggles: *pick(dice, &[0, 50, 300]),
            };
            Fault::Weather(weather, time(dice))
        }
        65..=72 => Fault::SlowDisk(member, millis(dice, 1..300), time(dice)),
        73..=75 => Fault::FullDisk(member, dice.u64(0..4000), time(dice)),
        76..=79 => {
            let fault = *pick(dice, &[CallFault::Io, CallFault::NoSpace]);
            Fault::BadCall(member, dice.u64(1..20), fault)
        }
        80 => Fault::Rot(pick_some(dice, &view.may_rot)?, dice.u64(..)),
        81 => {
            let (member, place) = (pick_some(dice, &view.may_rot_tail)?, dice.u64(..));
            let after = millis(dice, 20..400);
            Fault::RotTail(member, place, after, millis(dice, 500..3_000))
        }
        82..=84 => Fault::Transfer(*pick(dice, &view.members)),
        // Sometimes a member that cannot lead.
        85..=90 => match dice.u32(0..6) {
            0 => Fault::Promote(*pick(dice, &view.members)),
            _ => Fault::Promote(pick_some(dice, &view.primaries)?),
        },
        91..=92 => Fault::Add(pick_some(dice, &view.spares)?),
        93..=94 => Fault::Remove(pick_some(dice, &view.removable)?),
        100..=102 => Fault::Campaign(member),
        110..=111 => relapse(dice, time),
        112..=114 => Fault::FalseAlarm(member, time(dice)),
        108..=109 => {
            let member = pick_some(dice, &view.may_rot_tail)?;
            let alone = dice.bool().then(|| millis(dice, 20..400));
            Fault::Wipe(member, alone, millis(dice, 500..3_000))
        }
        _ => Fault::Purge(member, dice.u64(0..15), dice.u32(0..4) == 0),
    })
}

/// A fault of one session: the proxy itself, one of its two links, or entries that arrive later than their op ids.
fn of_a_proxy(session: &Relayed, time: Duration, dice: &mut Rng) -> Fault {
    let Relayed { from, proxy, next } = *session;
    let cut = |one, other, both| Fault::cut(vec![one], vec![other], both, time);
    match dice.u32(0..12) {
        0 => cut(from, proxy, dice.bool()),
        1 => cut(proxy, from, dice.bool()),
        2 => cut(proxy, next, dice.bool()),
        3 => cut(next, proxy, dice.bool()),
        4..=5 => Fault::Pause(proxy, time),
        6..=7 => Fault::SlowDisk(proxy, millis(dice, 1..300), time),
        8..=9 => Fault::Lag(from, millis(dice, 20..300), time),
        10 => Fault::Crash(proxy, Crash::Kill, dice.u64(0..12), time),
        _ => {
            let crash = Crash::PowerCut(Survival::Seeded(dice.u64(..)));
            Fault::Crash(proxy, crash, dice.u64(0..12), time)
        }
    }
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
    Some(Fault::ForgetConnections(one, other))
}

/// Voters forget a lease, if they can.
pub(crate) fn relapse(dice: &mut Rng, time: impl FnOnce(&mut Rng) -> Duration) -> Fault {
    Fault::Relapse(dice.u64(..), millis(dice, 0..1_000), time(dice))
}

/// Chooses a reaction to a recent event; mostly none.
pub(crate) fn ambush(
    news: News,
    view: &View,
    intensity: Intensity,
    dice: &mut Rng,
) -> Option<Fault> {
    let (News::Widens(member) | News::Narrows(member) | News::Leads(member)) = news;
    let leads = matches!(news, News::Leads(_));
    // A proxy gets the new leader's entries while it has an older leader's at their indexes.
    if leads && dice.u32(0..4) == 0 {
        let delay = millis(dice, 20..300);
        return Some(Fault::Lag(member, delay, millis(dice, 100..1_000)));
    }
    let chance = match intensity.stress {
        Stress::Everything | Stress::Disks => 20,
        Stress::Leaders => 8,
        Stress::Moves | Stress::Lost => 3,
    };
    if dice.u32(0..chance) > 0 {
        return None;
    }
    let time = millis(dice, 100..3_000);
    Some(match dice.u32(0..4) {
        0 => {
            let crash = Crash::PowerCut(Survival::Everything);
            Fault::crash(member, crash, millis(dice, 5..1_000))
        }
        _ => {
            let (from, to) = match leads {
                true => region(view, member),
                false => alone(view, member),
            };
            Fault::Cut(from, to, time)
        }
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
    if !dice.bool() {
        return view.members.iter().partition(|_| dice.bool());
    }
    let (one, others) = alone(view, member);
    match dice.bool() {
        true => (one, others),
        false => (others, one),
    }
}
