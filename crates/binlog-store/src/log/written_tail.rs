//! Up to where in the files the log is committed. The engine counts in indexes; who serves files counts in
//! offsets, and an entry may be committed by others before it is written here.

use std::collections::VecDeque;

use binlog_format::gtid::Gtid;

use crate::format::FileNumber;

/// Behind an entry in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The file.
    pub file: FileNumber,
    /// The offset in it.
    pub offset: u64,
}

/// An entry that was not known to be committed when it was last looked at.
#[derive(Debug, Clone)]
struct Waiting {
    index: u64,
    gtid: Option<Gtid>,
    /// Where it ends, once a file has it.
    end: Option<LogPlace>,
}

/// The entries behind the last one that is known to be committed and written.
///
/// ```text
///   … committed and written │ written … │ being written …
///                  settled ─┘ waiting, with an end │ and without
/// ```
#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenTail {
    /// The index and the end of the last entry that is committed and written; `None` while no entry is.
    settled: Option<(u64, LogPlace)>,
    /// Consecutive.
    waiting: VecDeque<Waiting>,
}

impl WrittenTail {
    /// An entry was appended; no file has it yet.
    pub(crate) fn append(&mut self, index: u64, gtid: Option<Gtid>) {
        self.waiting.push_back(Waiting {
            index,
            gtid,
            end: None,
        });
    }

    /// An appended entry was written.
    pub(crate) fn written(&mut self, index: u64, end: LogPlace) {
        let first = self.waiting.front().map_or(index, |first| first.index);
        let at = usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX);
        if let Some(entry) = self.waiting.get_mut(at) {
            entry.end = Some(end);
        }
    }

    /// Entries up to `committed` need not be remembered any more, as far as they are written.
    pub(crate) fn settle(&mut self, committed: u64) {
        while let Some(entry) = self.waiting.front()
            && entry.index <= committed
            && let Some(end) = entry.end
        {
            self.settled = Some((entry.index, end));
            self.waiting.pop_front();
        }
    }

    /// Entries up to `index` were purged.
    pub(crate) fn purge(&mut self, index: u64) {
        while self
            .waiting
            .front()
            .is_some_and(|first| first.index <= index)
        {
            self.waiting.pop_front();
        }
    }

    /// Entries with an index of `from` or more are gone.
    pub(crate) fn truncate(&mut self, from: u64) {
        while self.waiting.back().is_some_and(|last| last.index >= from) {
            self.waiting.pop_back();
        }
    }

    /// The log was cut back to below what was settled, and ends at `end`.
    pub(crate) fn cut_back(&mut self, from: u64, end: LogPlace) {
        if let Some((index, _)) = self.settled
            && index >= from
        {
            self.settled = from.checked_sub(1).map(|last| (last, end));
        }
    }

    /// Index and end of the last settled entry.
    pub(crate) fn settled(&self) -> Option<(u64, LogPlace)> {
        self.settled
    }

    /// The GTIDs of what is not settled.
    pub(crate) fn unsettled(&self) -> impl Iterator<Item = &Gtid> {
        self.waiting.iter().filter_map(|entry| entry.gtid.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u64) -> LogPlace {
        LogPlace {
            file: FileNumber::FIRST,
            offset,
        }
    }

    fn gtid(gno: u64) -> Gtid {
        format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:{gno}")
            .parse()
            .unwrap()
    }

    #[test]
    fn settled_is_what_is_both_committed_and_written() {
        let mut tail = WrittenTail::default();
        for index in 5..9 {
            tail.append(index, Some(gtid(index)));
        }
        tail.settle(8);
        assert_eq!(tail.settled(), None);
        tail.written(5, place(100));
        tail.written(6, place(200));
        tail.settle(5);
        assert_eq!(tail.settled(), Some((5, place(100))));
        assert_eq!(tail.unsettled().count(), 3);
        tail.settle(8);
        assert_eq!(tail.settled(), Some((6, place(200))));
        tail.truncate(8);
        assert_eq!(tail.unsettled().collect::<Vec<_>>(), [&gtid(7)]);
        tail.written(7, place(300));
        tail.settle(7);
        assert_eq!(tail.settled(), Some((7, place(300))));
    }

    #[test]
    fn a_log_that_is_cut_back_is_committed_up_to_its_end() {
        let mut tail = WrittenTail::default();
        tail.append(0, None);
        tail.written(0, place(100));
        tail.append(1, None);
        tail.written(1, place(200));
        tail.settle(1);
        tail.cut_back(1, place(100));
        assert_eq!(tail.settled(), Some((0, place(100))));
        tail.cut_back(0, place(50));
        assert_eq!(tail.settled(), None);
    }
}
