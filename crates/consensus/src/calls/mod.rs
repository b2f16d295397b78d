//! Calls between members in addition to the engine's own calls. This module defines the questions; [`inbound`] processes them. One
//! transport call carries all questions, so a new question does not change the transport: both ends are in this crate.

use std::fmt::Display;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use raft_types::{FilePart, HistoryEntry, MemberId, MemberRecord, OpId, Program, Term, TermRun};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::election::leader_exit::LedTerm;
use crate::election::mock_election::{MockElection, MockElectionCall, MockVote, MockVoteCall};
use crate::election::restored_directory::{Remembered, Report};
use crate::engine::{self, Engine, Fault};
use crate::lease::promise::PromisedLease;
use crate::purge_floor::PurgeFloor;

pub(crate) mod inbound;

/// The cost of a promotion of one member for its mysqld.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseState {
    /// Why the member's mysqld could not become the primary soon; `None` if it could.
    #[serde(default)]
    pub unfit: Option<String>,
    /// The number of committed transactions that mysqld has not executed; `None` if it is unknown.
    #[serde(default, rename = "behind")]
    pub lag: Option<u64>,
    /// The version that this mysqld reports; `None` before the first connection.
    #[serde(default)]
    pub version: Option<String>,
}

/// The end of a member's log, and whether it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// The last entry of the log, durable or not.
    pub last: Option<OpId>,
    /// The term in which the member leads, if it leads.
    pub leads: Option<Term>,
    /// The last membership of its log.
    #[serde(default)]
    pub membership: Option<OpId>,
}

/// The data that members exchange on each contact. It is empty from a program that does not support it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The sender's report about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// The sender's record of the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Remembered>,
    /// The lease that the sender promises to the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<PromisedLease>,
}

/// The question of a member to a voter before an early election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyVoteCall {
    /// The leader that has exited, and the term in which it led.
    #[serde(flatten)]
    pub led: LedTerm,
    /// The last entry of the asking member's log.
    pub log_end: Option<OpId>,
}

/// A question of one member to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    /// Are you there? The question also keeps the connection open, and exchanges the members' states.
    Greeting(Greeting),
    /// To a voter: campaign, because the leader of `term` has given up. That leader asks.
    Campaign {
        /// The term that is over.
        term: Term,
    },
    /// To the target of a promotion: would your voters elect you?
    MockElection(MockElectionCall),
    /// To a voter: would you elect me?
    MockVote(MockVoteCall),
    /// To a voter: do you also have the evidence that the leader's process has exited, and would you elect me?
    EarlyVote(EarlyVoteCall),
    /// From a member that rejoins: is my log still the ring's?
    Agreement(Recollection),
    /// To the leader, from a member that wants to purge its log: up to where is it no longer needed?
    PurgeFloor {
        /// How long an absent member still delays the purge.
        absent_after: Duration,
    },
    /// To the leader: up to where is the log committed?
    Committed,
    /// From a member that may have lost the end of its log: where does your log end?
    LogEnd,
    /// To a non-voter, from a member that may have lost the end of its log: only your log may have all entries of the ring. Campaign, and
    /// lead until a voter has the same entries.
    #[serde(rename = "stand_in")]
    InterimLead,
    /// To a database member, from a leader that wants to transfer the leadership: what would a promotion cost?
    Database {
        /// The version of the leader's own mysqld, which is the primary, if it has one.
        primary: Option<String>,
    },
    /// From a member with a damaged file: send me this piece of your file.
    FilePart(FilePart),
    /// To the leader: add these events to the ring's history.
    Note {
        /// The events that the asking member has recorded.
        entries: Vec<HistoryEntry>,
    },
    /// From the leader to a voter: how many bytes of transactions fit on the disk of your log?
    Room,
}

