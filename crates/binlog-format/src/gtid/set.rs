//! A set of GTIDs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use crate::gtid::{Gno, Gtid, SourceId, Tag};

/// A set of GTIDs, stored as intervals. Ordered as in MySQL: source bytes, then tag, then number.
///
/// Clones share the intervals of each source and tag, until one clone changes intervals of that source and tag. So a set with a million
/// intervals of servers that no longer write is cheap to copy, and to keep for many files.
// Invariant: no source and tag has an empty interval set, so the derived equality is set equality.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GtidSet {
    parts: BTreeMap<(SourceId, Tag), Arc<IntervalSet>>,
}

impl GtidSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Number of GTIDs in the set.
    pub fn count(&self) -> u128 {
        let all = self.intervals();
        all.map(|(.., interval)| u128::from(interval.count())).sum()
    }

    /// True if any GTID in the set has a tag.
    pub fn has_tags(&self) -> bool {
        self.parts.keys().any(|(_, tag)| !tag.is_none())
    }

    /// Whether the set contains `gtid`.
    pub fn contains(&self, gtid: &Gtid) -> bool {
        let part = self.parts.get(&(gtid.source, gtid.tag));
        part.is_some_and(|part| part.covers(gtid.gno.into()))
    }

    /// Whether the set contains all of `other`.
    pub fn contains_set(&self, other: &Self) -> bool {
        other.parts.iter().all(|(key, theirs)| {
            let ours = self.parts.get(key);
            ours.is_some_and(|ours| Arc::ptr_eq(ours, theirs) || ours.contains_set(theirs))
        })
    }

    /// Shares the memory of equal parts with `other`, as clones do. The content of the set does not change.
    pub fn share_with(&mut self, other: &Self) {
        for (key, ours) in &mut self.parts {
            if let Some(theirs) = other.parts.get(key).filter(|theirs| *theirs == ours) {
                *ours = theirs.clone();
            }
        }
    }

    /// Adds one GTID; returns false if it was already present.
    pub fn add(&mut self, gtid: Gtid) -> bool {
        self.add_interval(gtid.source, gtid.tag, gtid.gno.into())
    }

    /// Adds an interval; returns false if all of it was already present.
    pub fn add_interval(&mut self, source: SourceId, tag: Tag, interval: Interval) -> bool {
        let part = self.parts.entry((source, tag)).or_default();
        // If the GTIDs are already present, the shared part is not copied.
        !part.covers(interval) && Arc::make_mut(part).add(interval)
    }

    /// Removes one GTID; returns false if it was absent.
    pub fn remove(&mut self, gtid: &Gtid) -> bool {
        self.remove_interval(gtid.source, gtid.tag, gtid.gno.into())
    }

    /// Removes an interval; returns false if all of it was absent.
    pub fn remove_interval(&mut self, source: SourceId, tag: Tag, interval: Interval) -> bool {
        let Entry::Occupied(mut part) = self.parts.entry((source, tag)) else {
            return false;
        };
        let removed = Arc::make_mut(part.get_mut()).remove(interval);
        if part.get().is_empty() {
            part.remove();
        }
        removed
    }

    /// Adds all GTIDs of `other` to this set.
    pub fn union_with(&mut self, other: &Self) {
        for (key, theirs) in &other.parts {
            match self.parts.entry(*key) {
                Entry::Vacant(place) => {
                    place.insert(theirs.clone());
                }
                Entry::Occupied(mut ours) => {
                    if !Arc::ptr_eq(ours.get(), theirs) {
                        Arc::make_mut(ours.get_mut()).union_with(theirs);
                    }
                }
            }
        }
    }

    /// GTIDs in either set.
    pub fn union(&self, other: &Self) -> Self {
        let mut union = self.clone();
        union.union_with(other);
        union
    }

    /// GTIDs in this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let parts = self.parts.iter().filter_map(|(key, ours)| {
            let rest = match other.parts.get(key) {
                Some(theirs) if Arc::ptr_eq(ours, theirs) => return None,
                Some(theirs) => Arc::new(ours.difference(theirs)),
                None => ours.clone(),
            };
            (!rest.is_empty()).then_some((*key, rest))
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// GTIDs in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let parts = self.parts.iter().filter_map(|(key, ours)| {
            let shared = ours.intersection(other.parts.get(key)?);
            (!shared.is_empty()).then(|| (*key, Arc::new(shared)))
        });
        Self {
            parts: parts.collect(),
        }
    }

    /// All intervals, ordered by source, tag and number.
    pub fn intervals(&self) -> impl Iterator<Item = (SourceId, Tag, Interval)> + '_ {
        self.parts().flat_map(|(source, tag, intervals)| {
            let intervals = intervals.iter();
            intervals.map(move |interval| (source, tag, *interval))
        })
    }

    /// The GTIDs of the set in order. A set may have 2^63 of them: check [`Self::count`] first.
    pub fn iter(&self) -> impl Iterator<Item = Gtid> + '_ {
        self.intervals().flat_map(|(source, tag, interval)| {
            interval.iter().map(move |gno| Gtid { source, tag, gno })
        })
    }

    /// Sources and tags in order, each with its sorted intervals.
    pub fn parts(&self) -> impl Iterator<Item = (SourceId, Tag, &[Interval])> {
        let parts = self.parts.iter();
        parts.map(|((source, tag), part)| (*source, *tag, &*part.intervals))
    }
}

