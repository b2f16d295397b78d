//! Carries out commands. Entries are staged in a buffer, written, and made durable together with all other pending ones; then their
//! callbacks are called in order.
//!
//! The first disk error stops the writer. A failed sync is never retried, because the operating system may report success the second time
//! for bytes that it has dropped. A full disk is no such error if the writer has a thread in which it can wait: see [`super::waiting`].

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use binlog_format::canonical::stamp;
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_format::event::{EventHeader, EventRef, HEADER_LEN};
use binlog_format::events::{EncodeEvent, EventOrigin, Rotate as RotateEvent};
use binlog_format::gtid::GtidSet;
use openraft::storage::IOFlushed;
use raft_types::{DoubtedTail, ElectionNotes, OpId, TypeConfig, Vote};
use tokio::sync::oneshot;

use crate::error::{Doing, StoreError};
use crate::file_system::{FileSystem, StorageFile};
use crate::format::{Content, FileHeader, PreparedEntry, encode_marker};
use crate::hard_state::{DOUBT, DURABLE, DurableMark, ELECTIONS, HardState, VOTE};
use crate::log::{LogPlace, OpenLog};
use crate::options::Durability;
use crate::stats::FlushSample;
use crate::writer::purging::Purger;
use crate::writer::queue::{Command, take_purges};
use crate::writer::waiting::{Waiting, WaitingFileSystem, WaitingMeta};

/// The writer's state from the opened log.
pub(crate) struct WriterState {
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) header: Arc<FileHeader>,
    /// Offset of the next entry.
    pub(crate) end: u64,
    pub(crate) last: Option<OpId>,
    /// All GTIDs up to the last entry.
    pub(crate) gtids: GtidSet,

    /// The committed op id in the hard state.
    pub(crate) saved_committed: Option<OpId>,
    pub(crate) saved_mark: Option<DurableMark>,
    /// True if the hard state records that the log is written without sync.
    pub(crate) unsynced_run: bool,
}

/// An entry whose bytes are in the buffer or in the file, not yet synced.
pub(super) struct Staged {
    pub(super) op_id: OpId,
    pub(super) offset: u64,
    pub(super) end: u64,
    pub(super) is_membership: bool,
}

pub(crate) struct LogWriter {
    pub(super) log: Arc<OpenLog>,
    /// The log's file system and hard state; they wait for room if the writer has a thread that can wait.
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) hard: HardState,
    room: Option<Arc<Waiting>>,
    pub(super) purger: Arc<Purger>,
    pub(super) state: WriterState,
    /// Encoded bytes that follow the bytes in the file and end at `state.end`.
    buffer: Vec<u8>,
    staged: Vec<Staged>,
    waiting: Vec<IOFlushed<TypeConfig>>,
    /// Time spent writing the staged entries.
    write_time: Duration,
    failure: Option<StoreError>,
    pub(super) last_hints: Instant,
    /// Time of the last removal of a purged file.
    pub(super) last_removal: Instant,
    pub(super) inline_hints: u64,
}

pub(crate) fn lock(writer: &Mutex<LogWriter>) -> MutexGuard<'_, LogWriter> {
    writer
        .lock()
        .expect("no thread panics while it holds the writer")
}

impl LogWriter {
    pub(crate) fn new(
        log: Arc<OpenLog>,
        purger: Arc<Purger>,
        room: Option<Arc<Waiting>>,
        mut state: WriterState,
    ) -> Self {
        let (mut fs, mut hard) = (log.fs.clone(), log.hard.clone());
        if let Some(waiting) = &room {
            state.file = waiting.wrap(state.header.number.name(), state.file);
            fs = Arc::new(WaitingFileSystem(fs, waiting.clone()));
            hard.meta = Arc::new(WaitingMeta(hard.meta, waiting.clone()));
        }
        Self {
            log,
            fs,
            hard,
            room,
            purger,
            state,
            buffer: Vec::new(),
            staged: Vec::new(),
            waiting: Vec::new(),
            write_time: Duration::ZERO,
            failure: None,
            last_hints: Instant::now(),
            last_removal: Instant::now(),
            inline_hints: 0,
        }
    }

