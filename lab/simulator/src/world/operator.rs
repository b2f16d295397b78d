//! An operator's commands at the leader, or at one member: transfers, promotions, membership changes, purges. They run in a task of that
//! member's process, and the outcome is recorded in the trace.

use std::sync::{Mutex, PoisonError};

use binlog_store::LogHandle;
use consensus::PromotionProgress;
use consensus::quorum::QuorumPolicy;
use raft_types::{FileStarts, MemberId, MemberKind, MemberRecord, OpId};
use tokio::sync::watch;

use super::World;
use super::slot::Slot;
use crate::event::Event;
use crate::member::{Process, RealTransport};
use crate::operations::Operation;
use crate::scenario::Scenario;

/// Removed members that are to be switched off.
pub(super) type Removed = Mutex<Vec<MemberId>>;

impl World {
    pub(super) fn leader_process(&self) -> Option<&Process> {
        self.leader().and_then(|id| self.slots.get(&id)?.process())
    }

    pub(super) fn transfer(&mut self, to: MemberId) {
        let Some(leader) = self.leader_process() else {
            return;
        };
        let record = self.record.clone();
        leader.spawn(|member| async move {
            let outcome = member.transfer_leader(to).await;
            record.note(&format!(
                "member {} gives the leadership to {to}: {outcome:?}",
                member.id()
            ));
        });
    }

    pub(super) fn promote(&mut self, to: MemberId) {
        let Some(leader) = self.leader_process() else {
            return;
        };
        if self.scenario == Some(Scenario::MysqldOperations) {
            let promotes = Operation::Promotes { to };
            self.record.saw(&Event::Operation(promotes));
        }
        let record = self.record.clone();
        leader.spawn(|member| async move {
            let (progress, _) = watch::channel(PromotionProgress::default());
            let outcome = member.promote(to, progress).await;
            record.note(&format!(
                "member {} promotes {to}: {outcome:?}",
                member.id()
            ));
        });
    }

    /// A voter campaigns immediately, as on request; it is never asked while a member serves. A voter that answered a heartbeat has
    /// promised to wait for a lease, so it gets the leadership instead.
    pub(super) fn campaign(&mut self, member: MemberId) {
        let serves = |slot: &Slot| {
            let outline = slot.living().map(Process::outline);
            outline.is_some_and(|outline| outline.leadership.serving_term().is_some())
        };
        if self
            .slots
            .iter()
            .any(|(id, slot)| *id != member && serves(slot))
        {
            self.transfer(member);
            return;
        }
        self.stand(member);
    }

    /// The voter campaigns, unless it is prevented.
    pub(super) fn stand(&mut self, member: MemberId) {
        let Some(process) = self.slots.get(&member).and_then(|slot| slot.process()) else {
            return;
        };
        process.spawn(|member| async move {
            // The answer to a requesting member: `Question::Campaign`.
            if member.stays_out_of_elections().is_some() {
                return;
            }
            // Refused if the engine has stopped.
            let _ = member.engine().trigger().elect(false).await;
        });
    }

    /// Members that never existed.
    pub(super) fn spares(&self) -> Vec<MemberId> {
        let spares = self.shape.members.iter().filter(|(id, member)| {
            member.spare
                && self
                    .slots
                    .get(id)
                    .is_some_and(|slot| slot.absent && slot.is_new())
        });
        spares.map(|(id, _)| *id).collect()
    }

    pub(super) fn add(&mut self, member: MemberId) {
        let now = self.now;
        let mut speaks = None;
        if let Some(slot) = self.slots.get_mut(&member) {
            slot.absent = false;
            slot.start(&self.queue, &self.record, now);
            speaks = slot.setup.transport.as_ref().map(RealTransport::runs);
        }
        let shape = self.shape.members.get(&member);
        let (Some(leader), Some(shape)) = (self.leader_process(), shape) else {
            return;
        };
        let (record, new) = (self.record.clone(), shape.record.clone());
        leader.spawn(|leading| async move {
            let outcome = leading.add_member(member, new, speaks, "anna").await;
            record.note(&format!(
                "member {} adds {member}: {outcome:?}",
                leading.id()
            ));
        });
    }

