//! Checks that no acknowledged entry is lost. A transaction that was acknowledged to a client stays in the ring's log with the same op id,
//! unless an operator gave it up in a quorum repair. A transaction that was refused to a client is never committed.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, OpId};

use crate::checkers::Checker;
use crate::checkers::quorums::Repairs;
use crate::event::{Content, Digest, Event, Seen};
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct NothingAcknowledgedIsLost {
    /// The acknowledged transactions, by index.
    acknowledged: BTreeMap<u64, Acknowledged>,
    committed: BTreeMap<u64, Seen>,
    refused: BTreeSet<Digest>,
    repairs: Repairs,
}

#[derive(Clone)]
struct Acknowledged {
    op_id: OpId,
    content: Content,
    by: MemberId,
}

impl Acknowledged {
    fn compare(&self, committed: &Seen, repairs: &Repairs) -> Result<(), String> {
        let (mine, theirs) = (self.op_id, committed.op_id);
        // The ring that continues after a repair may acknowledge an entry before the checker sees any member commit it.
        let given_up = repairs.replaced(mine, theirs) || repairs.replaced(theirs, mine);
        if given_up || self.op_id == committed.op_id && self.content == committed.content {
            return Ok(());
        }
        Err(format!(
            "member {} acknowledged {} ({:?}), but committed at that index is {committed:?}",
            self.by, self.op_id, self.content
        ))
    }
}

impl NothingAcknowledgedIsLost {
    fn acknowledged(&mut self, acknowledged: &Acknowledged) -> Result<(), String> {
        // Members that a repair left out may acknowledge entries until they are notified of the repair.
        if self.repairs.gave_up(acknowledged.op_id) {
            return Ok(());
        }
        let index = acknowledged.op_id.index;
        if let Some(earlier) = self.acknowledged.get(&index)
            && (earlier.op_id, &earlier.content) != (acknowledged.op_id, &acknowledged.content)
            && !self.repairs.replaced(earlier.op_id, acknowledged.op_id)
        {
            return Err(format!(
                "members {} and {} acknowledged different transactions, {} and {}, at index {index}",
                earlier.by, acknowledged.by, earlier.op_id, acknowledged.op_id
            ));
        }
        self.acknowledged.insert(index, acknowledged.clone());
        let committed = self.committed.get(&index);
        committed.map_or(Ok(()), |entry| acknowledged.compare(entry, &self.repairs))
    }

    fn committed(&mut self, entry: &Seen) -> Result<(), String> {
        let index = entry.op_id.index;
        let first = self.committed.entry(index);
        let first = first.or_insert_with(|| entry.clone());
        if self.repairs.replaced(first.op_id, entry.op_id) {
            *first = entry.clone();
        }
        if let Content::Transaction(digest) = &entry.content
            && self.refused.contains(digest)
        {
            return Err(format!(
                "{entry:?} is committed, although its client received a definite refusal"
            ));
        }
        let acknowledged = self.acknowledged.get(&index);
        acknowledged.map_or(Ok(()), |one| one.compare(entry, &self.repairs))
    }

    /// Checks at the end of the run, after a new commit, that all acknowledged entries exist.
    fn finished(&self) -> Result<(), String> {
        let lost = self.acknowledged.iter().find(|(index, acknowledged)| {
            !self.repairs.gave_up(acknowledged.op_id) && !self.committed.contains_key(index)
        });
        lost.map_or(Ok(()), |(_, lost)| {
            Err(format!(
                "member {} acknowledged {}, which no log has as committed at the end",
                lost.by, lost.op_id
            ))
        })
    }
}

impl Checker for NothingAcknowledgedIsLost {
    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        self.repairs.saw(event);
        match event {
            Event::Acknowledged {
                member,
                op_id,
                content,
            } => self.acknowledged(&Acknowledged {
                op_id: *op_id,
                content: content.clone(),
                by: *member,
            }),
            Event::Refused {
                content: Content::Transaction(digest),
                ..
            } => {
                self.refused.insert(*digest);
                Ok(())
            }
            Event::Committed { entries, .. } => {
                entries.iter().try_for_each(|entry| self.committed(entry))
            }
            Event::Finished => self.finished(),
            _ => Ok(()),
        }
    }
}

// Checks that a committed entry never changes. An entry at or before any member's commit index is the same on all members, also after
// restarts. The exception is an entry that an operator gave up in a repair.

#[derive(Default)]
pub(super) struct CommittedNeverChanges {
    /// The first committed entry at each index, and the member that committed it.
    committed: BTreeMap<u64, (Seen, MemberId)>,
    /// The commit index of each member.
    marks: BTreeMap<MemberId, u64>,
    /// Members that have committed an entry, by its index, that a repair has replaced later.
    outdated: BTreeSet<(MemberId, u64)>,
    repairs: Repairs,
}

impl CommittedNeverChanges {
    fn committed(&mut self, member: MemberId, entry: &Seen) -> Result<(), String> {
        let index = entry.op_id.index;
        let first = self.committed.entry(index);
        let (first, by) = first.or_insert_with(|| (entry.clone(), member));
        if first != entry && self.repairs.replaced(first.op_id, entry.op_id) {
            (*first, *by) = (entry.clone(), member);
            let marks = self.marks.iter().filter(|(_, mark)| **mark >= index);
            self.outdated
                .extend(marks.map(|(other, _)| (*other, index)));
        }
        if first == entry {
            self.outdated.remove(&(member, index));
        }
        // A member that has not rejoined after the repair may still commit the old entry.
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
                .take_while(|(index, _)| keep.is_none_or(|keep| **index > keep.index));
            let frees = |(index, (first, _)): (&u64, &(Seen, MemberId))| {
                self.repairs.frees(first.op_id) || self.outdated.contains(&(member, *index))
            };
            if taken_back.all(frees) {
                *mark = (*mark).min(keep.map_or(0, |keep| keep.index));
            }
        }
        match self.marks.get(&member) {
            Some(&mark) if keep.is_none_or(|keep| keep.index < mark) => Err(format!(
                "member {member} truncates everything after {}, although its commit mark had reached index {mark}",
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
        changed.map_or(Ok(()), |(entry, first)| {
            Err(format!(
                "member {member} reads {entry:?} from its disk, where it had {first:?} as committed"
            ))
        })
    }
}

impl Checker for CommittedNeverChanges {
    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        self.repairs.saw(event);
        match event {
            Event::Committed { member, entries } => entries
                .iter()
                .try_for_each(|entry| self.committed(*member, entry)),
            Event::Truncated { member, keep } | Event::CutBack { member, keep } => {
                self.truncated(*member, *keep)
            }
            Event::Opened { member, log, .. } => self.opened(*member, &log.entries),
            _ => Ok(()),
        }
    }
}