    /// Performs commands in order; adjacent entries become durable together.
    pub(crate) fn run(&mut self, commands: Vec<Command>) {
        self.log.counters.busy(Some(Instant::now()));
        self.perform(commands);
        self.log.counters.busy(None);
    }

    fn perform(&mut self, mut commands: Vec<Command>) {
        // Purges come first, because they may free room for which earlier commands would have to wait.
        let durable = self.log.view.lock().durable;
        for (upto, done) in take_purges(&mut commands, durable) {
            self.answer(done, |writer| writer.purge(upto));
        }
        for command in commands {
            match command {
                Command::Append(entries, callback) => self.append(&entries, callback),
                Command::Vote(vote, done) => self.answer(done, |writer| writer.save_vote(vote)),
                Command::Truncate(keep, done) => {
                    self.answer_alone(done, |writer| writer.truncate(keep));
                }
                Command::Purge(upto, done) => self.answer(done, |writer| writer.purge(upto)),
                Command::NoteDoubt(doubt, done) => {
                    self.answer(done, |writer| writer.note_doubt(doubt));
                }
                Command::NoteElections(notes, done) => {
                    self.answer(done, |writer| writer.note_elections(notes));
                }
                Command::SettleTail(from, done) => {
                    self.answer(done, |writer| writer.settle_tail(from));
                }
                Command::CutBack {
                    to,
                    reason,
                    at,
                    done,
                } => self.answer_alone(done, |writer| writer.cut_back(to, reason, at)),
                Command::Begin(start, done) => {
                    self.answer_alone(done, |writer| writer.begin_at(&start));
                }
            }
        }
        self.settle().ok();
    }

    /// Why the writer has stopped.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Makes all earlier commands durable, then performs this one; an error stops the writer.
    fn answer<T>(
        &mut self,
        done: oneshot::Sender<Result<T, StoreError>>,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) {
        let settled = self.settle();
        let result = settled.and_then(|()| work(self).map_err(|error| self.fail(error)));
        done.send(result).ok();
    }

    /// Like [`Self::answer`], for truncations of entries or files: no purge is served during it.
    fn answer_alone<T>(
        &mut self,
        done: oneshot::Sender<Result<T, StoreError>>,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) {
        self.answer(done, |writer| {
            let room = writer.room.clone();
            let allow_purges = |allowed| room.iter().for_each(|room| room.allow_purges(allowed));
            allow_purges(false);
            let done = work(writer);
            allow_purges(true);
            done
        });
    }

    /// Records the first error, and notifies all waiting callers.
    pub(crate) fn fail(&mut self, error: StoreError) -> StoreError {
        let error = self.failure.get_or_insert(error).clone();
        self.log.view.lock().failure.get_or_insert(error.clone());
        self.buffer.clear();
        self.staged.clear();
        for callback in self.waiting.drain(..) {
            callback.io_completed(Err(error.clone().into()));
        }
        error
    }

    fn append(&mut self, entries: &[PreparedEntry], callback: IOFlushed<TypeConfig>) {
        let staged = self.check().and_then(|()| {
            entries
                .iter()
                .try_for_each(|entry| self.stage(entry))
                .map_err(|error| self.fail(error))
        });
        match staged {
            Ok(()) => self.waiting.push(callback),
            Err(error) => callback.io_completed(Err(error.into())),
        }
    }

    /// Makes staged entries durable, publishes them to readers, and notifies waiting callers.
    pub(super) fn settle(&mut self) -> Result<(), StoreError> {
        self.check()?;
        if !self.staged.is_empty() {
            self.flush(self.log.options.durability)
                .map_err(|error| self.fail(error))?;
        }
        self.notify_waiting();
        Ok(())
    }

    /// Calls the callbacks of durable entries, in order.
    pub(super) fn notify_waiting(&mut self) {
        for callback in self.waiting.drain(..) {
            callback.io_completed(Ok(()));
        }
    }

