//! Converts the engine's requests to messages of limited size, and back. Several small entries share a message, which is a complete request
//! on the wire. A transaction that is larger than a message is sent alone, in pieces. The receiver never buffers more than one incomplete
//! entry.

use std::iter::Peekable;
use std::{iter, vec};

use bytes::Bytes;
use consensus::log_probe::{Asked, Departure};
use openraft::raft::AppendEntriesRequest;
use raft_types::{
    AppEntry, AssemblyError, Entry, EntryPayload, LogId, MAX_MESSAGE_BYTES, OpId, PayloadAssembly,
    TransactionPayload, TypeConfig, Vote,
};

use spilling_bytes::SpillFolder;

use crate::compression::Unpacking;
use crate::schema::{self, AppendPart, EntryKind};
use crate::wire::calls::{head_of, heartbeat_request};
use crate::wire::entry::{
    ENTRY_OVERHEAD, damaged, entry_from, entry_length, entry_to, kind_of, length_in_log, log_id_of,
};
use crate::wire::{Decoded, WireError};

/// Maximum bytes of entries in a message; the rest of the message is for its head.
pub(crate) const PART_BYTES: usize = MAX_MESSAGE_BYTES - 1024;

/// One message of a request.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) message: AppendPart,
    /// Set in the last message of a request on the wire: the size of the request's entries, for the window. The receiver sends one answer
    /// to the request.
    pub(crate) ends_request_of: Option<usize>,
}

/// A request of the engine, with its compressed payloads.
pub(crate) struct PackedRequest {
    pub(crate) asked: Asked,
    /// The compressed payloads, by the position of the entry; may be shorter than the entries. `None` if the payload is sent uncompressed.
    pub(crate) packed: Vec<Option<Bytes>>,
}

impl From<Asked> for PackedRequest {
    fn from(asked: Asked) -> Self {
        Self {
            asked,
            packed: Vec::new(),
        }
    }
}

/// An entry and its compressed payload.
type Outgoing = (Entry, Option<Bytes>);

/// Splits one request of the engine into messages.
pub(crate) struct Splitter {
    vote: Vote,
    leader_commit: Option<LogId>,
    previous: Option<LogId>,
    entries: Peekable<vec::IntoIter<Outgoing>>,
    /// True until the first message is cut, because a request without entries needs a message too.
    nothing_sent: bool,
    /// True if the first answer should include a report.
    wants_report: bool,
    departure: Departure,
    /// The rest of an entry that is sent in pieces, and the size of the whole entry.
    rest: Option<(Bytes, usize)>,
    /// Maximum bytes of entries in a message.
    most: usize,
}

impl Splitter {
    /// Limits the entries of each message to `most` bytes, at most [`PART_BYTES`]. Only a membership may be larger.
    pub(crate) fn new(request: PackedRequest, most: usize) -> Self {
        let PackedRequest { asked, packed } = request;
        let Asked {
            request,
            wants_report,
            departure,
        } = asked;
        let packed = packed.into_iter().chain(iter::repeat(None));
        let entries: Vec<Outgoing> = request.entries.into_iter().zip(packed).collect();
        Self {
            wants_report,
            departure,
            vote: request.vote,
            leader_commit: request.leader_commit,
            previous: request.prev_log_id,
            entries: entries.into_iter().peekable(),
            nothing_sent: true,
            rest: None,
            most,
        }
    }

    /// Returns true if the next message continues an entry.
    pub(crate) fn is_inside_entry(&self) -> bool {
        self.rest.is_some()
    }

    /// Returns the next message of the request; `None` after the last one.
    pub(crate) fn next_part(&mut self) -> Option<Part> {
        let part = self.cut()?;
        let last = self.rest.is_none() && self.entries.peek().is_none();
        self.departure.piece_left(last);
        Some(part)
    }

