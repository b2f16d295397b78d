//! The votes that this member requests, and how they count ([`crate::engine::network`]). A vote does not count if the voter's log ends
//! before the end that is recorded for it ([`super::restored_directory`]). Such a voter may not have received the record yet, or its version does not
//! support the message. The interim leader's vote requests do not declare leases over ([`super::interim_leader`]). A late voter is asked
//! for its vote already in a pre-vote ([`LateVotes`]).
//!
//! So this member may get votes of a term in which its engine has not campaigned. If an earlier election succeeds, the engine never
//! campaigns in that term. The engine assumes that it requested every vote for its own member. After such a vote, it would neither act in
//! its role nor leave it. So the engine receives the vote as the voter's own candidacy in that term, which only shows that the engine's
//! term is old.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::raft::{StreamAppendError, StreamAppendResult, VoteRequest, VoteResponse};
use raft_types::{Incarnation, MemberId, OpId, Term, TypeConfig, Vote, lock};
use tokio::time::Instant;

use crate::election::restored_directory::Recorded;

/// The votes that this member requests. Clones share the recorded observations.
#[derive(Clone)]
pub(crate) struct CountedVotes {
    /// The member that requests the votes.
    own: MemberId,
    memory: Recorded,
    interim_term: InterimTerm,
    late: LateVotes,
}

impl CountedVotes {
    /// Creates the state for the member `own`.
    pub(crate) fn new(own: MemberId, memory: Recorded, interim_term: InterimTerm) -> Self {
        Self {
            own,
            memory,
            interim_term,
            late: LateVotes::default(),
        }
    }

    /// Returns the vote requests to `member`, which has this data directory.
    pub(crate) fn of(&self, member: MemberId, whose: Incarnation) -> AskedVoter {
        AskedVoter {
            counted: self.clone(),
            member,
            whose,
        }
    }
}

/// A member that is asked for its vote.
#[derive(Clone)]
pub(crate) struct AskedVoter {
    counted: CountedVotes,
    member: MemberId,
    whose: Incarnation,
}

impl AskedVoter {
    /// Removes the declaration that leases are over, if this member is the interim leader.
    pub(crate) fn asks(&self, request: &mut VoteRequest<TypeConfig>) {
        let term = Term(request.vote.leader_id.term);
        request.leadership_transfer &= !self.counted.interim_term.asks_in(term);
    }

    /// Records that the voter is asked for its vote. If the caller drops the result, it has not waited for the answer.
    pub(crate) fn is_asked(&self) -> AskedForVote {
        self.counted.late.ask(self.member)
    }

    /// Returns true if a pre-vote already asks for this voter's vote.
    pub(crate) fn is_late(&self) -> bool {
        self.counted.late.is_late(self.member)
    }

    /// Converts the voter's answer to a vote request of `term` for the engine.
    pub(crate) fn votes(
        &self,
        term: u64,
        answer: VoteResponse<TypeConfig>,
    ) -> VoteResponse<TypeConfig> {
        let mut answer = self.checked(term, answer);
        answer.vote = self.told(answer.vote, term);
        answer
    }

    /// Converts the voter's answer to a pre-vote request of `term` for the engine. `is_late` is true if the voter was asked for its vote.
    pub(crate) fn pre_votes(
        &self,
        term: u64,
        is_late: bool,
        answer: VoteResponse<TypeConfig>,
    ) -> VoteResponse<TypeConfig> {
        let mut answer = self.checked(term, answer);
        if !is_late {
            let agreed = answer.vote_granted;
            self.counted.late.pre_voted(self.member, agreed);
        }
        if !answer.vote_granted {
            answer.vote = self.told(answer.vote, term - 1);
        }
        answer
    }

    /// Converts a follower's answer to a leader's request for the engine.
    pub(crate) fn follows(
        &self,
        answer: StreamAppendResult<TypeConfig>,
    ) -> StreamAppendResult<TypeConfig> {
        answer.map_err(|error| match error {
            // The vote's term is later than this member's term.
            StreamAppendError::HigherVote(vote) => {
                StreamAppendError::HigherVote(self.told(vote, u64::MIN))
            }
            StreamAppendError::Conflict(at) => StreamAppendError::Conflict(at),
        })
    }

    /// Returns the answer with the vote refused, if the vote does not count.
    fn checked(&self, term: u64, mut answer: VoteResponse<TypeConfig>) -> VoteResponse<TypeConfig> {
        let end = answer.last_log_id.map(OpId::from);
        let lacks = self
            .counted
            .memory
            .lacks(self.member, self.whose, term, end);
        if let (true, Some(known)) = (answer.vote_granted, lacks) {
            tracing::error!(
                member = %self.member,
                "ignoring its vote: its log had {known} earlier and lacks it now, so its data directory was restored to an earlier \
                 state. See the runbook restored-data-directory"
            );
            answer.vote_granted = false;
        }
        answer
    }

    /// Converts a vote for the engine, which has campaigned in no term after `stood`.
    pub(crate) fn told(&self, vote: Vote, stood: u64) -> Vote {
        let leader = vote.leader_id;
        match leader.voted_for == self.counted.own && leader.term > stood {
            true => Vote::new(leader.term, self.member),
            false => vote,
        }
    }
}

// The term of the interim leader.
//
// The engine lets a non-voter campaign only in a leadership transfer, and then its vote requests declare leases over. In this case, no
// leader has ended its lease. So the vote requests of this term omit the declaration, and this member's mysqld is no primary in the term.

/// The term in which this member is the interim leader; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterimTerm(Arc<AtomicU64>);

impl InterimTerm {
    /// Records that this member is about to campaign in this term.
    pub(crate) fn campaigns_in(&self, term: Term) {
        self.0.store(term.0, Ordering::Release);
    }

