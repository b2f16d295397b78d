//! Reads entries back: recent ones from memory, others from files, each verified.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use futures::stream::{Stream, StreamExt, TryStreamExt};
use openraft::{OptionalSend, RaftLogReader};
use raft_types::{Entry, LogId, OpId, TypeConfig, Vote};

use crate::error::StoreError;
use crate::log::{DiskRead, Point, Points, ReadHint, ReadPlan, locate};
use crate::read_faults::ReadFault;
use crate::scan::{Corruption, Depth, EntryScanner, ScanError, Window};
use crate::shared::Shared;

/// Pause before another attempt to read a follower's entries.
const BEFORE_ANOTHER_TRY: Duration = Duration::from_secs(1);
/// Attempts at a read; an attempt fails if the log is truncated or purged during it.
const ATTEMPTS: usize = 16;

/// A reader of the log; any number of them may be active. Implements openraft's [`RaftLogReader`].
#[derive(Clone)]
pub struct LogReader {
    shared: Arc<Shared>,
    hint: Option<ReadHint>,
    /// True if the engine reads: it stops permanently at the first error.
    of_the_engine: bool,
}

/// The result of a disk read.
struct DiskEntries {
    entries: Vec<Entry>,
    hint: ReadHint,
    /// The file's points, if the read had to determine them.
    points: Option<Points>,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>, of_the_engine: bool) -> Self {
        Self {
            shared,
            hint: None,
            of_the_engine,
        }
    }

    /// Reads the log's entries from `start` to before `end`: all of them, or the first ones that fit into the batch size, at least one.
    /// Also returns the view's generation in which the log had these entries.
    async fn read(&mut self, start: u64, end: u64) -> Result<(Vec<Entry>, u64), StoreError> {
        let budget = self.shared.options.read_batch_bytes;
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            let (plan, generation) = {
                let view = self.shared.view.lock();
                (
                    view.plan_read(start, end, budget, self.hint)?,
                    view.generation,
                )
            };
            let read = match plan {
                ReadPlan::Entries(entries) => {
                    let hits = entries.len() as u64;
                    self.shared
                        .counters
                        .change(|stats| stats.cache_hits += hits);
                    return Ok((entries, generation));
                }
                ReadPlan::Disk(read) => read,
            };
            let shared = self.shared.clone();
            let reading = self.shared.off_thread(move || read_disk(&shared, read));
            let failed = |error| StoreError::unreadable("reading the log", &error);
            let found = reading.await.map_err(failed).flatten();
            let mut view = self.shared.view.lock();
            if view.generation != generation {
                // The log was truncated during the read, so it may not have these entries any longer.
                continue;
            }
            match found {
                Ok(found) => {
                    if let Some(points) = found.points
                        && let Some(file) = view
                            .files
                            .iter_mut()
                            .find(|file| file.number() == read.place.file)
                    {
                        file.points.get_or_insert(points);
                    }
                    drop(view);
                    self.shared.read_faults.succeeded(read.place.file, start);
                    self.hint = Some(found.hint);
                    let misses = found.entries.len() as u64;
                    self.shared
                        .counters
                        .change(|stats| stats.cache_misses += misses);
                    return Ok((found.entries, generation));
                }
                // A purge may have removed the file.
                Err(error) => failure = Some(error),
            }
        }
        let Some(error) = failure else {
            return Err(lost_race());
        };
        // The fault is recorded for any reader: the member reports it, and replaces the file with another member's copy. If the writer has
        // failed, the file is not at fault.
        let place = {
            let view = self.shared.view.lock();
            locate(&view.files, start).filter(|_| view.failure.is_none())
        };
        if let Some(place) = place {
            let fault = ReadFault::new(place.file, start, &error);
            self.shared.read_faults.failed(fault);
        }
        Err(error)
    }

    /// Reads all entries of the range in pieces. If the log is truncated between two pieces, the read starts again.
    async fn read_all(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, StoreError> {
        'attempts: for _ in 0..ATTEMPTS {
            let (mut all, generation) = self.read(start, end).await?;
            while let Some(last) = all.last()
                && last.log_id.index + 1 < end
            {
                let next = last.log_id.index + 1;
                let (piece, now) = self.read(next, end).await?;
                if now != generation || !begins_at(&piece, next) {
                    // The log changed in between.
                    continue 'attempts;
                }
                if piece.is_empty() {
                    break;
                }
                all.extend(piece);
            }
            return Ok(all);
        }
        Err(lost_race())
    }
}

fn lost_race() -> StoreError {
    StoreError::unreadable(
        "reading the log",
        &io::Error::from(io::ErrorKind::ResourceBusy),
    )
}