    fn cut(&mut self) -> Option<Part> {
        if let Some((rest, whole)) = self.rest.take() {
            return Some(self.continue_entry(rest, whole));
        }
        let Some(first) = self.entries.next() else {
            let head_only = std::mem::take(&mut self.nothing_sent);
            return head_only.then(|| Part {
                message: self.begin(Vec::new()),
                ends_request_of: Some(0),
            });
        };
        self.nothing_sent = false;
        let previous = first.0.log_id;
        let mut first = entry_to(first.0, first.1);
        let whole = size_of(&first);
        // The receiver decodes entries of other kinds as a whole. So they are sent alone, in one message that may exceed the limit.
        let is_transaction = first.kind == i32::from(EntryKind::Transaction);
        if whole > self.most && is_transaction {
            let piece = first.body.split_to(self.most - ENTRY_OVERHEAD);
            let rest = std::mem::replace(&mut first.body, piece);
            self.rest = Some((rest, whole));
            let message = self.begin(vec![first]);
            self.previous = Some(previous);
            return Some(Part {
                message,
                ends_request_of: None,
            });
        }
        Some(self.batch(first, previous))
    }

    /// Returns a message with `first` and the following entries that fit.
    fn batch(&mut self, first: schema::Entry, mut last: LogId) -> Part {
        let most = self.most;
        let mut bytes = size_of(&first);
        let mut batch = vec![first];
        while let Some(next) = self.entries.next_if(|next| bytes + bound_of(next) <= most) {
            last = next.0.log_id;
            let next = entry_to(next.0, next.1);
            bytes += size_of(&next);
            batch.push(next);
        }
        let message = self.begin(batch);
        self.previous = Some(last);
        Part {
            message,
            ends_request_of: Some(bytes),
        }
    }

    fn begin(&mut self, entries: Vec<schema::Entry>) -> AppendPart {
        let head = schema::AppendHead {
            wants_report: std::mem::take(&mut self.wants_report),
            ..head_of(&self.vote, self.previous, self.leader_commit)
        };
        AppendPart {
            head: Some(head),
            entries,
            ..AppendPart::default()
        }
    }

    fn continue_entry(&mut self, mut rest: Bytes, whole: usize) -> Part {
        let continuation = rest.split_to(rest.len().min(self.most));
        let ends = rest.is_empty();
        if !ends {
            self.rest = Some((rest, whole));
        }
        Part {
            message: AppendPart {
                continuation,
                ..AppendPart::default()
            },
            ends_request_of: ends.then_some(whole),
        }
    }
}

fn size_of(entry: &schema::Entry) -> usize {
    entry.body.len() + ENTRY_OVERHEAD
}

/// Returns an upper bound of an entry's size, without encoding its body.
fn bound_of((entry, packed): &Outgoing) -> usize {
    let packed = packed.as_ref().map(Bytes::len);
    packed.unwrap_or_else(|| entry.payload.body_length()) + ENTRY_OVERHEAD
}

// Assembles the messages of an append stream into requests for the engine. Buffers at most one incomplete entry, and verifies every
// checksum before the engine receives an entry.

type Request = AppendEntriesRequest<TypeConfig>;

/// The receiving end of an append stream.
#[derive(Default)]
pub(crate) struct Assembly {
    open: Option<OpenEntry>,
    /// The folder for large payloads.
    spill: SpillFolder,
}

/// A request with an incomplete last entry.
struct OpenEntry {
    request: Request,
    log_id: LogId,
    /// Size of the body as transmitted, possibly compressed.
    length: usize,
    received: usize,
    body: OpenBody,
}

/// An incomplete body.
enum OpenBody {
    Plain(PayloadAssembly),
    Packed(Box<Unpacking>),
}

impl OpenBody {
    fn push(&mut self, op_id: OpId, piece: &[u8]) -> Decoded {
        match self {
            Self::Plain(payload) => {
                payload.push(piece);
                Ok(())
            }
            Self::Packed(unpacking) => unpacking.push(piece).map_err(damaged(op_id)),
        }
    }