    /// Writes and syncs staged entries, without calling their callbacks yet.
    pub(super) fn flush(&mut self, durability: Durability) -> Result<(), StoreError> {
        self.write_out()?;
        let begun = Instant::now();
        let has_membership = self.staged.iter().any(|staged| staged.is_membership);
        let syncs = durability == Durability::Fsync || has_membership;
        if syncs {
            self.sync_file()?;
        }
        // The durable mark lags behind other entries: a start truncates damage after the mark and records a doubt. A membership must never
        // be lost that way. A member in doubt asks the other members, which it knows from its log. If it lost the entry that added the
        // second member, it would assume that it is alone and elect itself. So the mark covers a membership before its durability is
        // reported, whatever the configuration for other entries. A start then refuses a log with damage to it. The cost is two syncs per
        // membership.
        if let Some(last) = self.staged.last().filter(|_| has_membership) {
            let mark = DurableMark {
                op_id: last.op_id,
                file: self.state.header.number,
                end: last.end,
            };
            let stored = self.hard.store(DURABLE, Some(&mark));
            stored.doing("storing that a membership is durable")?;
            self.state.saved_mark = Some(mark);
        }
        let sync = begun.elapsed();
        let bytes = self.publish(syncs);
        let sample = FlushSample {
            entries: self.staged.len() as u64,
            bytes,
            write: std::mem::take(&mut self.write_time),
            sync,
        };
        self.staged.clear();
        self.log.counters.flushed(&sample);
        if let Some(observer) = &self.log.options.observer {
            observer.flushed(&sample);
        }
        Ok(())
    }

    fn sync_file(&self) -> Result<(), StoreError> {
        let number = self.state.header.number;
        let synced = self.state.file.sync_data();
        synced.doing(format_args!("syncing {number}"))
    }

    /// Syncs entries written without sync. Files before the current one were synced when they were closed.
    pub(super) fn sync_written(&mut self) -> Result<(), StoreError> {
        let written = {
            let view = self.log.view.lock();
            (view.synced != view.durable).then_some(view.durable)
        };
        if let Some(durable) = written {
            self.sync_file()?;
            self.log.view.lock().synced = durable;
        }
        Ok(())
    }

    /// Publishes the positions of the staged entries to readers, and whether they are synced; returns the number of their bytes.
    fn publish(&mut self, synced: bool) -> u64 {
        let mut view = self.log.view.lock();
        let mut bytes = 0;
        for staged in &self.staged {
            bytes += staged.end - staged.offset;
            let Some(file) = view.files.back_mut() else {
                continue;
            };
            file.note(staged.op_id, staged.offset, staged.end);
            let end = LogPlace::new(file.number(), staged.end);
            view.tail.written(staged.op_id.index, end);
        }
        if let Some(last) = self.staged.last() {
            view.durable = Some(last.op_id);
            if synced {
                view.synced = view.durable;
            }
            view.evict();
        }
        bytes
    }

    fn save_vote(&mut self, vote: Vote) -> Result<(), StoreError> {
        let saved = self.hard.store(VOTE, Some(&vote));
        saved.doing("storing the vote")?;
        self.log.view.lock().vote = Some(vote);
        Ok(())
    }

    /// Records that acknowledged entries may be missing, in addition to an existing doubt.
    fn note_doubt(&mut self, doubt: DoubtedTail) -> Result<(), StoreError> {
        let known = self.log.view.lock().doubt;
        let doubt = known.map_or(doubt, |known| known.and(doubt));
        let noted = self.hard.store(DOUBT, Some(&doubt));
        noted.doing("noting that the log's end is in doubt")?;
        self.log.view.lock().doubt = Some(doubt);
        Ok(())
    }

    fn note_elections(&mut self, notes: ElectionNotes) -> Result<(), StoreError> {
        let noted = self.hard.store(ELECTIONS, Some(&notes));
        noted.doing("storing what the next election needs")?;
        self.log.view.lock().elections = notes;
        Ok(())
    }

    /// Clears the doubt about truncated acknowledged entries if the durable log ends at or after `from`.
    fn settle_tail(&mut self, from: OpId) -> Result<bool, StoreError> {
        let view = self.log.view.lock();
        let end = view.durable.max(view.floor_op_id()).unwrap_or_default();
        if view.doubt.is_none() || end < from {
            return Ok(view.doubt.is_none());
        }
        drop(view);
        let settled = self.hard.store(DOUBT, None);
        settled.doing("storing that the log's end is settled")?;
        self.log.view.lock().doubt = None;
        Ok(true)
    }
}

