//! The events for the checkers. Each event is an action or a report of a member, recorded when it occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use histories::Outcome;
use raft_types::{AppEntry, Entry, EntryPayload, MemberId, OpId, Region, Vote};

use crate::operations::Operation;

/// Deliberate damage to a member's disk since the member last opened its log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Damage {
    /// No damage.
    #[default]
    None,
    /// A bit at the end of the log was flipped. This looks like a torn write, so that the member may truncate the log there.
    Tail,
    /// A bit in an older part of the log was flipped. The member must refuse the log.
    Closed,
    /// Everything is lost. The member starts with an empty disk.
    Wiped,
}

/// The plan to repair a lost quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repair {
    /// The end of the surviving member's log.
    pub(crate) after: Option<OpId>,
    /// The term of the repair, in which the ring continues.
    pub(crate) term: u64,
    /// True if the plan warned that acknowledged entries after that end may be lost, and the operator accepted the loss.
    pub(crate) loss: bool,
}

/// The complete contents of a log when the member opened it.
#[derive(Debug, Clone)]
pub(crate) struct OpenedLog {
    /// The purge floor: the last entry before the first one in the log.
    pub(crate) floor: Option<OpId>,
    pub(crate) entries: Vec<Seen>,
    pub(crate) vote: Option<Vote>,
}

/// One event.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A member's store received entries to append.
    Appended {
        member: MemberId,
        entries: Vec<Seen>,
    },
    /// A member's store acknowledged that all entries up to `upto` are durable.
    Durable { member: MemberId, upto: OpId },
    /// A member's store was ordered to truncate the entries after `keep`.
    Truncated {
        member: MemberId,
        keep: Option<OpId>,
    },
    /// A member rejoined a ring that had continued without the end of the member's log. The member truncated that end.
    CutBack {
        member: MemberId,
        keep: Option<OpId>,
    },
    /// An operator ordered a quorum repair.
    Repaired(Repair),
    /// A member's store was ordered to start its log after an entry, because the other members have purged the previous entries.
    Began {
        member: MemberId,
        before: OpId,
        /// The membership in force at the start of the log.
        membership: Option<(OpId, Arc<VoterSets>)>,
    },
    /// A member's store acknowledged a vote.
    Voted { member: MemberId, vote: Vote },
    /// A member opened its log after a stop and read all of it.
    Opened {
        member: MemberId,
        log: OpenedLog,
        /// The damage to the disk since the log was last opened.
        damage: Damage,
    },
    /// A member could not open its log.
    RefusedToOpen {
        member: MemberId,
        why: String,
        /// The damage to the disk since the log was last opened.
        damage: Damage,
    },
    /// The openraft instance of a member stopped without an order.
    EngineStopped {
        member: MemberId,
        why: String,
        /// True if calls to the member's disk failed deliberately.
        excused: bool,
    },
    /// A member's commit index moved to the last of these entries, which are read from the member's own log.
    Committed {
        member: MemberId,
        entries: Vec<Seen>,
    },
    /// A leader sent entries or a heartbeat in this term.
    Led { term: u64, leader: MemberId },
    /// A client received the acknowledgement of its transaction.
    Acknowledged {
        member: MemberId,
        op_id: OpId,
        content: Content,
    },
    /// A client received the final refusal of its transaction.
    Refused { member: MemberId, content: Content },
    /// A client read from a member that claims to serve.
    Read {
        member: MemberId,
        mark: Option<OpId>,
    },
    /// An operator added a member with a new disk under a number that the ring has used before.
    UsedNumberTaken { member: MemberId, by: MemberId },
    /// The regions of the voters. Reported in runs in which purges must leave each region able to lead.
    Regions { voting: BTreeMap<MemberId, Region> },
    /// A client received its transaction's outcome from a member's server, or stopped waiting for it.
    Told(usize, MemberId, Outcome),
    /// An operator's action on servers and their members, or the result of an action.
    Operation(Operation),
    /// No order of the transactions explains all results and reads of the clients.
    Unexplained { words: String },
    /// The format of a member's log is newer than the member's program supports.
    BeyondItsProgram { words: String },
    /// All faults are fixed. From now on the ring must recover without help.
    Healed,
    /// A member reported that its data directory was restored. No run restores one.
    RestoredDirectory { member: MemberId, words: String },
    /// A panic occurred in a member's process.
    Panicked { member: MemberId, words: String },
    /// The run ended: the ring has committed again, and every member that can has caught up.
    Finished,
    /// The ring did not commit within this time after all faults were fixed.
    Stuck { words: String },
    /// The ring removed a member, and does not commit any longer.
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
            Self::RestoredDirectory { member, words } | Self::Panicked { member, words } => {
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

/// Returns the entries as text. If there are many, only the first and the last.
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

// The entries as the checkers see them: their op ids, and digests of their contents.

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

/// An entry of a log.
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

/// Returns voter sets as text: `{1,2,3} {4,5}`.
pub(crate) fn words(sets: &[BTreeSet<MemberId>]) -> String {
    let set = |set: &BTreeSet<MemberId>| {
        let ids: Vec<String> = set.iter().map(ToString::to_string).collect();
        format!("{{{}}}", ids.join(","))
    };
    sets.iter().map(set).collect::<Vec<_>>().join(" ")
}
