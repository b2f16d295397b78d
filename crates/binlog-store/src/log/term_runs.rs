//! Which terms the log's entries have: one run for each term, a few numbers for the whole log. Log
//! ids are answered from it without reading any entry.

use raft_types::{OpId, TermRun};

/// The runs in order, without a gap between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TermRuns {
    runs: Vec<TermRun>,
}

impl TermRuns {
    /// Adds the entry behind the last one.
    pub(crate) fn push(&mut self, op_id: OpId) {
        self.extend(op_id.term, op_id.index, op_id.index);
    }

    /// Adds entries of one term behind the last one.
    pub(crate) fn extend(&mut self, term: u64, first: u64, last: u64) {
        match self.runs.last_mut() {
            Some(run) if run.term == term => run.last = last,
            _ => self.runs.push(TermRun { term, first, last }),
        }
    }

    /// Drops the entries with an index of `from` or more.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.runs.retain(|run| run.first < from);
        if let Some(run) = self.runs.last_mut() {
            run.last = run.last.min(from.saturating_sub(1));
        }
    }

    /// Drops the entries up to `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        self.runs.retain(|run| run.last > index);
        if let Some(run) = self.runs.first_mut() {
            run.first = run.first.max(index + 1);
        }
    }

    /// The first and the last entry.
    pub(crate) fn bounds(&self) -> Option<(OpId, OpId)> {
        let (first, last) = (self.runs.first()?, self.runs.last()?);
        Some((
            OpId::new(first.term, first.first),
            OpId::new(last.term, last.last),
        ))
    }

    /// The op id of the entry at an index.
    pub(crate) fn op_id(&self, index: u64) -> Option<OpId> {
        let at = self.runs.partition_point(|run| run.last < index);
        let run = self.runs.get(at).filter(|run| run.first <= index)?;
        Some(OpId::new(run.term, index))
    }

    /// The newest runs up to the entry at `last`, `count` of them at most, oldest first.
    pub(crate) fn newest_upto(&self, last: u64, count: usize) -> Vec<TermRun> {
        let upto = self.runs.partition_point(|run| run.first <= last);
        let mut newest = self.runs[upto.saturating_sub(count)..upto].to_vec();
        if let Some(run) = newest.last_mut() {
            run.last = run.last.min(last);
        }
        newest
    }

    /// The last op id of each term among the entries from `first` to `last`.
    pub(crate) fn last_of_each_term(&self, first: u64, last: u64) -> Vec<OpId> {
        let inside = self
            .runs
            .iter()
            .filter(|run| run.last >= first && run.first <= last);
        inside
            .map(|run| OpId::new(run.term, run.last.min(last)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> TermRuns {
        let mut runs = TermRuns::default();
        for (term, index) in [(1, 5), (1, 6), (2, 7), (4, 8), (4, 9), (4, 10)] {
            runs.push(OpId::new(term, index));
        }
        runs
    }

    #[test]
    fn op_ids_are_found() {
        let runs = runs();
        assert_eq!(runs.runs.len(), 3);
        assert_eq!(runs.bounds(), Some((OpId::new(1, 5), OpId::new(4, 10))));
        assert_eq!(runs.op_id(6), Some(OpId::new(1, 6)));
        assert_eq!(runs.op_id(9), Some(OpId::new(4, 9)));
        assert_eq!((runs.op_id(4), runs.op_id(11)), (None, None));
        assert_eq!(
            runs.last_of_each_term(6, 9),
            [OpId::new(1, 6), OpId::new(2, 7), OpId::new(4, 9)]
        );
    }

    #[test]
    fn the_newest_runs_end_where_they_should() {
        let ends = |last, count| -> Vec<_> {
            let newest = runs().newest_upto(last, count);
            newest.iter().map(|run| (run.first, run.last)).collect()
        };
        assert_eq!(ends(10, 16), [(5, 6), (7, 7), (8, 10)]);
        assert_eq!(ends(9, 2), [(7, 7), (8, 9)]);
        assert_eq!(ends(7, 1), [(7, 7)]);
        assert_eq!(ends(5, 1), [(5, 5)]);
        assert_eq!(ends(4, 16), []);
        assert_eq!(ends(10, 0), []);
    }

    #[test]
    fn both_ends_can_be_cut() {
        let mut cut = runs();
        cut.truncate(9);
        cut.purge(5);
        assert_eq!(cut.bounds(), Some((OpId::new(1, 6), OpId::new(4, 8))));
        cut.purge(6);
        assert_eq!(cut.bounds(), Some((OpId::new(2, 7), OpId::new(4, 8))));
        cut.truncate(7);
        assert_eq!(cut.bounds(), None);
    }
}