// Writing entries to the file: encoded into a buffer, or written directly.

/// Size at which the buffer is written, so that a large batch needs no second copy. A single event may exceed this size.
const WRITE_AT_BYTES: usize = 4 << 20;
/// Events of at least this size are written directly instead of through the buffer.
const DIRECT_EVENT_BYTES: usize = 1 << 20;

impl LogWriter {
    /// Encodes an entry into the buffer.
    pub(super) fn stage(&mut self, entry: &PreparedEntry) -> Result<(), StoreError> {
        let marker = entry.checked_marker()?;
        // The entry counts against the disk budget even if there is no room: see [`crate::disk_space`]. The 128 bytes are an upper bound
        // for the marker, a rotate event and the next header.
        let needed = marker.stored_payload_len() + entry.in_marker.len() as u64 + 128;
        self.log.space.wrote(needed);
        let offset = self.state.end;
        self.state.end = encode_marker(
            &marker,
            &entry.in_marker,
            entry.origin,
            offset,
            &mut self.buffer,
        );
        match &entry.content {
            Content::Blank | Content::Membership(_) => {}
            Content::Transaction(first) => {
                self.stage_events(&entry.events)?;
                self.state.gtids.extend(first.gtid);
            }
            Content::Rotate(_) => {
                let (timestamp, server_id) = entry.origin;
                let origin = EventOrigin {
                    timestamp,
                    server_id,
                    ..EventOrigin::default()
                };
                let next = self.state.header.number.next().name();
                let event = RotateEvent::to(&next).encode(origin);
                self.state.end = stamp(&event, self.state.end, &mut self.buffer)
                    .expect("an event that was just encoded is one whole event");
            }
        }
        self.state.last = Some(entry.op_id);
        self.staged.push(Staged {
            op_id: entry.op_id,
            offset,
            end: self.state.end,
            is_membership: matches!(entry.content, Content::Membership(_)),
        });
        if let Content::Rotate(rotate) = &entry.content {
            self.rotate(rotate)?;
        } else if self.buffer.len() >= WRITE_AT_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    /// Encodes a payload's events after the buffer, large ones directly into the file.
    fn stage_events(&mut self, events: &[u8]) -> Result<(), StoreError> {
        let whole = "the payload was checked to be whole events";
        let mut rest = events;
        while let Some(event) = EventRef::split_from(&mut rest).expect(whole) {
            if event.bytes().len() < DIRECT_EVENT_BYTES {
                self.state.end =
                    stamp(event.bytes(), self.state.end, &mut self.buffer).expect(whole);
                if self.buffer.len() >= WRITE_AT_BYTES {
                    self.write_out()?;
                }
                continue;
            }
            let end = self.state.end + (event.bytes().len() + CHECKSUM_LEN) as u64;
            let header = EventHeader {
                event_size: (event.bytes().len() + CHECKSUM_LEN) as u32,
                log_pos: end as u32,
                ..*event.header()
            };
            let header = header.encode();
            let body = &event.bytes()[HEADER_LEN..];
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&header);
            checksum.update(body);
            self.buffer.extend_from_slice(&header);
            self.state.end += HEADER_LEN as u64;
            self.write_out()?;
            self.write(body, self.state.end)?;
            self.buffer
                .extend_from_slice(&checksum.finalize().to_le_bytes());
            self.state.end = end;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], offset: u64) -> Result<(), StoreError> {
        let begun = Instant::now();
        let written = self.state.file.write_at(bytes, offset);
        self.write_time += begun.elapsed();
        written.doing(format_args!("writing {}", self.state.header.number))
    }

    /// Writes the buffer, which holds the bytes up to the log's end.
    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let offset = self.state.end - buffer.len() as u64;
        let written = self.write(&buffer, offset);
        if buffer.capacity() <= 2 * WRITE_AT_BYTES {
            buffer.clear();
            self.buffer = buffer;
        }
        written
    }
}
