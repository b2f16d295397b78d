//! An operator's commands to the leader or to one member: transfers, promotions, membership changes, purges. A command runs in a task of
//! that member's process. The trace records its result.

use std::fmt::Debug;

use binlog_store::LogHandle;
use consensus::quorum::QuorumPolicy;
use futures::FutureExt;
use raft_types::{FileStarts, MemberId, MemberKind, MemberRecord, OpId};
use ring_admin::{Member, PromotionProgress};
use tokio::sync::watch;

use super::World;
use super::slot::Slot;
use crate::event::Event;
use crate::member::{Process, RealTransport};
use crate::operations::Operation;
use crate::record::Record;
use crate::scenario::Scenario;
use crate::shared::Shared;

/// The members that were removed and must be switched off.
pub(super) type Removed = Shared<Vec<MemberId>>;

impl World {
    pub(super) fn leader_process(&self) -> Option<&Process> {
        self.process(self.leader()?)
    }

    /// Runs an order at the leader, if there is one, and records the result.
    pub(super) fn order<T, F>(&self, what: String, order: impl FnOnce(Member) -> F)
    where
        T: Debug + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let Some(leader) = self.leader_process() else {
            return;
        };
        let record = self.record.clone();
        leader.spawn(|member| {
            let (id, order) = (member.id(), order(member));
            async move {
                let outcome = order.await;
                record.note(&format!("member {id} {what}: {outcome:?}"));
            }
        });
    }

    /// Sends a request to the leader, if there is one. The answer is set later.
    pub(super) fn ask_leader<T, F>(&self, order: impl FnOnce(Member) -> F) -> Shared<Option<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let answer: Shared<Option<T>> = Shared::default();
        if let Some(leader) = self.leader_process() {
            let tell = answer.clone();
            leader.spawn(|member| order(member).map(move |told| *tell.lock() = Some(told)));
        }
        answer
    }

    pub(super) fn transfer(&mut self, to: MemberId) {
        let what = format!("gives the leadership to {to}");
        self.order(what, move |leader| async move {
            leader.transfer_leader(to).await
        });
    }

    pub(super) fn promote(&mut self, to: MemberId) {
        if self.leader().is_some() && self.scenario == Some(Scenario::MysqldOperations) {
            let promotes = Operation::Promotes { to };
            self.record.saw(&Event::Operation(promotes));
        }
        self.order(format!("promotes {to}"), move |leader| async move {
            let (progress, _) = watch::channel(PromotionProgress::default());
            leader.promote(to, progress).await
        });
    }

    /// Makes a voter campaign immediately, as another member may request. Such a request is never sent while a member serves. A voter that
    /// answered a heartbeat has promised to wait for a lease. So if another member serves, transfers the leadership to this voter instead.
    pub(super) fn campaign(&mut self, member: MemberId) {
        let serves = |slot: &Slot| {
            let outline = slot.living().map(Process::outline);
            outline.is_some_and(|outline| outline.leadership.serving_term().is_some())
        };
        let mut slots = self.slots.iter();
        match slots.any(|(id, slot)| *id != member && serves(slot)) {
            true => self.transfer(member),
            false => self.stand(member),
        }
    }

    /// Makes the voter campaign, unless the product keeps it out of elections.
    pub(super) fn stand(&mut self, member: MemberId) {
        let Some(process) = self.process(member) else {
            return;
        };
        process.spawn(|member| async move {
            // A member that requests a campaign would get the same refusal: `Question::Campaign`.
            if member.stays_out_of_elections().is_some() {
                return;
            }
            // An error means that openraft has stopped.
            let _ = member.engine().trigger().elect(false).await;
        });
    }

    /// Returns members that were never in the ring.
    pub(super) fn spares(&self) -> Vec<MemberId> {
        let is_new = |id: &MemberId| self.slots[id].absent && self.slots[id].is_new();
        let spares = self.shape.members.iter();
        let spares = spares.filter(|(id, member)| member.spare && is_new(id));
        spares.map(|(id, _)| *id).collect()
    }

    pub(super) fn add(&mut self, member: MemberId) {
        let now = self.now;
        let Some(slot) = self.slots.get_mut(&member) else {
            return;
        };
        slot.absent = false;
        slot.start(&self.queue, &self.record, now);
        let speaks = slot.setup.transport.as_ref().map(RealTransport::runs);
        let new = slot.setup.record.clone();
        self.order(format!("adds {member}"), move |leader| async move {
            leader.add_member(member, new, speaks, "anna").await
        });
    }

    /// Returns the voting database members that do not lead. If other regions than the leader's have some, returns only those.
    pub(super) fn primaries(&self) -> Vec<MemberId> {
        let leader = self.leader();
        let home = leader.map(|id| self.slots[&id].setup.record.region.clone());
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

    /// Returns whether there is another voting database member.
    pub(super) fn another_can_lead(&self, member: MemberId) -> bool {
        self.slots.iter().any(|(id, slot)| {
            *id != member && self.may_lead(&slot.setup.record) && !slot.damaged && !slot.absent
        })
    }

    /// Returns whether a member with this record can be the primary: it is a voting database member in a region that counts for the policy.
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

    /// Returns the members that may be removed: afterwards the ring still has a possible primary. Empty if a disk has rotted.
    pub(super) fn removable(&self) -> Vec<MemberId> {
        if self.slots.values().any(|slot| slot.damaged) {
            return Vec::new();
        }
        let there = self.there().into_iter();
        there.filter(|id| self.another_can_lead(*id)).collect()
    }

    pub(super) fn remove(&mut self, member: MemberId) {
        self.removals = true;
        let removed = self.removed.clone();
        self.order(format!("removes {member}"), move |leader| async move {
            let outcome = leader.remove_member(member, "anna").await;
            if outcome.is_ok() {
                removed.lock().push(member);
            }
            outcome
        });
    }

    /// Switches removed members off.
    pub(super) fn switch_off_removed(&mut self) {
        let removed = std::mem::take(&mut *self.removed.lock());
        for member in removed {
            self.slot(member).leave();
        }
    }

    pub(super) fn purge(&mut self, member: MemberId, keep: u64, waits: bool) {
        self.slots.values_mut().for_each(Slot::note_settled);
        let held_by = |id: &MemberId, slot: &Slot| match waits {
            true => !slot.absent && !slot.is_lost(),
            false => *id == member,
        };
        let members = self.slots.iter().filter(|(id, slot)| held_by(id, slot));
        let settled = members.map(|(_, slot)| slot.settled).min().flatten();
        let upto = settled.and_then(|index| index.checked_sub(keep));
        if let (Some(process), Some(upto)) = (self.process(member), upto) {
            let (record, log) = (self.record.clone(), process.log().clone());
            process.spawn(move |member| purge_files(member, log, upto, record));
        }
    }
}

/// Purges the files of a member that contain no entries after this index.
pub(super) async fn purge_files(member: Member, log: LogHandle, index: u64, record: Record) {
    if let Some(upto) = last_file_before(&log, index).await {
        let outcome = member.purge(upto).await;
        let id = member.id();
        record.note(&format!("member {id} purges up to {upto}: {outcome:?}"));
    }
}

/// Returns the last entry of the last file that contains no entries after this index.
async fn last_file_before(log: &LogHandle, index: u64) -> Option<OpId> {
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
