//! Disks that rot: which may, and where the bit is turned around.

use std::path::{Path, PathBuf};

use raft_types::{MemberId, MemberKind};

use super::World;
use crate::faults::Crash;

/// Where the log's files of a member stand on its disk.
const LOG_DIR: &str = "data/log";

impl World {
    /// The members whose loss leaves a majority of all, and a database member that can lead.
    pub(super) fn may_rot(&self) -> Vec<MemberId> {
        let lost = self.slots.values().filter(|slot| slot.damaged).count();
        let voters = self.slots.len();
        if (lost + 1) * 2 >= voters {
            return Vec::new();
        }
        let databases = |without: MemberId| {
            self.slots.iter().any(|(id, slot)| {
                *id != without && !slot.damaged && slot.seat.record.kind == MemberKind::Database
            })
        };
        let fit = self.slots.iter().filter(|(id, slot)| {
            slot.is_running()
                && !slot.damaged
                && databases(**id)
                && self.closed_files(slot).len() > 1
        });
        fit.map(|(id, _)| *id).collect()
    }

    /// The log's files but the last one, which may end in a torn write.
    fn closed_files(&self, slot: &super::Slot) -> Vec<PathBuf> {
        let files = slot.seat.disk.files(Path::new(LOG_DIR));
        let numbered = files.into_iter().filter(|file| {
            file.extension()
                .is_some_and(|extension| extension.to_string_lossy().parse::<u64>().is_ok())
        });
        let mut numbered: Vec<PathBuf> = numbered.collect();
        numbered.pop();
        numbered
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
        }
    }
}