    fn finish(self, op_id: OpId) -> Decoded<TransactionPayload> {
        match self {
            Self::Plain(payload) => payload.finish().map_err(|error| match error {
                AssemblyError::Checksum(error) => damaged(op_id)(error),
                AssemblyError::Lost(source) => WireError::Lost { op_id, source },
            }),
            Self::Packed(unpacking) => unpacking.finish().map_err(damaged(op_id)),
        }
    }
}

impl Assembly {
    /// Creates an assembly that stores large payloads in files of `spill`.
    pub(crate) fn spilling(spill: SpillFolder) -> Self {
        Self { open: None, spill }
    }

    /// Adds the next message. Returns a request if it is complete.
    pub(crate) fn push(&mut self, part: AppendPart) -> Decoded<Option<Request>> {
        match (self.open.take(), part.head) {
            (None, Some(head)) => {
                if !part.continuation.is_empty() {
                    let what = "a message has a continuation and the head of a request";
                    return Err(WireError::OutOfOrder(what));
                }
                self.begin(heartbeat_request(head)?, part.entries)
            }
            (Some(open), None) => self.extend(open, &part),
            (None, None) => Err(WireError::OutOfOrder("a continuation without an entry")),
            (Some(_), Some(_)) => Err(WireError::OutOfOrder("a request inside an entry")),
        }
    }

    fn begin(
        &mut self,
        mut request: Request,
        entries: Vec<schema::Entry>,
    ) -> Decoded<Option<Request>> {
        request.entries.reserve_exact(entries.len());
        let mut entries = entries.into_iter().peekable();
        while let Some(entry) = entries.next() {
            if entry.body.len() as u64 == entry.body_length {
                let decoded = consecutive(&request, entry_from(entry, &self.spill)?)?;
                request.entries.push(decoded);
                continue;
            }
            if entries.peek().is_some() {
                let what = "an incomplete entry before another one";
                return Err(WireError::OutOfOrder(what));
            }
            self.open = Some(OpenEntry::begin(request, &entry, &self.spill)?);
            return Ok(None);
        }
        Ok(Some(request))
    }

    fn extend(&mut self, mut open: OpenEntry, part: &AppendPart) -> Decoded<Option<Request>> {
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
    fn begin(request: Request, entry: &schema::Entry, spill: &SpillFolder) -> Decoded<Self> {
        let log_id = log_id_of(entry);
        let op_id = OpId::from(log_id);
        if kind_of(entry)? != EntryKind::Transaction {
            let what = "an entry that is no transaction came in pieces";
            return Err(WireError::OutOfOrder(what));
        }
        let length = entry_length(op_id, entry.body_length)?;
        if entry.body.len() > length {
            return Err(WireError::OutOfOrder("a piece that does not fit its entry"));
        }
        let mut body = match length_in_log(entry)? {
            None => OpenBody::Plain(PayloadAssembly::begin(length, entry.crc32c, spill)),
            Some(in_log) => {
                let unpacking = Unpacking::begin(in_log, entry.crc32c, spill);
                let unpacking = unpacking.map_err(damaged(op_id))?;
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

    fn finish(self) -> Decoded<Request> {
        let log_id = self.log_id;
        let payload = AppEntry::Transaction(self.body.finish(log_id.into())?);
        let payload = EntryPayload::Normal(payload);
        let mut request = self.request;
        let entry = consecutive(&request, Entry { log_id, payload })?;
        request.entries.push(entry);
        Ok(request)
    }
}

/// Checks that an entry follows the one before it, because the engine requires consecutive entries.
fn consecutive(request: &Request, entry: Entry) -> Decoded<Entry> {
    let before = request.entries.last().map(|entry| entry.log_id);
    let before = before.or(request.prev_log_id);
    let expected = before.map_or(0, |before| before.index.saturating_add(1));
    match entry.log_id.index == expected {
        true => Ok(entry),
        false => Err(WireError::OutOfOrder("a gap between two entries")),
    }
}
