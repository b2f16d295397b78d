//! Injects a fault into the ring, and ends it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use testkit::distance::Place;
use testkit::wait::eventually;

use crate::fault::{Fault, Kind, OneWay, Stopped, Target};
use crate::intruder::Intruder;
use crate::stage::{DEMOTE_AFTER, NATIVE, Stage};

/// Time in which a member detects that its disk is full. It detects this at its next write.
const SETTLED: Duration = Duration::from_millis(500);
/// How long a refused command is repeated.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(500);
/// Exit code of `witness` if the ring refuses a command (see `witness --help`).
const REFUSED: i32 = 4;

/// An injected fault.
pub(crate) struct Struck {
    /// The affected member, as text.
    pub(crate) words: String,
    /// When the fault began.
    pub(crate) began: Instant,
    /// True if the fault affects the primary, or resources that the primary needs.
    pub(crate) primary: bool,
    /// True if commits must continue during the fault.
    pub(crate) quorum_stays: bool,
    /// The primary, if the fault isolates it and its mysqld from all other members.
    pub(crate) cut_off: Option<usize>,
    /// The member that lost its power and had applied row by row. Readers may have seen its last commits before these were durable.
    pub(crate) goes_back: Option<usize>,
    cure: Option<Cure>,
    /// The foreign client that the fault started. It ends with the fault.
    intruder: Option<Intruder>,
}

impl Struck {
    fn cut_off_member(&mut self, stage: &Stage, victim: usize, primary: Option<usize>) {
        cut(stage, &[victim], &all_but(stage, &[victim]), true, true);
        self.cut_off = primary.filter(|primary| *primary == victim);
        self.ends(reconnect);
    }

    fn ends(&mut self, cure: impl FnOnce(&mut Stage) -> Result<()> + 'static) {
        self.cure = Some(Box::new(cure));
    }

    fn stop(&mut self, stage: &Stage, victim: usize, stopped: Stopped) -> Result<()> {
        signal(stage, victim, stopped, Signal::STOP)?;
        self.ends(move |stage| signal(stage, victim, stopped, Signal::CONT));
        Ok(())
    }
}

/// The action that ends a fault.
type Cure = Box<dyn FnOnce(&mut Stage) -> Result<()>>;

