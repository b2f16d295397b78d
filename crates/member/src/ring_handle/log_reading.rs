//! Reads the member's log for readers outside the ring. A reader gets the committed transactions that it lacks, in the order of the log.
//! Recent ones are read from memory.

use std::io;

use binlog_format::DecodeError;
use binlog_format::event::EventRef;
use binlog_format::events::GtidEvent;
use binlog_format::gtid::{GtidSet, ParseGtidError};
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use openraft::RaftLogReader;
use raft_types::{AppEntry, EntryPayload, OpId};
use thiserror::Error;
use tokio::sync::watch;
use transport::{LogPiece, LogReadError, LogSource};

use crate::ring_handle::RingHandle;

struct Reading {
    ring: RingHandle,
    have: GtidSet,
    committed: watch::Receiver<Option<OpId>>,
    /// The next index to read.
    next: u64,
    /// True if the reader has been notified that it has everything.
    told: bool,
    /// Transactions that were read and not sent yet, in reverse order.
    ready: Vec<Bytes>,
}

/// Why a reader receives no more of the log.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error(
        "the member's log starts after transactions that the reader lacks (its first entry is {first}): read from a \
         member with a longer log, or provision the reader with a copy"
    )]
    StartsLater { first: OpId },
    #[error("the member cannot read its log at entry {at}: {error}; open the reader again")]
    Unreadable { at: u64, error: io::Error },
    #[error("entry {0} was purged while it was waited for; open the reader again")]
    Purged(u64),
    #[error("the transactions that are not wanted are no GTID set: {0}")]
    Have(ParseGtidError),
    #[error("an entry's GTID cannot be read: {0}")]
    Gtid(#[from] DecodeError),
}

impl RingHandle {
    /// Returns the committed transactions that are not in a reader's set `have`.
    pub(crate) fn beyond(&self, have: GtidSet) -> BoxStream<'static, Result<LogPiece, ReadError>> {
        match Reading::begin(self.clone(), have) {
            Ok(reading) => stream::try_unfold(reading, Reading::step).boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }
}

impl LogSource for RingHandle {
    fn read(&self, have: String) -> BoxStream<'static, Result<LogPiece, LogReadError>> {
        match have.parse() {
            Ok(have) => self.beyond(have).map_err(Into::into).boxed(),
            Err(error) => stream::iter([Err(ReadError::Have(error).into())]).boxed(),
        }
    }
}

impl Reading {
    fn begin(ring: RingHandle, have: GtidSet) -> Result<Self, ReadError> {
        let Some(within) = ring.log.last_file_within(&have) else {
            let first = ring.log.bounds().map(|(first, _)| first);
            let first = first.unwrap_or_default();
            return Err(ReadError::StartsLater { first });
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

    /// Returns the next piece. An error ends the stream.
    async fn step(mut self) -> Result<Option<(LogPiece, Self)>, ReadError> {
        let piece = self.next_piece().await?;
        Ok(piece.map(|piece| (piece, self)))
    }

    /// Returns the next piece; `None` if the member stops.
    async fn next_piece(&mut self) -> Result<Option<LogPiece>, ReadError> {
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

    /// Reads more transactions, up to the committed index.
    async fn fill(&mut self, committed: u64) -> Result<(), ReadError> {
        let mut reader = self.ring.log.reader();
        let at = self.next;
        let read = reader.limited_get_log_entries(at, committed + 1).await;
        let entries = read.map_err(|error| ReadError::Unreadable { at, error })?;
        let last = entries.last().ok_or(ReadError::Purged(at))?;
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

    fn has(&self, payload: &[u8]) -> Result<bool, ReadError> {
        let mut rest = payload;
        match EventRef::split_from(&mut rest)? {
            Some(event) => Ok(self.have.contains(&GtidEvent::decode(event)?.gtid)),
            None => Ok(true),
        }
    }
}
