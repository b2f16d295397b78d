//! Checks that acknowledged data survives a crash: entries with a completed callback, and votes. There are two exceptions. The end of a log
//! may be damaged deliberately, which looks like a torn write. A disk may be lost completely.

use std::collections::BTreeMap;

use raft_types::{MemberId, OpId, Vote};

use crate::checkers::Checker;
use crate::checkers::member_log::MemberLog;
use crate::event::{Damage, Event, OpenedLog, Seen};
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct DurableSurvives {
    stores: BTreeMap<MemberId, Store>,
}

#[derive(Default)]
struct Store {
    log: MemberLog,
    durable: Option<OpId>,
    vote: Option<Vote>,
}

impl Store {
    fn truncated(&mut self, keep: Option<OpId>) {
        self.log.truncate(keep);
        self.durable = match (self.durable, keep) {
            (Some(durable), Some(keep)) if keep.index < durable.index => Some(keep),
            (durable, Some(_)) => durable,
            (_, None) => None,
        };
    }

    fn began(&mut self, before: OpId) {
        self.log.begin(before);
        let log = &self.log;
        self.durable = self.durable.filter(|last| log.get(last.index).is_some());
    }

    fn opened(
        &mut self,
        member: MemberId,
        opened: &OpenedLog,
        damage: Damage,
    ) -> Result<(), String> {
        let OpenedLog {
            floor,
            entries,
            vote,
        } = opened;
        let found: BTreeMap<u64, &Seen> = entries
            .iter()
            .map(|entry| (entry.op_id.index, entry))
            .collect();
        let lost = self
            .log
            .iter()
            .take_while(|entry| {
                self.durable
                    .is_some_and(|durable| entry.op_id.index <= durable.index)
            })
            .filter(|entry| floor.is_none_or(|floor| entry.op_id.index > floor.index))
            .find(|entry| found.get(&entry.op_id.index) != Some(entry));
        let lost = lost.filter(|_| damage == Damage::None);
        let forgotten = self
            .vote
            .filter(|acknowledged| vote.is_none_or(|vote| vote < *acknowledged))
            .filter(|_| damage != Damage::Wiped);
        let verdict = match (lost, forgotten) {
            (Some(entry), _) => Err(format!(
                "member {member} had acknowledged {entry:?} as durable, and starts with {} in its place; its log ends with {}",
                found
                    .get(&entry.op_id.index)
                    .map_or_else(|| "nothing".to_owned(), |found| format!("{found:?}")),
                entries
                    .last()
                    .map_or_else(|| "nothing".to_owned(), |last| format!("{last:?}")),
            )),
            (None, Some(acknowledged)) => Err(format!(
                "member {member} had acknowledged the vote {acknowledged}, and starts with {vote:?}"
            )),
            (None, None) => Ok(()),
        };
        self.log.replace(*floor, entries.clone());
        self.durable = self.log.last();
        self.vote = *vote;
        verdict
    }
}

impl Checker for DurableSurvives {
    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Appended { member, entries } => {
                let store = self.stores.entry(*member).or_default();
                let entries = entries.iter().cloned();
                entries.for_each(|entry| store.log.push(entry));
            }
            Event::Durable { member, upto } => {
                let store = self.stores.entry(*member).or_default();
                // If the entry was truncated and rewritten before its callback arrived, the new entry has a callback of its own.
                let entry = store.log.get(upto.index);
                if entry.is_some_and(|entry| entry.op_id == *upto) {
                    store.durable = store.durable.max(Some(*upto));
                }
            }
            Event::Truncated { member, keep } | Event::CutBack { member, keep } => {
                self.stores.entry(*member).or_default().truncated(*keep);
            }
            Event::Began { member, before, .. } => {
                self.stores.entry(*member).or_default().began(*before);
            }
            Event::Voted { member, vote } => {
                self.stores.entry(*member).or_default().vote = Some(*vote);
            }
            Event::Opened {
                member,
                log,
                damage,
            } => {
                let store = self.stores.entry(*member).or_default();
                return store.opened(*member, log, *damage);
            }
            _ => {}
        }
        Ok(())
    }
}
