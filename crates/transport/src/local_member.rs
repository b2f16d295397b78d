//! The member behind a server: who it is from the start, its Raft from the moment that its log is open.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use consensus::{AdmissionRefusal, IdentityBook, Inbound, admit};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use proxy::ProxyService;
use raft_types::{LogReport, MemberId, OwnLog};
use spilling_bytes::SpillFolder;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::callers::Right;
use crate::envelope;
use crate::server::connections::Connections;

/// Makes the answer to a status call. The binary decides what an operator sees.
pub trait StatusSource: Send + Sync + 'static {
    /// The member's status, a JSON document.
    fn status(&self) -> BoxFuture<'_, Vec<u8>>;
}

/// Carries out an operator's commands. The binary decides what they are.
pub trait CommandSource: Send + Sync + 'static {
    /// What giving this command takes.
    fn right(&self, json: &[u8]) -> Right;

    /// Begins a command, and tells what happens, as JSON documents; the channel ends with the command.
    /// The command continues when its events are no longer received.
    fn command(&self, caller: CommandCaller, json: Bytes) -> mpsc::Receiver<Bytes>;
}

/// Where a command comes from, as the connection proves it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandCaller {
    /// The other end of the connection, if that is known.
    pub address: Option<SocketAddr>,
    /// The name in the certificate that the caller has shown; none without TLS.
    pub certificate_name: Option<String>,
}

/// What a reader of the log is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPiece {
    /// The canonical payload of a committed transaction.
    Transaction(Bytes),
    /// Everything that is committed was sent; what comes later follows.
    CaughtUp,
}

/// Gives the committed transactions of the member's log to whoever applies them.
pub trait LogSource: Send + Sync + 'static {
    /// The transactions that are not in `have` (a GTID set in MySQL's words), in the log's order, without an end. An error
    /// ends it; its words say what to do.
    fn read(&self, have: String) -> BoxStream<'static, Result<LogPiece, String>>;
}

/// The member behind a server.
pub struct LocalMember {
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) status: Arc<dyn StatusSource>,
    /// Those that others have opened to this member.
    pub(crate) connections: Connections,
    commands: OnceLock<Arc<dyn CommandSource>>,
    readable: OnceLock<Arc<dyn LogSource>>,
    inbound: OnceLock<Inbound>,
    log: OnceLock<Arc<dyn OwnLog>>,
    proxy: OnceLock<Arc<dyn ProxyService>>,
    spill: OnceLock<SpillFolder>,
    /// So that a member that keeps calling in vain fills no log.
    last_refusal: Mutex<Option<AdmissionRefusal>>,
}

impl LocalMember {
    /// A member that is known and whose Raft does not run yet.
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

    /// From now on the calls of other members go to this Raft. The first one stays.
    pub fn attach(&self, inbound: Inbound) {
        // A member has one Raft in its life; a second one would be a mistake that changes nothing.
        let _ = self.inbound.set(inbound);
    }

    /// From now on answers to a leader that searches bring reports of this log. The first one stays;
    /// without one there are no reports, and the leader's search takes longer.
    pub fn report_of(&self, log: Arc<dyn OwnLog>) {
        let _ = self.log.set(log);
    }

    /// From now on entries are sent on for leaders by this. The first one stays; without one they are not.
    pub fn send_on_by(&self, proxy: Arc<dyn ProxyService>) {
        let _ = self.proxy.set(proxy);
    }

    /// Who sends entries on for leaders, once there is somebody.
    pub(crate) fn proxy(&self) -> Option<Arc<dyn ProxyService>> {
        self.proxy.get().cloned()
    }

    /// From now on large payloads that other members send are in files of this folder. The first one stays; without one they
    /// are in memory.
    pub fn hold_large_payloads_in(&self, folder: SpillFolder) {
        let _ = self.spill.set(folder);
    }

    /// Where large payloads are.
    pub(crate) fn spill(&self) -> SpillFolder {
        self.spill.get().cloned().unwrap_or_default()
    }

    /// What the log says of itself.
    pub(crate) fn log_report(&self) -> Option<LogReport> {
        self.log.get().map(|log| log.report())
    }

    /// From now on operators' commands are carried out by this. The first one stays.
    pub fn take_commands(&self, commands: Arc<dyn CommandSource>) {
        let _ = self.commands.set(commands);
    }

    /// From now on the log can be read from outside of the ring. The first one stays.
    pub fn serve_log(&self, log: Arc<dyn LogSource>) {
        let _ = self.readable.set(log);
    }

    /// The log as it is read from outside of the ring, once it is open.
    pub(crate) fn readable(&self) -> Option<&dyn LogSource> {
        self.readable.get().map(|log| &**log)
    }

    /// Who carries out operators' commands, once there is somebody.
    pub(crate) fn commands(&self) -> Option<&dyn CommandSource> {
        self.commands.get().map(|commands| &**commands)
    }

    /// The member's Raft, if it runs.
    pub(crate) fn inbound(&self) -> Option<&Inbound> {
        self.inbound.get()
    }

    /// The member's Raft and the caller, when the call is one to listen to.
    pub(crate) fn admitted(&self, metadata: &MetadataMap) -> Result<(&Inbound, MemberId), Status> {
        let envelope = envelope::open(metadata)?;
        let inbound = self.inbound.get();
        let known = |id| inbound.and_then(|inbound| inbound.record(id));
        let own = self.book.identity();
        if let Err(refusal) = admit(&envelope, &own, self.book.speaks(), known) {
            self.log_once(refusal);
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

    fn log_once(&self, refusal: AdmissionRefusal) {
        let mut last = self
            .last_refusal
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.replace(refusal) != Some(refusal) {
            tracing::warn!(%refusal, "a call of another member is refused");
        }
    }
}

impl std::fmt::Debug for LocalMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalMember")
            .field("book", &self.book)
            .field("attached", &self.inbound.get().is_some())
            .finish_non_exhaustive()
    }
}
