//! What members ask each other besides the engine's own calls. One call carries all of it, so that a new question
//! changes nothing on the way: who asks and who answers are here, the transport only brings them together.

use std::time::Duration;

use futures::future::BoxFuture;
use raft_types::{MemberId, MemberRecord};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::leadership::Term;

/// A question of one member to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum Question {
    /// To a voter: campaign, because the leader of `term`, which asks, has given up.
    Campaign {
        /// The term that is over.
        term: Term,
    },
}

/// The answer to a [`Question`]; each has its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// It campaigns.
    Campaigns,
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
}

/// A question that got no answer, or was refused, in words.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CallError(pub String);
