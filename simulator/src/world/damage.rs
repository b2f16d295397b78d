//! Disks that rot: which may, and where the bit is turned around.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use raft_types::MemberId;
use testkit::disk::Survival;

use super::World;
use super::slot::Slot;
use crate::event::Damage;
use crate::faults::Crash;

/// A bit is turned around in so many bytes at the end of a log, which belong to its last entry: an entry's marker alone is
/// longer.
const LAST_BYTES: u64 = 60;

/// Where the log's files of a member stand on its disk.
pub(super) const LOG_DIR: &str = "data/log";
/// The index of these files in that folder.
const INDEX: &str = "binlog.index";

impl World {
    /// The members whose loss leaves a majority of every voter set in any log and of the voters of every region, and a
    /// database member that can lead.
    pub(super) fn may_lose_bits(&self) -> Vec<MemberId> {
        if self.removals || self.leader().is_none() {
            return Vec::new();
        }
        // Of every log: a leader's last step may never be committed, and then the one before it decides.
        let running = self.slots.values().filter_map(Slot::process);
        let views = running.map(|process| process.with(|member| member.status().ring_view));
        let mut sets: Vec<_> = views.flat_map(|view| view.voter_sets).collect();
        for slot in self.slots.values() {
            let region = &slot.seat.record.region;
            let voters = self.slots.iter().filter(|(_, other)| {
                !other.absent && other.seat.record.votes && other.seat.record.region == *region
            });
            sets.push(voters.map(|(id, _)| *id).collect());
        }
        let lost = |id: &MemberId| self.slots.get(id).is_none_or(|slot| slot.damaged);
        let fit = self.slots.iter().filter(|(id, slot)| {
            let bearable = |set: &BTreeSet<MemberId>| {
                let left = set.iter().filter(|other| other != id && !lost(other));
                !set.contains(id) || left.count() * 2 > set.len()
            };
            slot.is_running()
                && !slot.damaged
                && sets.iter().all(bearable)
                && self.another_can_lead(**id)
        });
        fit.map(|(id, _)| *id).collect()
    }

    /// Those of them that have old parts of a log.
    pub(super) fn with_closed_files(&self, mut members: Vec<MemberId>) -> Vec<MemberId> {
        members.retain(|id| {
            let slot = self.slots.get(id);
            slot.is_some_and(|slot| self.closed_files(slot).len() > 1)
        });
        members
    }

    /// The log's files but the last one, which may end in a torn write.
    fn closed_files(&self, slot: &Slot) -> Vec<PathBuf> {
        let mut files = self.log_files(slot);
        files.pop();
        files
    }

    /// The log's files, in order: those that its index names. One that was purged while it was being read is there still, and
    /// belongs to the log no more.
    fn log_files(&self, slot: &Slot) -> Vec<PathBuf> {
        let index = slot.seat.disk.contents(&Path::new(LOG_DIR).join(INDEX));
        let index = String::from_utf8_lossy(&index.unwrap_or_default()).into_owned();
        let named: BTreeSet<&str> = index
            .lines()
            .map(|line| line.trim_start_matches("./"))
            .collect();
        let files = slot.seat.disk.files(Path::new(LOG_DIR));
        let belongs = |file: &PathBuf| {
            let name = file.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| named.contains(&*name))
        };
        files.into_iter().filter(belongs).collect()
    }

    /// Kills the member, turns one bit of what it wrote last around, and kills the leader.
    pub(super) fn rot_tail(&mut self, member: MemberId, place: u64, down: Duration) {
        let leader = self.leader();
        let Some(slot) = self.slots.get_mut(&member) else {
            return;
        };
        slot.crash = Some(Crash::Kill);
        slot.fall();
        let Some(file) = self
            .slots
            .get(&member)
            .and_then(|slot| self.log_files(slot).pop())
        else {
            return;
        };
        let Some(slot) = self.slots.get_mut(&member) else {
            return;
        };
        let size = slot
            .seat
            .disk
            .contents(&file)
            .map_or(0, |bytes| bytes.len()) as u64;
        let byte = size.saturating_sub(1 + place % LAST_BYTES);
        let turned = slot.seat.disk.flip_bit(&file, byte, (place >> 8) as u8 % 8);
        slot.damaged |= turned;
        if turned {
            slot.damage = Damage::Tail;
        }
        self.record.note(&format!(
            "a bit of byte {byte} of {} ({size} bytes) on member {member}: {turned}",
            file.display()
        ));
        if let Some(leader) = leader.filter(|leader| *leader != member)
            && let Some(slot) = self.slots.get_mut(&leader)
        {
            slot.crash = Some(Crash::PowerCut(Survival::Nothing));
            slot.down_for = Some(down);
            slot.fall();
        }
    }

    /// Kills the member and turns one bit of its log around.
    pub(super) fn rot(&mut self, member: MemberId, place: u64) {
        let Some(slot) = self.slots.get_mut(&member) else {
            return;
        };
        slot.crash = Some(Crash::Kill);
        slot.fall();
        let Some(slot) = self.slots.get(&member) else {
            return;
        };
        let files = self.closed_files(slot);
        let Some(file) = files.get(place as usize % files.len().max(1)) else {
            return;
        };
        let size = slot.seat.disk.contents(file).map_or(0, |bytes| bytes.len());
        let bits = size as u64 * 8;
        let bit = (place >> 8) % bits.max(1);
        let turned = slot.seat.disk.flip_bit(file, bit / 8, (bit % 8) as u8);
        self.record.note(&format!(
            "bit {} of byte {} of {} ({size} bytes) on member {member}: {turned}",
            bit % 8,
            bit / 8,
            file.display()
        ));
        if let Some(slot) = self.slots.get_mut(&member) {
            slot.damaged |= turned;
            if turned {
                slot.damage = Damage::Closed;
            }
        }
    }
}
