//! A disk that is lost as a whole. The machine comes back with an empty one and the configuration that it had; the operator
//! removes the member and adds another one in its place, under a number that was never used, as the documentation says. On the way he
//! tries the old number again: that has to be refused, as long as the member is in the list and behind it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consensus::Member;
use openraft::ChangeMembers;
use raft_types::{Incarnation, MemberId, MemberRecord};
use testkit::disk::{FaultyDisk, Survival};

use super::World;
use super::playing::Undo;
use super::slot::Slot;
use crate::event::Event;
use crate::faults::Crash;
use crate::member::{DiskPace, Seat};
use crate::mutation::Mutation;
use crate::record::Record;

/// How often the operator goes on where he was, at most.
const TRIES: u32 = 12;
/// How long he waits in between.
const AGAIN: Duration = Duration::from_millis(600);
/// How long the engine may take for what the product would have refused.
const PATIENCE: Duration = Duration::from_millis(500);
/// From the number of a lost member to that of the one that comes in its place.
const NEXT_NUMBERS: u64 = 100;

/// A member whose disk was lost, and the one that takes its place. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Replacement {
    lost: MemberId,
    new: MemberId,
    tries: u32,
    done: Arc<Mutex<Done>>,
}

#[derive(Debug, Default)]
struct Done {
    /// The ring has, or had, the lost one as a member.
    listed: bool,
    removed: bool,
    added: bool,
}

impl Replacement {
    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World {
    /// The member loses its disk, and the leader dies beside it, if it is to.
    pub(super) fn wipe(&mut self, member: MemberId, leader_down: Option<Duration>) {
        // Another disk may have gone meanwhile.
        if !self.may_lose_bits().contains(&member) {
            return;
        }
        // It will be removed.
        self.removals = true;
        let leader = self.leader();
        if let Some(slot) = self.slots.get_mut(&member) {
            slot.wipe(&self.record);
        }
        if let Some(down) = leader_down
            && let Some(leader) = leader.filter(|leader| *leader != member)
            && let Some(slot) = self.slots.get_mut(&leader)
        {
            slot.crash = Some(Crash::PowerCut(Survival::Nothing));
            slot.down_for = Some(down);
            slot.fall();
        }
        let replacement = Replacement {
            lost: member,
            new: MemberId(member.0 + NEXT_NUMBERS),
            tries: TRIES,
            done: Arc::default(),
        };
        let noticed = Duration::from_millis(self.dice.u64(200..3_000));
        self.later(noticed, Undo::Replace(replacement));
    }

    /// The operator does what is left to do.
    pub(super) fn replace(&mut self, mut replacement: Replacement) {
        let Some(new) = self.machine_for(&replacement) else {
            return;
        };
        replacement.tries -= 1;
        if replacement.tries > 0 && !replacement.done().added {
            self.later(AGAIN, Undo::Replace(replacement.clone()));
        }
        let forgets = self.mutation == Some(Mutation::ForgetUsedNumbers);
        let Some(leader) = self.leader_process() else {
            return;
        };
        let (record, removed) = (self.record.clone(), self.removed.clone());
        leader.spawn(|leading| async move {
            let lost = replacement.lost;
            // One that was to be a member may never have become one.
            let lists = leading.status().ring_view.members;
            let lists = lists.iter().any(|standing| standing.id == lost);
            replacement.done().listed |= lists;
            let was_a_member = replacement.done().listed;
            if was_a_member && !replacement.done().removed {
                use_again(&leading, lost, &new, false, &record).await;
                let outcome = leading.remove_member(lost).await;
                record.note(&format!(
                    "member {} removes {lost}, whose disk is gone: {outcome:?}",
                    leading.id()
                ));
                if outcome.is_err() {
                    return;
                }
                replacement.done().removed = true;
                let mut removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
                removed.push(lost);
            }
            if was_a_member {
                use_again(&leading, lost, &new, forgets, &record).await;
            }
            let id = replacement.new;
            let outcome = leading.add_member(id, new).await;
            record.note(&format!(
                "member {} adds {id} in the place of {lost}: {outcome:?}",
                leading.id()
            ));
            replacement.done().added |= outcome.is_ok();
        });
    }

    /// The new machine, which runs: the record of its member.
    fn machine_for(&mut self, replacement: &Replacement) -> Option<MemberRecord> {
        let id = replacement.new;
        if let Some(slot) = self.slots.get(&id) {
            return Some(slot.seat.record.clone());
        }
        let mut shape = self.shape.members.get(&replacement.lost)?.clone();
        let lost = &self.slots.get(&replacement.lost)?.seat;
        shape.spare = false;
        shape.record = MemberRecord {
            name: format!("member-{id}"),
            address: format!("simulated:{id}"),
            incarnation: Incarnation::random(),
            ..shape.record
        };
        let disk = FaultyDisk::new();
        disk.stop_recording();
        let seat = Seat {
            id,
            record: shape.record.clone(),
            disk,
            pace: DiskPace::new(self.usual_sync),
            ..lost.clone()
        };
        let (record, region) = (shape.record.clone(), shape.record.region.clone());
        self.post.links(|links| links.join(id, region));
        self.shape.members.insert(id, shape);
        let mut slot = Slot::new(seat);
        slot.start(&self.post, &self.record, self.now);
        self.slots.insert(id, slot);
        Some(record)
    }
}

/// Adds a member under a number that was used, with another disk. With the numbers forgotten, past what the product looks at.
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
        false => leading.add_member(used, new.clone()).await.is_ok(),
    };
    if taken {
        let (member, by) = (used, leading.id());
        record.saw(&Event::UsedNumberTaken { member, by });
    }
}
