//! A committed entry never changes: whatever a member's commit mark has moved over, on any member and across restarts, is
//! the same entry on all of them, for good. But for what an operator gave up in a repair.

use std::collections::BTreeMap;

use raft_types::{MemberId, OpId};

use super::Checker;
use super::repairs::Repairs;
use crate::event::Event;
use crate::seen::Seen;
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct CommittedNeverChanges {
    /// What was committed first at each index, and where.
    committed: BTreeMap<u64, (Seen, MemberId)>,
    /// How far each member's mark has come.
    marks: BTreeMap<MemberId, u64>,
    repairs: Repairs,
}

impl CommittedNeverChanges {
    fn committed(&mut self, member: MemberId, entry: &Seen) -> Result<(), String> {
        let index = entry.op_id.index;
        let first = self.committed.entry(index);
        let (first, by) = first.or_insert_with(|| (entry.clone(), member));
        if first != entry && self.repairs.replaced(first.op_id, entry.op_id) {
            (*first, *by) = (entry.clone(), member);
        }
        // A member that has not come back to the ring yet.
        let left_behind = self.repairs.replaced(entry.op_id, first.op_id);
        if first != entry && !left_behind {
            return Err(format!(
                "member {member} has {entry:?} as committed, but member {by} had {first:?}"
            ));
        }
        let mark = self.marks.entry(member).or_default();
        *mark = (*mark).max(index);
        Ok(())
    }

    fn truncated(&mut self, member: MemberId, keep: Option<OpId>) -> Result<(), String> {
        if let Some(mark) = self.marks.get_mut(&member) {
            let mut taken_back = self
                .committed
                .range(..=*mark)
                .rev()
                .take_while(|(index, _)| keep.is_none_or(|keep| **index > keep.index))
                .map(|(_, (first, _))| first.op_id);
            if taken_back.all(|entry| self.repairs.frees(entry)) {
                *mark = (*mark).min(keep.map_or(0, |keep| keep.index));
            }
        }
        match self.marks.get(&member) {
            Some(&mark) if keep.is_none_or(|keep| keep.index < mark) => Err(format!(
                "member {member} takes back everything behind {}, although its commit mark had come to index {mark}",
                keep.map_or_else(|| "the beginning".to_owned(), |keep| keep.to_string())
            )),
            _ => Ok(()),
        }
    }

    fn opened(&self, member: MemberId, entries: &[Seen]) -> Result<(), String> {
        let Some(&mark) = self.marks.get(&member) else {
            return Ok(());
        };
        let changed = entries
            .iter()
            .filter(|entry| entry.op_id.index <= mark)
            .find_map(|entry| {
                let (first, _) = self.committed.get(&entry.op_id.index)?;
                let (read, was) = (entry.op_id, first.op_id);
                let excused = self.repairs.replaced(read, was) || self.repairs.replaced(was, read);
                (first != entry && !excused).then_some((entry, first))
            });
        match changed {
            Some((entry, first)) => Err(format!(
                "member {member} reads {entry:?} from its disk, where it had {first:?} as committed"
            )),
            None => Ok(()),
        }
    }
}

impl Checker for CommittedNeverChanges {
    fn name(&self) -> &'static str {
        "a committed entry never changes"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        self.repairs.saw(event);
        match event {
            Event::Committed { member, entries } => entries
                .iter()
                .try_for_each(|entry| self.committed(*member, entry)),
            Event::Truncated { member, keep } | Event::CutBack { member, keep } => {
                self.truncated(*member, *keep)
            }
            Event::Opened {
                member, entries, ..
            } => self.opened(*member, entries),
            _ => Ok(()),
        }
    }
}
