//! Checks log matching: two entries with the same term and index have the same contents, and follow the same entry. The logs before them
//! are then equal as well. The check covers appended entries, and entries read after a restart, so that it also detects unnoticed bit
//! flips.

use std::collections::{BTreeMap, HashMap};

use raft_types::{MemberId, OpId};

use crate::checkers::Checker;
use crate::checkers::member_log::MemberLog;
use crate::event::{Content, Event, OpenedLog, Seen};
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct LogsMatch {
    logs: BTreeMap<MemberId, MemberLog>,
    known: HashMap<OpId, Known>,
}

struct Known {
    content: Content,
    after: Option<OpId>,
    first_in: MemberId,
}

impl LogsMatch {
    fn appended(&mut self, member: MemberId, entry: &Seen) -> Result<(), String> {
        let log = self.logs.entry(member).or_default();
        let after = log.last();
        if let Some(after) = after
            && (after.index + 1 != entry.op_id.index || after.term > entry.op_id.term)
        {
            return Err(format!(
                "member {member} appends {entry:?} after {after}, which leaves a gap or goes back"
            ));
        }
        log.push(entry.clone());
        let known = self.known.entry(entry.op_id).or_insert_with(|| Known {
            content: entry.content.clone(),
            after,
            first_in: member,
        });
        if known.content != entry.content {
            let (first, was) = (known.first_in, &known.content);
            return Err(format!(
                "entry {} is {:?} on member {member}, but {was:?} on member {first}",
                entry.op_id, entry.content
            ));
        }
        match (known.after, after) {
            (Some(known_after), Some(after)) if known_after != after => Err(format!(
                "entry {} follows {after} on member {member}, but {known_after} on member {}",
                entry.op_id, known.first_in
            )),
            (None, Some(_)) => {
                known.after = after;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn opened(&mut self, member: MemberId, opened: &OpenedLog) -> Result<(), String> {
        for entry in &opened.entries {
            let Some(known) = self.known.get(&entry.op_id) else {
                return Err(format!(
                    "member {member} reads {entry:?} from its disk, which was never appended"
                ));
            };
            if known.content != entry.content {
                return Err(format!(
                    "member {member} reads {entry:?} from its disk, but {:?} was appended",
                    known.content
                ));
            }
        }
        let log = self.logs.entry(member).or_default();
        log.replace(opened.floor, opened.entries.clone());
        Ok(())
    }
}

impl Checker for LogsMatch {
    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Appended { member, entries } => entries
                .iter()
                .try_for_each(|entry| self.appended(*member, entry)),
            Event::Truncated { member, keep } | Event::CutBack { member, keep } => {
                self.logs.entry(*member).or_default().truncate(*keep);
                Ok(())
            }
            Event::Began { member, before, .. } => {
                self.logs.entry(*member).or_default().begin(*before);
                Ok(())
            }
            Event::Opened { member, log, .. } => self.opened(*member, log),
            _ => Ok(()),
        }
    }
}
