//! [`Scenario::ColdDamage`]: a running member's log files are damaged, and another member lacks their entries. That one waits; the damaged
//! member keeps running and gets another member's copy; then all members have everything.
//!
//! [`Scenario::ColdDamage`]: crate::scenario::Scenario::ColdDamage

use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog_store::FileNumber;
use fastrand::Rng;
use raft_types::{MemberId, MemberKind};
use testkit::disk::Survival;

use super::World;
use super::damage::LOG_DIR;
use super::healing::time_to_commit;
use super::slot::{ColdFile, Slot};
use crate::dice::pick;
use crate::event::Event;
use crate::faults::{Crash, Fault};
use crate::member::FileRepair;
use crate::shape::Shape;
use crate::workload::Workload;

/// Damaged files in a run.
const ROUNDS: usize = 3;
/// Time for the ring to write the files that a member lacks.
const TIME_TO_WRITE: Duration = Duration::from_secs(20);
/// Time, in addition to an election, until a damaged file is replaced and the lacking member has it: several attempts to copy it, and as
/// many pauses of the stream.
const TIME_TO_MEND: Duration = Duration::from_secs(20);
/// Longer than any round.
const UNTIL_BROUGHT_BACK: Duration = Duration::from_secs(3_600);
/// Bytes that a disk loses together.
const SECTOR: usize = 512;

/// How a member misses the others' writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    Killed,
    CutOff,
    Paused,
}

/// An additional fault until the damaged file is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    Nothing,
    /// The leadership is transferred.
    Transfer,
    /// Another member with a good copy is killed, and returns soon.
    LoseACopy,
    /// The damaged member is disconnected for a while.
    CutOff,
    /// It loses power after this many disk calls: during the repair, or next to it.
    PowerCut(u64),
}

/// Progress of a member's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Front {
    /// The current file.
    file: FileNumber,
    durable: u64,
    committed: u64,
}

/// Clients write many files, and logs cache little of them.
pub(super) fn with_cold_files(shape: &mut Shape, workload: &mut Workload, dice: &mut Rng) {
    workload.write_pause = Duration::from_millis(dice.u64(40..120));
    workload.rotate_one_in = dice.u32(4..9);
    for member in shape.members.values_mut() {
        member.log.cache_bytes = *pick(dice, &[1, 2 << 10]);
    }
}

/// Two of five rings scrub their files, at different rates; in the others, members that need the entries find the damage.
pub(super) fn file_repair(dice: &mut Rng) -> FileRepair {
    let pause = *pick(dice, &[None, None, None, Some(200), Some(1_000)]);
    FileRepair {
        scrub_every: pause.map(Duration::from_millis),
    }
}

impl World {
    pub(super) fn cold_damage(&mut self) {
        for _ in 0..ROUNDS {
            self.wait_for_leader(None);
            if !self.goes_on() {
                return;
            }
            self.damage_what_somebody_lacks();
        }
        if self
            .file_repair
            .is_some_and(|how| how.scrub_every.is_some())
        {
            let mended = |world: &Self| {
                let mut slots = world.slots.values();
                slots.all(|slot| slot.is_lost() || !slot.has_cold_damage())
            };
            self.wait_until("damaged files are not replaced", TIME_TO_MEND, mended);
        }
    }

    fn damage_what_somebody_lacks(&mut self) {
        let Some((leader, term)) = self.serving() else {
            return;
        };
        let Some(lacking) = self.one_to_spare(&[leader]) else {
            self.steps(Duration::from_secs(1));
            return;
        };
        let absence = *pick(
            &mut self.dice,
            &[Absence::Killed, Absence::CutOff, Absence::Paused],
        );
        let first = self.front(leader).map(|front| front.file);
        self.take_away(lacking, absence);
        if let Some(first) = first
            && let Some(settled) = self.wait_for_files(leader, lacking, first)
            && self.serving() == Some((leader, term))
        {
            // A lone voter's writes while disconnected have no other copy.
            let others = self.there().into_iter();
            let others = others.filter(|id| ![leader, lacking].contains(id));
            let copied = others
                .filter_map(|id| self.front(id))
                .map(|front| front.file);
            let end = copied.max().map_or(0, |copied| copied.min(settled).get());
            let of_leader = first.get() + 1..end;
            self.damage_a_file(leader, of_leader);
            // With scrubbing, no member needs to lack the file.
            if self
                .file_repair
                .is_some_and(|how| how.scrub_every.is_some())
                && let Some(other) = self.one_to_spare(&[leader, lacking])
                && self.front(other).map(|front| front.file) >= Some(first)
            {
                self.damage_a_file(other, 1..first.get());
            }
        }
        self.bring_it_back(lacking, absence);
        let goal = self.front(leader).map_or(0, |front| front.committed);
        let disturbance = self.disturb(leader, lacking);
        let before = self.record.counts().acknowledged;
        let allowed = time_to_commit(&self.shape) + TIME_TO_MEND;
        let otherwise = format!(
            "member {lacking} lacks what is in a damaged file of member {leader} ({disturbance:?}), or nobody commits"
        );
        self.wait_until(&otherwise, allowed, |world| {
            let has = world
                .front(lacking)
                .is_some_and(|front| front.committed >= goal);
            has && world.record.counts().acknowledged > before
        });
        for slot in self.slots.values_mut() {
            slot.forget_replaced_files();
        }
    }

