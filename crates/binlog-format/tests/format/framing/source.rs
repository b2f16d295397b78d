//! A source that sends scripted events.

use binlog_format::canonical::stamp;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventType, HEADER_LEN, RawEvent};
use binlog_format::events::{EncodeEvent, EventOrigin, GtidEvent, LogicalClock, Query, Xid};
use binlog_format::framing::{FramedTransaction, FramingError, StreamItem, TransactionFramer};
use binlog_format::gtid::Gtid;

pub(crate) const LIMIT: u64 = 1 << 20;
pub(crate) const SOURCE: &str = "d14fb9f6-e498-11f1-aa34-02fc00000001";

/// Writes events as in a source's file, and tracks the position in it.
pub(crate) struct Source {
    pub(crate) offset: u64,
    pub(crate) sent: Vec<RawEvent>,
}

impl Source {
    pub(crate) fn new() -> Self {
        Self {
            offset: 4,
            sent: Vec::new(),
        }
    }

    pub(crate) fn canonical(mut self, event: &[u8]) -> Self {
        let mut stored = Vec::new();
        self.offset = stamp(event, self.offset, &mut stored).unwrap();
        self.sent.push(RawEvent::new(stored.into()).unwrap());
        self
    }

    pub(crate) fn event(self, event: &impl EncodeEvent) -> Self {
        self.canonical(&event.encode(EventOrigin {
            timestamp: 77,
            server_id: 5,
            flags: EventFlags::NONE,
        }))
    }

    pub(crate) fn bare(self, event_type: EventType, flags: EventFlags, body: &[u8]) -> Self {
        let header = EventHeader {
            timestamp: 77,
            event_type,
            server_id: 5,
            event_size: (HEADER_LEN + body.len()) as u32,
            log_pos: 0,
            flags,
        };
        self.canonical(&[&header.encode()[..], body].concat())
    }

    pub(crate) fn gtid(self, gno: u64) -> Self {
        self.event(&gtid_event(gno, None))
    }

    pub(crate) fn query(self, statement: &str) -> Self {
        self.event(&query(statement))
    }

    pub(crate) fn xid(self) -> Self {
        self.event(&Xid { xid: 9 })
    }

    pub(crate) fn frame(&self) -> Result<Vec<StreamItem>, FramingError> {
        let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, LIMIT);
        self.frame_with(&mut framer)
    }

    pub(crate) fn frame_with(
        &self,
        framer: &mut TransactionFramer,
    ) -> Result<Vec<StreamItem>, FramingError> {
        let mut items = Vec::new();
        for event in &self.sent {
            items.extend(framer.push(event)?);
        }
        Ok(items)
    }

    /// The single transaction that all events form.
    pub(crate) fn transaction(&self) -> FramedTransaction {
        let items = self.frame().unwrap();
        match items.as_slice() {
            [StreamItem::Transaction(framed)] => framed.clone(),
            other => panic!("one transaction was expected, not {other:?}"),
        }
    }

    pub(crate) fn error(&self) -> FramingError {
        self.frame().unwrap_err()
    }
}

pub(crate) fn gtid(gno: u64) -> Gtid {
    format!("{SOURCE}:{gno}").parse().unwrap()
}

pub(crate) fn gtid_event(gno: u64, transaction_length: Option<u64>) -> GtidEvent {
    GtidEvent {
        tagged: false,
        flags: 0,
        gtid: gtid(gno),
        clock: LogicalClock {
            last_committed: 1,
            sequence_number: 2,
        },
        immediate_commit: transaction_length.map(|_| Default::default()),
        original_commit: None,
        transaction_length,
        immediate_version: None,
        original_version: None,
        commit_group_ticket: None,
    }
}

pub(crate) fn query(statement: &str) -> Query<'_> {
    Query {
        schema: b"shop".as_slice().into(),
        statement: statement.as_bytes().into(),
        ..Query::default()
    }
}

pub(crate) fn source() -> Source {
    Source::new()
}
