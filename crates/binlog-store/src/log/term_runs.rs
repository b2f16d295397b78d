//! Which terms the log's entries have: one run for each term, a few numbers for the whole log. Log
//! ids are answered from it without reading any entry.

use raft_types::OpId;

/// Consecutive entries of one term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermRun {
    /// The term.
    pub term: u64,
    /// The first index.
    pub first: u64,
    /// The last index.
    pub last: u64,
}

/// The runs in order, without a gap between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TermRuns {
    runs: Vec<TermRun>,
}

impl TermRuns {
    pub(crate) fn runs(&self) -> &[TermRun] {
        &self.runs
    }

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
        assert_eq!(runs.runs().len(), 3);
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