    /// A member that the ring can lose, and whose own files are intact.
    fn one_to_spare(&mut self, but: &[MemberId]) -> Option<MemberId> {
        let mut may = self.may_lose_bits();
        may.retain(|id| {
            let slot = self.slots.get(id);
            !but.contains(id) && slot.is_some_and(|slot| !slot.has_cold_damage())
        });
        (!may.is_empty()).then(|| *pick(&mut self.dice, &may))
    }

    fn front(&self, member: MemberId) -> Option<Front> {
        let process = self.slots.get(&member)?.process()?;
        Some(Front {
            file: process.log().current_file().number,
            durable: process.log().durable()?.index,
            committed: process.outline().committed?.index,
        })
    }

    /// Waits until the leader has written some more files, and everything in them is committed and applied: only a stream to another member
    /// still reads them. The returned file follows them.
    fn wait_for_files(
        &mut self,
        leader: MemberId,
        lacking: MemberId,
        first: FileNumber,
    ) -> Option<FileNumber> {
        let more = self.dice.u64(3..7);
        let leads = |world: &Self| world.serving().map(|(id, _)| id) == Some(leader);
        self.wait_until("nobody writes", TIME_TO_WRITE, |world| {
            let front = world.front(leader);
            !leads(world)
                || world.nobody_can_write_without(lacking)
                || front.is_some_and(|front| front.file.get() >= first.get() + more)
        });
        let written = self.front(leader)?;
        self.wait_until("nobody commits", TIME_TO_WRITE, |world| {
            let front = world.front(leader);
            !leads(world) || front.is_some_and(|front| front.committed >= written.durable)
        });
        Some(written.file)
    }

    /// Whether every database member but this one is lost: members that were down at its choice may still be down.
    fn nobody_can_write_without(&self, lacking: MemberId) -> bool {
        self.slots.iter().all(|(id, slot)| {
            *id == lacking || slot.is_lost() || slot.setup.record.kind == MemberKind::Witness
        })
    }