/// Collects intervals in any order, and sorts them together. If they were added one by one in descending order, each would move all others,
/// which takes minutes for a long set.
#[derive(Debug, Default)]
pub(crate) struct UnsortedIntervals {
    parts: BTreeMap<(SourceId, Tag), Vec<Interval>>,
}

impl UnsortedIntervals {
    pub(crate) fn add(&mut self, source: SourceId, tag: Tag, interval: Interval) {
        self.parts.entry((source, tag)).or_default().push(interval);
    }

    pub(crate) fn into_set(self) -> GtidSet {
        let part = |(key, intervals)| (key, Arc::new(IntervalSet::of_unsorted(intervals)));
        GtidSet {
            parts: self.parts.into_iter().map(part).collect(),
        }
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

// Sets of numbers as sorted intervals: the part of a GTID set for one source and tag. Appending at the end takes constant time; other
// changes take a binary search and a move.

/// Numbers from `first` to `last`, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    first: Gno,
    last: Gno,
}

impl Interval {
    /// The interval; `None` if `first` is greater than `last`.
    pub fn new(first: Gno, last: Gno) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// The lowest number of the interval.
    pub const fn first(&self) -> Gno {
        self.first
    }

    /// The highest number of the interval.
    pub const fn last(&self) -> Gno {
        self.last
    }

    /// How many numbers the interval has.
    pub const fn count(&self) -> u64 {
        self.last.get() - self.first.get() + 1
    }

    /// All numbers of the interval in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Gno> + use<> {
        (self.first.get()..=self.last.get()).filter_map(Gno::new)
    }
}

impl From<Gno> for Interval {
    fn from(gno: Gno) -> Self {
        Self {
            first: gno,
            last: gno,
        }
    }
}

/// Sorted intervals with at least one missing number between neighbours:
///
/// ```text
/// [1-5]  [7-7]  [10-12]        5 + 1 < 7,  7 + 1 < 10
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct IntervalSet {
    intervals: Vec<Interval>,
}

impl IntervalSet {
    fn of_unsorted(mut intervals: Vec<Interval>) -> Self {
        intervals.sort_unstable_by_key(|interval| interval.first);
        intervals.dedup_by(|next, last| {
            let touches = next.first.get() <= last.last.get() + 1;
            if touches {
                last.last = last.last.max(next.last);
            }
            touches
        });
        intervals.shrink_to_fit();
        Self { intervals }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    fn covers(&self, wanted: Interval) -> bool {
        // Most lookups are for the newest numbers.
        let newest = self.intervals.last();
        if newest.is_none_or(|newest| newest.last < wanted.first) {
            return false;
        }
        let all = &self.intervals;
        let at = all.partition_point(|interval| interval.last < wanted.first);
        let found = all.get(at);
        found.is_some_and(|found| found.first <= wanted.first && wanted.last <= found.last)
    }

    pub(crate) fn contains_set(&self, other: &Self) -> bool {
        let mut ours = self.intervals.as_slice();
        other.intervals.iter().all(|wanted| {
            ours = skip_while(ours, |interval| interval.last < wanted.first);
            let found = ours.first();
            found.is_some_and(|found| found.first <= wanted.first && wanted.last <= found.last)
        })
    }

    /// Adds an interval and merges it with adjacent ones; returns whether any part of it was new.
    pub(crate) fn add(&mut self, added: Interval) -> bool {
        // Numbers are at most 2^63 - 2, so adding one never overflows.
        let newest = self.intervals.last();
        if newest.is_none_or(|newest| newest.last.get() + 1 < added.first.get()) {
            self.intervals.push(added);
            return true;
        }
        let touched = self.overlapping(added.first.get() - 1, added.last.get() + 1);
        let old = &self.intervals[touched.clone()];
        let merged = old.iter().fold(added, |merged, it| Interval {
            first: merged.first.min(it.first),
            last: merged.last.max(it.last),
        });
        if *old == [merged] {
            return false;
        }
        self.intervals.splice(touched, [merged]);
        true
    }

    /// Removes an interval; returns whether any part of it was present.
    pub(crate) fn remove(&mut self, removed: Interval) -> bool {
        let hit = self.overlapping(removed.first.get(), removed.last.get());
        let old = &self.intervals[hit.clone()];
        let (Some(first), Some(last)) = (old.first(), old.last()) else {
            return false;
        };
        let before = below(*first, removed.first);
        let after = above(*last, removed.last);
        self.intervals.splice(hit, before.into_iter().chain(after));
        true
    }

    /// The positions of the intervals that contain any number from `first` to `last`.
    fn overlapping(&self, first: u64, last: u64) -> Range<usize> {
        let from = self.intervals.partition_point(|it| it.last.get() < first);
        let to = self.intervals.partition_point(|it| it.first.get() <= last);
        from..to
    }

    pub(crate) fn union_with(&mut self, other: &Self) {
        let mut both = std::mem::take(&mut self.intervals);
        both.extend_from_slice(&other.intervals);
        // A stable sort merges the two sorted runs in linear time.
        both.sort_by_key(|interval| interval.first);
        *self = Self::of_unsorted(both);
    }

    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut kept = Vec::new();
        let mut cuts = other.intervals.as_slice();
        for interval in &self.intervals {
            // Removed intervals that end before this one do not affect later ones either.
            cuts = skip_while(cuts, |cut| cut.last < interval.first);
            let mut rest = Some(*interval);
            for cut in cuts {
                let Some(current) = rest.filter(|current| cut.first <= current.last) else {
                    break;
                };
                kept.extend(below(current, cut.first));
                rest = above(current, cut.last);
            }
            kept.extend(rest);
        }
        Self { intervals: kept }
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut shared = Vec::new();
        let (mut left, mut right) = (self.intervals.as_slice(), other.intervals.as_slice());
        while let (Some((a, left_rest)), Some((b, right_rest))) =
            (left.split_first(), right.split_first())
        {
            shared.extend(Interval::new(a.first.max(b.first), a.last.min(b.last)));
            if a.last <= b.last {
                left = left_rest;
            } else {
                right = right_rest;
            }
        }
        Self { intervals: shared }
    }
}