/// The answer to a [`Question`]; each question has its own answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Answers [`Question::Greeting`]: the member is there and its engine runs.
    Greeting {
        /// The running program; `None` from a program that supports only the first format and lacks this field.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<Program>,
        /// The data for the asking member.
        #[serde(flatten)]
        greeting: Greeting,
    },
    /// Answers [`Question::Campaign`] and [`Question::InterimLead`]: the member has begun an election.
    Campaigns,
    /// The result of the mock election.
    MockElection(MockElection),
    /// The voter's answer in a mock election.
    MockVote(MockVote),
    /// Answers [`Question::EarlyVote`]: yes to both parts of the question.
    EarlyVote,
    /// How far the logs agree.
    Agreement(Agreement),
    /// Up to where the log is no longer needed.
    PurgeFloor(PurgeFloor),
    /// Up to where the log is committed.
    Committed {
        /// `None` before the first entry.
        up_to: Option<OpId>,
    },
    /// The end of the log.
    LogEnd(LogEnd),
    /// The cost of a promotion.
    Database(DatabaseState),
    /// A part of a file of the log.
    FilePart(FileBytes),
    /// Answers [`Question::Note`]: the leader will write the events, unless it fails.
    Noted,
    /// The room on the log's disk.
    Room {
        /// Room in bytes, without the reserve; `None` if the log cannot report it.
        transactions: Option<u64>,
        /// The last entry of the log, durable or not.
        end: Option<OpId>,
    },
}

impl Answer {
    /// Returns the error for an answer of the wrong type.
    pub fn unexpected(&self) -> CallError {
        CallError::new(format_args!("it gave an unexpected answer: {self:?}"))
    }
}

/// Raw bytes inside a JSON document, where they are written as base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Encoded", into = "Encoded")]
pub struct FileBytes(pub Bytes);

/// A struct of its own, because a tag cannot be combined with plain text.
#[derive(Serialize, Deserialize)]
struct Encoded {
    base64: String,
}

impl From<FileBytes> for Encoded {
    fn from(bytes: FileBytes) -> Self {
        let base64 = BASE64_STANDARD.encode(bytes.0);
        Self { base64 }
    }
}

impl TryFrom<Encoded> for FileBytes {
    type Error = base64::DecodeError;

    fn try_from(encoded: Encoded) -> Result<Self, Self::Error> {
        Ok(Self(BASE64_STANDARD.decode(encoded.base64)?.into()))
    }
}

/// The interface for questions to other members. The transport implements it.
pub trait MemberCalls: Send + Sync + 'static {
    /// Asks one member, and waits for its answer at most `deadline`.
    fn ask<'a>(
        &'a self,
        to: MemberId,
        record: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>>;

    /// Checks within `deadline` whether a process listens at a member's address. Sends no data to the address.
    fn knock<'a>(
        &'a self,
        at: MemberId,
        record: &'a MemberRecord,
        deadline: Duration,
    ) -> BoxFuture<'a, Knock>;
}

/// The reaction of a member's address to a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knock {
    /// The address accepts the connection.
    Answers,
    /// The operating system at the address refuses the connection, because no process listens.
    Refused,
    /// There was no reaction in time, or the reaction does not show whether a process listens.
    Silent,
}

/// The text of a refusal, or of the reason why a question got no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CallError(pub String);

impl CallError {
    pub(crate) fn new(reason: impl Display) -> Self {
        Self(reason.to_string())
    }
}

// The agreement of two logs: the question of a member that rejoins, and its answer. If the quorum was repaired without that member, its log
// may have committed entries that the ring has given up. The engine would silently keep them, because it never compares committed entries
// again.

/// The log state of a member that rejoins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recollection {
    /// The runs of terms of the member's log, oldest first. If there are too many, only the newest ones.
    pub runs: Vec<TermRun>,
    /// The last entry that the member has recorded as committed.
    pub committed: Option<OpId>,
}

/// The maximum number of runs in a recollection. A call has room for twice as many. The newest runs are enough, because given-up entries
/// have the newest terms.
const MOST_RUNS: usize = 4096;

impl Recollection {
    /// Creates the state of a log with these runs of terms, oldest first, which is committed up to `committed`.
    pub fn new(mut runs: Vec<TermRun>, committed: Option<OpId>) -> Self {
        runs.drain(..runs.len().saturating_sub(MOST_RUNS));
        Self { runs, committed }
    }

