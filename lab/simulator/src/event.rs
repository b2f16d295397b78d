//! Events for the checkers. Every event is an action or a report of a member, at the moment of its occurrence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use histories::Outcome;
use raft_types::{AppEntry, Entry, EntryPayload, MemberId, OpId, Region, Vote};

use crate::operations::Operation;

/// Deliberate damage to a member's disk since its log was last opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Nothing.
    #[default]
    None,
    /// A bit at the log's very end was flipped, where a write may have been torn: it may be truncated.
    Tail,
    /// A bit of an older part was flipped: the log must be refused.
    Closed,
    /// Everything is lost, and the member starts with an empty disk.
    Wiped,
}

/// The plan of a repair of a lost quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repair {
    /// End of the surviving member's log.
    pub(crate) after: Option<OpId>,
    /// The term in which it continues.
    pub(crate) term: u64,
    /// The operator was warned that acknowledged entries after that end may be lost, and accepted it.
    pub(crate) loss: bool,
}

/// A log's contents at its opening, read completely.
#[derive(Debug, Clone)]
pub(crate) struct OpenedLog {
    /// The last entry before the first readable one: the purge floor.
    pub(crate) floor: Option<OpId>,
    pub(crate) entries: Vec<Seen>,
    pub(crate) vote: Option<Vote>,
}

/// One event.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A member's store gets entries to append.
    Appended {
        member: MemberId,
        entries: Vec<Seen>,
    },
    /// A member's store acknowledged that everything up to here is durable.
    Durable { member: MemberId, upto: OpId },
    /// A member's store is ordered to truncate entries after `keep`.
    Truncated {
        member: MemberId,
        keep: Option<OpId>,
    },
    /// A member returns to a ring that continued without the end of its log, and truncates that.
    CutBack {
        member: MemberId,
        keep: Option<OpId>,
    },
    /// An operator orders the repair of a lost quorum.
    Repaired(Repair),
    /// A member's store is ordered to begin after an entry whose predecessors are purged elsewhere.
    Began {
        member: MemberId,
        before: OpId,
        /// The membership in force there.
        membership: Option<(OpId, Arc<VoterSets>)>,
    },
    /// A member's store acknowledged a vote.
    Voted { member: MemberId, vote: Vote },
    /// A member opened its log after a stop and read all of it.
    Opened {
        member: MemberId,
        log: OpenedLog,
        /// Previous damage to its disk.
        damage: Damage,
    },
    /// A member could not open its log.
    RefusedToOpen {
        member: MemberId,
        why: String,
        /// Previous damage to its disk.
        damage: Damage,
    },
    /// A member's engine stopped by itself.
    EngineStopped {
        member: MemberId,
        why: String,
        /// Its disk has injected failures.
        excused: bool,
    },
    /// A member's commit mark moved over these entries, as read from its own log.
    Committed {
        member: MemberId,
        entries: Vec<Seen>,
    },
    /// A leader sent entries or a heartbeat in this term.
    Led { term: u64, leader: MemberId },
    /// A client received the commit of its transaction.
    Acknowledged {
        member: MemberId,
        op_id: OpId,
        content: Content,
    },
    /// A client received a final refusal of its transaction.
    Refused { member: MemberId, content: Content },
    /// A read from a member that claims to serve.
    Read {
        member: MemberId,
        mark: Option<OpId>,
    },
    /// An operator added a member with another disk under a number that the ring has or had.
    UsedNumberTaken { member: MemberId, by: MemberId },
    /// The regions of voting members, in a run in which purges must not disconnect one.
    Regions { voting: BTreeMap<MemberId, Region> },
    /// A client received its transaction's outcome from the server of a member, or stopped waiting.
    Told(usize, MemberId, Outcome),
    /// An operator's action on servers and their members, or its outcome.
    Operation(Operation),
    /// The clients' results and reads have no consistent order.
    Unexplained { words: String },
    /// A member's log has a format that its program does not support.
    BeyondItsProgram { words: String },
    /// All faults are fixed; from here on the ring has to recover by itself.
    Healed,
    /// A member reported a restored data directory. No run restores one.
    PutBack { member: MemberId, words: String },
    /// Something in a member's process panicked.
    Panicked { member: MemberId, words: String },
    /// The end: the ring has committed again, and every possible member has caught up.
    Finished,
    /// The ring did not commit within this time after all faults were fixed.
    Stuck { words: String },
    /// The ring removed a member, and did not continue.
    Wedged { words: String },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Appended { member, entries } => {
                write!(f, "member {member} appends {}", range(entries))
            }
            Self::Opened { member, log, .. } => {
                write!(f, "member {member} opened its log: {}", range(&log.entries))
            }
            Self::Committed { member, entries } => {
                write!(f, "member {member} has as committed {}", range(entries))
            }
            Self::Refused { member, content } => write!(f, "member {member} refuses {content:?}"),
            Self::Told(client, by, outcome) => {
                write!(f, "client {client} received {outcome:?} from member {by}")
            }
            Self::PutBack { member, words } | Self::Panicked { member, words } => {
                write!(f, "member {member}: {words}")
            }
            Self::Stuck { words }
            | Self::Wedged { words }
            | Self::Unexplained { words }
            | Self::BeyondItsProgram { words } => f.write_str(words),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Few entries one by one, many as the first and the last.
fn range(entries: &[Seen]) -> String {
    match entries {
        [] => "nothing".to_owned(),
        [first, .., last] if entries.len() > 3 => {
            format!("{first:?} to {last:?}")
        }
        few => {
            let few: Vec<String> = few.iter().map(|entry| format!("{entry:?}")).collect();
            few.join(", ")
        }
    }
}

// Entries for the checkers: their positions, and digests of their contents.

/// The voter sets of a membership entry.
pub(crate) type VoterSets = Vec<BTreeSet<MemberId>>;

/// An entry's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Blank,
    Transaction(Digest),
    Rotate(Digest),
    Membership(Digest, Arc<VoterSets>),
}

/// A 64-bit hash (FNV-1a) of an entry's contents.
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

    pub(crate) fn bits(self) -> u64 {
        self.0
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