/// Injects a fault. `primary` is the member that accepts writes now, if any. `calm` is true if all members had recovered before.
pub(crate) fn strike(
    stage: &mut Stage,
    fault: &Fault,
    primary: Option<usize>,
    calm: bool,
) -> Result<Struck> {
    let victim = victim(stage, fault, primary);
    let name = stage.ring.name(victim).to_owned();
    let mut struck = Struck {
        words: name.clone(),
        began: Instant::now(),
        primary: Some(victim) == primary,
        quorum_stays: calm,
        cut_off: None,
        goes_back: None,
        cure: None,
        intruder: None,
    };
    if struck.primary && calm && stalls_mysqld(fault) {
        // A member that was demoted because of its mysqld is demoted again only after its mysqld was healthy for `DEMOTE_AFTER`.
        std::thread::sleep(DEMOTE_AFTER + SETTLED);
        struck.began = Instant::now();
    }
    match fault.kind {
        Kind::KillMember => {
            stage.ring.kill(victim)?;
            struck.ends(move |stage| stage.ring.start(victim));
        }
        Kind::KillMysqld => stage.ring.server(victim).kill()?,
        Kind::KillHost => {
            stage.ring.kill_host(victim)?;
            struck.ends(move |stage| stage.ring.start(victim));
        }
        Kind::CutPower => {
            stage.cut_power(victim)?;
            struck.goes_back = (!struck.primary && victim != NATIVE).then_some(victim);
            struck.ends(move |stage| stage.restore_power(victim));
        }
        Kind::StopMember => struck.stop(stage, victim, Stopped::Member)?,
        Kind::StopMysqld => {
            struck.stop(stage, victim, Stopped::Mysqld)?;
            // The member still leads while its mysqld is stopped. This run does not require that another member takes over, so commits may
            // stop.
            struck.quorum_stays &= !struck.primary;
        }
        Kind::LongStop => {
            struck.stop(stage, victim, fault.stopped)?;
            let words = match fault.stopped {
                Stopped::Member => "the member",
                Stopped::Mysqld => "mysqld",
                Stopped::Host => "both",
            };
            struck.words = format!("{name}, {words}, for {} s", fault.hold.as_secs());
        }
        Kind::FreezeDisk => {
            stage.mysqld_disk(victim)?.freeze()?;
            struck.ends(move |stage| stage.mysqld_disk(victim)?.thaw());
        }
        Kind::FullMysqld => {
            stage.mysqld_disk(victim)?.fill()?;
            struck.ends(move |stage| stage.mysqld_disk(victim)?.make_room());
        }
        Kind::CutMember => struck.cut_off_member(stage, victim, primary),
        Kind::CutRegion => {
            let region = stage.ring.neighbours(victim);
            struck.primary = primary.is_some_and(|primary| region.contains(&primary));
            struck.words = format!("the region of {name}");
            let others = all_but(stage, &region);
            cut(stage, &region, &others, true, true);
            struck.ends(reconnect);
        }
        Kind::OneWay => {
            let others = all_but(stage, &[victim]);
            let (to, from, one, words) = match fault.one_way {
                OneWay::Deaf => (true, false, None, "receives no packets".to_owned()),
                OneWay::Mute => (false, true, None, "its packets are lost".to_owned()),
                OneWay::OneLink(number) => {
                    let other = others[number % others.len()];
                    let words = format!("is not heard by {}", stage.ring.name(other));
                    (false, true, Some(other), words)
                }
            };
            let others = one.map_or(others, |one| vec![one]);
            cut(stage, &[victim], &others, to, from);
            struck.words = format!("{name} {words}");
            struck.ends(reconnect);
        }
        Kind::CutLink => {
            let others = all_but(stage, &[victim]);
            let other = others[fault.other % others.len()];
            cut(stage, &[victim], &[other], true, true);
            struck.words = format!("{name} and {}", stage.ring.name(other));
            struck.ends(reconnect);
        }
        Kind::ForeignReplica => {
            let socket = stage.ring.server(victim).socket();
            struck.intruder = Some(Intruder::start(socket, None)?);
            std::thread::sleep(SETTLED);
            struck.began = Instant::now();
            struck.cut_off_member(stage, victim, primary);
        }
        Kind::GtidOwner => {
            if let Some(primary) = primary {
                let source = stage.ring.server(primary).client();
                let next = soon_used(&source.variable("server_uuid")?, &source.gtid_executed()?)?;
                let socket = stage.ring.server(victim).socket();
                let owner = Intruder::start(socket, Some(next.clone()))?;
                struck.intruder = Some(owner);
                struck.words = format!("{name}, {next}");
            }
        }
        Kind::FullDisk => {
            stage.member_disk(victim)?.fill()?;
            struck.ends(move |stage| make_room_for_log(stage, victim));
        }
        Kind::Restart | Kind::ChangeVersion => {
            stage.wait_for_start(victim);
            let status = stage.ring.stop(victim)?;
            ensure!(status.success(), "{name} stopped with {status}");
            if fault.kind == Kind::ChangeVersion {
                struck.words = format!("{name} to {}", stage.change_version(victim)?);
            }
            stage.ring.start(victim)?;
        }
        Kind::Promote => {
            struck.words = promote(stage, &name, calm)?;
        }
        Kind::ReplaceWitness => {
            struck.words = replace(stage, victim)?;
        }
    }
    Ok(struck)
}

/// Returns a GTID that the primary with this UUID will use after some transactions.
fn soon_used(uuid: &str, executed: &str) -> Result<String> {
    const AHEAD: u64 = 20;
    let of_primary = executed
        .split(',')
        .find(|of_source| of_source.trim().starts_with(uuid));
    let last = of_primary.and_then(|set| set.rsplit([':', '-']).next());
    let last: u64 = last
        .context("the primary has written nothing")?
        .trim()
        .parse()?;
    Ok(format!("{uuid}:{}", last + AHEAD))
}

/// Ends a fault.
pub(crate) fn cure(stage: &mut Stage, struck: &mut Struck) -> Result<()> {
    drop(struck.intruder.take());
    match struck.cure.take() {
        Some(cure) => cure(stage),
        None => Ok(()),
    }
}

fn reconnect(stage: &mut Stage) -> Result<()> {
    stage.ring.links(|links| links.restore_all());
    Ok(())
}

fn signal(stage: &Stage, index: usize, to: Stopped, signal: Signal) -> Result<()> {
    if to != Stopped::Mysqld {
        stage.ring.signal(index, signal)?;
    }
    if to != Stopped::Member {
        stage.ring.server(index).signal(signal)?;
    }
    Ok(())
}

/// Returns whether a mysqld stalls for the duration of the fault, so that another member must take over.
fn stalls_mysqld(fault: &Fault) -> bool {
    match fault.kind {
        Kind::FreezeDisk | Kind::FullMysqld => true,
        Kind::LongStop => fault.stopped == Stopped::Mysqld,
        _ => false,
    }
}

