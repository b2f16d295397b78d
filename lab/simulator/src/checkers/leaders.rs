//! Checks that a term has at most one leader, as seen in sent entries and heartbeats, and in stored votes for elected members.

use std::collections::BTreeMap;

use raft_types::MemberId;

use crate::checkers::Checker;
use crate::event::Event;
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct OneLeaderPerTerm {
    leaders: BTreeMap<u64, MemberId>,
}

impl Checker for OneLeaderPerTerm {
    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        let (term, leader) = match event {
            Event::Led { term, leader } => (*term, *leader),
            Event::Voted { vote, .. } if vote.committed => {
                (vote.leader_id.term, vote.leader_id.voted_for)
            }
            _ => return Ok(()),
        };
        let first = *self.leaders.entry(term).or_insert(leader);
        match first == leader {
            true => Ok(()),
            false => Err(format!(
                "members {first} and {leader} both lead term {term}"
            )),
        }
    }
}
