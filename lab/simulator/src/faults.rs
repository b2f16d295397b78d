//! The fault model, and the choice of the next fault. Pure: the choice depends only on the state of the world and on random numbers.
//!
//! # The model
//!
//! The following faults are within the guarantee, for any number of members and at any time. Processes are killed between any two calls to
//! their disk. Power is cut there, and unsynced data is lost, kept or torn. Disk calls fail, and disks are full or slow. Processes are
//! paused, and clocks are up to 3 % too fast or too slow. Messages are delayed, lost, duplicated and reordered, and links are cut in one or
//! both directions.
//!
//! The following faults are within the guarantee for a minority of the members. The first is bit rot. If a bit in an old part of the log is
//! flipped, the member must refuse to start, and counts as lost from then on. At the end of the log, bit rot looks like a torn write. The
//! member may truncate entries there that it has acknowledged. It must then not help to elect a leader without them. The second is the loss
//! of a whole disk. The ring does not know a member with an empty disk, and an operator replaces it by a new member.
//!
//! Two faults are outside of the guarantee, and are not injected. The first is a voter's disk that acknowledges syncs falsely and then
//! loses power. In a quorum of two of three it may have had the only other copy, and no consensus protocol survives that. The second is a
//! clock that stops while a process runs.

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use fastrand::Rng;
use raft_types::{MemberId, Region};
use testkit::disk::{CallFault, Survival};

use crate::dice::{millis, pick, pick_some};
use crate::network::{Relayed, Weather};
use crate::record::News;

/// How a member's process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process is killed. Its host keeps running, and refuses connections.
    Kill,
    /// The host loses power, and does not answer any longer.
    PowerCut(Survival),
    /// The process receives a request to stop, and shuts down gracefully.
    Stop,
}

/// A fault of a mysqld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MysqldFault {
    /// The mysqld is killed.
    Kill,
    /// The mysqld and its member are killed.
    KillWithMember,
    /// A process other than its member sends SIGTERM to the mysqld.
    Terminate,
    /// The mysqld is paused for this time.
    Pause(Duration),
    /// The member is paused, and after this time the host loses power. The mysqld's writes in between exist nowhere else.
    LosePowerBehindAHangingMember(Duration),
}

/// A fault. If the last field is a duration, it is the length of the fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A member crashes after this many more calls to its disk, or after a short time if there are fewer calls. It is down for the given
    /// time.
    Crash(MemberId, Crash, u64, Duration),
    Pause(MemberId, Duration),
    /// A fault of a member's server.
    Mysqld(MemberId, MysqldFault),
    /// Messages between the two groups do not arrive.
    Cut(Vec<MemberId>, Vec<MemberId>, Duration),
    /// Messages from the first group to the second do not arrive.
    CutOneWay(Vec<MemberId>, Vec<MemberId>, Duration),
    /// A device between two members, such as a firewall, drops the state of their connections, and no longer forwards packets of these
    /// connections.
    ForgetConnections(MemberId, MemberId),
    Weather(Weather, Duration),
    /// Each sync of a member's disk takes longer by the first duration.
    SlowDisk(MemberId, Duration, Duration),
    /// A member's entries arrive later by the first duration, as over a busy link. Op ids for a proxy are not delayed.
    Lag(MemberId, Duration, Duration),
    /// A member's disk has room for only this many more bytes.
    FullDisk(MemberId, u64, Duration),
    /// One call to a member's disk fails, after this many other calls.
    BadCall(MemberId, u64, CallFault),
    /// A bit in an old part of the log is flipped before the next restart. The number selects the bit.
    Rot(MemberId, u64),
    /// The other members are disconnected for a while. Then a bit at the end of this member's log is flipped, among its last acknowledged
    /// entries. The leader is down for longer than the member.
    RotTail(MemberId, u64, Duration, Duration),
    /// A member loses its whole disk. If there is a first duration, the other members are disconnected for that time before, and the leader
    /// fails afterwards. Then only these two had the commits of that time.
    Wipe(MemberId, Option<Duration>, Duration),
    /// A possible leader is disconnected from the leader for this time, and campaigns without success. Then the leader is cut off from all
    /// other members, which restart immediately. If they forget the lease that they granted, they elect the candidate while the leader
    /// still serves.
    Relapse(u64, Duration, Duration),
    /// For this time, only this member sees false evidence of the leader's exit: the leader closes connections repeatedly, and its address
    /// refuses calls.
    FalseAlarm(MemberId, Duration),
    /// All members except the leader see false evidence of the leader's exit, and the leader is disconnected in both directions. The
    /// evidence is false for more than a minority, so this fault is only injected into a deliberately broken ring.
    FalseDeath(Duration),
    /// A voter campaigns, or receives the leadership, although all members are present.
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
    /// A member purges its log up to this many entries before the end. If the flag is set, it purges only entries that all members have,
    /// otherwise all committed ones.
    Purge(MemberId, u64, bool),
}

impl Fault {
    /// A cut of the links between two groups, in both directions or in one.
    pub(crate) fn cut(from: Vec<MemberId>, to: Vec<MemberId>, both: bool, time: Duration) -> Self {
        match both {
            true => Self::Cut(from, to, time),
            false => Self::CutOneWay(from, to, time),
        }
    }

    /// A crash without further calls to the disk.
    pub(crate) fn crash(member: MemberId, crash: Crash, down: Duration) -> Self {
        Self::Crash(member, crash, 0, down)
    }
}

