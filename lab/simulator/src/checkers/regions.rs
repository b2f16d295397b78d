//! Checks that each region can still lead: for each purged entry, a majority of the region's voters must have the entry. A log that starts
//! after an entry lacks it, and at most a minority may lack the same entry. Only runs that report their regions are checked.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, Region};

use crate::checkers::Checker;
use crate::event::{Event, Seen};
use crate::tick::Tick;

#[derive(Default)]
pub(super) struct RegionsAreNotCutOff {
    /// The voters, each with its region.
    regions: BTreeMap<MemberId, Region>,
    /// The index of the last entry of each log.
    ends: BTreeMap<MemberId, u64>,
    /// The gaps in each log: the index before the gap, and the last index in the gap.
    left_out: BTreeMap<MemberId, Vec<(u64, u64)>>,
}

impl RegionsAreNotCutOff {
    fn began(&mut self, member: MemberId, before: u64) -> Result<(), String> {
        let end = self.ends.insert(member, before).unwrap_or_default();
        let Some(region) = self.regions.get(&member).filter(|_| end < before) else {
            return Ok(());
        };
        self.left_out.entry(member).or_default().push((end, before));
        let voting = self.regions.iter().filter(|(_, other)| *other == region);
        let voting: BTreeSet<MemberId> = voting.map(|(id, _)| *id).collect();
        let minority = (voting.len() - 1) / 2;
        // Gaps overlap somewhere exactly if they overlap at the end of one of them, so that only the ends are checked.
        let ends = self.left_out.values().flatten().map(|(_, upto)| *upto);
        for index in ends.collect::<BTreeSet<u64>>() {
            let misses = |id: &&MemberId| {
                let stretches = self.left_out.get(id).into_iter().flatten();
                let mut around = stretches.filter(|(after, upto)| *after < index && index <= *upto);
                around.next().is_some()
            };
            let missing: Vec<String> = voting
                .iter()
                .filter(misses)
                .map(|id| id.to_string())
                .collect();
            if missing.len() > minority {
                let missing = missing.join(" and ");
                return Err(format!(
                    "members {missing}, of {} voting ones in {}, were never sent index {index}, and no longer can be",
                    voting.len(),
                    region.0
                ));
            }
        }
        Ok(())
    }

    fn ends_with(&mut self, member: MemberId, index: Option<u64>) {
        match index {
            Some(index) => self.ends.insert(member, index),
            None => self.ends.remove(&member),
        };
    }
}

impl Checker for RegionsAreNotCutOff {
    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        let last = |entries: &[Seen]| entries.last().map(|entry| entry.op_id.index);
        match event {
            Event::Regions { voting } => self.regions.clone_from(voting),
            Event::Appended { member, entries } => {
                if let Some(last) = last(entries) {
                    self.ends_with(*member, Some(last));
                }
            }
            Event::Truncated { member, keep } | Event::CutBack { member, keep } => {
                self.ends_with(*member, keep.map(|keep| keep.index));
            }
            Event::Opened { member, log, .. } => {
                let end = last(&log.entries).or(log.floor.map(|floor| floor.index));
                self.ends_with(*member, end);
            }
            Event::Began { member, before, .. } => return self.began(*member, before.index),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use raft_types::OpId;

    use super::*;

    #[test]
    fn a_minority_may_miss_what_a_majority_has() {
        let region = Region("region-2".to_owned());
        let of_three = [21, 22, 23].map(|id| (MemberId(id), region.clone()));
        let voting = BTreeMap::from(of_three);
        type Row<'a> = (&'a [(u64, u64, u64)], bool);
        let rows: [Row; 4] = [
            // Each row: the member, the end of its log, and the entry after which its new log starts.
            (&[(21, 4, 9)], true),
            (&[(21, 4, 9), (21, 12, 20)], true),
            (&[(21, 4, 9), (22, 9, 20)], true),
            (&[(21, 4, 9), (22, 8, 20)], false),
        ];
        for (stretches, fine) in rows {
            let mut checker = RegionsAreNotCutOff::default();
            let voting = voting.clone();
            let mut verdict = checker.saw(Tick(0), &Event::Regions { voting });
            for &(id, end, before) in stretches {
                checker.ends_with(MemberId(id), Some(end));
                let began = Event::Began {
                    member: MemberId(id),
                    before: OpId::new(1, before),
                    membership: None,
                };
                verdict = verdict.and(checker.saw(Tick(1), &began));
            }
            assert_eq!(verdict.is_ok(), fine, "{stretches:?}: {verdict:?}");
        }
    }
}
