//! Calls between members: what they ask each other besides the engine's own calls, here; whether one is listened to
//! ([`admission`]), and what comes in ([`inbound`]). One call carries all questions, so that a new one changes nothing on the way:
//! who asks and who answers are in this crate, the transport only brings them together.

pub(crate) mod admission;
pub(crate) mod inbound;

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::future::BoxFuture;
use raft_types::{FilePart, MemberId, MemberRecord, OpId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::election::early_election::EarlyVoteCall;
use crate::election::mock_election::{MockElection, MockElectionCall, MockVote, MockVoteCall};
use crate::election::put_back::{Remembered, Report};
use crate::formats::Program;
use crate::history::HistoryEntry;
use crate::lease::leadership::Term;
use crate::lease::promise::PromisedLease;
use crate::purge_floor::PurgeFloor;
use crate::repair::rejoin::{Agreement, Recollection};

/// What a promotion of one member would cost, as far as its mysqld goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseState {
    /// Why its mysqld could not be the primary soon, in words; nothing when it could.
    #[serde(default)]
    pub unfit: Option<String>,
    /// Committed transactions that mysqld has not executed; nothing where that is not known.
    #[serde(default)]
    pub behind: Option<u64>,
    /// Version of that mysqld as it reports it; nothing where no connection has told it yet.
    #[serde(default)]
    pub version: Option<String>,
}

/// How far a member's log goes, and whether it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// Its last entry, whether durable yet or not.
    pub last: Option<OpId>,
    /// The term in which it leads, if it does.
    pub leads: Option<Term>,
    /// The last membership of its log.
    #[serde(default)]
    pub membership: Option<OpId>,
}

/// What members say to each other whenever they meet; nothing, where the program does not know the words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// What it says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// What it remembers of the other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remembered: Option<Remembered>,
    /// The lease that it promises to the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<PromisedLease>,
}

/// A question of one member to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    /// Are you there? Asked so that the connection is, and so that members know how far the others have come.
    Greeting(Greeting),
    /// To a voter: campaign, because the leader of `term`, which asks, has given up.
    Campaign {
        /// The term that is over.
        term: Term,
    },
    /// To the target of a promotion: would your voters elect you?
    MockElection(MockElectionCall),
    /// To a voter: would you elect me?
    MockVote(MockVoteCall),
    /// To a voter: do you know as well that the leader's process is gone, and would you elect me?
    EarlyVote(EarlyVoteCall),
    /// From a member that comes back: is my log still the ring's?
    Agreement(Recollection),
    /// To the leader, from a member that wants to purge its log: up to where does nobody need it any more?
    PurgeFloor {
        /// How long a member that is away still counts.
        absent_after: Duration,
    },
    /// To the leader: up to where is the log committed?
    Committed,
    /// From a member that may have lost the end of its log: how far does yours go?
    LogEnd,
    /// To a member without a vote, from one that may have lost the end of its log: yours is the only log that goes as far as the ring's may
    /// have; campaign, and lead until a voter has what you have.
    StandIn,
    /// To a database member, from a leader that is to give the leadership away: what would a promotion cost?
    Database {
        /// The version of the mysqld beside the leader, which is the primary, if it has one.
        primary: Option<String>,
    },
    /// From a member whose file is damaged: give me this piece of yours.
    FilePart(FilePart),
    /// To the leader: put these into the ring's history.
    Note {
        /// What the member that asks has noted.
        entries: Vec<HistoryEntry>,
    },
    /// From the leader to a voter: how many bytes of transactions fit on the disk of your log?
    Room,
}

/// The answer to a [`Question`]; each has its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Answers [`Question::Greeting`]: the member is there and its engine runs.
    Greeting {
        /// Which program it runs; nothing from one that speaks the first format alone and does not know the word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        program: Option<Program>,
        /// What it says to who asks.
        #[serde(flatten)]
        greeting: Greeting,
    },
    /// Answers [`Question::Campaign`] and [`Question::StandIn`]: the member has begun an election.
    Campaigns,
    /// How the mock election went.
    MockElection(MockElection),
    /// What the voter would do.
    MockVote(MockVote),
    /// Answers [`Question::EarlyVote`]: yes to both.
    EarlyVote,
    /// How far the logs agree.
    Agreement(Agreement),
    /// Up to where the log is not needed any more.
    PurgeFloor(PurgeFloor),
    /// Up to where the log is committed.
    Committed {
        /// None before the first entry.
        up_to: Option<OpId>,
    },
    /// How far the log goes.
    LogEnd(LogEnd),
    /// What a promotion would cost.
    Database(DatabaseState),
    /// A part of a file of the log.
    FilePart(FileBytes),
    /// Answers [`Question::Note`]: the leader will write them, unless it fails.
    Noted,
    /// What fits on the disk of the log.
    Room {
        /// In bytes, without the reserve; none where the log cannot say.
        transactions: Option<u64>,
        /// The last entry of the log, durable or not.
        end: Option<OpId>,
    },
}

/// Raw bytes inside a JSON document, where they are written as base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBytes(pub Bytes);

impl Serialize for FileBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A field of its own: beside a tag there can be no bare text.
        Encoded {
            base64: BASE64_STANDARD.encode(&self.0),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let encoded = Encoded::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(encoded.base64);
        bytes
            .map(|bytes| Self(bytes.into()))
            .map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    base64: String,
}

/// Asks other members. The transport implements it.
pub trait MemberCalls: Send + Sync + 'static {
    /// Asks one member, and waits for its answer until `deadline` has passed.
    fn ask<'a>(
        &'a self,
        to: MemberId,
        record: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>>;

    /// Finds out whether anything listens at a member's address, within `deadline`. Nothing is said there.
    fn knock<'a>(
        &'a self,
        at: MemberId,
        record: &'a MemberRecord,
        deadline: Duration,
    ) -> BoxFuture<'a, Knock>;
}

/// What the address of a member does with a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knock {
    /// It takes it.
    Answers,
    /// The system there refuses it: nothing listens.
    Refused,
    /// No word came in time, or one that does not say whether anything listens.
    Silent,
}

/// A question that got no answer, or was refused, in words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CallError(pub String);
