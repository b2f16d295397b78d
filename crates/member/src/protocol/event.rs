//! Events that a member sends during a command, each a JSON document; the last one ends the command. Fields are only ever added.

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

/// One event. (Externally tagged: an internal tag would not read maps with numeric keys, such as a membership, back from JSON.)
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandEvent {
    /// A phase of the command began.
    Began {
        /// The phase's documented name.
        phase: String,
    },
    /// A phase of the command ended.
    Done {
        /// The phase's name from its beginning.
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
        /// Estimated total bytes.
        of: u64,
    },
    /// The command was executed.
    Result(CommandResult),
    /// It was not executed, or only in part.
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
        /// The entry of the log that carries it.
        entry: OpId,
    },
    /// No switchover is scheduled any longer, from this entry on.
    Unscheduled {
        /// The cancelled switchover.
        switchover: ScheduledSwitchover,
        /// The entry of the log that ends it.
        entry: OpId,
    },
    /// The voters' decisions.
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
        /// The entry of the log that carries it.
        entry: OpId,
    },
    /// Failover is resumed by this entry.
    Resumed {
        /// The previous pause.
        paused: RingPause,
        /// The entry of the log that ends it.
        entry: OpId,
    },
    /// The ring's history, oldest first.
    History(Vec<HistoryEntry>),
    /// This member's record of its log and of the quorum.
    Evidence(Box<MemberEvidence>),
    /// The member continues alone, from this entry on.
    Repaired(OpId),
    /// All members rotated their logs.
    Flushed {
        /// The rotate entry, which ends the file.
        entry: OpId,
        /// The next file.
        file: String,
    },
    /// Purged files of its log.
    Purged(PurgeReport),
    /// The bootstrapped ring, or the member's existing one.
    #[serde(rename = "founded")] // name in version 0.1
    Bootstrapped(RingId),
    /// State of a member's mysqld.
    Mysqld(Box<MysqldAnswer>),
    /// What replacing the data of a mysqld would remove.
    ProvisionPlan(ProvisionPlan),
    /// The data of its mysqld were replaced by another member's.
    Provisioned(Provisioned),
    /// A dry run found no reason to refuse the command.
    WouldBeDone,
    /// The configuration was reloaded.
    Reloaded(Reloaded),
    /// Its mysqld was restarted.
    MysqldRestarted,
    /// The statement was executed instead of a transaction.
    StatementReplaced {
        /// True if mysqld follows the ring again.
        follows: bool,
    },
    /// Its starts that were open for writes are acknowledged.
    ExposureAcknowledged,
    /// An account for a copy.
    Offered(CloneOffer),
    /// The account was removed.
    Withdrawn,
}

/// Result of a member's configuration reload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Keys that differ from the values at its start, and take effect at its next start.
    pub needs_restart: Vec<String>,
    /// Probable mistakes in the configuration, as reported by `witness config check`.
    pub warnings: Vec<String>,
}

/// What replacing the data of a mysqld would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionPlan {
    /// The donor's name.
    pub donor: String,
    /// Its transactions that the ring lacks, in MySQL's text form.
    pub errant: String,
    /// The number of errant transactions.
    pub errant_transactions: u64,
    /// Why it requires force: not all errant transactions can be kept. None from an older member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_force: Option<String>,
    /// The schemas to be replaced.
    pub schemas: Vec<SchemaSize>,
    /// Why their sizes are unknown, if mysqld does not report them in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes_unknown: Option<String>,
    /// Why mysqld cannot be inspected, if so.
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
    /// Kept binlog files with errant transactions.
    pub kept: Vec<KeptBinlog>,
    /// Errant transactions lost by a forced command, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
    /// Whether it follows the ring.
    pub follows: bool,
    /// Seconds from the start of the first phase to the end of the last.
    pub seconds: f64,
}

/// A binlog file kept in the member's `trimmed/mysqld/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBinlog {
    /// Its name in mysqld.
    pub from: String,
    /// Its errant transactions, in MySQL's text form.
    pub gtids: String,
    /// Name of the copy.
    pub kept_as: String,
}

/// Result of a purge or its dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PurgeReport {
    /// Names of the files, oldest first.
    pub removed: Vec<String>,
    /// Bytes of those files together.
    pub bytes: u64,
    /// The last entry in them.
    pub upto: Option<OpId>,
    /// The first due file that was kept, and why.
    pub kept: Option<KeptFile>,
}

/// A file kept by a purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// The file's name in the log.
    pub file: String,
    /// Why it was kept, as text.
    pub because: String,
}

// Delivery of events.

/// Sends events to the operator's client, which may not read or may have disconnected.
pub(crate) struct CommandProgress(pub(crate) mpsc::Sender<Bytes>);

impl CommandProgress {
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

    /// Regression: evidence with a membership in it could not be read back.
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
