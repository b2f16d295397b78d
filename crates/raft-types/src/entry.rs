//! The content of a log entry for the application and the engine, openraft's parameters, and the limits that several crates share.

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
    /// Returns the length of the payload, or of the next file's format description, in bytes.
    pub fn body_length(&self) -> usize {
        match self {
            Self::Transaction(payload) => payload.bytes.len(),
            Self::Rotate(rotate) => rotate.format_description.len(),
        }
    }
}

/// A canonical payload and its checksum. The payload is the sequence of events of one transaction, each with `log_pos` zero and without its
/// own CRC32.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPayload {
    bytes: Bytes,
    crc32c: u32,
}

impl TransactionPayload {
    /// Accepts a canonical payload from its source (the primary), and computes its checksum. Only this method and [`Self::seal_gathered`]
    /// create a checksum; all other code checks it.
    pub fn seal(bytes: Bytes) -> Self {
        let crc32c = crc32c::crc32c(&bytes);
        Self { bytes, crc32c }
    }

    /// Accepts a canonical payload from its source as [`Self::seal`] does, with a checksum that was computed when the bytes arrived. The
    /// checksum covers the received bytes, even if they changed since.
    pub fn seal_gathered(gathered: Gathered) -> Self {
        Self {
            bytes: gathered.bytes,
            crc32c: gathered.crc32c,
        }
    }

    /// Accepts a payload from a peer or from the disk. Compares the checksum that was sent or stored with it to the checksum that was
    /// computed when it arrived.
    ///
    /// # Errors
    /// [`PayloadChecksumError`] if the pieces are not those of the sealed payload.
    pub fn verify_gathered(
        gathered: Gathered,
        expected: u32,
    ) -> Result<Self, PayloadChecksumError> {
        match gathered.crc32c {
            found if found == expected => Ok(Self::seal_gathered(gathered)),
            found => Err(PayloadChecksumError { expected, found }),
        }
    }

    /// Accepts a payload as [`Self::verify_gathered`] does, but computes its checksum now.
    ///
    /// # Errors
    /// [`PayloadChecksumError`] if the bytes are not the sealed ones.
    pub fn verify(bytes: Bytes, expected: u32) -> Result<Self, PayloadChecksumError> {
        let crc32c = crc32c::crc32c(&bytes);
        Self::verify_gathered(Gathered { bytes, crc32c }, expected)
    }

    /// Returns the canonical payload: whole events without checksums, with `log_pos` zero.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the CRC32C (Castagnoli) of [`Self::bytes`], computed at ingest.
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

/// A payload that arrives in pieces. Its checksum is computed piece by piece, so that a large payload never blocks a thread for its whole
/// length. A large payload is stored in a file ([`SpillingBytes`]).
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

    /// Returns how many bytes have arrived.
    pub fn received(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.push(piece);
    }

    /// Returns the whole payload.
    ///
    /// # Errors
    /// [`AssemblyError`] if the pieces are not those of the sealed payload, or the file with the pieces failed.
    pub fn finish(self) -> Result<TransactionPayload, AssemblyError> {
        let gathered = self.bytes.finish()?;
        let payload = TransactionPayload::verify_gathered(gathered, self.expected)?;
        Ok(payload)
    }
}

/// Why pieces do not form a payload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AssemblyError {
    /// The pieces are not those of the sealed payload.
    #[error(transparent)]
    Checksum(#[from] PayloadChecksumError),
    /// The pieces are lost.
    #[error(transparent)]
    Lost(#[from] SpillLost),
}

/// A payload's bytes do not match the checksum computed at ingest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the payload's CRC32C is {found:08x}, but {expected:08x} was made for it at ingest")]
pub struct PayloadChecksumError {
    /// The CRC32C that was sent or stored with the payload.
    pub expected: u32,
    /// The CRC32C of the bytes.
    pub found: u32,
}

/// Ends the current binlog file and describes the start of the next one. The file name and the previous GTIDs are not included, because
/// every member derives them from the log itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotate {
    /// The canonical format description event of the next file: the whole event with its header, but without its CRC32. `log_pos` and the
    /// created-time are zero; the checksum algorithm is CRC32.
    pub format_description: Bytes,
    /// Seconds since the epoch, for the headers of the rotate event and of the next file.
    pub timestamp: u32,
}

// The content of an entry for the engine. The engine's own type holds a membership only as values, so every member would serialize it
// differently. This type keeps the bytes in which the membership was proposed.

/// The content of a log entry.
#[derive(Debug, Clone, PartialEq, Display, Serialize, Deserialize)]
pub enum EntryPayload {
    /// Nothing. A new leader commits such an entry first.
    #[display("blank")]
    Blank,
    /// A transaction or a rotation.
    #[display("normal:{_0}")]
    Normal(AppEntry),
    /// New members, voter sets, or rules of the ring.
    #[display("membership:{}", _0.membership())]
    Membership(MembershipPayload),
}