    fn take_away(&mut self, member: MemberId, absence: Absence) {
        self.record.fault(&format!("FAULT {member} is {absence:?}"));
        match absence {
            Absence::Killed => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.crash = Some(Crash::Kill);
                    slot.down_for = Some(UNTIL_BROUGHT_BACK);
                    slot.fall();
                }
            }
            Absence::Paused => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.pause();
                }
            }
            Absence::CutOff => {
                let pairs = self.pairs_with(member);
                self.queue
                    .links(|links| pairs.iter().for_each(|(from, to)| links.cut(*from, *to)));
            }
        }
    }

    fn bring_it_back(&mut self, member: MemberId, absence: Absence) {
        self.record.note(&format!("ENDS {member} is {absence:?}"));
        let now = self.now;
        match absence {
            Absence::Killed => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.start_at = Some(now);
                }
            }
            Absence::Paused => {
                if let Some(slot) = self.slots.get_mut(&member) {
                    slot.resume(now);
                }
            }
            Absence::CutOff => {
                let pairs = self.pairs_with(member);
                self.queue
                    .links(|links| pairs.iter().for_each(|(from, to)| links.mend(*from, *to)));
            }
        }
    }

    /// Both directions between this member and all others.
    fn pairs_with(&self, member: MemberId) -> Vec<(MemberId, MemberId)> {
        let others = self.slots.keys().filter(|other| **other != member);
        others
            .flat_map(|other| [(member, *other), (*other, member)])
            .collect()
    }

    /// Damages one of these files of a member's log that is not damaged elsewhere, if there is one.
    fn damage_a_file(&mut self, member: MemberId, numbers: std::ops::Range<u64>) {
        let damaged_elsewhere = |path: &Path| {
            let mut others = self.slots.values();
            others.any(|slot| slot.has_cold_damage_in(path))
        };
        let paths = numbers.filter_map(FileNumber::new);
        let paths = paths.map(|number| Path::new(LOG_DIR).join(number.name()));
        let paths: Vec<PathBuf> = paths.filter(|path| !damaged_elsewhere(path)).collect();
        if paths.is_empty() {
            return;
        }
        let path = pick(&mut self.dice, &paths).clone();
        let Some(slot) = self.slots.get_mut(&member) else {
            return;
        };
        let Some(good) = slot
            .setup
            .disk
            .contents(&path)
            .filter(|bytes| !bytes.is_empty())
        else {
            return;
        };
        let byte = self.dice.usize(0..good.len());
        let bad = damaged(&good, byte, self.dice.bool(), self.dice.u8(0..8));
        self.record.fault(&format!(
            "FAULT {} of member {member} ({} bytes) is damaged at {byte}",
            path.display(),
            good.len()
        ));
        slot.setup.disk.set_contents(&path, bad);
        slot.cold.push(ColdFile { path, good });
    }

    fn disturb(&mut self, leader: MemberId, lacking: MemberId) -> Disturbance {
        let chosen = match self.dice.u32(0..8) {
            0 => Disturbance::Transfer,
            1 => Disturbance::LoseACopy,
            2 => Disturbance::CutOff,
            3 => Disturbance::PowerCut(self.dice.u64(1..60)),
            _ => Disturbance::Nothing,
        };
        let after = Duration::from_millis(self.dice.u64(0..2_000));
        if chosen != Disturbance::Nothing {
            self.steps(after);
        }
        let time = Duration::from_millis(self.dice.u64(100..2_000));
        match chosen {
            Disturbance::Nothing => {}
            Disturbance::Transfer => {
                let to = self.primaries();
                if !to.is_empty() {
                    let to = *pick(&mut self.dice, &to);
                    self.play(Fault::Transfer { to });
                }
            }
            Disturbance::LoseACopy => {
                if let Some(member) = self.one_to_spare(&[leader, lacking]) {
                    self.play(Fault::Crash {
                        member,
                        crash: Crash::Kill,
                        after_calls: 0,
                        down: time,
                    });
                }
            }
            Disturbance::CutOff => {
                let others = self.there().into_iter().filter(|id| *id != leader);
                self.play(Fault::Cut {
                    from: vec![leader],
                    to: others.collect(),
                    both: true,
                    time,
                });
            }
            Disturbance::PowerCut(after_calls) => {
                // It may have to be excused: see `Slot::start`.
                if self.may_lose_bits().contains(&leader) {
                    let survival = Survival::Seeded(self.dice.u64(..));
                    self.play(Fault::Crash {
                        member: leader,
                        crash: Crash::PowerCut(survival),
                        after_calls,
                        down: time,
                    });
                }
            }
        }
        chosen
    }

    /// Waits until this holds; otherwise the run fails with this message.
    pub(super) fn wait_until(
        &mut self,
        otherwise: &str,
        allowed: Duration,
        holds: impl Fn(&Self) -> bool,
    ) {
        let start = self.now;
        while self.goes_on() && !holds(self) {
            if self.now - start > allowed {
                let words = format!("{otherwise}, within {allowed:?}; {}", self.standing());
                self.record.saw(&Event::Stuck { words });
            }
            self.step();
        }
    }
}

impl Slot {
    /// Whether one of its log files is damaged.
    pub(super) fn has_cold_damage(&self) -> bool {
        self.cold
            .iter()
            .any(|file| file.is_damaged(&self.setup.disk))
    }

    fn has_cold_damage_in(&self, path: &Path) -> bool {
        let mut here = self.cold.iter().filter(|file| file.path == path);
        here.any(|file| file.is_damaged(&self.setup.disk))
    }

    /// While its disk is on, replaced files stay replaced.
    fn forget_replaced_files(&mut self) {
        let disk = &self.setup.disk;
        if !disk.is_off() {
            self.cold.retain(|file| file.is_damaged(disk));
        }
    }
}

/// The file with one bit flipped, or with the sector around an offset lost.
fn damaged(good: &[u8], byte: usize, whole_sector: bool, bit: u8) -> Vec<u8> {
    let mut bad = good.to_vec();
    let sector = byte / SECTOR * SECTOR..(byte / SECTOR * SECTOR + SECTOR).min(bad.len());
    if whole_sector {
        bad[sector].fill(0);
    }
    if bad == good {
        bad[byte] ^= 1 << (bit % 8);
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_differs_within_one_sector() {
        let good: Vec<u8> = (0..1_300).map(|at| (at / SECTOR) as u8).collect();
        for (byte, whole_sector, changed) in [
            (7, false, 1),
            (1_299, false, 1),
            // A lost sector of zeros is unnoticeable.
            (7, true, 1),
            (600, true, SECTOR),
            (1_299, true, 1_300 - 2 * SECTOR),
        ] {
            let bad = damaged(&good, byte, whole_sector, 3);
            let differ = bad.iter().zip(&good).filter(|(bad, good)| bad != good);
            assert_eq!((bad.len(), differ.count()), (good.len(), changed), "{byte}");
        }
    }
}
