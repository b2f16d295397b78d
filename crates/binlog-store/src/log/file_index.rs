//! The files of the log and the positions of some entries: one point for every [`POINT_EVERY_BYTES`] of a file. The memory is proportional
//! to the log's size. A lookup reads one window of a file.

use std::collections::VecDeque;
use std::sync::Arc;

use binlog_format::gtid::Gtid;
use raft_types::OpId;

use crate::format::{FileHeader, FileNumber};
use crate::hard_state::DurableMark;

/// Minimum distance between two points in bytes.
const POINT_EVERY_BYTES: u64 = 64 << 10;

/// The start of an entry's marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) index: u64,
    pub(crate) offset: u64,
}

/// Positions of some entries in one file, in order; 16 bytes for each [`POINT_EVERY_BYTES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Points {
    points: Vec<Point>,
}

impl Points {
    /// Records an entry if the last point is far enough away.
    pub(crate) fn note(&mut self, index: u64, offset: u64) {
        if self
            .points
            .last()
            .is_none_or(|last| offset >= last.offset + POINT_EVERY_BYTES)
        {
            self.points.push(Point { index, offset });
        }
    }

    /// The last point at or before an index.
    fn before(&self, index: u64) -> Option<Point> {
        let count = self.points.partition_point(|point| point.index <= index);
        self.points.get(count.checked_sub(1)?).copied()
    }
}

/// One file of the log.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    pub(crate) header: Arc<FileHeader>,
    /// The end offset of the last written entry.
    pub(crate) end: u64,
    /// The first entry's index, if any.
    pub(crate) first: Option<u64>,
    /// The last entry; `None` while the file has none.
    pub(crate) last: Option<OpId>,
    /// Whether the file ends with a rotate entry.
    pub(crate) closed: bool,
    /// `None` for a file that has not been read since the start.
    pub(crate) points: Option<Points>,
}

impl LogFile {
    /// A file that has only a header.
    pub(crate) fn begin(header: Arc<FileHeader>) -> Self {
        Self {
            end: header.end,
            header,
            first: None,
            last: None,
            closed: false,
            points: Some(Points::default()),
        }
    }

    pub(crate) fn number(&self) -> FileNumber {
        self.header.number
    }

    /// The last entry up to the file's end, possibly in an earlier file.
    pub(crate) fn last_or_before(&self) -> Option<OpId> {
        self.last.or(self.header.before)
    }

    /// Records an entry that was written after the last one.
    pub(crate) fn note(&mut self, op_id: OpId, offset: u64, end: u64) {
        self.first.get_or_insert(op_id.index);
        self.last = Some(op_id);
        self.end = end;
        if let Some(points) = &mut self.points {
            points.note(op_id.index, offset);
        }
    }

    /// The file's last entry with its end.
    pub(crate) fn durable_mark(&self) -> Option<DurableMark> {
        Some(DurableMark {
            op_id: self.last?,
            file: self.number(),
            end: self.end,
        })
    }

    /// Drops the entries with an index of `from` or more; the file then ends at `end` with entry `last`.
    pub(crate) fn truncate(&mut self, from: u64, last: Option<OpId>, end: u64) {
        self.closed = false;
        self.end = end;
        self.last = last;
        if last.is_none() {
            self.first = None;
        }
        if let Some(points) = &mut self.points {
            points.points.retain(|point| point.index < from);
        }
    }
}

/// Where to start reading a file to find an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadStart {
    pub(crate) file: FileNumber,
    /// An entry at or before the requested one.
    pub(crate) point: Point,
    pub(crate) end: u64,
    /// True while the file's points are not known.
    pub(crate) unexplored: bool,
}

/// All files, oldest first. There is always at least one; the last is being written.
pub(crate) type LogFiles = VecDeque<LogFile>;

pub(crate) fn file_of(files: &LogFiles, number: FileNumber) -> Option<&LogFile> {
    files.iter().find(|file| file.number() == number)
}

/// The read position for an entry; `None` if no file has it.
pub(crate) fn locate(files: &LogFiles, index: u64) -> Option<ReadStart> {
    let count = files.partition_point(|file| file.first.is_some_and(|first| first <= index));
    let file = files.get(count.checked_sub(1)?)?;
    if file.last.is_none_or(|last| last.index < index) {
        return None;
    }
    let begin = Point {
        index: file.first?,
        offset: file.header.end,
    };
    let known = file.points.as_ref().map(|points| points.before(index));
    Some(ReadStart {
        file: file.number(),
        point: known.flatten().unwrap_or(begin),
        end: file.end,
        unexplored: known.is_none(),
    })
}

// The end of the committed part of the files. The engine reports an index, but the binlog server needs a file offset. Also, the ring may
// commit an entry before this member has written it.

/// The position after an entry in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The file in which the entry ends.
    pub file: FileNumber,
    /// Offset in the file at which the entry ends.
    pub offset: u64,
}

impl LogPlace {
    /// This offset in this file.
    pub const fn new(file: FileNumber, offset: u64) -> Self {
        Self { file, offset }
    }
}

/// As in `binlog.000007:1234`.
impl std::fmt::Display for LogPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.name(), self.offset)
    }
}

/// An entry that was not known to be committed at the last check.
#[derive(Debug, Clone)]
struct Waiting {
    index: u64,
    gtid: Option<Gtid>,
    /// The end position of the entry; `None` until the entry is written to a file.
    end: Option<LogPlace>,
}

/// The entries after the last one that is known to be committed and written.
///
/// ```text
///   … committed and written │ written … │ being written …
///                  settled ─┘ waiting, with an end │ and without
/// ```
#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenTail {
    /// The index and the end of the last committed and written entry; `None` without one.
    pub(crate) settled: Option<(u64, LogPlace)>,
    /// In index order, without gaps.
    waiting: VecDeque<Waiting>,
}

