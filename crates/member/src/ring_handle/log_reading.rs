//! The member's log for readers outside the ring: committed transactions that a reader lacks, in log order, recent ones from memory.

use binlog_format::event::EventRef;
use binlog_format::events::GtidEvent;
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use openraft::RaftLogReader;
use raft_types::{AppEntry, EntryPayload, OpId};
use tokio::sync::watch;
use transport::{LogPiece, LogSource};

use crate::ring_handle::RingHandle;

pub(crate) struct ReadableLog(pub(crate) RingHandle);

struct Reading {
    ring: RingHandle,
    have: GtidSet,
    committed: watch::Receiver<Option<OpId>>,
    /// The next index to read.
    next: u64,
    /// True if the reader has been notified that it has everything.
    told: bool,
    /// Read and not sent yet, in reverse order.
    ready: Vec<Bytes>,
}

impl ReadableLog {
    /// The committed transactions missing in a reader's set `have`.
    pub(crate) fn beyond(&self, have: GtidSet) -> BoxStream<'static, Result<LogPiece, String>> {
        match Reading::begin(self.0.clone(), have) {
            Ok(reading) => stream::unfold(Some(reading), Reading::step).boxed(),
            Err(words) => refused(words),
        }
    }
}

impl LogSource for ReadableLog {
    fn read(&self, have: String) -> BoxStream<'static, Result<LogPiece, String>> {
        match have.parse() {
            Ok(have) => self.beyond(have),
            Err(error) => refused(format!(
                "the transactions that are not wanted are no GTID set: {error}"
            )),
        }
    }
}

fn refused(words: String) -> BoxStream<'static, Result<LogPiece, String>> {
    stream::iter([Err(words)]).boxed()
}

impl Reading {
    fn begin(ring: RingHandle, have: GtidSet) -> Result<Self, String> {
        let Some(within) = ring.log.last_file_within(&have) else {
            let first = ring.log.bounds().map(|(first, _)| first);
            return Err(format!(
                "the member's log starts after transactions that the reader lacks (its first entry is {}): read from a \
                 member with a longer log, or provision the reader with a copy",
                first.unwrap_or_default()
            ));
        };
        let next = within.before.map_or(0, |before| before.index + 1);
        Ok(Self {
            committed: ring.member.committed(),
            ring,
            have,
            next,
            told: false,
            ready: Vec::new(),
        })
    }

    /// The next piece; an error ends the stream.
    async fn step(reading: Option<Self>) -> Option<(Result<LogPiece, String>, Option<Self>)> {
        let mut reading = reading?;
        match reading.next_piece().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(reading))),
            Ok(None) => None,
            Err(words) => Some((Err(words), None)),
        }
    }

    /// None when the member stops.
    async fn next_piece(&mut self) -> Result<Option<LogPiece>, String> {
        loop {
            if let Some(payload) = self.ready.pop() {
                return Ok(Some(LogPiece::Transaction(payload)));
            }
            let mark = *self.committed.borrow_and_update();
            match mark {
                Some(mark) if mark.index >= self.next => self.fill(mark.index).await?,
                _ if !self.told => {
                    self.told = true;
                    return Ok(Some(LogPiece::CaughtUp));
                }
                _ => {
                    if self.committed.changed().await.is_err() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Continues to read, up to the committed index.
    async fn fill(&mut self, committed: u64) -> Result<(), String> {
        let mut reader = self.ring.log.reader();
        let read = reader
            .limited_get_log_entries(self.next, committed + 1)
            .await;
        let entries = read.map_err(|error| {
            format!(
                "the member cannot read its log at entry {}: {error}; open the reader again",
                self.next
            )
        })?;
        let Some(last) = entries.last() else {
            return Err(format!(
                "entry {} was purged while it was waited for; open the reader again",
                self.next
            ));
        };
        self.next = last.log_id.index + 1;
        self.told = false;
        for entry in entries.into_iter().rev() {
            let EntryPayload::Normal(AppEntry::Transaction(payload)) = entry.payload else {
                continue;
            };
            if !self.has(payload.bytes())? {
                self.ready.push(payload.bytes().clone());
            }
        }
        Ok(())
    }

    fn has(&self, payload: &[u8]) -> Result<bool, String> {
        let mut rest = payload;
        let event = EventRef::split_from(&mut rest);
        let gtid = match event {
            Ok(Some(event)) => GtidEvent::decode(event).map(|event| event.gtid),
            Ok(None) => return Ok(true),
            Err(error) => Err(error),
        };
        let gtid = gtid.map_err(|error| format!("an entry's GTID cannot be read: {error}"))?;
        Ok(self.have.contains(&gtid))
    }
}
