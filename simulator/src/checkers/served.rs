//! Nothing un-committed is ever served, and nothing stale: a member that says that it serves answers a read with its
//! commit mark. What stands at that mark is committed for good, and the mark covers everything that any client had been
//! told to be committed before the read began.

use std::collections::BTreeMap;

use raft_types::{MemberId, OpId};

use super::Checker;
use crate::event::Event;
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct NothingUncommittedIsServed {
    /// The last acknowledged index before this moment, and the one of this moment: what members do within one step
    /// has no order.
    acknowledged_before: u64,
    acknowledged_now: (Tick, u64),
    /// What reads saw, by index.
    served: BTreeMap<u64, (OpId, MemberId)>,
    committed: BTreeMap<u64, OpId>,
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
        let (moment, index) = self.acknowledged_now;
        let index = if moment == at {
            index.max(op_id.index)
        } else {
            op_id.index
        };
        self.acknowledged_now = (at, index);
    }

    fn read(&mut self, at: Tick, member: MemberId, mark: Option<OpId>) -> Result<(), String> {
        self.settle(at);
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
            (Some((served, by)), Some(committed)) if served != committed => Err(format!(
                "member {by} served a read at {served}, but committed at that index is {committed}"
            )),
            _ => Ok(()),
        }
    }
}

impl Checker for NothingUncommittedIsServed {
    fn name(&self) -> &'static str {
        "nothing un-committed or stale is served"
    }

    fn saw(&mut self, at: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Acknowledged { op_id, .. } => {
                self.acknowledged(at, *op_id);
                Ok(())
            }
            Event::Read { member, mark } => self.read(at, *member, *mark),
            Event::Committed { entries, .. } => {
                for entry in entries {
                    self.committed
                        .entry(entry.op_id.index)
                        .or_insert(entry.op_id);
                    self.compare(entry.op_id.index)?;
                }
                Ok(())
            }
            Event::Finished => match self
                .served
                .iter()
                .find(|(index, _)| !self.committed.contains_key(index))
            {
                Some((_, (served, by))) => Err(format!(
                    "member {by} served a read at {served}, which no log has as committed at the end"
                )),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
