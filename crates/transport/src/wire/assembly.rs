//! Puts the messages of an append stream together into requests for the engine. Holds one entry at
//! most that is not complete, and checks every checksum before the engine sees an entry.

use openraft::raft::AppendEntriesRequest;
use raft_types::{
    Entry, LogId, MAX_TRANSACTION_BYTES, OpId, PayloadAssembly, TransactionPayload, TypeConfig,
};

use super::entry::{entry_from, kind_of, length_in_log, log_id_of, transaction_entry};
use super::error::WireError;
use super::vote::heartbeat_request;
use crate::compression::{UnpackError, Unpacking};
use crate::schema::{self, AppendPart, EntryKind};

type Request = AppendEntriesRequest<TypeConfig>;

/// The receiving end of an append stream.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    open: Option<OpenEntry>,
}

/// A request whose last entry is not complete.
#[derive(Debug)]
struct OpenEntry {
    request: Request,
    log_id: LogId,
    /// Of the body as it travels.
    length: usize,
    received: usize,
    body: OpenBody,
}

/// A body of which more is to come.
#[derive(Debug)]
enum OpenBody {
    Plain(PayloadAssembly),
    Packed(Box<Unpacking>),
}

impl OpenBody {
    fn push(&mut self, op_id: OpId, piece: &[u8]) -> Result<(), WireError> {
        match self {
            Self::Plain(payload) => {
                payload.push(piece);
                Ok(())
            }
            Self::Packed(unpacking) => {
                let pushed = unpacking.push(piece).map_err(UnpackError::from);
                pushed.map_err(|source| WireError::NotUnpacked { op_id, source })
            }
        }
    }

    fn finish(self, op_id: OpId) -> Result<TransactionPayload, WireError> {
        match self {
            Self::Plain(payload) => {
                let payload = payload.finish();
                payload.map_err(|source| WireError::Damaged { op_id, source })
            }
            Self::Packed(unpacking) => {
                let payload = unpacking.finish();
                payload.map_err(|source| WireError::NotUnpacked { op_id, source })
            }
        }
    }
}

impl Assembly {
    /// Takes the next message in; a request comes out when it is complete.
    pub(crate) fn push(&mut self, part: AppendPart) -> Result<Option<Request>, WireError> {
        match (self.open.take(), part.head) {
            (None, Some(head)) => {
                if !part.continuation.is_empty() {
                    let what = "a continuation stands beside the head of a request";
                    return Err(WireError::OutOfOrder(what));
                }
                self.begin(heartbeat_request(head)?, part.entries)
            }
            (Some(open), None) => self.go_on(open, &part),
            (None, None) => Err(WireError::OutOfOrder("a continuation without an entry")),
            (Some(_), Some(_)) => Err(WireError::OutOfOrder("a request inside an entry")),
        }
    }

    fn begin(
        &mut self,
        mut request: Request,
        entries: Vec<schema::Entry>,
    ) -> Result<Option<Request>, WireError> {
        request.entries.reserve_exact(entries.len());
        let mut entries = entries.into_iter().peekable();
        while let Some(entry) = entries.next() {
            if entry.body.len() as u64 == entry.body_length {
                let decoded = consecutive(&request, entry_from(entry)?)?;
                request.entries.push(decoded);
                continue;
            }
            if entries.peek().is_some() {
                let what = "an incomplete entry before another one";
                return Err(WireError::OutOfOrder(what));
            }
            self.open = Some(OpenEntry::begin(request, &entry)?);
            return Ok(None);
        }
        Ok(Some(request))
    }

    fn go_on(
        &mut self,
        mut open: OpenEntry,
        part: &AppendPart,
    ) -> Result<Option<Request>, WireError> {
        let received = open.received + part.continuation.len();
        if !part.entries.is_empty() || part.continuation.is_empty() || received > open.length {
            return Err(WireError::OutOfOrder("a piece that does not fit its entry"));
        }
        open.body.push(open.log_id.into(), &part.continuation)?;
        open.received = received;
        if received < open.length {
            self.open = Some(open);
            return Ok(None);
        }
        open.finish().map(Some)
    }
}

impl OpenEntry {
    fn begin(request: Request, entry: &schema::Entry) -> Result<Self, WireError> {
        let log_id = log_id_of(entry);
        let op_id = OpId::from(log_id);
        if kind_of(entry)? != EntryKind::Transaction {
            let what = "an entry that is no transaction came in pieces";
            return Err(WireError::OutOfOrder(what));
        }
        let too_long = || WireError::TooLong {
            op_id,
            length: entry.body_length,
            limit: MAX_TRANSACTION_BYTES,
        };
        if entry.body_length > MAX_TRANSACTION_BYTES {
            return Err(too_long());
        }
        let length = usize::try_from(entry.body_length).map_err(|_| too_long())?;
        if entry.body.len() > length {
            return Err(WireError::OutOfOrder("a piece that does not fit its entry"));
        }
        let mut body = match length_in_log(entry)? {
            None => OpenBody::Plain(PayloadAssembly::begin(length, entry.crc32c)),
            Some(in_log) => {
                let unpacking = Unpacking::begin(in_log, entry.crc32c).map_err(UnpackError::from);
                let unpacking =
                    unpacking.map_err(|source| WireError::NotUnpacked { op_id, source })?;
                OpenBody::Packed(Box::new(unpacking))
            }
        };
        body.push(op_id, &entry.body)?;
        Ok(Self {
            request,
            log_id,
            length,
            received: entry.body.len(),
            body,
        })
    }

    fn finish(self) -> Result<Request, WireError> {
        let Self {
            mut request,
            log_id,
            body,
            ..
        } = self;
        let payload = body.finish(log_id.into())?;
        let entry = consecutive(&request, transaction_entry(log_id, payload))?;
        request.entries.push(entry);
        Ok(request)
    }
}

/// The engine relies on entries that follow each other without a gap.
fn consecutive(request: &Request, entry: Entry) -> Result<Entry, WireError> {
    let before = request.entries.last().map(|entry| entry.log_id);
    let before = before.or(request.prev_log_id);
    let expected = before.map_or(0, |before| before.index.saturating_add(1));
    if entry.log_id.index == expected {
        Ok(entry)
    } else {
        Err(WireError::OutOfOrder("a gap between two entries"))
    }
}
