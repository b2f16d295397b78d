//! Converts the model's members, voter sets and entries to the product's types and back.

use std::collections::BTreeSet;

use consensus::Recollection;
use consensus::quorum::VoterSets;
use raft_types::{MemberId, OpId, Region, TermRun};

use crate::ring::{End, Entry, Id, Member, Members};

pub(crate) fn region(place: usize) -> Region {
    Region(format!("region-{place}"))
}

pub(crate) fn name(id: Id) -> MemberId {
    MemberId(id as u64)
}

pub(crate) fn named(set: Members) -> BTreeSet<MemberId> {
    set.ids().map(name).collect()
}

pub(crate) fn named_sets(sets: &[Members]) -> VoterSets {
    sets.iter().copied().map(named).collect()
}

pub(crate) fn unnamed(set: &BTreeSet<MemberId>) -> Members {
    set.iter().map(|id| id.0 as Id).collect()
}

pub(crate) fn unnamed_sets(sets: &VoterSets) -> Vec<Members> {
    sets.iter().map(unnamed).collect()
}

/// The op id of the entry at an index, counted from 0.
pub(crate) fn op_id(log: &[Entry], at: usize) -> Option<OpId> {
    let entry = log.get(at)?;
    Some(OpId::new(u64::from(entry.term), at as u64))
}

/// The op id of the last of the first `count` entries.
pub(crate) fn last_of(log: &[Entry], count: usize) -> Option<OpId> {
    op_id(log, count.checked_sub(1)?)
}

/// The end of a log that ends with the entry `last`.
pub(crate) fn end_at(last: OpId) -> End {
    let term = last.term.try_into().unwrap_or(u32::MAX);
    (term, last.index as usize + 1)
}

/// The op id of the last entry of a log with this end.
pub(crate) fn last_before((term, count): End) -> Option<OpId> {
    Some(OpId::new(u64::from(term), count.checked_sub(1)? as u64))
}

/// A member's summary of its log, as the product sends it to other members.
pub(crate) fn recollection(member: &Member) -> Recollection {
    let mut runs: Vec<TermRun> = Vec::new();
    for (at, entry) in member.log.iter().enumerate() {
        let (term, at) = (u64::from(entry.term), at as u64);
        match runs.last_mut() {
            Some(run) if run.term == term => run.last = at,
            _ => runs.push(TermRun {
                term,
                first: at,
                last: at,
            }),
        }
    }
    Recollection {
        runs,
        committed: last_of(&member.log, member.commit as usize),
    }
}
