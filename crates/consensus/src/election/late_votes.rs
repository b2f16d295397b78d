//! Votes that arrive too late. A voter stores its vote on disk before it answers. The engine waits for that no longer than for a
//! leader, a heartbeat and a little. With a slower fsync, each term's vote would arrive after its election, and
//! the next election needs a vote of the next term. If that voter is needed, no leader would ever be elected.
//!
//! So a voter that agreed to an election but voted too late is asked for its vote already in the next pre-vote.
//! Pre-votes are for the same term until one succeeds. That attempt also ends in time, but the voter stores the vote
//! concurrently and has it when asked again.
//!
//! It is an ordinary vote: given once in a term, and not within a lease. Pre-votes keep a member that cannot win from raising the ring's
//! term. For these voters that is given up for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use raft_types::MemberId;
use tokio::time::Instant;

/// How long a voter counts as late after the election in which it was.
const COUNTS: Duration = Duration::from_secs(60);

/// What this process's elections have observed of the other voters.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateVotes(Arc<Mutex<BTreeMap<MemberId, Seen>>>);

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// It agreed in the last pre-vote.
    agreed: bool,
    /// When it had agreed but did not vote in time.
    late: Option<Instant>,
}

impl LateVotes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Seen>> {
        // Each change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its vote came too late in an election before.
    pub(crate) fn is_late(&self, voter: MemberId) -> bool {
        let seen = self.lock().get(&voter).copied().unwrap_or_default();
        seen.late.is_some_and(|late| late.elapsed() < COUNTS)
    }

    /// It answered in a pre-vote whether it would vote.
    pub(crate) fn pre_voted(&self, voter: MemberId, agreed: bool) {
        self.lock().entry(voter).or_default().agreed = agreed;
    }

    /// It is asked for its vote: a caller that drops the result has not waited for the answer.
    pub(crate) fn ask(&self, voter: MemberId) -> AskedForVote {
        AskedForVote {
            votes: self.clone(),
            voter,
            answered: false,
        }
    }
}

/// A voter that is asked for its vote.
pub(crate) struct AskedForVote {
    votes: LateVotes,
    voter: MemberId,
    answered: bool,
}

impl AskedForVote {
    /// It answered, or cannot be reached.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for AskedForVote {
    fn drop(&mut self) {
        let mut votes = self.votes.lock();
        let seen = votes.entry(self.voter).or_default();
        if self.answered {
            seen.late = None;
        } else if seen.agreed {
            tracing::info!(member = %self.voter, "its vote comes too late: it is asked for it earlier the next time");
            seen.late = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_agreed_and_did_not_vote_in_time_is_late_for_a_while() {
        let (votes, voter) = (LateVotes::default(), MemberId(2));
        drop(votes.ask(voter));
        assert!(!votes.is_late(voter), "it may be gone");
        votes.pre_voted(voter, true);
        votes.ask(voter).answered();
        assert!(!votes.is_late(voter));
        drop(votes.ask(voter));
        assert!(votes.is_late(voter));
        assert!(!votes.is_late(MemberId(3)));
        tokio::time::advance(COUNTS).await;
        assert!(!votes.is_late(voter));
        drop(votes.ask(voter));
        votes.ask(voter).answered();
        assert!(!votes.is_late(voter), "its disk is faster again");
    }
}
