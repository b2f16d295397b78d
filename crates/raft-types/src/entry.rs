//! The content of a log entry for the application and the engine, openraft's parameters, and the limits that
//! more than one crate must agree on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use derive_more::Display;
use openraft::RaftTypeConfig;
use openraft::entry::RaftPayload;
use openraft::raft::responder::Responder;
use openraft::type_config::alias::LogIdOf;
use serde::{Deserialize, Serialize};
use spilling_bytes::{Gathered, SpillFolder, SpillLost, SpillingBytes};
use thiserror::Error;

use crate::ids::{MemberId, OpId};
use crate::member_record::MemberRecord;

/// The application's part of an entry. Cloning is cheap: payloads are shared bytes.
#[derive(Debug, Clone, PartialEq, Eq, Display, Serialize, Deserialize)]
pub enum AppEntry {
    /// One transaction of the primary.
    #[display("transaction({} bytes)", _0.bytes().len())]
    Transaction(TransactionPayload),
    /// The end of one binlog file and the beginning of the next.
    #[display("rotate")]
    Rotate(Rotate),
}

impl AppEntry {
    /// The length of its payload, or of the next file's format description, in bytes.
    pub fn body_length(&self) -> usize {
        match self {
            Self::Transaction(payload) => payload.bytes.len(),
            Self::Rotate(rotate) => rotate.format_description.len(),
        }
    }
}

/// A canonical payload and its checksum: the sequence of events of one transaction, each with `log_pos` zero
/// and without its own CRC32.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPayload {
    bytes: Bytes,
    crc32c: u32,
}

impl TransactionPayload {
    /// Accepts a canonical payload at its origin and computes its checksum. Only this and [`Self::seal_gathered`]
    /// create a checksum; all other code checks it.
    pub fn seal(bytes: Bytes) -> Self {
        let crc32c = crc32c::crc32c(&bytes);
        Self { bytes, crc32c }
    }

    /// As [`Self::seal`], with the checksum computed on arrival: it covers the received bytes, even if they changed since.
    pub fn seal_gathered(gathered: Gathered) -> Self {
        Self {
            bytes: gathered.bytes,
            crc32c: gathered.crc32c,
        }
    }

    /// Accepts a payload from a peer or from the disk, with the checksum that came with it and the one computed on arrival.
    ///
    /// # Errors
    /// [`PayloadChecksumError`] when the pieces are not those of the sealed payload.
    pub fn verify_gathered(
        gathered: Gathered,
        expected: u32,
    ) -> Result<Self, PayloadChecksumError> {
        match gathered.crc32c {
            found if found == expected => Ok(Self::seal_gathered(gathered)),
            found => Err(PayloadChecksumError { expected, found }),
        }
    }

    /// The same, with the checksum computed now.
    ///
    /// # Errors
    /// [`PayloadChecksumError`] when the bytes are not the sealed ones.
    pub fn verify(bytes: Bytes, expected: u32) -> Result<Self, PayloadChecksumError> {
        let crc32c = crc32c::crc32c(&bytes);
        Self::verify_gathered(Gathered { bytes, crc32c }, expected)
    }

    /// The canonical payload: whole events without checksums, `log_pos` zero.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The CRC32C (Castagnoli) of [`Self::bytes`], computed at ingest.
    pub fn crc32c(&self) -> u32 {
        self.crc32c
    }
}

impl fmt::Debug for TransactionPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, crc32c) = (self.bytes.len(), self.crc32c);
        write!(f, "TransactionPayload({bytes} bytes, crc32c {crc32c:08x})")
    }
}

/// A payload that arrives in pieces. Its checksum is computed piece by piece, so that a
/// large payload never blocks a thread for its whole length. A large payload is in a file ([`SpillingBytes`]).
#[derive(Debug)]
pub struct PayloadAssembly {
    bytes: SpillingBytes,
    expected: u32,
}

impl PayloadAssembly {
    /// Begins a payload of `length` bytes that was sealed with this checksum.
    pub fn begin(length: usize, crc32c: u32, folder: &SpillFolder) -> Self {
        Self {
            bytes: SpillingBytes::begin(folder, length),
            expected: crc32c,
        }
    }

    /// How many bytes have arrived.
    pub fn received(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.push(piece);
    }

