//! The loss of a whole disk. The host returns with an empty disk and its old configuration. As documented, the operator removes the member,
//! and adds another one under an unused number. In between, the operator tries the old number again. The ring must refuse this, both while
//! the member is in the ring and afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use openraft::ChangeMembers;
use raft_types::{Incarnation, MemberId, MemberRecord};
use ring_admin::Member;
use testkit::disk::Survival;

use crate::dice::millis;
use crate::event::{Damage, Event};
use crate::faults::Crash;
use crate::member::{DiskPace, ProcessSetup, RealTransport};
use crate::mutation::Mutation;
use crate::record::Record;
use crate::shared::Shared;
use crate::world::slot::Slot;
use crate::world::{World, empty_disk};

/// Maximum number of the operator's attempts.
const TRIES: u32 = 12;
/// Pause between two attempts of the operator.
const AGAIN: Duration = Duration::from_millis(600);
/// Time limit for openraft to carry out a change that the product would have refused.
const PATIENCE: Duration = Duration::from_millis(500);
/// The number of a replacement is the number of the lost member plus this.
const NEXT_NUMBERS: u64 = 100;

/// A member that has lost its disk, and its replacement. Clones share the state.
#[derive(Clone)]
struct Replacement {
    lost: MemberId,
    new: MemberId,
    tries: u32,
    done: Shared<Done>,
}

#[derive(Default)]
struct Done {
    /// True if the ring's membership contains the lost member, or has contained it.
    listed: bool,
    removed: bool,
    added: bool,
}

impl World {
    /// Makes the member lose its disk. With `leader_down`, the leader loses its power for that time.
    pub(super) fn wipe(&mut self, member: MemberId, leader_down: Option<Duration>) {
        // In the meantime another member may have lost its disk, so that the ring could not bear this loss.
        if !self.may_lose_bits().contains(&member) {
            return;
        }
        // The operator will remove the member.
        self.removals = true;
        let leader = self.leader();
        let record = self.record.clone();
        self.slot(member).wipe(&record);
        if let Some(down) = leader_down {
            self.another_loses_power(leader, member, down);
        }
        let replacement = Replacement {
            lost: member,
            new: MemberId(member.0 + NEXT_NUMBERS),
            tries: TRIES,
            done: Shared::default(),
        };
        let noticed = millis(&mut self.dice, 200..3_000);
        self.later(noticed, |world| world.replace(replacement));
    }

    fn another_loses_power(&mut self, leader: Option<MemberId>, but: MemberId, down: Duration) {
        if let Some(leader) = leader.filter(|leader| *leader != but) {
            let cut = Crash::PowerCut(Survival::Nothing);
            self.slot(leader).fall_by(cut, Some(down));
        }
    }

    /// Continues the replacement: removes the lost member, and adds the new one. Repeats until both are done.
    fn replace(&mut self, mut replacement: Replacement) {
        let Some(new) = self.machine_for(&replacement) else {
            return;
        };
        replacement.tries -= 1;
        if replacement.tries > 0 && !replacement.done.lock().added {
            let again = replacement.clone();
            self.later(AGAIN, |world| world.replace(again));
        }
        let forgets = self.mutation == Some(Mutation::ForgetUsedNumbers);
        let Some(leader) = self.leader_process() else {
            return;
        };
        let (record, removed) = (self.record.clone(), self.removed.clone());
        leader.spawn(|leading| async move {
            let lost = replacement.lost;
            // The lost member may have been added so recently that the membership never contained it.
            let lists = leading.status().ring_view.members;
            let lists = lists.iter().any(|standing| standing.id == lost);
            replacement.done.lock().listed |= lists;
            let was_a_member = replacement.done.lock().listed;
            if was_a_member && !replacement.done.lock().removed {
                use_again(&leading, lost, &new, false, &record).await;
                let outcome = leading.remove_member(lost, "anna").await;
                record.note(&format!(
                    "member {} removes {lost}, whose disk is gone: {outcome:?}",
                    leading.id()
                ));
                if outcome.is_err() {
                    return;
                }
                replacement.done.lock().removed = true;
                removed.lock().push(lost);
            }
            if was_a_member {
                use_again(&leading, lost, &new, forgets, &record).await;
            }
            let id = replacement.new;
            let outcome = leading.add_member(id, new, None, "anna").await;
            record.note(&format!(
                "member {} adds {id} in the place of {lost}: {outcome:?}",
                leading.id()
            ));
            replacement.done.lock().added |= outcome.is_ok();
        });
    }

    /// Starts the host of the replacement. Returns the record of its member.
    fn machine_for(&mut self, replacement: &Replacement) -> Option<MemberRecord> {
        let id = replacement.new;
        if let Some(slot) = self.slots.get(&id) {
            return Some(slot.setup.record.clone());
        }
        let mut shape = self.shape.members.get(&replacement.lost)?.clone();
        let lost = &self.slots.get(&replacement.lost)?.setup;
        shape.spare = false;
        shape.record = MemberRecord {
            name: format!("member-{id}"),
            address: format!("simulated:{id}"),
            incarnation: Incarnation::random(),
            ..shape.record
        };
        let setup = ProcessSetup {
            id,
            record: shape.record.clone(),
            disk: empty_disk(),
            pace: DiskPace::new(self.usual_sync),
            transport: self
                .streams
                .clone()
                .map(|streams| RealTransport::new(streams, lost.ring, id, &shape.record)),
            ..lost.clone()
        };
        let (record, region) = (shape.record.clone(), shape.record.region.clone());
        self.queue.links(|links| links.regions.insert(id, region));
        self.shape.members.insert(id, shape);
        let mut slot = Slot::new(setup);
        slot.start(&self.queue, &self.record, self.now);
        self.slots.insert(id, slot);
        Some(record)
    }
}