    /// Voting database members that do not lead; of other regions than the leader's, if there are any.
    pub(super) fn primaries(&self) -> Vec<MemberId> {
        let leader = self.leader();
        let home = leader.and_then(|id| Some(self.slots.get(&id)?.setup.record.region.clone()));
        let fit = self.slots.iter().filter(|(id, slot)| {
            let record = &slot.setup.record;
            let can_lead = record.kind == MemberKind::Database && record.votes && !slot.absent;
            can_lead && Some(**id) != leader
        });
        let (away, near): (Vec<_>, Vec<_>) =
            fit.partition(|(_, slot)| Some(&slot.setup.record.region) != home.as_ref());
        let chosen = if away.is_empty() { near } else { away };
        chosen.into_iter().map(|(id, _)| *id).collect()
    }

    /// Whether there is another voting database member.
    pub(super) fn another_can_lead(&self, member: MemberId) -> bool {
        self.slots.iter().any(|(id, slot)| {
            *id != member && self.may_lead(&slot.setup.record) && !slot.damaged && !slot.absent
        })
    }

    /// Whether a member with this record can be the primary: a voting database member, in a region that the policy counts.
    pub(super) fn may_lead(&self, record: &MemberRecord) -> bool {
        let counts = match &self.shape.rules.policy {
            QuorumPolicy::Regions(regions) | QuorumPolicy::SomeRegions { regions, .. } => {
                regions.contains(&record.region)
            }
            QuorumPolicy::SingleRegionDynamic
            | QuorumPolicy::Majority
            | QuorumPolicy::Unknown(_) => true,
        };
        record.kind == MemberKind::Database && record.votes && counts
    }

    /// Members after whose removal the ring still has a possible primary; none once a disk has rotted.
    pub(super) fn removable(&self) -> Vec<MemberId> {
        if self.slots.values().any(|slot| slot.damaged) {
            return Vec::new();
        }
        let there = self.there().into_iter();
        there.filter(|id| self.another_can_lead(*id)).collect()
    }

    pub(super) fn remove(&mut self, member: MemberId) {
        self.removals = true;
        let Some(leader) = self.leader_process() else {
            return;
        };
        let (record, removed) = (self.record.clone(), self.removed.clone());
        leader.spawn(|leading| async move {
            let outcome = leading.remove_member(member, "anna").await;
            record.note(&format!(
                "member {} removes {member}: {outcome:?}",
                leading.id()
            ));
            if outcome.is_ok() {
                removed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(member);
            }
        });
    }

    /// Switches off removed members.
    pub(super) fn switch_off_removed(&mut self) {
        let removed =
            std::mem::take(&mut *self.removed.lock().unwrap_or_else(PoisonError::into_inner));
        for member in removed {
            if let Some(slot) = self.slots.get_mut(&member) {
                slot.leave();
            }
        }
    }

    pub(super) fn purge(&mut self, member: MemberId, keep: u64, waits: bool) {
        for slot in self.slots.values_mut() {
            slot.note_settled();
        }
        let held_by = |id: &MemberId, slot: &Slot| match waits {
            true => !slot.absent && !slot.is_lost(),
            false => *id == member,
        };
        let members = self.slots.iter().filter(|(id, slot)| held_by(id, slot));
        let settled = members.map(|(_, slot)| slot.settled).min().flatten();
        let Some(process) = self.slots.get(&member).and_then(|slot| slot.process()) else {
            return;
        };
        let Some(upto) = settled.and_then(|index| index.checked_sub(keep)) else {
            return;
        };
        let (record, log) = (self.record.clone(), process.log().clone());
        process.spawn(move |member| async move {
            let Some(upto) = last_file_before(&log, upto).await else {
                return;
            };
            let outcome = member.purge(upto).await;
            record.note(&format!(
                "member {} purges up to {upto}: {outcome:?}",
                member.id()
            ));
        });
    }
}

/// The end of the last file without entries after this index.
pub(super) async fn last_file_before(log: &LogHandle, index: u64) -> Option<OpId> {
    let mut found = None;
    let mut from = log.bounds().map(|(first, _)| first);
    while let Ok(Some(start)) = log.first_start(from).await
        && start.before.index <= index
    {
        found = Some(start.before);
        from = Some(OpId::new(start.before.term, start.before.index + 1));
    }
    found
}
