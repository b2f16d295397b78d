//! Entries of the ring's history, as stored in memberships and sent between members: leaders, operators' commands, trims and repairs.

use serde::{Deserialize, Serialize};

use crate::format::FormatVersion;
use crate::ids::{MemberId, OpId, Term};
use crate::member_record::{MemberKind, MemberRecord, UnixSeconds};

/// One event in the ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Milliseconds since 1970, UTC, by the clock of the recording member.
    pub at_ms: u64,
    /// The term in which the event was recorded; for a leadership, the leader's term.
    pub term: Term,
    /// The operator who gave the command; empty without a command.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// The event.
    #[serde(flatten)]
    pub event: HistoryEvent,
}

/// A member, with its name at the time of the event. The member may have been removed since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The member's number.
    pub id: MemberId,
    /// The member's name at that time.
    pub name: String,
}

impl Named {
    /// Returns a member with its current name.
    pub fn of(id: MemberId, record: &MemberRecord) -> Self {
        let name = record.name.clone();
        Self { id, name }
    }
}

/// Events of a ring. Events of a later version are kept and shown as [`HistoryEvent::Unknown`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HistoryEvent {
    /// The ring was bootstrapped.
    Bootstrapped {
        /// The initial number of members.
        members: usize,
    },
    /// A member began to lead: a witness when it began to serve, a database member when clients could write.
    Led {
        /// The new leader.
        leader: Named,
        /// Witness or database member.
        kind: MemberKind,
        /// The end of the leader's log at that moment.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_end: Option<OpId>,
        /// Milliseconds since the previous leader's last call; `None` if the member had received no call since its start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leaderless_ms: Option<u64>,
        /// False if a database member's mysqld was still not open for client writes.
        writable: bool,
    },
    /// A leader transferred the leadership deliberately.
    GaveAway {
        /// The previous leader.
        from: Named,
        /// The new leader; the entry's term is its term.
        to: Named,
        /// The reason as text; empty if an operator ordered the transfer.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A member joined the ring.
    Added {
        /// The new member.
        member: Named,
    },
    /// A member was permanently removed.
    Removed {
        /// The removed member.
        member: Named,
    },
    /// A member's record was changed.
    Updated {
        /// The member with its new name.
        member: Named,
    },
    /// The quorum rules were changed.
    RulesSet {
        /// The new policy.
        policy: String,
    },
    /// Failover was paused, or the end or reason of its pause changed.
    Paused {
        /// The member that remains the primary during the pause.
        primary: Named,
        /// End of the pause; `None` means until an operator resumes failover.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<UnixSeconds>,
        /// The operator's reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The pause ended.
    Resumed,
    /// A switchover was scheduled.
    Scheduled {
        /// The next leader.
        to: Named,
        /// The earliest time of the switchover.
        at: UnixSeconds,
    },
    /// A scheduled switchover was cancelled or abandoned.
    Unscheduled {
        /// The reason if the ring abandoned it; empty if an operator cancelled it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A permanently lost quorum was repaired.
    Repaired {
        /// The surviving member.
        survivor: Named,
        /// The end of the survivor's log; later entries may be lost.
        log_end: Option<OpId>,
    },
    /// Transactions that the ring never committed were truncated from a mysqld's binlog.
    Trimmed {
        /// The member with that mysqld.
        member: Named,
        /// The number of transactions.
        transactions: u64,
    },
    /// A mysqld's data was replaced by a copy of another mysqld's data.
    Provisioned {
        /// The member with the replaced data.
        member: Named,
        /// The member that provided the copy.
        donor: Named,
    },
    /// The leader raised the ring's format, because every member supports the new one.
    FormatRaised {
        /// The new format.
        to: FormatVersion,
    },
    /// Clients could no longer write to a member's mysqld. This event and the following ones are in no log: each member keeps the events
    /// that it observed.
    WritesStopped {
        /// The member with that mysqld.
        member: Named,
        /// The reason, as text.
        why: String,
    },
    /// Clients can write to a member's mysqld again.
    WritesResumed {
        /// The member with that mysqld.
        member: Named,
    },
    /// Too few voters answered, or no leader was known.
    QuorumLost {
        /// The member that observed it.
        member: Named,
        /// The reason, as text.
        why: String,
    },
    /// Enough voters answer again, or a leader is known.
    QuorumBack {
        /// The member that observed it.
        member: Named,
    },
    /// The leader no longer receives answers from a member.
    MemberLost {
        /// The silent member.
        member: Named,
    },
    /// The silent member answers the leader again.
    MemberBack {
        /// The member that was silent.
        member: Named,
    },
    /// A member's mysqld was started open for writes. Clients may have committed there without the ring.
    Exposed {
        /// The member with that mysqld.
        member: Named,
        /// The number of transactions that mysqld committed before the ring had them.
        transactions: u64,
    },
    /// An operator has acknowledged the exposure.
    ExposureAcknowledged {
        /// The member with that mysqld.
        member: Named,
    },
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}
