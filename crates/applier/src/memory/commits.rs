//! What is committed, and what readers see of it.

use std::collections::BTreeMap;

use binlog_format::gtid::{Gtid, GtidSet};

use crate::backend::Finished;
use crate::transaction::Seq;

/// The order of commits.
///
/// ```text
/// AtWrite:   … committed ─► current │ committed, not committed, committed …      by places in the log
/// AtCommit:  … committed ─► current                                              by numbers of commits
/// ```
///
/// Where versions are stamped with places in the log, everything up to `current` is committed (C5's c), and what is
/// committed behind it is not seen, nor kept in a crash. Where a commit gives the stamp, everything that is committed is
/// seen; whether that is a prefix of the log is the applier's concern.
#[derive(Debug)]
pub(super) struct Commits {
    finished: Finished,
    pub(super) executed: GtidSet,
    pub(super) current: u64,
    /// Behind `current`.
    committed: BTreeMap<u64, Gtid>,
    /// Where readers' snapshots were taken last, and how often they were.
    pub(super) point: u64,
    pub(super) points: u64,
    /// Stamps that readers hold, and how many of them.
    readers: BTreeMap<u64, usize>,
}

impl Commits {
    pub(super) fn new(finished: Finished) -> Self {
        Self {
            finished,
            executed: GtidSet::new(),
            current: 0,
            committed: BTreeMap::new(),
            point: 0,
            points: 0,
            readers: BTreeMap::new(),
        }
    }

    /// A transaction is committed; `stamp_with` is called with the number of its commit, before readers see it.
    pub(super) fn commit(&mut self, seq: Seq, gtid: Gtid, stamp_with: impl FnOnce(u64)) {
        match self.finished {
            Finished::AtCommit => {
                stamp_with(self.current + 1);
                self.executed.add(gtid);
                self.current += 1;
            }
            Finished::AtWrite => {
                self.committed.insert(seq.0, gtid);
                while let Some(gtid) = self.committed.remove(&(self.current + 1)) {
                    self.executed.add(gtid);
                    self.current += 1;
                }
            }
        }
    }

    /// Whether all that is committed is a prefix, as far as is known here.
    pub(super) fn is_prefix(&self) -> bool {
        self.committed.is_empty()
    }

    /// Readers' snapshots are taken here.
    pub(super) fn take_point(&mut self) {
        self.point = self.current;
        self.points += 1;
    }

    /// What is committed behind `current` is lost. Returns the last stamp that stays.
    pub(super) fn lose(&mut self) -> u64 {
        self.committed.clear();
        self.current
    }

    /// A reader begins to read at a stamp.
    pub(super) fn pin(&mut self, stamp: u64) {
        *self.readers.entry(stamp).or_default() += 1;
    }

    pub(super) fn unpin(&mut self, stamp: u64) {
        if let Some(count) = self.readers.get_mut(&stamp) {
            *count -= 1;
            if *count == 0 {
                self.readers.remove(&stamp);
            }
        }
    }

    /// Nobody reads what was before this stamp. Before the first point, nobody reads at one.
    pub(super) fn horizon(&self) -> u64 {
        let seen = match self.points {
            0 => self.current,
            _ => self.current.min(self.point),
        };
        self.readers
            .keys()
            .next()
            .map_or(seen, |oldest| seen.min(*oldest))
    }
}