/// The kind of faults in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stress {
    /// All kinds of faults.
    Everything,
    /// Leaders change quickly, voters restart immediately, and logs are purged. This stresses the search for the matching point.
    Leaders,
    /// The quorum moves between regions, whose connections fail.
    Moves,
    /// Power cuts, slow disks, and bit rot at the end of a log.
    Disks,
    /// A quorum is lost permanently and repaired, and the lost members return.
    Lost,
}

/// The intensity of the faults in a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intensity {
    pub(crate) stress: Stress,
    /// The mean time between two faults.
    pub(crate) pause: Duration,
    /// The maximum duration of a fault.
    pub(crate) longest: Duration,
}

impl Intensity {
    pub(crate) fn choose(dice: &mut Rng) -> Self {
        let stress = match dice.u32(0..10) {
            0..=3 => Stress::Everything,
            4 => Stress::Disks,
            5..=6 => Stress::Leaders,
            // `Lost` is drawn only by the scenario for it.
            _ => Stress::Moves,
        };
        Self::of(stress, dice)
    }

    /// Returns the intensity for a stress. Quorum moves need some time without faults, and would never complete otherwise.
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

/// The state of the world, from which the next fault is chosen.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) members: Vec<MemberId>,
    pub(crate) running: Vec<MemberId>,
    pub(crate) regions: BTreeMap<MemberId, Region>,
    pub(crate) leader: Option<MemberId>,
    /// Voting database members that do not lead. If other regions than the leader's have some, only those.
    pub(crate) primaries: Vec<MemberId>,
    /// Members with a disk that may rot without the loss of a majority.
    pub(crate) may_rot: Vec<MemberId>,
    /// Members with a log that may rot at its end without the loss of a majority.
    pub(crate) may_rot_tail: Vec<MemberId>,
    /// Members that may be added.
    pub(crate) spares: Vec<MemberId>,
    /// Members that may be removed: afterwards the ring still has a possible primary.
    pub(crate) removable: Vec<MemberId>,
    /// The current sessions with proxies.
    pub(crate) relayed: Vec<Relayed>,
}

/// Draws the number of a fault. `choose` maps the number to a kind of fault.
fn drawn(stress: Stress, dice: &mut Rng) -> u32 {
    let numbers: &[u32] = match stress {
        Stress::Everything => return dice.u32(0..115),
        Stress::Leaders => &[
            0, 0, 10, 25, 35, 36, 36, 65, 82, 82, 95, 95, 100, 100, 100, 110, 112, 112,
        ],
        Stress::Disks => &[0, 0, 0, 0, 25, 35, 65, 65, 65, 81, 81, 100, 108],
        // No links are cut, because a returning member must be able to reach the repaired ring.
        Stress::Lost => &[0, 0, 55, 65, 82, 85, 85, 85, 85, 100],
        // Most of these are promotions.
        Stress::Moves => &[
            0, 10, 35, 36, 37, 55, 65, 85, 85, 85, 85, 85, 85, 85, 85, 100,
        ],
    };
    *pick(dice, numbers)
}

/// Chooses the next fault. `None`: the drawn fault is not possible now.
pub(crate) fn choose(view: &View, intensity: Intensity, dice: &mut Rng) -> Option<Fault> {
    let time = |dice: &mut Rng| millis(dice, 10..intensity.longest_ms().max(11));
    // Faults of the leader are the most harmful, so half of the faults are the leader's.
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
        // In one of six cases, the target may be a member that cannot lead.
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

/// Chooses a fault of a session with a proxy: of the proxy itself, of one of its two links, or late entries after their op ids.
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

/// Chooses how much of the unsynced data a power cut destroys.
pub(crate) fn power_cut(dice: &mut Rng) -> Crash {
    Crash::PowerCut(match dice.u32(0..4) {
        0 => Survival::Nothing,
        1 => Survival::Everything,
        _ => Survival::Seeded(dice.u64(..)),
    })
}

/// Drops the connections between two members. In half of the cases one of them is the leader.
pub(crate) fn forget_connections(view: &View, dice: &mut Rng) -> Option<Fault> {
    let mut members = view.members.clone();
    dice.shuffle(&mut members);
    let leader = view.leader.filter(|_| dice.bool());
    let one = leader.or(members.first().copied())?;
    let other = members.into_iter().find(|member| *member != one)?;
    Some(Fault::ForgetConnections(one, other))
}

/// Chooses a fault in which voters restart shortly after they have granted a lease.
pub(crate) fn relapse(dice: &mut Rng, time: impl FnOnce(&mut Rng) -> Duration) -> Fault {
    Fault::Relapse(dice.u64(..), millis(dice, 0..1_000), time(dice))
}

/// Chooses a fault right after a recent event. In most cases there is none.
pub(crate) fn ambush(
    news: News,
    view: &View,
    intensity: Intensity,
    dice: &mut Rng,
) -> Option<Fault> {
    let (News::Widens(member) | News::Narrows(member) | News::Leads(member)) = news;
    let leads = matches!(news, News::Leads(_));
    // A proxy receives the new leader's op ids while its log still has entries of an older leader at their indexes.
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

/// Splits the members into one member and all others.
fn alone(view: &View, member: MemberId) -> (Vec<MemberId>, Vec<MemberId>) {
    view.members.iter().partition(|other| **other == member)
}

/// Splits the members into one region and all others.
fn region(view: &View, member: MemberId) -> (Vec<MemberId>, Vec<MemberId>) {
    let own = view.regions.get(&member);
    let at_home = |other: &&MemberId| view.regions.get(*other) == own;
    view.members.iter().partition(at_home)
}

/// Splits the members into two groups: a region and all others, one member and all others, or two random groups.
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
