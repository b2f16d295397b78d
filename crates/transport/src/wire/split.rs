//! Cuts a request of the engine into messages of bounded size. Small entries travel together, as many
//! as fit, and make a request of their own on the wire; one that is larger than a message travels
//! alone, in pieces. The receiver never has to hold more than it is able to hand on.

use std::iter::{self, Peekable};
use std::vec;

use bytes::Bytes;
use consensus::log_probe::Asked;
use raft_types::{Entry, LogId, MAX_MESSAGE_BYTES, Vote};

use super::entry::{ENTRY_OVERHEAD, entry_to};
use super::error::WireError;
use super::vote::head_of;
use crate::schema::{self, AppendPart};

/// How much of a message its entries may take: the rest is for the head.
pub(crate) const PART_BYTES: usize = MAX_MESSAGE_BYTES - 1024;

/// One message of a request.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) message: AppendPart,
    /// With the last message of a request on the wire: the size of its entries, for the window. The
    /// receiver answers once for it.
    pub(crate) ends_request_of: Option<usize>,
}

/// A request of the engine, with what its payloads were packed to.
pub(crate) struct PackedRequest {
    pub(crate) asked: Asked,
    /// By the entries' places in the request; it may be shorter. None: the payload travels as it is.
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

/// An entry, and what its payload was packed to.
type Outgoing = (Entry, Option<Bytes>);

/// The messages of one request of the engine.
pub(crate) struct Splitter {
    vote: Vote,
    leader_commit: Option<LogId>,
    previous: Option<LogId>,
    entries: Peekable<vec::IntoIter<Outgoing>>,
    /// A request without entries is a message, too.
    nothing_sent: bool,
    /// The first answer shall bring a report.
    wants_report: bool,
    /// What is left of an entry that travels in pieces, and its whole size.
    rest: Option<(Bytes, usize)>,
}

impl Splitter {
    pub(crate) fn new(request: PackedRequest) -> Self {
        let PackedRequest { asked, packed } = request;
        let Asked {
            request,
            wants_report,
        } = asked;
        let packed = packed.into_iter().chain(iter::repeat(None));
        let entries: Vec<Outgoing> = request.entries.into_iter().zip(packed).collect();
        Self {
            wants_report,
            vote: request.vote,
            leader_commit: request.leader_commit,
            previous: request.prev_log_id,
            entries: entries.into_iter().peekable(),
            nothing_sent: true,
            rest: None,
        }
    }

    /// Whether the next message continues an entry.
    pub(crate) fn is_inside_entry(&self) -> bool {
        self.rest.is_some()
    }

    /// The next message.
    pub(crate) fn next_part(&mut self) -> Result<Option<Part>, WireError> {
        if let Some((rest, whole)) = self.rest.take() {
            return Ok(Some(self.continue_entry(rest, whole)));
        }
        let Some(first) = self.entries.next() else {
            let head_only = std::mem::take(&mut self.nothing_sent);
            return Ok(head_only.then(|| Part {
                message: self.begin(Vec::new()),
                ends_request_of: Some(0),
            }));
        };
        self.nothing_sent = false;
        let previous = first.0.log_id;
        let mut first = entry_to(first.0, first.1)?;
        let whole = size_of(&first);
        if whole > PART_BYTES {
            let piece = first.body.split_to(PART_BYTES - ENTRY_OVERHEAD);
            let rest = std::mem::replace(&mut first.body, piece);
            self.rest = Some((rest, whole));
            let message = self.begin(vec![first]);
            self.previous = Some(previous);
            return Ok(Some(Part {
                message,
                ends_request_of: None,
            }));
        }
        self.batch(first, previous).map(Some)
    }

    /// A message of `first` and the entries after it that fit.
    fn batch(&mut self, first: schema::Entry, mut last: LogId) -> Result<Part, WireError> {
        let mut bytes = size_of(&first);
        let mut batch = vec![first];
        while let Some(next) = self
            .entries
            .next_if(|next| bytes + bound_of(next) <= PART_BYTES)
        {
            last = next.0.log_id;
            let next = entry_to(next.0, next.1)?;
            bytes += size_of(&next);
            batch.push(next);
        }
        let message = self.begin(batch);
        self.previous = Some(last);
        Ok(Part {
            message,
            ends_request_of: Some(bytes),
        })
    }

    fn begin(&mut self, entries: Vec<schema::Entry>) -> AppendPart {
        let head = schema::AppendHead {
            wants_report: std::mem::take(&mut self.wants_report),
            ..head_of(&self.vote, self.previous, self.leader_commit)
        };
        AppendPart {
            head: Some(head),
            entries,
            continuation: Bytes::new(),
        }
    }

    fn continue_entry(&mut self, mut rest: Bytes, whole: usize) -> Part {
        let continuation = rest.split_to(rest.len().min(PART_BYTES));
        let ends = rest.is_empty();
        if !ends {
            self.rest = Some((rest, whole));
        }
        Part {
            message: AppendPart {
                head: None,
                entries: Vec::new(),
                continuation,
            },
            ends_request_of: ends.then_some(whole),
        }
    }
}

fn size_of(entry: &schema::Entry) -> usize {
    entry.body.len() + ENTRY_OVERHEAD
}

/// The size of an entry, without making its body.
fn bound_of((entry, packed): &Outgoing) -> usize {
    use raft_types::{AppEntry, EntryPayload};
    if let Some(packed) = packed {
        return packed.len() + ENTRY_OVERHEAD;
    }
    let body = match &entry.payload {
        EntryPayload::Blank => 0,
        EntryPayload::Normal(AppEntry::Transaction(payload)) => payload.bytes().len(),
        EntryPayload::Normal(AppEntry::Rotate(rotate)) => rotate.format_description.len(),
        EntryPayload::Membership(payload) => payload.json().len(),
    };
    body + ENTRY_OVERHEAD
}
