//! [`Scenario::ColdDamage`]: log files of a running member are damaged, and another member lacks their entries. The other member waits for
//! them. The damaged member keeps running, and replaces the files by a third member's copies. At the end all members have all entries.
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
use super::playing::both_ways;
use super::slot::{ColdFile, FOR_GOOD, Slot};
use crate::dice::{millis, pick, pick_some};
use crate::faults::{Crash, Fault};
use crate::member::FileRepair;
use crate::shape::Shape;
use crate::workload::Workload;

/// Time limit for clients to write the files that a member will lack.
const TIME_TO_WRITE: Duration = Duration::from_secs(20);
/// Time limit, in addition to an election, until a damaged file is replaced and the other member has its entries. It covers several
/// attempts to copy the file, and a pause of the stream after each.
const TIME_TO_MEND: Duration = Duration::from_secs(20);
/// Size of a sector, in bytes. A disk loses a sector as a whole.
const SECTOR: usize = 512;

/// Why a member does not receive the others' entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Absence {
    Killed,
    CutOff,
    Paused,
}

/// The progress of a member's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Front {
    /// The file to which the log is appended.
    file: FileNumber,
    durable: u64,
    committed: u64,
}

/// Makes clients write many files, and makes the logs cache little of them.
pub(super) fn with_cold_files(shape: &mut Shape, workload: &mut Workload, dice: &mut Rng) {
    workload.write_pause = millis(dice, 40..120);
    workload.rotate_one_in = dice.u32(4..9);
    for member in shape.members.values_mut() {
        member.log.cache_bytes = *pick(dice, &[1, 2 << 10]);
    }
}

/// Chooses how damaged files are found. In two of five rings the members scrub, at different rates. In the others, a member finds damage
/// when another one needs the entries.
pub(super) fn file_repair(dice: &mut Rng) -> FileRepair {
    let pause = *pick(dice, &[None, None, None, Some(200), Some(1_000)]);
    FileRepair {
        scrub_every: pause.map(Duration::from_millis),
    }
}

impl World {
    /// If the members scrub, waits until all damaged files are replaced.
    pub(super) fn scrubs_find_the_rest(&mut self) {
        if self.scrubs() {
            self.wait_until("damaged files are not replaced", TIME_TO_MEND, |world| {
                let mut slots = world.slots.values();
                slots.all(|slot| slot.is_lost() || !slot.has_cold_damage())
            });
        }
    }

    fn scrubs(&self) -> bool {
        self.file_repair
            .is_some_and(|how| how.scrub_every.is_some())
    }

    pub(super) fn damage_entries_that_a_member_lacks(&mut self) {
        self.wait_for_leader(None);
        let Some((leader, term)) = self.serving() else {
            return;
        };
        let Some(lacking) = self.one_to_spare(&[leader]) else {
            self.steps(Duration::from_secs(1));
            return;
        };
        let absences = [Absence::Killed, Absence::CutOff, Absence::Paused];
        let absence = *pick(&mut self.dice, &absences);
        let first = self.front(leader).map(|front| front.file);
        self.take_away(lacking, absence);
        if let Some(first) = first
            && let Some(settled) = self.wait_for_files(leader, lacking, first)
            && self.serving() == Some((leader, term))
        {
            // If the leader is the only voter and is disconnected, its writes have no other copy.
            let others = self.all_but(&[leader, lacking]).into_iter();
            let copied = others
                .filter_map(|id| self.front(id))
                .map(|front| front.file);
            let end = copied.max().map_or(0, |copied| copied.min(settled).get());
            self.damage_a_file(leader, first.get() + 1..end);
            // If the members scrub, damage is found even if no member lacks the file.
            if self.scrubs()
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
            "member {lacking} lacks what is in a damaged file of member {leader} ({disturbance}), or no member commits"
        );
        self.wait_until(&otherwise, allowed, |world| {
            let front = world.front(lacking);
            let has = front.is_some_and(|front| front.committed >= goal);
            has && world.record.counts().acknowledged > before
        });
        let slots = self.slots.values_mut();
        slots.for_each(Slot::forget_replaced_files);
    }

    /// Returns a random member that the ring can lose. None of its own files is damaged.
    fn one_to_spare(&mut self, but: &[MemberId]) -> Option<MemberId> {
        let mut may = self.may_lose_bits();
        may.retain(|id| !but.contains(id) && !self.slots[id].has_cold_damage());
        pick_some(&mut self.dice, &may)
    }

    fn front(&self, member: MemberId) -> Option<Front> {
        let process = self.process(member)?;
        Some(Front {
            file: process.log().current_file().number,
            durable: process.log().durable()?.index,
            committed: process.outline().committed?.index,
        })
    }

