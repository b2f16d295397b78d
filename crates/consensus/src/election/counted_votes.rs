//! The votes that this member requests, and how they count ([`crate::engine::network`]). The vote of a member whose log ends before what
//! is recorded of it ([`super::put_back`]) does not count: that member may not have been informed yet, or its version lacks the message.
//! A vote request does not declare leases over where this member is the interim leader ([`super::stand_in`]). A late voter is asked for
//! its vote already in a pre-vote ([`super::late_votes`]).
//!
//! So this member may hold votes of a term in which its engine has not campaigned, and never may if an earlier election succeeds. The
//! engine takes every vote for its own member as one that it requested, and would neither continue in its role nor give
//! it up. Such a vote is passed to it as the voter's own candidacy in that term, which only shows that the engine's term is old.

use openraft::raft::{StreamAppendError, StreamAppendResult, VoteRequest, VoteResponse};
use raft_types::{Incarnation, MemberId, OpId, Term, TypeConfig, Vote};

use crate::election::interim_term::InterimTerm;
use crate::election::late_votes::{AskedForVote, LateVotes};
use crate::election::put_back::Memory;

/// The votes that this member requests; clones share what was observed.
#[derive(Clone)]
pub(crate) struct CountedVotes {
    /// The asking member.
    own: MemberId,
    memory: Memory,
    interim_term: InterimTerm,
    late: LateVotes,
}

impl CountedVotes {
    /// For the member `own`.
    pub(crate) fn new(own: MemberId, memory: Memory, interim_term: InterimTerm) -> Self {
        Self {
            own,
            memory,
            interim_term,
            late: LateVotes::default(),
        }
    }

    /// Those of the member with this data directory.
    pub(crate) fn of(&self, member: MemberId, whose: Incarnation) -> AskedVoter {
        AskedVoter {
            counted: self.clone(),
            member,
            whose,
        }
    }
}

/// One member that is asked for its vote.
#[derive(Clone)]
pub(crate) struct AskedVoter {
    counted: CountedVotes,
    member: MemberId,
    whose: Incarnation,
}

impl AskedVoter {
    /// Changes a vote request to what it may declare.
    pub(crate) fn asks(&self, request: &mut VoteRequest<TypeConfig>) {
        let term = Term(request.vote.leader_id.term);
        request.leadership_transfer &= !self.counted.interim_term.asks_in(term);
    }

    /// It is asked for its vote: a caller that drops the result has not waited for the answer.
    pub(crate) fn is_asked(&self) -> AskedForVote {
        self.counted.late.ask(self.member)
    }

    /// Whether a pre-vote already asks for its vote.
    pub(crate) fn is_late(&self) -> bool {
        self.counted.late.is_late(self.member)
    }

    /// Its answer to a vote request of `term`, for the engine.
    pub(crate) fn votes(
        &self,
        term: u64,
        answer: VoteResponse<TypeConfig>,
    ) -> VoteResponse<TypeConfig> {
        let mut answer = self.checked(term, answer);
        answer.vote = self.told(answer.vote, term);
        answer
    }

    /// Its answer to a pre-vote request of `term`, for the engine; `is_late`: it was asked for its vote.
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

    /// Its answer to a leader's request, for the engine.
    pub(crate) fn follows(
        &self,
        answer: StreamAppendResult<TypeConfig>,
    ) -> StreamAppendResult<TypeConfig> {
        answer.map_err(|error| match error {
            // It is later than this member's term.
            StreamAppendError::HigherVote(vote) => {
                StreamAppendError::HigherVote(self.told(vote, u64::MIN))
            }
            StreamAppendError::Conflict(at) => StreamAppendError::Conflict(at),
        })
    }

    /// The answer as it counts.
    fn checked(&self, term: u64, mut answer: VoteResponse<TypeConfig>) -> VoteResponse<TypeConfig> {
        let end = answer.last_log_id.map(OpId::from);
        let lacks = self
            .counted
            .memory
            .lacks(self.member, self.whose, term, end);
        if let (true, Some(known)) = (answer.vote_granted, lacks) {
            tracing::error!(
                member = %self.member,
                "its vote is not counted: its log has had {known}, and lacks it now, so that its data directory was put back to an \
                 earlier state. See the runbook data-directory-put-back"
            );
            answer.vote_granted = false;
        }
        answer
    }

    /// A vote as the engine may receive it if it campaigned in no term after `stood`.
    pub(crate) fn told(&self, vote: Vote, stood: u64) -> Vote {
        let leader = vote.leader_id;
        match leader.voted_for == self.counted.own && leader.term > stood {
            true => Vote::new(leader.term, self.member),
            false => vote,
        }
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Standing;

    use super::*;

    fn voter(memory: Memory, whose: Incarnation, interim_term: InterimTerm) -> AskedVoter {
        CountedVotes::new(MemberId(1), memory, interim_term).of(MemberId(2), whose)
    }

    #[test]
    fn leases_stay_in_force_in_the_term_of_an_interim_leader() {
        let interim_term = InterimTerm::default();
        interim_term.campaigns_in(Term(5));
        let voter = voter(Memory::default(), Incarnation::default(), interim_term);
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
    fn the_vote_of_a_member_that_lacks_what_it_had_is_not_counted() {
        let (memory, whose) = (Memory::default(), Incarnation::random());
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
            Memory::default(),
            Incarnation::default(),
            InterimTerm::default(),
        );
        let [own, anothers] = [1, 2].map(|member| Vote::new(8, MemberId(member)));
        let answer = |granted| VoteResponse::<TypeConfig>::new(own, None, granted);
        // Its engine campaigns in the term for which it requests votes, and in the one before that of its pre-votes.
        let votes = [(7, false), (8, true)];
        let votes = votes.map(|(term, granted)| voter.votes(term, answer(granted)).vote);
        assert_eq!(votes, [anothers, own]);
        let votes = [8, 9].map(|term| voter.pre_votes(term, false, answer(false)).vote);
        assert_eq!(votes, [anothers, own]);
        let followed = voter.follows(Err(StreamAppendError::HigherVote(own)));
        assert_eq!(followed, Err(StreamAppendError::HigherVote(anothers)));
    }
}
