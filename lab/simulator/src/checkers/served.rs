//! Checks that no uncommitted or stale data is served. A member that claims to serve answers a read with its commit index. The entry at
//! that index must be committed permanently. The index must cover all entries acknowledged to any client before the read, unless an
//! operator gave them up in a repair.

use std::collections::BTreeMap;

use raft_types::{MemberId, OpId};

use crate::checkers::Checker;
use crate::checkers::quorums::Repairs;
use crate::event::{Event, Repair};
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct NothingUncommittedIsServed {
    /// The last index acknowledged before the current step. `acknowledged_now` has the last index of that step, because actions within one
    /// step have no order.
    acknowledged_before: u64,
    acknowledged_now: (Tick, u64),
    /// The commit indexes returned by reads.
    served: BTreeMap<u64, (OpId, MemberId)>,
    committed: BTreeMap<u64, OpId>,
    repairs: Repairs,
}

impl NothingUncommittedIsServed {
    fn settle(&mut self, at: Tick) {
        let (moment, index) = self.acknowledged_now;
        if moment < at {
            self.acknowledged_before = self.acknowledged_before.max(index);
        }
    }

    fn acknowledged(&mut self, at: Tick, op_id: OpId) {
        self.settle(at);
        // Members that a repair left out may acknowledge entries until they are notified of the repair.
        if self.repairs.gave_up(op_id) {
            return;
        }
        let (moment, index) = self.acknowledged_now;
        let before = if moment == at { index } else { 0 };
        self.acknowledged_now = (at, op_id.index.max(before));
    }

    fn read(&mut self, at: Tick, member: MemberId, mark: Option<OpId>) -> Result<(), String> {
        self.settle(at);
        // A member that a repair left out serves its own entries until it is notified. The plan asked the operator to switch it off.
        if mark.is_some_and(|mark| self.repairs.gave_up(mark)) {
            return Ok(());
        }
        let stale = self.acknowledged_before;
        if mark.map_or(0, |mark| mark.index) < stale {
            return Err(format!(
                "member {member} serves a read at {}, although index {stale} had been acknowledged before",
                mark.map_or_else(|| "an empty log".to_owned(), |mark| mark.to_string())
            ));
        }
        let Some(mark) = mark else {
            return Ok(());
        };
        self.served.insert(mark.index, (mark, member));
        self.compare(mark.index)
    }

    fn compare(&self, index: u64) -> Result<(), String> {
        match (self.served.get(&index), self.committed.get(&index)) {
            (Some((served, by)), Some(committed))
                if served != committed
                    && !self.repairs.replaced(*served, *committed)
                    && !self.repairs.replaced(*committed, *served) =>
            {
                Err(format!(
                    "member {by} served a read at {served}, but committed at that index is {committed}"
                ))
            }
            _ => Ok(()),
        }
    }

    /// Reads need not return entries after the end of the surviving log, even if they were acknowledged.
    fn given_up(&mut self, after: Option<OpId>) {
        let end = after.map_or(0, |after| after.index);
        self.acknowledged_before = self.acknowledged_before.min(end);
        self.acknowledged_now.1 = self.acknowledged_now.1.min(end);
    }
}

impl Checker for NothingUncommittedIsServed {
    fn saw(&mut self, at: Tick, event: &Event) -> Result<(), String> {
        self.repairs.saw(event);
        match event {
            Event::Repaired(Repair {
                after, loss: true, ..
            }) => {
                self.given_up(*after);
                Ok(())
            }
            Event::Acknowledged { op_id, .. } => {
                self.acknowledged(at, *op_id);
                Ok(())
            }
            Event::Read { member, mark } => self.read(at, *member, *mark),
            Event::Committed { entries, .. } => {
                for entry in entries {
                    let first = self.committed.entry(entry.op_id.index);
                    let first = first.or_insert(entry.op_id);
                    if self.repairs.replaced(*first, entry.op_id) {
                        *first = entry.op_id;
                    }
                    self.compare(entry.op_id.index)?;
                }
                Ok(())
            }
            Event::Finished => {
                let lost = self.served.iter().find(|(index, (served, _))| {
                    !self.repairs.gave_up(*served) && !self.committed.contains_key(index)
                });
                lost.map_or(Ok(()), |(_, (served, by))| {
                    Err(format!(
                        "member {by} served a read at {served}, which no log has as committed at the end"
                    ))
                })
            }
            _ => Ok(()),
        }
    }
}
