//! The files of the log, and where in them entries stand: one point for every [`POINT_EVERY_BYTES`]
//! of a file, so that memory is bounded by the log's size and a lookup reads one window.

use std::collections::VecDeque;
use std::sync::Arc;

use raft_types::OpId;

use crate::format::{FileHeader, FileNumber};

/// A point stands where this many bytes have passed since the last one.
const POINT_EVERY_BYTES: u64 = 64 << 10;

/// The begin of an entry's marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) index: u64,
    pub(crate) offset: u64,
}

/// Some entries' places in one file, in order; 16 bytes for each [`POINT_EVERY_BYTES`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Points {
    points: Vec<Point>,
}

impl Points {
    /// Takes note of an entry, if the last point is far enough away.
    pub(crate) fn note(&mut self, index: u64, offset: u64) {
        if self
            .points
            .last()
            .is_none_or(|last| offset >= last.offset + POINT_EVERY_BYTES)
        {
            self.points.push(Point { index, offset });
        }
    }

    /// The last point up to an index.
    fn before(&self, index: u64) -> Option<Point> {
        let behind = self.points.partition_point(|point| point.index <= index);
        self.points.get(behind.checked_sub(1)?).copied()
    }

    fn truncate(&mut self, from: u64) {
        self.points.retain(|point| point.index < from);
    }
}

/// One file of the log.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    pub(crate) header: Arc<FileHeader>,
    /// The end of the last entry that was written.
    pub(crate) end: u64,
    /// The first entry's index, where there is an entry.
    pub(crate) first: Option<u64>,
    /// The last entry.
    pub(crate) last: Option<OpId>,
    /// Whether it ends with a rotate entry.
    pub(crate) closed: bool,
    /// `None` for a file that was not looked into since the start.
    pub(crate) points: Option<Points>,
}

impl LogFile {
    /// A file that has a header and nothing else.
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

    /// The last entry up to the file's end, which may be of the file before.
    pub(crate) fn last_or_before(&self) -> Option<OpId> {
        self.last.or(self.header.before)
    }

    /// Takes note of an entry that was written behind the last one.
    pub(crate) fn note(&mut self, op_id: OpId, offset: u64, end: u64) {
        self.first.get_or_insert(op_id.index);
        self.last = Some(op_id);
        self.end = end;
        if let Some(points) = &mut self.points {
            points.note(op_id.index, offset);
        }
    }
}

/// Where to begin reading for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: FileNumber,
    /// An entry at or before the one that is looked for.
    pub(crate) point: Point,
    /// Where the file ends.
    pub(crate) end: u64,
    /// Whether the file's points are not known yet.
    pub(crate) unexplored: bool,
}

/// All files, oldest first. There is always at least one, the last, which is written to.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileIndex {
    files: VecDeque<LogFile>,
}

impl FileIndex {
    pub(crate) fn push(&mut self, file: LogFile) {
        self.files.push_back(file);
    }

    pub(crate) fn files(&self) -> impl DoubleEndedIterator<Item = &LogFile> + Clone {
        self.files.iter()
    }

    pub(crate) fn current(&self) -> Option<&LogFile> {
        self.files.back()
    }

    pub(crate) fn current_mut(&mut self) -> Option<&mut LogFile> {
        self.files.back_mut()
    }

    pub(crate) fn get_mut(&mut self, number: FileNumber) -> Option<&mut LogFile> {
        self.files.iter_mut().find(|file| file.number() == number)
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.end).sum()
    }

    /// Where to look for an entry; `None` when no file has it.
    pub(crate) fn locate(&self, index: u64) -> Option<Place> {
        let behind = self
            .files
            .partition_point(|file| file.first.is_some_and(|first| first <= index));
        let file = self.files.get(behind.checked_sub(1)?)?;
        if file.last.is_none_or(|last| last.index < index) {
            return None;
        }
        let begin = Point {
            index: file.first?,
            offset: file.header.end,
        };
        let known = file.points.as_ref().map(|points| points.before(index));
        Some(Place {
            file: file.number(),
            point: known.flatten().unwrap_or(begin),
            end: file.end,
            unexplored: known.is_none(),
        })
    }

    /// Drops entries with an index of `from` or more from the last file, whose last entry is then
    /// `last` and ends at `end`.
    pub(crate) fn truncate_current(&mut self, from: u64, last: Option<OpId>, end: u64) {
        if let Some(file) = self.files.back_mut() {
            file.closed = false;
            file.end = end;
            file.last = last;
            if last.is_none() {
                file.first = None;
            }
            if let Some(points) = &mut file.points {
                points.truncate(from);
            }
        }
    }

    /// Drops the last file.
    pub(crate) fn pop_current(&mut self) -> Option<LogFile> {
        self.files.pop_back()
    }

    /// Drops the oldest file.
    pub(crate) fn pop_oldest(&mut self) -> Option<LogFile> {
        self.files.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{HeaderSource, encode_file_header};
    use binlog_format::events::FormatDescription;
    use binlog_format::gtid::GtidSet;
    use raft_types::RingId;

    fn file(number: u64, before: Option<OpId>) -> LogFile {
        let (_, header) = encode_file_header(&HeaderSource {
            number: FileNumber::new(number).unwrap(),
            ring: RingId::default(),
            before,
            membership: None,
            previous_gtids: &GtidSet::new(),
            format_description: &FormatDescription::built_in_event().into(),
            timestamp: 0,
        });
        LogFile::begin(Arc::new(header))
    }

    fn index() -> FileIndex {
        let mut index = FileIndex::default();
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
        index.push(one);
        index.push(two);
        index
    }

    #[test]
    fn an_entry_is_found_from_the_point_before_it() {
        let index = index();
        let place = index.locate(5).unwrap();
        assert_eq!(place.file, FileNumber::FIRST);
        assert_eq!(
            place.point,
            Point {
                index: 4,
                offset: 161_000
            }
        );
        assert_eq!(
            index.locate(10).unwrap().point,
            Point {
                index: 10,
                offset: 500
            }
        );
        assert_eq!(index.locate(11), None);
    }

    #[test]
    fn the_tail_can_be_cut() {
        let mut index = index();
        assert_eq!(index.pop_current().map(|file| file.number().get()), Some(2));
        index.truncate_current(7, Some(OpId::new(1, 6)), 281_000);
        assert_eq!(index.locate(7), None);
        assert_eq!(index.locate(6).unwrap().end, 281_000);
        assert_eq!(index.bytes(), 281_000);
        index.truncate_current(0, None, 300);
        assert_eq!(index.locate(0), None);
        assert_eq!(index.current().unwrap().first, None);
    }
}
