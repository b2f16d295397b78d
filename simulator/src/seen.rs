//! Entries as the checkers know them: where they stand, and a digest of what they carry.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use raft_types::{AppEntry, Entry, EntryPayload, MemberId, OpId};

/// The voter sets of a membership entry.
pub(crate) type VoterSets = Vec<BTreeSet<MemberId>>;

/// What an entry carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Blank,
    Transaction(Digest),
    Rotate(Digest),
    Membership(Digest, Arc<VoterSets>),
}

/// 64 bits of a hash (FNV-1a) of everything that an entry carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Digest(u64);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::EMPTY.with(bytes)
    }

    pub(crate) const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    pub(crate) fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }
}

/// One entry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) op_id: OpId,
    pub(crate) content: Content,
}

impl Seen {
    pub(crate) fn of(entry: &Entry) -> Self {
        let content = match &entry.payload {
            EntryPayload::Blank => Content::Blank,
            EntryPayload::Normal(AppEntry::Transaction(payload)) => {
                Content::Transaction(Digest::of(payload.bytes()))
            }
            EntryPayload::Normal(AppEntry::Rotate(rotate)) => {
                let digest = Digest::of(&rotate.format_description);
                Content::Rotate(digest.with(&rotate.timestamp.to_le_bytes()))
            }
            EntryPayload::Membership(payload) => {
                let sets = payload.membership().get_joint_config().clone();
                let digest = Digest::of(payload.json());
                Content::Membership(digest, Arc::new(sets))
            }
        };
        Self {
            op_id: OpId::from(entry.log_id),
            content,
        }
    }
}

impl Seen {
    /// The voter sets of a membership entry.
    pub(crate) fn voter_sets(&self) -> Option<&VoterSets> {
        match &self.content {
            Content::Membership(_, sets) => Some(sets),
            _ => None,
        }
    }
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            Content::Blank => write!(f, "{} blank", self.op_id),
            Content::Transaction(digest) => write!(f, "{} transaction {digest:?}", self.op_id),
            Content::Rotate(digest) => write!(f, "{} rotate {digest:?}", self.op_id),
            Content::Membership(_, sets) => {
                write!(f, "{} voters {}", self.op_id, words(sets))
            }
        }
    }
}

/// Voter sets as they are printed: `{1,2,3} {4,5}`.
pub(crate) fn words(sets: &[BTreeSet<MemberId>]) -> String {
    let set = |set: &BTreeSet<MemberId>| {
        let ids: Vec<String> = set.iter().map(ToString::to_string).collect();
        format!("{{{}}}", ids.join(","))
    };
    sets.iter().map(set).collect::<Vec<_>>().join(" ")
}
