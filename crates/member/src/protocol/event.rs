//! What a member tells while it carries a command out. A JSON document each on the wire; the last one
//! is the end. Fields are only ever added.

use std::time::Duration;

use bytes::Bytes;
use consensus::quorum::RingRules;
use consensus::{
    Amendment, HistoryEntry, MemberEvidence, MockElection, Promoted, RingPause, ScheduledSwitchover,
};
use mysqld_controller::provision::CloneOffer;
use raft_types::{MemberRecord, OpId, RingId};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::protocol::command::MysqldAnswer;
use crate::protocol::refusal::Refusal;

/// One thing that happened. (Tagged from outside: an inner tag would not read maps by number back from JSON, and a
/// membership is one.)
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEvent {
    /// A phase of the command began.
    Began {
        /// Name of the phase, as the documentation lists it.
        phase: String,
    },
    /// A phase of the command is done.
    Done {
        /// Name of the phase, as when it began.
        phase: String,
        /// Seconds from its beginning.
        seconds: f64,
    },
    /// So much has been copied.
    Copied {
        /// What is being copied, as MySQL calls it.
        stage: String,
        /// Bytes copied so far.
        bytes: u64,
        /// Bytes that are expected, about.
        of: u64,
    },
    /// The command was carried out.
    Result(CommandResult),
    /// It was not, or not to its end.
    Refused(Refusal),
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandResult {
    /// The switchover is done, and the target leads.
    Promoted(Promoted),
    /// The switchover is scheduled; this entry says so.
    Scheduled {
        /// What is to be done, and when.
        switchover: ScheduledSwitchover,
        /// The entry of the log that carries it.
        entry: OpId,
    },
    /// No switchover is scheduled any more; this entry says so.
    Unscheduled {
        /// What it was.
        switchover: ScheduledSwitchover,
        /// The entry of the log that ends it.
        entry: OpId,
    },
    /// How the voters would decide.
    MockElection(MockElection),
    /// The member was taken in; this entry says so.
    Added(OpId),
    /// What the log says of a member, before and after.
    MemberUpdated(Box<Amendment<MemberRecord>>),
    /// The rules of the quorum, before and after.
    RulesSet(Box<Amendment<RingRules>>),
    /// The member was let go; this entry says so.
    Removed(OpId),
    /// Failover is paused; this entry says so.
    Paused {
        /// The pause as it stands in the log now.
        paused: RingPause,
        /// The entry of the log that carries it.
        entry: OpId,
    },
    /// Failover is not paused any more; this entry says so.
    Resumed {
        /// The pause as it stood before.
        paused: RingPause,
        /// The entry of the log that ends it.
        entry: OpId,
    },
    /// What happened to the ring, the oldest first.
    History(Vec<HistoryEntry>),
    /// What this member knows of its log and of the quorum.
    Evidence(Box<MemberEvidence>),
    /// The member goes on alone; this entry says so.
    Repaired(OpId),
    /// The log was rotated everywhere.
    Flushed {
        /// The rotate entry, which ends the file.
        entry: OpId,
        /// The file that is written to behind it.
        file: String,
    },
    /// Which files of its log are gone.
    Purged(PurgeReport),
    /// The ring that was made, or that the member belongs to.
    #[serde(rename = "founded")] // as members of version 0.1 know it
    Bootstrapped(RingId),
    /// How a member's mysqld is.
    Mysqld(Box<MysqldAnswer>),
    /// What replacing the data of a mysqld would take away.
    ProvisionPlan(ProvisionPlan),
    /// The data of its mysqld are another member's.
    Provisioned(Provisioned),
    /// The command of a dry run would not be refused, as far as can be seen before it is carried out.
    WouldBeDone,
    /// The configuration was read again.
    Reloaded(Reloaded),
    /// Its mysqld was restarted.
    MysqldRestarted,
    /// The statement was executed in the place of a transaction; whether mysqld follows now.
    StatementReplaced {
        /// True if mysqld follows the ring again.
        follows: bool,
    },
    /// Its starts that were open for writes are acknowledged.
    ExposureAcknowledged,
    /// An account for a copy.
    Offered(CloneOffer),
    /// The account is gone.
    Withdrawn,
}

/// How a member took its configuration anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Keys that differ from those that the member was started with, and take effect at its next start.
    pub needs_restart: Vec<String>,
    /// What is probably not meant so in the configuration, as `witness config check` says it.
    pub warnings: Vec<String>,
}

