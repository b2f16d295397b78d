//! The member that a server serves. Its identity is available from the start, and its Raft after its log has been opened.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use consensus::Inbound;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use proxy::ProxyService;
use raft_types::{MemberId, OwnLog, lock};
use ring_admin::{AdmissionRefusal, IdentityBook, admit};
use spilling_bytes::SpillFolder;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::callers::Right;
use crate::envelope;

/// Produces the answer to a status call. The program determines its content.
pub trait StatusSource: Send + Sync + 'static {
    /// Returns the member's status, as a JSON document.
    fn status(&self) -> BoxFuture<'_, Vec<u8>>;
}

/// Executes an operator's commands. The program defines the commands.
pub trait CommandSource: Send + Sync + 'static {
    /// Returns the right that this command requires.
    fn right(&self, json: &[u8]) -> Right;

    /// Starts a command. The receiver gets its events as JSON documents until the command ends. If the receiver is dropped, the command
    /// continues.
    fn command(&self, caller: CommandCaller, json: Bytes) -> mpsc::Receiver<Bytes>;
}

/// The verified sender of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandCaller {
    /// The sender's address, if known.
    pub address: Option<SocketAddr>,
    /// The name in the sender's certificate; `None` without TLS.
    pub certificate_name: Option<String>,
}

/// An item sent to a reader of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPiece {
    /// The canonical payload of a committed transaction.
    Transaction(Bytes),
    /// All transactions that are committed by now were sent. Later ones follow.
    CaughtUp,
}

/// Why a reader receives no more of the log.
pub type LogReadError = Box<dyn std::error::Error + Send + Sync>;

/// Provides the committed transactions of the member's log to appliers.
pub trait LogSource: Send + Sync + 'static {
    /// Returns the transactions that are not in `have` (a GTID set in MySQL's text format), in the order of the log. The stream does not
    /// end, because later transactions follow. An error ends it; its text includes advice.
    fn read(&self, have: String) -> BoxStream<'static, Result<LogPiece, LogReadError>>;
}

/// The member that a server serves. Each part is set once, when it runs; a second value has no effect.
pub struct LocalMember {
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) status: Arc<dyn StatusSource>,
    /// Incoming connections of other members.
    pub(crate) connections: Connections,
    /// Executes operators' commands.
    pub commands: OnceLock<Arc<dyn CommandSource>>,
    /// The log for readers outside of the ring. Set after the log has been opened.
    pub readable: OnceLock<Arc<dyn LogSource>>,
    /// The member's Raft, which processes the calls of other members. Set when it runs.
    pub inbound: OnceLock<Inbound>,
    /// The log whose reports are sent with answers if a leader requests them. Without it, the leader's search for the matching point takes
    /// longer.
    pub log: OnceLock<Arc<dyn OwnLog>>,
    /// Relays entries for leaders. Without it, this member does not relay.
    pub proxy: OnceLock<Arc<dyn ProxyService>>,
    /// The folder for large received payloads. Without it, they stay in memory.
    pub spill: OnceLock<SpillFolder>,
    /// The last logged refusal, so that a member that calls repeatedly without success does not fill the log.
    last_refusal: Mutex<Option<AdmissionRefusal>>,
}

impl LocalMember {
    /// Creates a member before its Raft runs.
    pub fn new(book: Arc<IdentityBook>, status: Arc<dyn StatusSource>) -> Self {
        Self {
            book,
            status,
            connections: Connections::default(),
            commands: OnceLock::new(),
            readable: OnceLock::new(),
            inbound: OnceLock::new(),
            log: OnceLock::new(),
            proxy: OnceLock::new(),
            spill: OnceLock::new(),
            last_refusal: Mutex::default(),
        }
    }

    /// Checks the envelope of a call. Returns the member's Raft, and the caller.
    pub(crate) fn admitted(&self, metadata: &MetadataMap) -> Result<(&Inbound, MemberId), Status> {
        let envelope = envelope::open(metadata)?;
        let inbound = self.inbound.get();
        let known = |id| inbound.and_then(|inbound| inbound.record(id));
        let own = self.book.identity();
        if let Err(refusal) = admit(&envelope, &own, self.book.speaks(), known) {
            let last = lock(&self.last_refusal).replace(refusal);
            if last != Some(refusal) {
                tracing::warn!(%refusal, "a call of another member is refused");
            }
            if let (AdmissionRefusal::Format { caller, .. }, Some(inbound)) = (&refusal, inbound) {
                inbound.refused_format(*caller, &refusal);
            }
            return Err(envelope::refusal_status(&refusal));
        }
        let inbound = inbound.ok_or_else(|| {
            let message = format!("member {} is still opening its log; try again", own.member);
            Status::unavailable(message)
        })?;
        Ok((inbound, envelope.from.member))
    }
}

// Incoming connections: which member calls over each connection, and when a member's last connection closes. An exiting leader's
// connections close, so its followers need not wait for missing heartbeats.

/// The number of a connection, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// All open connections, with the member that calls over each one, when it is known.
#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    callers: BTreeMap<ConnectionId, Option<MemberId>>,
}

impl Connections {
    /// Records a new connection.
    pub(crate) fn opens(&self) -> ConnectionId {
        let mut open = lock(&self.0);
        open.next += 1;
        let id = ConnectionId(open.next);
        open.callers.insert(id, None);
        id
    }

    /// Records a member's call over a connection. If the connection is still open, `arrives` is called; its argument is true if the member
    /// had no other open connection. A lock orders this with the end of the last connection. So earlier calls of an exited process do not
    /// count as a sign of life.
    pub(crate) fn calls(&self, id: ConnectionId, caller: MemberId, arrives: impl FnOnce(bool)) {
        let mut open = lock(&self.0);
        let known = open.callers.values().any(|other| *other == Some(caller));
        if let Some(of_this) = open.callers.get_mut(&id) {
            *of_this = Some(caller);
            arrives(!known);
        }
    }

    /// Records a closed connection. If it was a member's last one, `hung_up` is called with the member.
    pub(crate) fn closes(&self, id: ConnectionId, hung_up: impl FnOnce(MemberId)) {
        let mut open = lock(&self.0);
        let caller = open.callers.remove(&id).flatten();
        let last = caller.filter(|_| !open.callers.values().any(|other| *other == caller));
        if let Some(caller) = last {
            hung_up(caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_end_of_a_members_last_connection_is_reported() {
        let connections = Connections::default();
        let [urgent, bulk, stranger, silent] = [(); 4].map(|()| connections.opens());
        let arrivals = RefCell::new(Vec::new());
        let calls = |id, caller| {
            connections.calls(id, MemberId(caller), |is_first| {
                arrivals.borrow_mut().push(is_first);
            });
        };
        calls(urgent, 1);
        calls(bulk, 1);
        calls(stranger, 2);
        let mut closed = Vec::new();
        let mut closes = |id| {
            connections.closes(id, |member| closed.push(member));
            closed.clone()
        };
        assert_eq!(closes(silent), []);
        assert_eq!(closes(bulk), [], "the other one is open");
        assert_eq!(closes(urgent), [MemberId(1)]);
        assert_eq!(*arrivals.borrow(), [true, false, true]);
        // A call that was read before the connection closed, but is processed only now.
        calls(urgent, 1);
        assert_eq!(*arrivals.borrow(), [true, false, true]);
        assert_eq!(closes(urgent), [MemberId(1)], "once");
        let again = connections.opens();
        calls(again, 1);
        assert_eq!(*arrivals.borrow(), [true, false, true, true]);
        assert_eq!(closes(stranger), [MemberId(1), MemberId(2)]);
    }
}
