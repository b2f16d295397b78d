//! Events that a member sends during a command. Each event is a JSON document; the last one ends the command. In later versions, fields are
//! only added.

use std::time::Duration;

use bytes::Bytes;
use consensus::quorum::RingRules;
use consensus::{HistoryEntry, MockElection, RingPause};
use mysqld_server::provision::CloneOffer;
use raft_types::{MemberRecord, OpId, RingId};
use ring_admin::{Amendment, MemberEvidence, Promoted, ScheduledSwitchover};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::protocol::Refusal;
use crate::protocol::command::MysqldAnswer;

/// One event. (It is tagged externally. With an internal tag, maps with numeric keys, such as a membership, could not be read from JSON.)
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEvent {
    /// A phase of the command began.
    Began {
        /// The phase's name in the documentation.
        phase: String,
    },
    /// A phase of the command ended.
    Done {
        /// The phase's name, as in [`CommandEvent::Began`].
        phase: String,
        /// Duration in seconds.
        seconds: f64,
    },
    /// Progress of a copy.
    Copied {
        /// MySQL's name for the current stage.
        stage: String,
        /// Bytes copied so far.
        bytes: u64,
        /// Estimated total number of bytes.
        of: u64,
    },
    /// The command was executed.
    Result(CommandResult),
    /// The command was not executed, or only in part.
    Refused(Refusal),
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandResult {
    /// The switchover succeeded, and the target leads.
    Promoted(Promoted),
    /// The switchover is scheduled by this entry.
    Scheduled {
        /// The target and time.
        switchover: ScheduledSwitchover,
        /// The log entry with the scheduled switchover.
        entry: OpId,
    },
    /// No switchover is scheduled any longer, from this entry on.
    Unscheduled {
        /// The cancelled switchover.
        switchover: ScheduledSwitchover,
        /// The log entry that cancels the switchover.
        entry: OpId,
    },
    /// The votes of the voters in the mock election.
    MockElection(MockElection),
    /// The member was added by this entry.
    Added(OpId),
    /// A member's record, before and after.
    MemberUpdated(Box<Amendment<MemberRecord>>),
    /// The quorum rules, before and after.
    RulesSet(Box<Amendment<RingRules>>),
    /// The member was removed by this entry.
    Removed(OpId),
    /// Failover is paused by this entry.
    Paused {
        /// The pause in the log.
        paused: RingPause,
        /// The log entry with the pause.
        entry: OpId,
    },
    /// Failover is resumed by this entry.
    Resumed {
        /// The pause that ended.
        paused: RingPause,
        /// The log entry that ends the pause.
        entry: OpId,
    },
    /// The ring's history, oldest first.
    History(Vec<HistoryEntry>),
    /// This member's records of its log and of the quorum.
    Evidence(Box<MemberEvidence>),
    /// The member continues alone, from this entry on.
    Repaired(OpId),
    /// All members rotated their logs.
    Flushed {
        /// The rotate entry, which ends the current file.
        entry: OpId,
        /// Name of the next file.
        file: String,
    },
    /// The purged files of the member's log.
    Purged(PurgeReport),
    /// The bootstrapped ring, or the member's existing one.
    #[serde(rename = "founded")] // name in version 0.1
    Bootstrapped(RingId),
    /// State of a member's mysqld.
    Mysqld(Box<MysqldAnswer>),
    /// The data that is removed if a mysqld's data is replaced.
    ProvisionPlan(ProvisionPlan),
    /// The data of the member's mysqld was replaced by another member's data.
    Provisioned(Provisioned),
    /// A dry run found no reason to refuse the command.
    WouldBeDone,
    /// The configuration was reloaded.
    Reloaded(Reloaded),
    /// The member's mysqld was restarted.
    MysqldRestarted,
    /// The statement was executed in place of a transaction.
    StatementReplaced {
        /// True if mysqld follows the ring again.
        follows: bool,
    },
    /// The starts of mysqld that were open for writes are acknowledged.
    ExposureAcknowledged,
    /// An account for a copy.
    Offered(CloneOffer),
    /// The account was removed.
    Withdrawn,
}

/// Result of a member's configuration reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Keys whose values differ from those at the member's start. They take effect at its next start.
    pub needs_restart: Vec<String>,
    /// Probable mistakes in the configuration, the same as `witness config check` reports.
    pub warnings: Vec<String>,
}

/// The data that is removed if a mysqld's data is replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionPlan {
    /// The donor's name.
    pub donor: String,
    /// Transactions of the recipient that the ring lacks, in MySQL's text form.
    pub errant: String,
    /// The number of errant transactions.
    pub errant_transactions: u64,
    /// Why the command requires `force`: not all errant transactions can be kept. `None` from an older member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_force: Option<String>,
    /// The schemas to be replaced.
    pub schemas: Vec<SchemaSize>,
    /// Why the sizes are unknown, if mysqld does not report them in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes_unknown: Option<String>,
    /// Why mysqld cannot be checked, if it cannot.
    pub unknown: Option<String>,
}

/// A schema and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaSize {
    /// The schema's name in mysqld.
    pub name: String,
    /// Approximate bytes of its tables and indexes.
    pub bytes: u64,
}

/// Result of provisioning a mysqld.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provisioned {
    /// The donor's name.
    pub donor: String,
    /// The binlog files with errant transactions that were kept.
    pub kept: Vec<KeptBinlog>,
    /// The errant transactions that a forced command has lost, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// True if mysqld follows the ring.
    pub follows: bool,
    /// Seconds from the start of the first phase to the end of the last.
    pub seconds: f64,
}

/// A binlog file that was kept in the member's `trimmed/mysqld/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBinlog {
    /// The file's name in mysqld.
    pub from: String,
    /// The errant transactions in the file, in MySQL's text form.
    pub gtids: String,
    /// Name of the copy.
    pub kept_as: String,
}

/// Result of a purge or its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeReport {
    /// Names of the files, oldest first.
    pub removed: Vec<String>,
    /// Total bytes of these files.
    pub bytes: u64,
    /// The last entry in these files.
    pub upto: Option<OpId>,
    /// The first due file that was not removed, and why.
    pub kept: Option<KeptFile>,
}

/// A file that a purge did not remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// The file's name in the log.
    pub file: String,
    /// Why it was kept, as text.
    pub because: String,
}

// Delivery of events.

/// Sends events to the operator's client. The client may not read them, or may have disconnected.
pub(crate) struct CommandProgress(pub(crate) mpsc::Sender<Bytes>);

impl CommandProgress {
    pub(crate) fn tell(&self, event: &CommandEvent) {
        // An event consists of plain values, which always have a JSON form.
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

    /// Regression: evidence that contained a membership could not be read again.
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
            CommandEvent::Refused(Refusal::refused("what", "advice")),
        ] {
            let json = serde_json::to_vec(&event).unwrap();
            assert_eq!(
                serde_json::from_slice::<CommandEvent>(&json).unwrap(),
                event
            );
        }
    }
}