    /// Waits until the leader has written some more files, and all their entries are committed and applied. Only a stream to another member
    /// still reads these files. Returns the file after them.
    fn wait_for_files(
        &mut self,
        leader: MemberId,
        lacking: MemberId,
        first: FileNumber,
    ) -> Option<FileNumber> {
        let more = self.dice.u64(3..7);
        let leads = |world: &Self| world.serving().map(|(id, _)| id) == Some(leader);
        self.wait_until("no client writes", TIME_TO_WRITE, |world| {
            let front = world.front(leader);
            !leads(world)
                || world.no_member_can_write_without(lacking)
                || front.is_some_and(|front| front.file.get() >= first.get() + more)
        });
        let written = self.front(leader)?;
        self.wait_until("no member commits", TIME_TO_WRITE, |world| {
            let front = world.front(leader);
            !leads(world) || front.is_some_and(|front| front.committed >= written.durable)
        });
        Some(written.file)
    }

    /// Returns whether all other database members are lost. Members that were down when this one was chosen may still be down.
    fn no_member_can_write_without(&self, lacking: MemberId) -> bool {
        self.slots.iter().all(|(id, slot)| {
            *id == lacking || slot.is_lost() || slot.setup.record.kind == MemberKind::Witness
        })
    }

    fn take_away(&mut self, member: MemberId, absence: Absence) {
        self.record.fault(&format!("FAULT {member} is {absence:?}"));
        match absence {
            Absence::Killed => self.slot(member).fall_by(Crash::Kill, Some(FOR_GOOD)),
            Absence::Paused => self.pause(member),
            Absence::CutOff => self.cut_links(&both_ways(&[member], &self.others_of(member))),
        }
    }

    fn bring_it_back(&mut self, member: MemberId, absence: Absence) {
        self.record.note(&format!("ENDS {member} is {absence:?}"));
        let now = self.now;
        match absence {
            Absence::Killed => self.slot(member).start_at = Some(now),
            Absence::Paused => self.resume(member),
            Absence::CutOff => {
                self.restore_links_between(&both_ways(&[member], &self.others_of(member)))
            }
        }
    }

    fn others_of(&self, member: MemberId) -> Vec<MemberId> {
        let others = self.slots.keys().filter(|other| **other != member);
        others.copied().collect()
    }

    /// Damages one of these files of a member's log. Chooses only among files that are intact on all other members.
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
        let good = self.slots[&member].setup.disk.contents(&path);
        let Some(good) = good.filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        let byte = self.dice.usize(0..good.len());
        let bad = damaged(&good, byte, self.dice.bool(), self.dice.u8(0..8));
        self.record.fault(&format!(
            "FAULT {} of member {member} ({} bytes) is damaged at {byte}",
            path.display(),
            good.len()
        ));
        let slot = self.slot(member);
        slot.setup.disk.set_contents(&path, bad);
        slot.cold.push(ColdFile { path, good });
    }

    /// In some runs, injects another fault before the damaged file is replaced. Returns the fault as text.
    fn disturb(&mut self, leader: MemberId, lacking: MemberId) -> String {
        let kind = self.dice.u32(0..8);
        if kind > 3 {
            return "no other fault".to_owned();
        }
        let after_calls = if kind == 3 { self.dice.u64(1..60) } else { 0 };
        let after = millis(&mut self.dice, 0..2_000);
        self.steps(after);
        let time = millis(&mut self.dice, 100..2_000);
        let primaries = self.primaries();
        let fault = match kind {
            0 => pick_some(&mut self.dice, &primaries).map(Fault::Transfer),
            // Kills another member that has a good copy.
            1 => self
                .one_to_spare(&[leader, lacking])
                .map(|member| Fault::crash(member, Crash::Kill, time)),
            2 => Some(Fault::Cut(vec![leader], self.all_but(&[leader]), time)),
            // Cuts the leader's power during the repair, or at some other time.
            _ => {
                let crash = Crash::PowerCut(Survival::Seeded(self.dice.u64(..)));
                let fault = Fault::Crash(leader, crash, after_calls, time);
                // Only if the ring can lose the leader, which may refuse to start with a damaged file: see `Slot::start`.
                self.may_lose_bits().contains(&leader).then_some(fault)
            }
        };
        let words = format!("{fault:?}");
        if let Some(fault) = fault {
            self.play(fault);
        }
        words
    }
}

impl Slot {
    /// Returns whether a log file of this member is damaged.
    pub(super) fn has_cold_damage(&self) -> bool {
        let mut cold = self.cold.iter();
        cold.any(|file| file.is_damaged(&self.setup.disk))
    }

    fn has_cold_damage_in(&self, path: &Path) -> bool {
        let mut here = self.cold.iter().filter(|file| file.path == path);
        here.any(|file| file.is_damaged(&self.setup.disk))
    }

    /// Forgets the damage of files that were replaced. A replaced file stays replaced while its disk is on.
    fn forget_replaced_files(&mut self) {
        let disk = &self.setup.disk;
        if !disk.is_off() {
            self.cold.retain(|file| file.is_damaged(disk));
        }
    }
}

/// Returns the file with one bit flipped, or with the sector around an offset set to zeros.
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
    fn damage_is_within_one_sector() {
        let good: Vec<u8> = (0..1_300).map(|at| (at / SECTOR) as u8).collect();
        for (byte, whole_sector, changed) in [
            (7, false, 1),
            (1_299, false, 1),
            // The loss of a sector that contains only zeros changes nothing.
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