/// Reads entries of one file; blocks.
fn read_disk(shared: &Shared, read: DiskRead) -> Result<DiskEntries, StoreError> {
    let number = read.place.file;
    let failure = |error| match error {
        ScanError::Fault(fault) => StoreError::Corrupt(Corruption {
            file: number,
            fault,
        }),
        ScanError::Io { source, .. } => {
            StoreError::unreadable(format!("reading {number}"), &source)
        }
    };
    let file = shared.open_to_read(number);
    let file = file.map_err(|error| StoreError::unreadable(format!("opening {number}"), &error))?;
    let scanner = |point: Point, size| {
        let window = Window::new(&file, read.place.end, size);
        let mut scanner = EntryScanner::new(window, number, point.offset, None);
        scanner.spill = shared.options.spill.clone();
        scanner
    };

    let mut begin = read.place.point;
    let mut points = read.place.unexplored.then(Points::default);
    if points.is_some() || begin.index < read.start {
        let size = match points {
            Some(_) => Window::SCAN_BYTES,
            None => Window::LOOKUP_BYTES,
        };
        let mut scan = scanner(begin, size);
        begin = Point {
            index: read.start,
            offset: read.place.end,
        };
        while let Some(entry) = scan.next(Depth::Marker).map_err(failure)? {
            if entry.op_id.index == read.start {
                begin.offset = entry.offset;
            }
            match &mut points {
                Some(points) => points.note(entry.op_id.index, entry.offset),
                None if entry.op_id.index >= read.start => break,
                None => {}
            }
        }
    }

    let mut scan = scanner(begin, Window::LOOKUP_BYTES);
    let (mut entries, mut used, mut next) = (Vec::new(), 0, begin);
    while next.index < read.end {
        let Some((scanned, entry)) = scan.next_entry().map_err(failure)? else {
            break;
        };
        entries.push(entry);
        used += scanned.end - scanned.offset;
        next = Point {
            index: scanned.op_id.index + 1,
            offset: scanned.end,
        };
        if used >= read.budget {
            break;
        }
    }
    if entries.first().map(|entry| entry.log_id.index) != Some(read.start) {
        let error = io::Error::other(format!("{number} does not have entry {}", read.start));
        return Err(StoreError::unreadable("reading the log", &error));
    }
    let hint = ReadHint {
        file: number,
        next,
        generation: read.generation,
    };
    Ok(DiskEntries {
        entries,
        hint,
        points,
    })
}

/// A range of indexes as its first index and its exclusive end.
fn bounds<RB: RangeBounds<u64>>(range: &RB) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

impl RaftLogReader<TypeConfig> for LogReader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (start, end) = bounds(&range);
        Ok(self.read_all(start, end).await?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        match self.read(start, end).await {
            // A purge removed the start of the range. The caller would take the first returned entry for the requested one, so nothing is
            // returned. The engine then sends a heartbeat, and later restarts the member's log.
            Ok((entries, _)) if !begins_at(&entries, start) => Ok(Vec::new()),
            Ok((entries, _)) => Ok(entries),
            // On an error the engine would stop the whole member, although only one follower is affected. So no entries are returned
            // instead. This is safe: the entries read from files are old, and no decision of the engine depends on them. The engine then
            // sends an empty request, which is always valid, and reads again, so only that follower waits. The pause is bounded, because
            // the engine detects the loss of its leadership only between two reads.
            Err(_) if self.of_the_engine => {
                // The writer's failure stops the member, and the writer reports it.
                let failed = self.shared.view.lock().failure.clone();
                failed.map_or(Ok(()), Err)?;
                tokio::time::sleep(BEFORE_ANOTHER_TRY).await;
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = bounds(&range);
        let pieces = stream::try_unfold(
            (self.clone(), start),
            move |(mut reader, next)| async move {
                let (piece, _) = reader.read(next, end).await?;
                let Some(last) = piece.last() else {
                    return Ok(None);
                };
                let next = last.log_id.index + 1;
                Ok::<_, io::Error>(Some((stream::iter(piece).map(Ok), (reader, next))))
            },
        );
        pieces.try_flatten().boxed()
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.view.lock().vote)
    }

    async fn get_key_log_ids(
        &mut self,
        range: RangeInclusive<LogId>,
    ) -> Result<Vec<LogId>, io::Error> {
        let runs = self
            .shared
            .view
            .lock()
            .terms
            .last_of_each_term(range.start().index, range.end().index);
        let log_ids: Vec<LogId> = runs.into_iter().map(LogId::from).collect();
        // The range may begin with a purged entry: its term is included, too.
        let first = OpId::from(*range.start());
        match log_ids.first() {
            Some(run) if OpId::from(*run).term == first.term => Ok(log_ids),
            _ => Ok([LogId::from(first)].into_iter().chain(log_ids).collect()),
        }
    }
}

fn begins_at(entries: &[Entry], start: u64) -> bool {
    entries
        .first()
        .is_none_or(|first| first.log_id.index == start)
}