/// A membership and its serialized bytes, which are the same in every log. The proposing member creates the bytes once; all others keep
/// them unchanged. So members of two versions have the same log. Data that only the newer version supports passes through the older one
/// unchanged.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MembershipPayload {
    membership: Membership,
    json: Bytes,
}

impl MembershipPayload {
    /// Accepts a membership where it is proposed, and creates its bytes. All other code reads the bytes.
    ///
    /// # Panics
    /// Never: the bytes are written to memory, and all keys are numbers or text.
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
    /// If the bytes are not a membership.
    pub fn read(json: Bytes) -> serde_json::Result<Self> {
        let membership = serde_json::from_slice(&json)?;
        Ok(Self { membership, json })
    }

    /// Returns the membership in the bytes, as far as this version supports it.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Returns the bytes as they were proposed.
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

/// Two memberships are equal if their bytes are equal.
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
    /// Returns the membership; `None` for any other content.
    pub fn as_membership(&self) -> Option<&Membership> {
        match self {
            Self::Membership(payload) => Some(&payload.membership),
            Self::Blank | Self::Normal(_) => None,
        }
    }

    /// Returns the length of the content in bytes, in the form in which it is sent.
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

    /// The engine calls this only when it proposes a membership.
    fn with_membership(self, membership: Membership) -> Self {
        Self::Membership(MembershipPayload::seal(membership))
    }

    fn get_membership(&self) -> Option<Membership> {
        self.as_membership().cloned()
    }
}

// How the engine reports the outcome of a proposed entry. Openraft fixes the type of this report in its type configuration, so it is
// defined here. The proposing code chooses the listener. The listener is called immediately on commit, before the state machine applies the
// entry.

/// Receives the outcome of one proposal. The engine calls it inside its own loop, so it must neither block nor panic. If it is dropped
/// without a call, the engine has stopped.
pub trait ProposalListener<T>: Send {
    /// Receives the op id under which the entry is committed. Called at most once, before [`Self::completed`].
    fn committed(&mut self, op_id: OpId);

    /// Receives the result when the engine has applied, refused or discarded the entry.
    fn completed(self: Box<Self>, result: T);
}

/// The engine's handle on a [`ProposalListener`].
pub struct ProposalResponder<T>(Box<dyn ProposalListener<T>>);

impl<T> ProposalResponder<T> {
    /// Creates a responder that notifies `listener`.
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

/// A sequence of proposed entries in which each entry depends on the earlier ones. After one entry was refused, no later one is accepted.
///
/// The engine refuses an entry while no quorum has answered within the lease. A moment later, it may accept the next entry in the same
/// leadership. The proposer receives the refusal only after all earlier entries are decided. Without this type, the log would continue
/// after a gap. Clones are the same sequence. A sequence is used for one attachment to the primary, or by another sender that resends
/// refused entries.
#[derive(Debug, Clone, Default)]
pub struct ProposalSequence(Arc<AtomicBool>);

impl ProposalSequence {
    /// Returns true if an entry of the sequence was refused.
    pub fn is_broken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Records that an entry of the sequence was refused.
    pub fn break_off(&self) {
        self.0.store(true, Ordering::Release);
    }
}

// openraft's parameters. Log ids are `(term, index)`: the standard leader id allows one
// leader per term.

/// The ring's openraft type configuration. It is written out, because openraft's macro for it cannot name a responder.
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
/// A membership and the log id of its entry.
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

// The bounds that several crates share.

/// The largest transaction that the ring accepts, in bytes of its canonical payload. The primary's `max_binlog_cache_size` is set to half
/// of it, so that a larger transaction fails there instead of waiting forever. MySQL checks that limit before it writes an event to the
/// cache. So a transaction may exceed the limit by its last event, and MySQL limits an event to 1 GiB. Positions in a binlog file have 32
/// bits, and a file may be long before the transaction.
pub const MAX_TRANSACTION_BYTES: u64 = (1 << 31) - 1;

/// The largest gRPC message between members, in bytes. Larger entries are sent in pieces of this size. A piece of this size does not delay
/// a heartbeat on a shared link for long.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// How many bytes of entries may be in flight to one member before the sender waits for answers. The engine itself sends without a limit.
pub const REPLICATION_WINDOW_BYTES: usize = 16 << 20;

/// The slowest supported write rate of a member's disk, in bytes per second. A member acknowledges entries when they are durable, and sends
/// nothing until then. No sender closes the connection while a disk with this rate would still write the entries.
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
        // Without serde_json's exact parsing of floats, this number would change each time it is read.
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