impl WrittenTail {
    /// Records an appended entry that is not written to a file yet.
    pub(crate) fn append(&mut self, index: u64, gtid: Option<Gtid>) {
        self.waiting.push_back(Waiting {
            index,
            gtid,
            end: None,
        });
    }

    /// Records that an appended entry was written.
    pub(crate) fn written(&mut self, index: u64, end: LogPlace) {
        let first = self.waiting.front().map_or(index, |first| first.index);
        let at = usize::try_from(index.saturating_sub(first)).unwrap_or(usize::MAX);
        if let Some(entry) = self.waiting.get_mut(at) {
            entry.end = Some(end);
        }
    }

    /// Drops written entries up to `committed`.
    pub(crate) fn settle(&mut self, committed: u64) {
        while let Some(entry) = self.waiting.front()
            && entry.index <= committed
            && let Some(end) = entry.end
        {
            self.settled = Some((entry.index, end));
            self.waiting.pop_front();
        }
    }

    /// Records that entries up to `index` were purged.
    pub(crate) fn purge(&mut self, index: u64) {
        self.waiting.retain(|entry| entry.index > index);
    }

    /// Drops entries with an index of `from` or more.
    pub(crate) fn truncate(&mut self, from: u64) {
        self.waiting.retain(|entry| entry.index < from);
    }

    /// Records that settled entries were truncated, and that the log now ends at `end`.
    pub(crate) fn cut_back(&mut self, from: u64, end: LogPlace) {
        if let Some((index, _)) = self.settled
            && index >= from
        {
            self.settled = from.checked_sub(1).map(|last| (last, end));
        }
    }

    /// The GTIDs of unsettled entries after this index.
    pub(crate) fn uncommitted(&self, committed: Option<u64>) -> impl Iterator<Item = &Gtid> {
        let entries = self.waiting.iter();
        let uncommitted = entries.filter(move |entry| Some(entry.index) > committed);
        uncommitted.filter_map(|entry| entry.gtid.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::encode_file_header;
    use binlog_format::events::FormatDescription;
    use binlog_format::gtid::GtidSet;
    use raft_types::RingId;

    fn file(number: u64, before: Option<OpId>) -> LogFile {
        let mut header = FileHeader {
            number: FileNumber::new(number).unwrap(),
            ring: RingId::default(),
            before,
            membership: None,
            previous_gtids: GtidSet::new(),
            format_description: FormatDescription::built_in_event().into(),
            timestamp: 0,
            end: 0,
        };
        encode_file_header(&mut header);
        LogFile::begin(Arc::new(header))
    }

    fn index() -> LogFiles {
        let mut index = LogFiles::default();
        let (mut one, mut two) = (file(1, None), file(2, Some(OpId::new(1, 9))));
        for at in 0..10 {
            one.note(
                OpId::new(1, at),
                1_000 + at * 40_000,
                1_000 + (at + 1) * 40_000,
            );
        }
        one.closed = true;
        two.note(OpId::new(1, 10), 500, 600);
        index.push_back(one);
        index.push_back(two);
        index
    }

    #[test]
    fn an_entry_is_found_from_the_point_before_it() {
        let index = index();
        let place = locate(&index, 5).unwrap();
        assert_eq!(place.file, FileNumber::FIRST);
        assert_eq!(
            place.point,
            Point {
                index: 4,
                offset: 161_000
            }
        );
        assert_eq!(
            locate(&index, 10).unwrap().point,
            Point {
                index: 10,
                offset: 500
            }
        );
        assert_eq!(locate(&index, 11), None);
    }

    #[test]
    fn the_tail_can_be_cut() {
        let mut index = index();
        assert_eq!(index.pop_back().map(|file| file.number().get()), Some(2));
        index
            .back_mut()
            .unwrap()
            .truncate(7, Some(OpId::new(1, 6)), 281_000);
        assert_eq!(locate(&index, 7), None);
        assert_eq!(locate(&index, 6).unwrap().end, 281_000);
        assert_eq!(index[0].end, 281_000);
        index.back_mut().unwrap().truncate(0, None, 300);
        assert_eq!(locate(&index, 0), None);
        assert_eq!(index.back().unwrap().first, None);
    }
}

#[cfg(test)]
mod written_tail_tests {
    use super::*;

    fn place(offset: u64) -> LogPlace {
        LogPlace::new(FileNumber::FIRST, offset)
    }

    fn gtid(gno: u64) -> Gtid {
        format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:{gno}")
            .parse()
            .unwrap()
    }

    #[test]
    fn settled_entries_are_committed_and_written() {
        let mut tail = WrittenTail::default();
        for index in 5..9 {
            tail.append(index, Some(gtid(index)));
        }
        tail.settle(8);
        assert_eq!(tail.settled, None);
        tail.written(5, place(100));
        tail.written(6, place(200));
        tail.settle(5);
        assert_eq!(tail.settled, Some((5, place(100))));
        assert_eq!(tail.uncommitted(None).count(), 3);
        tail.settle(8);
        assert_eq!(tail.settled, Some((6, place(200))));
        tail.truncate(8);
        assert_eq!(tail.uncommitted(None).collect::<Vec<_>>(), [&gtid(7)]);
        tail.written(7, place(300));
        tail.settle(7);
        assert_eq!(tail.settled, Some((7, place(300))));
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
        assert_eq!(tail.settled, Some((0, place(100))));
        tail.cut_back(0, place(50));
        assert_eq!(tail.settled, None);
    }
}