    /// The whole payload.
    ///
    /// # Errors
    /// When the pieces are not those of the sealed payload, or the file that held them failed.
    pub fn finish(self) -> Result<TransactionPayload, AssemblyError> {
        let gathered = self.bytes.finish()?;
        let payload = TransactionPayload::verify_gathered(gathered, self.expected)?;
        Ok(payload)
    }
}

/// Why pieces do not form a payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AssemblyError {
    /// They are not those of the sealed payload.
    #[error(transparent)]
    Checksum(#[from] PayloadChecksumError),
    /// They are lost.
    #[error(transparent)]
    Lost(#[from] SpillLost),
}

/// A payload's bytes do not match the checksum computed at ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the payload's CRC32C is {found:08x}, but {expected:08x} was made for it at ingest")]
pub struct PayloadChecksumError {
    /// The CRC32C that came with the payload.
    pub expected: u32,
    /// The CRC32C of the bytes at hand.
    pub found: u32,
}

/// Ends the current binlog file and describes the start of the next one. Every member derives the
/// file name and the previous GTIDs from the log itself, so they are not carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotate {
    /// The canonical format description event of the next file: whole event with its header,
    /// `log_pos` zero, created-time zero, checksum algorithm CRC32, without the CRC32 itself.
    pub format_description: Bytes,
    /// Seconds since the epoch, for the headers of the rotate event and of the next file.
    pub timestamp: u32,
}

// The content of an entry for the engine. The engine's own type holds a membership as values only, so
// every member would serialize it differently; this one keeps the bytes in which it was proposed.

/// The content of a log entry.
#[derive(Debug, Clone, PartialEq, Display, Serialize, Deserialize)]
pub enum EntryPayload {
    /// Nothing: the first entry that a new leader commits.
    #[display("blank")]
    Blank,
    /// A transaction or a rotation.
    #[display("normal:{_0}")]
    Normal(AppEntry),
    /// A new definition of the ring.
    #[display("membership:{}", _0.membership())]
    Membership(MembershipPayload),
}

/// A membership and its serialized bytes, which are the same in every log. The proposing member creates them once; all
/// others keep them unchanged. So members of two versions have the same log, and data that only the newer version
/// understands passes through the older one.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MembershipPayload {
    membership: Membership,
    json: Bytes,
}

impl MembershipPayload {
    /// Accepts a membership at its origin and creates its bytes. All other code reads them.
    ///
    /// # Panics
    /// Never: it is written to memory, and all of its keys are numbers or text.
    pub fn seal(membership: Membership) -> Self {
        let json = serde_json::to_vec(&membership)
            .expect("numbers, text and maps with such keys can be written as JSON");
        Self {
            membership,
            json: json.into(),
        }
    }

    /// Accepts the bytes of a membership from a peer or from the disk.
    ///
    /// # Errors
    /// When they are not those of a membership.
    pub fn read(json: Bytes) -> serde_json::Result<Self> {
        let membership = serde_json::from_slice(&json)?;
        Ok(Self { membership, json })
    }

    /// The content of the bytes, as far as this version understands them.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The bytes, as they were proposed.
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

/// Two are equal when their bytes are equal.
impl PartialEq for MembershipPayload {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for MembershipPayload {}

impl fmt::Debug for MembershipPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.membership.fmt(f)
    }
}

impl TryFrom<String> for MembershipPayload {
    type Error = serde_json::Error;

    fn try_from(json: String) -> serde_json::Result<Self> {
        Self::read(json.into())
    }
}

impl From<MembershipPayload> for String {
    fn from(payload: MembershipPayload) -> Self {
        Self::from_utf8_lossy(&payload.json).into_owned()
    }
}

impl EntryPayload {
    /// The membership, if it is one.
    pub fn as_membership(&self) -> Option<&Membership> {
        match self {
            Self::Membership(payload) => Some(&payload.membership),
            Self::Blank | Self::Normal(_) => None,
        }
    }

    /// The length of its content in bytes, in the form in which it travels.
    pub fn body_length(&self) -> usize {
        match self {
            Self::Blank => 0,
            Self::Normal(entry) => entry.body_length(),
            Self::Membership(payload) => payload.json.len(),
        }
    }
}

