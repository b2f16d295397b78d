//! A set of GTIDs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::gtid::interval::IntervalSet;
use crate::gtid::{Gtid, Interval, SourceId, Tag};

/// A set of GTIDs, kept as intervals. Its order is MySQL's: source bytes, then tag, then number.
// Invariant: no source and tag has an empty interval set, so derived equality is set equality.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GtidSet {
    parts: BTreeMap<(SourceId, Tag), IntervalSet>,
}

impl GtidSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it has no GTID.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many GTIDs it has.
    pub fn count(&self) -> u128 {
        self.intervals()
            .map(|(_, _, interval)| u128::from(interval.count()))
            .sum()
    }

    /// Whether any GTID in it has a tag.
    pub fn has_tags(&self) -> bool {
        self.parts.keys().any(|(_, tag)| !tag.is_none())
    }

    /// Whether `gtid` is in it.
    pub fn contains(&self, gtid: &Gtid) -> bool {
        self.parts
            .get(&(gtid.source, gtid.tag))
            .is_some_and(|part| part.contains(gtid.gno))
    }

    /// Whether all of `other` is in it.
    pub fn contains_set(&self, other: &Self) -> bool {
        other.parts.iter().all(|(key, theirs)| {
            self.parts
                .get(key)
                .is_some_and(|ours| ours.contains_set(theirs))
        })
    }

    /// Adds one GTID; false when it was there already.
    pub fn add(&mut self, gtid: Gtid) -> bool {
        self.add_interval(gtid.source, gtid.tag, gtid.gno.into())
    }

    /// Adds an interval; false when all of it was there already.
    pub fn add_interval(&mut self, source: SourceId, tag: Tag, interval: Interval) -> bool {
        self.parts.entry((source, tag)).or_default().add(interval)
    }

    /// Takes one GTID out; false when it was not there.
    pub fn remove(&mut self, gtid: &Gtid) -> bool {
        self.remove_interval(gtid.source, gtid.tag, gtid.gno.into())
    }

    /// Takes an interval out; false when nothing of it was there.
    pub fn remove_interval(&mut self, source: SourceId, tag: Tag, interval: Interval) -> bool {
        let Entry::Occupied(mut part) = self.parts.entry((source, tag)) else {
            return false;
        };
        let removed = part.get_mut().remove(interval);
        if part.get().is_empty() {
            part.remove();
        }
        removed
    }

    /// Adds all of `other`.
    pub fn union_with(&mut self, other: &Self) {
        for (key, theirs) in &other.parts {
            self.parts.entry(*key).or_default().union_with(theirs);
        }
    }

    /// What is in either set.
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.union_with(other);
        union
    }

    /// What is in this set and not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let parts = self.parts.iter().filter_map(|(key, ours)| {
            let rest = match other.parts.get(key) {
                Some(theirs) => ours.difference(theirs),
                None => ours.clone(),
            };
            (!rest.is_empty()).then_some((*key, rest))
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// What is in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let parts = self.parts.iter().filter_map(|(key, ours)| {
            let shared = ours.intersection(other.parts.get(key)?);
            (!shared.is_empty()).then_some((*key, shared))
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// Its intervals in order.
    pub fn intervals(&self) -> impl Iterator<Item = (SourceId, Tag, Interval)> + '_ {
        self.parts().flat_map(|(source, tag, intervals)| {
            intervals
                .iter()
                .map(move |interval| (source, tag, *interval))
        })
    }

    /// Its GTIDs in order, one by one. A set may have 2^63 of them: look at [`Self::count`] first.
    pub fn iter(&self) -> impl Iterator<Item = Gtid> + '_ {
        self.intervals().flat_map(|(source, tag, interval)| {
            interval.iter().map(move |gno| Gtid { source, tag, gno })
        })
    }

    /// Sources and tags in order, each with its sorted intervals.
    pub fn parts(&self) -> impl Iterator<Item = (SourceId, Tag, &[Interval])> {
        self.parts
            .iter()
            .map(|((source, tag), intervals)| (*source, *tag, intervals.as_slice()))
    }
}

impl FromIterator<Gtid> for GtidSet {
    fn from_iter<I: IntoIterator<Item = Gtid>>(gtids: I) -> Self {
        let mut set = Self::new();
        set.extend(gtids);
        set
    }
}

impl Extend<Gtid> for GtidSet {
    fn extend<I: IntoIterator<Item = Gtid>>(&mut self, gtids: I) {
        for gtid in gtids {
            self.add(gtid);
        }
    }
}