/// Skips the leading intervals for which `passes` is true. Each step is twice as long as the previous one, so short and long skips are both
/// fast.
fn skip_while(sorted: &[Interval], passes: impl Fn(&Interval) -> bool) -> &[Interval] {
    let mut bound = 1;
    while sorted.get(bound - 1).is_some_and(&passes) {
        bound *= 2;
    }
    let (from, to) = (bound / 2, bound.min(sorted.len()));
    let within = sorted.get(from..to).unwrap_or_default();
    let passed = from + within.partition_point(passes);
    sorted.get(passed..).unwrap_or_default()
}

/// The part of an interval before `gno`.
fn below(interval: Interval, gno: Gno) -> Option<Interval> {
    Interval::new(interval.first, Gno::new(gno.get() - 1)?.min(interval.last))
}

/// The part of an interval after `gno`.
fn above(interval: Interval, gno: Gno) -> Option<Interval> {
    Interval::new(Gno::new(gno.get() + 1)?.max(interval.first), interval.last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> GtidSet {
        text.parse().unwrap()
    }

    fn shared(one: &GtidSet, other: &GtidSet) -> Vec<bool> {
        let pairs = one.parts.iter().zip(&other.parts);
        pairs
            .map(|(one, other)| Arc::ptr_eq(one.1, other.1))
            .collect()
    }

    #[test]
    fn sets_share_the_servers_that_write_no_more() {
        const SETS: [&str; 2] = [
            "11111111-1111-1111-1111-111111111111:1-3:5-9,22222222-2222-2222-2222-222222222222:1-3",
            "11111111-1111-1111-1111-111111111111:1-3:5-9,22222222-2222-2222-2222-222222222222:1-4",
        ];
        let (before, mut next) = (set(SETS[0]), set(SETS[1]));
        assert_eq!(shared(&before, &next), [false, false]);
        next.share_with(&before);
        assert_eq!(shared(&before, &next), [true, false]);
        assert_eq!(next, set(SETS[1]));

        let mut clone = next.clone();
        let known = "11111111-1111-1111-1111-111111111111:7".parse().unwrap();
        assert!(!clone.add(known), "it is there already");
        assert!(clone.add("22222222-2222-2222-2222-222222222222:5".parse().unwrap()));
        assert_eq!(shared(&clone, &next), [true, false]);
        assert_eq!(next, set(SETS[1]), "a change of a clone is the clone's");
    }

    #[test]
    fn skipping_finds_the_same_place_from_everywhere() {
        let numbers = |count: u64| (0..count).filter_map(|at| Gno::new(2 * at + 1));
        for count in 0..40 {
            let sorted: Vec<Interval> = numbers(count).map(Interval::from).collect();
            for bound in 0..=2 * count + 1 {
                let left = skip_while(&sorted, |it| it.last.get() < bound);
                let expected = sorted.iter().filter(|it| it.last.get() >= bound);
                assert!(left.iter().eq(expected), "{count} {bound}");
            }
        }
    }
}