impl RaftPayload for EntryPayload {
    type D = AppEntry;
    type NodeId = MemberId;
    type Node = MemberRecord;

    fn blank() -> Self {
        Self::Blank
    }

    fn with_normal(self, entry: AppEntry) -> Self {
        Self::Normal(entry)
    }

    /// The engine calls this only where a membership is proposed.
    fn with_membership(self, membership: Membership) -> Self {
        Self::Membership(MembershipPayload::seal(membership))
    }

    fn get_membership(&self) -> Option<Membership> {
        self.as_membership().cloned()
    }
}

// How the engine reports the outcome of a proposed entry. openraft fixes the type of this answer in
// its type configuration, so it is defined here; the proposing code chooses the listener.
// The listener is called immediately on commit, not only after the state machine has applied the entry.

/// Receives the outcome of one proposal. Called inside the engine's own loop: it must neither block
/// nor panic. If it is dropped without a call, the engine has stopped.
pub trait ProposalListener<T>: Send {
    /// The entry is committed under this op id. Called at most once, before [`Self::completed`].
    fn committed(&mut self, op_id: OpId);

    /// The engine is done with the proposal: it was applied, refused or discarded.
    fn completed(self: Box<Self>, result: T);
}

/// The engine's handle on a [`ProposalListener`].
pub struct ProposalResponder<T>(Box<dyn ProposalListener<T>>);

impl<T> ProposalResponder<T> {
    /// A responder that notifies `listener`.
    pub fn new(listener: impl ProposalListener<T> + 'static) -> Self {
        Self(Box::new(listener))
    }
}

impl<T> fmt::Debug for ProposalResponder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProposalResponder")
    }
}

impl<C, T> Responder<C, T> for ProposalResponder<T>
where
    C: RaftTypeConfig,
    T: Send + 'static,
    LogIdOf<C>: Into<OpId>,
{
    fn on_commit(&mut self, log_id: LogIdOf<C>) {
        self.0.committed(log_id.into());
    }

    fn on_complete(self, result: T) {
        self.0.completed(result);
    }
}

/// A sequence of proposed entries of which each relies on those before it: after a refused one, none is accepted.
///
/// The engine refuses an entry while no quorum has answered within the lease. It may accept the next one a moment later
/// in the same leadership. The proposer learns of the refusal only when all earlier entries are decided; otherwise the log would
/// continue after a gap. Clones are the same sequence. It lasts for an attachment, or any other sender that resends refused entries.
/// again what was not taken.
#[derive(Debug, Clone, Default)]
pub struct ProposalSequence(Arc<AtomicBool>);

impl ProposalSequence {
    /// True if one of its entries was refused.
    pub fn is_broken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// An entry was refused.
    pub fn break_off(&self) {
        self.0.store(true, Ordering::Release);
    }
}

// openraft's parameters. Log ids are `(term, index)`: the standard leader id allows one
// leader per term.

/// The ring's openraft type configuration. Written out, because openraft's macro for it cannot
/// name a responder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig {}