    /// Returns true if this member campaigned in this term as the interim leader.
    pub(crate) fn asks_in(&self, term: Term) -> bool {
        // No election is held in the first term, which is 0.
        term.0 > 0 && self.0.load(Ordering::Acquire) == term.0
    }
}

// Votes that arrive too late. A voter stores its vote on disk before it answers. The engine waits for the vote only a little longer than a
// heartbeat. If the fsync takes longer, each vote arrives after its election has ended, and the next election needs a vote of the next
// term. If that voter is needed, no leader would ever be elected.
//
// So a voter that agreed in a pre-vote but voted too late is asked for its vote already in the next pre-vote. Pre-votes are for the same
// term until one succeeds. That attempt also ends before the answer arrives, but the voter has begun to store the vote. When it is asked
// again, it has the vote already.
//
// The vote is an ordinary one: given once in a term, and not within a lease. Pre-votes keep a member that cannot win from raising the
// ring's term. For late voters, this protection is given up for [`COUNTS`].

/// How long a voter counts as late after an election in which its vote was late.
const COUNTS: Duration = Duration::from_secs(60);

/// This process's observations of the other voters in its elections.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateVotes(Arc<Mutex<BTreeMap<MemberId, Seen>>>);

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// True if the voter agreed in the last pre-vote.
    agreed: bool,
    /// The time when the voter had agreed, but did not vote in time.
    late: Option<Instant>,
}

impl LateVotes {
    /// Returns true if the voter's vote came too late within the last [`COUNTS`].
    pub(crate) fn is_late(&self, voter: MemberId) -> bool {
        let seen = lock(&self.0).get(&voter).copied().unwrap_or_default();
        seen.late.is_some_and(|late| late.elapsed() < COUNTS)
    }

    /// Records whether the voter agreed in a pre-vote.
    pub(crate) fn pre_voted(&self, voter: MemberId, agreed: bool) {
        lock(&self.0).entry(voter).or_default().agreed = agreed;
    }

    /// Records that the voter is asked for its vote. If the caller drops the result, it has not waited for the answer.
    pub(crate) fn ask(&self, voter: MemberId) -> AskedForVote {
        AskedForVote {
            votes: self.clone(),
            voter,
            answered: false,
        }
    }
}

/// A request for a vote with a pending answer.
pub(crate) struct AskedForVote {
    votes: LateVotes,
    voter: MemberId,
    answered: bool,
}

impl AskedForVote {
    /// Records that the voter answered, or cannot be reached.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for AskedForVote {
    fn drop(&mut self) {
        let mut votes = lock(&self.votes.0);
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
    use raft_types::Standing;

    use super::*;

    fn voter(memory: Recorded, whose: Incarnation, interim_term: InterimTerm) -> AskedVoter {
        CountedVotes::new(MemberId(1), memory, interim_term).of(MemberId(2), whose)
    }

    #[test]
    fn leases_stay_in_force_in_the_term_of_an_interim_leader() {
        let interim_term = InterimTerm::default();
        interim_term.campaigns_in(Term(5));
        let voter = voter(Recorded::default(), Incarnation::default(), interim_term);
        let declared = [4, 5, 6].map(|term| {
            let mut request = VoteRequest::<TypeConfig> {
                vote: Vote::new(term, MemberId(1)),
                last_log_id: None,
                leadership_transfer: true,
            };
            voter.asks(&mut request);
            request.leadership_transfer
        });
        assert_eq!(declared, [true, false, true]);
    }

    #[test]
    fn votes_of_members_that_lost_entries_do_not_count() {
        let (memory, whose) = (Recorded::default(), Incarnation::random());
        let voter = voter(memory.clone(), whose, InterimTerm::default());
        let granted = |end| {
            let end = OpId::new(3, end).into();
            let answer = VoteResponse::new(Vote::new(4, MemberId(1)), Some(end), true);
            voter.votes(4, answer).vote_granted
        };
        assert!(granted(50), "nothing is known of it");
        let end = Some(OpId::new(3, 80));
        memory.acknowledged(MemberId(2), whose, Standing { term: 3, end });
        assert!(!granted(79));
        assert!(granted(80));
    }

    #[test]
    fn the_engine_gets_no_vote_for_it_in_a_term_in_which_it_has_not_campaigned() {
        let voter = voter(
            Recorded::default(),
            Incarnation::default(),
            InterimTerm::default(),
        );
        let [own, anothers] = [1, 2].map(|member| Vote::new(8, MemberId(member)));
        let answer = |granted| VoteResponse::<TypeConfig>::new(own, None, granted);
        // In the term of a vote request, the engine has campaigned. A pre-vote is for the term after the engine's last campaign.
        let votes = [(7, false), (8, true)];
        let votes = votes.map(|(term, granted)| voter.votes(term, answer(granted)).vote);
        assert_eq!(votes, [anothers, own]);
        let votes = [8, 9].map(|term| voter.pre_votes(term, false, answer(false)).vote);
        assert_eq!(votes, [anothers, own]);
        let followed = voter.follows(Err(StreamAppendError::HigherVote(own)));
        assert_eq!(followed, Err(StreamAppendError::HigherVote(anothers)));
    }
}

#[cfg(test)]
mod interim_term_tests {
    use super::*;

    #[test]
    fn only_requests_of_the_interim_term_are_changed() {
        let interim = InterimTerm::default();
        assert!(!interim.asks_in(Term(0)));
        interim.campaigns_in(Term(5));
        let terms = [4, 5, 6].map(|term| interim.asks_in(Term(term)));
        assert_eq!(terms, [false, true, false]);
    }
}

#[cfg(test)]
mod late_votes_tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_voter_that_agreed_and_voted_too_late_is_late_for_a_while() {
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