/// Chooses the member that the fault affects.
fn victim(stage: &Stage, fault: &Fault, primary: Option<usize>) -> usize {
    let databases = stage.ring.databases();
    let candidates: Vec<usize> = match fault.kind {
        Kind::KillMysqld
        | Kind::ForeignReplica
        | Kind::KillHost
        | Kind::StopMysqld
        | Kind::FreezeDisk
        | Kind::FullMysqld => databases,
        Kind::LongStop if fault.stopped != Stopped::Member => databases,
        Kind::Promote | Kind::GtidOwner => {
            // These faults affect a member other than the primary.
            let others = databases.iter().filter(|index| Some(**index) != primary);
            let others: Vec<usize> = others.copied().collect();
            let number = match fault.target {
                Target::Primary => 0,
                Target::Any(number) => number,
            };
            return others[number % others.len()];
        }
        Kind::FullDisk | Kind::CutPower => stage.member_disks.iter().map(|(of, _)| *of).collect(),
        // The second witness of a region, because the first one may have a disk that would be lost with it.
        Kind::ReplaceWitness => databases.iter().map(|database| database + 2).collect(),
        _ => (0..stage.ring.size()).collect(),
    };
    match (fault.target, primary) {
        (Target::Primary, Some(primary)) if candidates.contains(&primary) => primary,
        (Target::Primary, Some(primary)) => {
            // If the primary cannot be affected, chooses a member of the primary's region.
            let near = stage.ring.neighbours(primary);
            let mut of_region = candidates.iter().filter(|index| near.contains(*index));
            of_region.next().copied().unwrap_or(candidates[0])
        }
        (Target::Primary, None) => candidates[0],
        (Target::Any(number), _) => candidates[number % candidates.len()],
    }
}

fn all_but(stage: &Stage, some: &[usize]) -> Vec<usize> {
    (0..stage.ring.size())
        .filter(|index| !some.contains(index))
        .collect()
}

fn cut(stage: &Stage, some: &[usize], others: &[usize], to: bool, from: bool) {
    stage.ring.links(|links| {
        for one in some.iter().map(|index| Place::member(*index)) {
            for other in others.iter().map(|index| Place::member(*index)) {
                if to {
                    links.cut(other, one);
                }
                if from {
                    links.cut(one, other);
                }
            }
        }
    });
}

/// Promotes a member, and returns the result as text. In a recovered ring, retries a refusal for `PATIENCE`, because the member may just
/// have begun to follow.
fn promote(stage: &Stage, name: &str, calm: bool) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let done = stage.ring.cli_of(0, &["switchover", name, "--yes"])?;
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        return match done.status.code() {
            Some(0) => Ok(format!("{name}, done")),
            Some(REFUSED) if calm && Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
                continue;
            }
            _ if calm => bail!("the promotion of {name} ended with {}: {told}", done.status),
            Some(REFUSED) => Ok(format!("{name}, refused")),
            _ => Ok(format!("{name}, {}", done.status)),
        };
    }
}

/// Removes a witness, and adds a new witness in its place.
fn replace(stage: &mut Stage, index: usize) -> Result<String> {
    let old = stage.ring.name(index).to_owned();
    command(stage, &["members", "remove", &old, "--yes"])?;
    stage.ring.kill(index)?;
    stage.ring.replace_witness(index)?;
    stage.ring.start(index)?;
    let (name, region) = (stage.ring.name(index), stage.ring.region(index));
    let id = stage.ring.id(index);
    let address = stage.ring.raft_address(index);
    let words = format!(
        "members add --id {id} --name {name} --region {region} --kind witness --address {address} --timeout 60s"
    );
    command(stage, &words.split(' ').collect::<Vec<_>>())?;
    Ok(format!("{old} by {name}"))
}

/// Repeats a command until it succeeds. During a quorum move, the ring may ask the operator to try again.
fn command(stage: &Stage, arguments: &[&str]) -> Result<()> {
    let what = format!("`witness {}` succeeds", arguments.join(" "));
    let succeeded = || stage.ring.cli_of(0, arguments)?.into_text("it");
    eventually(&what, PATIENCE, succeeded).map(drop)
}

/// Frees space on a member's disk. A member that waits for space continues. A member that could not write an entry of the ring's own has
/// ended, and is started again.
fn make_room_for_log(stage: &mut Stage, index: usize) -> Result<()> {
    stage.member_disk(index)?.make_room()?;
    match stage.ring.wait_for_exit(index, SETTLED) {
        Ok(status) => {
            let name = stage.ring.name(index).to_owned();
            ensure!(!status.success(), "{name} with a full disk ended well");
            stage.ring.start(index)
        }
        Err(_) => Ok(()),
    }
}

/// Waits until the fault has lasted for its duration.
pub(crate) fn last(since: Instant, fault: &Fault, goes_on: impl Fn() -> Result<()>) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(50);
    while since.elapsed() < fault.hold {
        goes_on()?;
        std::thread::sleep(LOOK.min(fault.hold.saturating_sub(since.elapsed())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gtid_of_an_owner_follows_the_primarys_last() {
        let executed = "0aa:1-5,\n3e1:1-3:7-90,\n4f2:1-7";
        assert_eq!(soon_used("3e1", executed).unwrap(), "3e1:110");
        assert_eq!(soon_used("4f2", executed).unwrap(), "4f2:27");
        soon_used("5aa", executed).unwrap_err();
    }
}