impl openraft::RaftTypeConfig for TypeConfig {
    type D = AppEntry;
    type R = ();
    type NodeId = MemberId;
    type Node = MemberRecord;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, MemberId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload;
    type Entry =
        openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type Responder<T>
        = ProposalResponder<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type AsyncRuntime = openraft::TokioRuntime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// A log id, `(term, index)` as an openraft type; see [`crate::OpId`].
pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
/// The part of a log id that names the leader: its term.
pub type CommittedLeaderId = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;
/// A vote as it is stored and sent.
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
/// One entry of the log.
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
/// The voter sets and the member records.
pub type Membership = openraft::Membership<MemberId, MemberRecord>;
/// A membership and the log id of the entry that made it.
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;

impl From<LogId> for OpId {
    fn from(log_id: LogId) -> Self {
        Self::new(log_id.leader_id.term, log_id.index)
    }
}

impl From<OpId> for LogId {
    fn from(op_id: OpId) -> Self {
        Self {
            leader_id: CommittedLeaderId::new(op_id.term),
            index: op_id.index,
        }
    }
}

// The bounds that more than one crate must agree on.

/// The largest transaction that the ring accepts, in bytes of its canonical payload. The primary gets a
/// `max_binlog_cache_size` of half of it, so that a larger one fails there instead of hanging. MySQL checks that limit before it
/// writes an event to the cache, so a transaction may exceed it by its last event. MySQL caps an event
/// at 1 GiB. Positions in a binlog file are 32 bits wide, and a file may be long before the transaction.
pub const MAX_TRANSACTION_BYTES: u64 = (1 << 31) - 1;

/// The largest gRPC message between members; larger entries travel in pieces of this size. Small
/// enough that a piece never delays a heartbeat on a shared link for long.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// How many bytes of entries may be in flight to one member before the sender waits for
/// answers. The engine itself pipelines without a bound.
pub const REPLICATION_WINDOW_BYTES: usize = 16 << 20;

/// The slowest supported write rate of a member's disk, in bytes a second. A member acknowledges entries when they are durable, and
/// is silent until then. No sender gives it up while a disk of this rate would still be writing them.
pub const SLOWEST_DISK_BYTES_PER_S: usize = 2 << 20;

const _: () = assert!(MAX_MESSAGE_BYTES <= REPLICATION_WINDOW_BYTES);
const _: () = assert!(MAX_TRANSACTION_BYTES <= u32::MAX as u64 / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_payload_that_was_sealed() {
        let whole = TransactionPayload::seal(Bytes::from_static(b"one transaction in pieces"));
        let mut assembly =
            PayloadAssembly::begin(whole.bytes().len(), whole.crc32c(), &SpillFolder::default());
        for piece in whole.bytes().chunks(4) {
            assembly.push(piece);
        }
        assert_eq!(assembly.received(), whole.bytes().len());
        assert_eq!(assembly.finish(), Ok(whole));
    }

    #[test]
    fn a_changed_piece_is_found() {
        let whole = TransactionPayload::seal(Bytes::from_static(b"abcdef"));
        let mut assembly = PayloadAssembly::begin(6, whole.crc32c(), &SpillFolder::default());
        assembly.push(b"abc");
        assembly.push(b"deF");
        let error = assembly.finish().expect_err("the checksum must not match");
        let AssemblyError::Checksum(error) = error else {
            panic!("{error}");
        };
        assert_eq!(error.expected, whole.crc32c());
    }
}

#[cfg(test)]
mod payload_tests {
    use super::*;

    #[test]
    fn decoded_payloads_keep_their_bytes() {
        let json = r#"{ "nodes": {}, "later": [1.50], "configs": [] }"#;
        let read = MembershipPayload::read(json.into()).unwrap();
        assert_eq!(read.json(), json);
        assert_eq!(read.membership(), &Membership::default());
        let carried = serde_json::to_string(&EntryPayload::Membership(read.clone())).unwrap();
        let back: EntryPayload = serde_json::from_str(&carried).unwrap();
        assert_eq!(back, EntryPayload::Membership(read.clone()));
        assert_ne!(read, MembershipPayload::seal(Membership::default()));
        assert!(MembershipPayload::read("[]".into()).is_err());
    }

    #[test]
    fn numbers_of_a_later_version_stay_the_same() {
        // Parsed by the shorter path, it is another one each time.
        let member = serde_json::to_string(&MemberRecord::default()).unwrap();
        let member = member.replacen('{', r#"{"later":6.6666666e81,"#, 1);
        let json = format!(r#"{{"configs":[[1]],"nodes":{{"1":{member}}}}}"#);
        let read = MembershipPayload::read(json.into()).unwrap();
        let proposed = MembershipPayload::seal(read.membership().clone());
        let text = String::from_utf8_lossy(proposed.json());
        assert!(text.contains(r#""later":6.6666666e+81"#), "{text}");
    }

    #[test]
    fn the_engine_gets_what_it_gave() {
        let membership = Membership::new_with_defaults(vec![[MemberId(1)].into()], []);
        let payload = EntryPayload::membership(membership.clone());
        assert_eq!(payload.get_membership(), Some(membership));
        assert_eq!(EntryPayload::blank().get_membership(), None);
    }
}

#[cfg(test)]
mod type_config_tests {
    use super::*;

    #[test]
    fn log_id_round_trips() {
        let op_id = OpId::new(3, 9);
        assert_eq!(OpId::from(LogId::from(op_id)), op_id);
    }
}
