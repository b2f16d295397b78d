//! How far the ring needs the log, and removing what it does not need.

use std::time::Duration;

use raft_types::{OpId, TypeConfig};
use thiserror::Error;

use super::Member;
use crate::calls::questions::{Answer, CallError, Question};
use crate::engine;
use crate::fault::Fault;
use crate::purge_floor::PurgeFloor;

/// Why the log was not purged.
#[derive(Debug, Error)]
pub enum PurgeError {
    /// Beyond what is applied.
    #[error("entries up to {upto} cannot be purged; only those up to {} are applied", match .applied {
        Some(applied) => applied.to_string(),
        None => "none".to_owned(),
    })]
    NotApplied {
        /// What was asked for.
        upto: OpId,
        /// What could be.
        applied: Option<OpId>,
    },
    /// Inside of a file, or within the file that is being written to.
    #[error("entries up to {upto} cannot be purged: no file ends there; {}", match .next {
        Some(next) => format!("the next one that does ends with {next}"),
        None => "the files from there on are still needed".to_owned(),
    })]
    NotTheEndOfAFile {
        /// What was asked for.
        upto: OpId,
        /// The first entry behind it that ends a file, where another file follows.
        next: Option<OpId>,
    },
    /// The log could not be read.
    #[error("the log cannot say where its files begin: {reason}")]
    Log {
        /// The log's words.
        reason: String,
    },
    /// The engine has stopped.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

impl Member {
    /// Up to where the ring does not need the log any more, as its leader sees it. A member that did not
    /// answer the leader for `absent_after` holds nothing back.
    ///
    /// # Errors
    /// [`CallError`] when no leader is known, or it does not answer in time.
    pub async fn purge_floor(&self, absent_after: Duration) -> Result<PurgeFloor, CallError> {
        let core = &self.0.core;
        if let Some(floor) = core.purge_floor(absent_after) {
            return Ok(floor);
        }
        match self
            .ask_leader(Question::PurgeFloor { absent_after })
            .await?
        {
            Answer::PurgeFloor(floor) => Ok(floor),
            other => Err(CallError(format!("it answers something else: {other:?}"))),
        }
    }

    /// Lets the engine remove entries up to `upto` from the log, when no follower is being sent them.
    /// A file ends with `upto`, so that the log goes on with a file with which another log can begin.
    ///
    /// # Errors
    /// [`PurgeError`] when they are not applied yet, or no file ends there.
    pub async fn purge(&self, upto: OpId) -> Result<(), PurgeError> {
        let applied = engine::progress(self.raft()).applied;
        if applied.is_none_or(|applied| applied.index < upto.index) {
            return Err(PurgeError::NotApplied { upto, applied });
        }
        let purged = engine::progress(self.raft()).purged;
        if purged.is_some_and(|purged| purged.index >= upto.index) {
            return Ok(());
        }
        let next = self.0.starts.first_start(Some(upto)).await;
        let next = next.map_err(|error| PurgeError::Log {
            reason: error.to_string(),
        })?;
        let next = next.map(|start| start.before);
        if next != Some(upto) {
            return Err(PurgeError::NotTheEndOfAFile { upto, next });
        }
        self.0.purge_goal.raise(upto);
        let trigger = self.raft().trigger();
        trigger.snapshot().await.map_err(Fault::from)?;
        let marked = self.raft().wait(None);
        let reached = |seen: &openraft::RaftMetrics<TypeConfig>| {
            seen.snapshot.is_some_and(|at| at.index >= upto.index)
        };
        let reached = marked.metrics(reached, "the mark up to which the log may be purged");
        reached.await.map_err(|_| Fault::Stopped)?;
        trigger.purge_log(upto.index).await.map_err(Fault::from)?;
        Ok(())
    }
}