/// What replacing the data of a mysqld would take away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionPlan {
    /// Name of the member whose data would come.
    pub donor: String,
    /// Its transactions that the ring has not, in MySQL's text form.
    pub errant: String,
    /// The number of errant transactions.
    pub errant_transactions: u64,
    /// Why it is refused without force: not all of the errant transactions can be kept. An older member does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_force: Option<String>,
    /// The schemas that would be replaced.
    pub schemas: Vec<SchemaSize>,
    /// Why they are not known, if mysqld does not say in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes_unknown: Option<String>,
    /// Why nobody can look into it, if nobody can.
    pub unknown: Option<String>,
}

/// A schema and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaSize {
    /// The schema's name in mysqld.
    pub name: String,
    /// Bytes of its tables and indexes, about.
    pub bytes: u64,
}

/// How a mysqld was provisioned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provisioned {
    /// Name of the member whose data came.
    pub donor: String,
    /// Binlog files with errant transactions that are kept.
    pub kept: Vec<KeptBinlog>,
    /// What of the errant transactions could not be kept, and why, where the command was forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// Whether it follows the ring.
    pub follows: bool,
    /// Seconds from the first phase to the end of the last.
    pub seconds: f64,
}

/// A binlog file that is kept in the member's `trimmed/mysqld/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBinlog {
    /// Name of the binlog file in mysqld.
    pub from: String,
    /// Its errant transactions, in MySQL's text form.
    pub gtids: String,
    /// The name of the copy.
    pub kept_as: String,
}

/// What a purge removed, or would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeReport {
    /// Names of the files, oldest first.
    pub removed: Vec<String>,
    /// Bytes of those files together.
    pub bytes: u64,
    /// The last entry in them.
    pub upto: Option<OpId>,
    /// The first file that was to go and stays, and why.
    pub kept: Option<KeptFile>,
}

/// A file that a purge leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// The file's name in the log.
    pub file: String,
    /// Why it stays, in words.
    pub because: String,
}

// What an operator hears while a command is carried out.

/// Tells the operator, who may not read or may have left.
pub(crate) struct CommandProgress(pub(crate) mpsc::Sender<Bytes>);

impl CommandProgress {
    /// Of a command to which nobody listens.
    pub(crate) fn unheard() -> Self {
        Self(mpsc::channel(1).0)
    }

    pub(crate) fn tell(&self, event: &CommandEvent) {
        // An event is plain values, which always have a JSON form.
        let json = serde_json::to_vec(event).unwrap_or_default();
        drop(self.0.try_send(json.into()));
    }

    pub(crate) async fn end(&self, event: &CommandEvent) {
        let json = serde_json::to_vec(event).unwrap_or_default();
        drop(self.0.send(json.into()).await);
    }

    pub(crate) async fn phase<T, E>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let phase = name.to_owned();
        self.tell(&CommandEvent::Began { phase });
        let began = std::time::Instant::now();
        let done = work.await?;
        self.tell(&done_event(name, began.elapsed()));
        Ok(done)
    }
}

pub(crate) fn done_event(name: &str, took: Duration) -> CommandEvent {
    CommandEvent::Done {
        phase: name.to_owned(),
        seconds: took.as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::BTreeSet;

    use consensus::Term;
    use raft_types::MemberId;
    use raft_types::MemberRecord;
    use raft_types::Membership;
    use raft_types::StoredMembership;

    use super::*;
    use crate::protocol::RefusalKind;

    /// Pins a bug: evidence with a membership in it could not be read back.
    #[test]
    fn every_event_comes_back_from_the_wire() {
        let members = BTreeMap::from([(MemberId(1), MemberRecord::default())]);
        let voters = vec![BTreeSet::from([MemberId(1)])];
        let evidence = MemberEvidence {
            member: MemberId(1),
            term: Term(3),
            log_end: Some(OpId::new(3, 9)),
            committed: None,
            membership: StoredMembership::new(None, Membership::new(voters, members).unwrap()),
            settled: Some(StoredMembership::default()),
            leader: None,
            doubted_tail: false,
            elects_from: Some(OpId::new(3, 12)),
        };
        for event in [
            CommandEvent::Began {
                phase: "check".into(),
            },
            CommandEvent::Done {
                phase: "check".into(),
                seconds: 0.25,
            },
            CommandEvent::Result(CommandResult::Evidence(Box::new(evidence))),
            CommandEvent::Refused(Refusal::new(RefusalKind::Refused, "what", "advice")),
        ] {
            let json = serde_json::to_vec(&event).unwrap();
            assert_eq!(
                serde_json::from_slice::<CommandEvent>(&json).unwrap(),
                event
            );
        }
    }
}