    /// Returns the end of the log.
    pub fn last(&self) -> Option<OpId> {
        self.runs.last().map(|run| OpId::new(run.term, run.last))
    }
}

/// Another member's answer to a recollection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The last entry that both logs have.
    pub common: Option<OpId>,
    /// The end of the answering member's log.
    pub last: Option<OpId>,
    /// The last entry that the answering member has recorded as committed.
    pub committed: Option<OpId>,
    /// The last purged entry of the answering member's log. Earlier entries cannot be compared.
    pub purged: Option<OpId>,
    /// The answering member's record about the asking member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Remembered>,
}

/// Compares a recollection with this member's log.
pub(crate) async fn compare(raft: &Engine, theirs: Recollection) -> Result<Agreement, Fault> {
    let common = raft.with_raft_state(move |state| {
        common_entry(&theirs.runs, |index| {
            state.log_ids.get(index).map(OpId::from)
        })
    });
    let common = common.await?;
    let progress = engine::progress(raft);
    Ok(Agreement {
        common,
        last: progress.last_log,
        committed: progress.applied,
        purged: progress.purged,
        remembered: None,
    })
}

/// Returns the last entry of `runs` that is also in the log read by `op_id_at`. By log matching, all earlier entries are equal.
pub fn common_entry(runs: &[TermRun], op_id_at: impl Fn(u64) -> Option<OpId>) -> Option<OpId> {
    let has = |run: &TermRun, index: u64| op_id_at(index) == Some(OpId::new(run.term, index));
    runs.iter().rev().find_map(|run| {
        if !has(run, run.first) {
            return None;
        }
        // Entries of one term are contiguous. So a log with one of these entries also has the entries of that term before it.
        let (mut have, mut lack) = (run.first, run.last + 1);
        while have + 1 < lack {
            let middle = have + (lack - have) / 2;
            match has(run, middle) {
                true => have = middle,
                false => lack = middle,
            }
        }
        Some(OpId::new(run.term, have))
    })
}

#[cfg(test)]
mod tests {
    use raft_types::MAX_MESSAGE_BYTES;

    use super::*;

    fn run(term: u64, first: u64, last: u64) -> TermRun {
        TermRun { term, first, last }
    }

    fn log(runs: &[TermRun]) -> impl Fn(u64) -> Option<OpId> {
        move |index| {
            let mut runs = runs.iter();
            let run = runs.find(|run| (run.first..=run.last).contains(&index))?;
            Some(OpId::new(run.term, index))
        }
    }

    #[test]
    fn the_last_common_entry_is_found() {
        let ours = [run(1, 0, 99), run(2, 100, 180), run(1002, 181, 250)];
        let table = [
            (
                vec![run(1, 0, 99), run(2, 100, 200)],
                Some(OpId::new(2, 180)),
            ),
            (
                vec![run(1, 0, 99), run(2, 100, 150)],
                Some(OpId::new(2, 150)),
            ),
            (
                vec![run(1, 0, 120), run(3, 121, 130)],
                Some(OpId::new(1, 99)),
            ),
            (vec![run(7, 0, 5)], None),
            (vec![], None),
        ];
        for (theirs, expected) in table {
            assert_eq!(common_entry(&theirs, log(&ours)), expected, "{theirs:?}");
        }
    }

    /// The recollection is sent in a call. A call that is too large would get no answer.
    #[test]
    fn a_recollection_keeps_the_newest_terms() {
        let least = u64::MAX - 100_000;
        let runs: Vec<_> = (least..).take(50_000).map(|at| run(at, at, at)).collect();
        let own = Recollection::new(runs.clone(), Some(OpId::new(least, least)));
        assert_eq!(own.runs.len(), MOST_RUNS);
        assert_eq!(own.runs.last(), runs.last());
        let asked = serde_json::to_vec(&Question::Agreement(own)).unwrap();
        assert!(asked.len() < MAX_MESSAGE_BYTES / 2, "{}", asked.len());
        let short = Recollection::new(vec![run(1, 0, 9)], None);
        assert_eq!(short.runs, [run(1, 0, 9)]);
    }
}