/// Tries to add a member with another disk under a used number, which must be refused. `forgets`: bypasses the product's checks, for a
/// mutation.
async fn use_again(
    leading: &Member,
    used: MemberId,
    new: &MemberRecord,
    forgets: bool,
    record: &Record,
) {
    let taken = match forgets {
        true => {
            let nodes = ChangeMembers::AddNodes(BTreeMap::from([(used, new.clone())]));
            let change = leading.engine().change_membership(nodes, true);
            matches!(tokio::time::timeout(PATIENCE, change).await, Ok(Ok(_)))
        }
        false => leading
            .add_member(used, new.clone(), None, "anna")
            .await
            .is_ok(),
    };
    if taken {
        let (member, by) = (used, leading.id());
        record.saw(&Event::UsedNumberTaken { member, by });
    }
}

// Bit rot: the disks that may rot, and the position of the bit.

/// A bit is flipped within this many bytes at the end of a log. They belong to the last entry, because an entry's marker alone is longer.
const LAST_BYTES: u64 = 60;

/// The directory of a member's log files.
pub(super) const LOG_DIR: &str = "data/log";
/// The index file in the log directory.
const INDEX: &str = "binlog.index";

impl World {
    /// Returns the members that the ring can lose. Without such a member, each voter set in any log and the voters of each region keep a
    /// majority, and a database member can lead.
    pub(super) fn may_lose_bits(&self) -> Vec<MemberId> {
        if self.removals || self.leader().is_none() {
            return Vec::new();
        }
        // All logs count, because a leader's last quorum step may never be committed. Then the previous voter sets decide.
        let running = self.slots.values().filter_map(Slot::process);
        let views = running.map(|process| process.with(|member| member.status().ring_view));
        let mut sets: Vec<_> = views.flat_map(|view| view.voter_sets).collect();
        for slot in self.slots.values() {
            let region = &slot.setup.record.region;
            let voters = self.slots.iter().filter(|(_, other)| {
                !other.absent && other.setup.record.votes && other.setup.record.region == *region
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

    /// Keeps only members with closed files of a log.
    pub(super) fn with_closed_files(&self, mut members: Vec<MemberId>) -> Vec<MemberId> {
        // The last file and the file before it do not count; the last one may end in a torn write.
        members.retain(|id| log_files(&self.slots[id]).len() > 2);
        members
    }

    /// Kills the member, flips a bit of its last write, and then cuts the leader's power.
    pub(super) fn rot_tail(&mut self, member: MemberId, place: u64, down: Duration) {
        let leader = self.leader();
        let file = self.kill_and_list(member).pop();
        let last_bit = |size: u64| {
            let byte = size.saturating_sub(1 + place % LAST_BYTES);
            (byte, (place >> 8) as u8 % 8)
        };
        self.flip_bit(member, file, Damage::Tail, last_bit);
        self.another_loses_power(leader, member, down);
    }

    /// Kills the member. Returns the files of its log.
    fn kill_and_list(&mut self, member: MemberId) -> Vec<PathBuf> {
        let slot = self.slot(member);
        slot.fall_by(Crash::Kill, None);
        log_files(slot)
    }

    /// Flips a bit of a file. The file's size determines the range of the position.
    fn flip_bit(
        &mut self,
        member: MemberId,
        file: Option<PathBuf>,
        damage: Damage,
        place: impl FnOnce(u64) -> (u64, u8),
    ) {
        let (Some(file), Some(slot)) = (file, self.slots.get_mut(&member)) else {
            return;
        };
        let disk = &slot.setup.disk;
        let size = disk.contents(&file).map_or(0, |bytes| bytes.len()) as u64;
        let (byte, bit) = place(size);
        let turned = disk.flip_bit(&file, byte, bit);
        self.record.note(&format!(
            "bit {bit} of byte {byte} of {} ({size} bytes) on member {member}: {turned}",
            file.display()
        ));
        if turned {
            (slot.damaged, slot.damage) = (true, damage);
        }
    }

    /// Kills the member, and flips a bit in a closed file of its log.
    pub(super) fn rot(&mut self, member: MemberId, place: u64) {
        let mut files = self.kill_and_list(member);
        files.pop();
        let file = files.get(place as usize % files.len().max(1)).cloned();
        self.flip_bit(member, file, Damage::Closed, |size| {
            let bit = (place >> 8) % (size * 8).max(1);
            (bit / 8, (bit % 8) as u8)
        });
    }
}

/// Returns the files of a log in order, as its index lists them. A file that was purged during a read still exists, but does not belong to
/// the log.
fn log_files(slot: &Slot) -> Vec<PathBuf> {
    let index = slot.setup.disk.contents(&Path::new(LOG_DIR).join(INDEX));
    let index = String::from_utf8_lossy(&index.unwrap_or_default()).into_owned();
    let named: BTreeSet<&str> = index
        .lines()
        .map(|line| line.trim_start_matches("./"))
        .collect();
    let files = slot.setup.disk.files(Path::new(LOG_DIR));
    let belongs = |file: &PathBuf| {
        let name = file.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| named.contains(&*name))
    };
    files.into_iter().filter(belongs).collect()
}
