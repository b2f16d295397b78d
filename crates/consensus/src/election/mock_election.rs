//! Mock elections: before a promotion, the target asks its prospective voters whether they would elect it. Nothing is stored or changed.
//! The cursor is the leader's last entry when the mock election starts. The target, and each voter in the target's region, must get the
//! cursor in time; otherwise it refuses. This rule cannot be turned off.

use std::collections::BTreeSet;
use std::fmt;

use raft_types::{MemberId, OpId, Term};
use serde::{Deserialize, Serialize};

use crate::quorum::{VoterSets, have_majorities};

/// Asks a member to hold a mock election for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockElectionCall {
    /// Term of the leader that rehearses the promotion.
    pub term: Term,
    /// The leader's last entry when it asked.
    pub cursor: OpId,
    /// The voter sets that would elect the target.
    pub sets: VoterSets,
    /// How long the target may take, in milliseconds.
    pub patience_ms: u64,
}

/// Asks a voter whether it would elect a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockVoteCall {
    /// Term of the leader that rehearses the promotion; a voter of a later term refuses.
    pub term: Term,
    /// The leader's last entry when it asked; the candidate has it.
    pub cursor: OpId,
    /// True if the voter is in the candidate's region, and therefore must have the cursor too.
    pub must_have_cursor: bool,
    /// How long the voter may wait for the cursor, in milliseconds.
    pub patience_ms: u64,
}

/// One voter's answer in a mock election.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockVote {
    /// The member that was asked for its vote.
    pub voter: MemberId,
    /// The end of the voter's durable log, if it reported one.
    pub log_end: Option<OpId>,
    /// Why the voter would not elect the target; `None` if it would.
    pub refusal: Option<String>,
}

/// The result of a mock election.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MockElection {
    /// The member that would be elected.
    pub candidate: MemberId,
    /// The leader's last entry when it asked.
    pub cursor: OpId,
    /// The voter sets that would elect the candidate.
    pub sets: VoterSets,
    /// The answer of each voter, the candidate included.
    pub votes: Vec<MockVote>,
}

impl MockElection {
    /// Returns true if the candidate and a majority of every voter set would elect it.
    pub fn is_won(&self) -> bool {
        let granted = self.votes.iter().filter(|vote| vote.refusal.is_none());
        let granted: BTreeSet<MemberId> = granted.map(|vote| vote.voter).collect();
        granted.contains(&self.candidate) && have_majorities(&self.sets, &granted)
    }
}

impl fmt::Display for MockElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let candidate = self.candidate;
        if self.is_won() {
            return write!(f, "member {candidate} would be elected");
        }
        write!(f, "member {candidate} would not be elected")?;
        for vote in &self.votes {
            if let Some(refusal) = &vote.refusal {
                write!(f, "; member {}: {refusal}", vote.voter)?;
            }
        }
        Ok(())
    }
}

/// Checks whether a voter in this term, with a log that ends at `log_end`, would elect a candidate that has the cursor.
pub(crate) fn judge(
    term: Term,
    log_end: Option<OpId>,
    call: &MockVoteCall,
) -> Result<(), Judgement> {
    if term > call.term {
        return Err(Judgement::LaterTerm(term));
    }
    match log_end {
        Some(end) if end.term > call.cursor.term => Err(Judgement::LaterLog(end)),
        end if call.must_have_cursor && end.is_none_or(|end| end.index < call.cursor.index) => {
            Err(Judgement::Lags {
                by: call.cursor.index + 1 - end.map_or(0, |end| end.index + 1),
            })
        }
        _ => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Judgement {
    #[error("it is in term {0} already; check who leads")]
    LaterTerm(Term),
    #[error("its log ends at {0}, in a later term than the leader's")]
    LaterLog(OpId),
    #[error("it lacks {by} entries that the leader has; wait for it to catch up")]
    Lags { by: u64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voter_refuses_candidates_that_could_not_win() {
        let call = |must_have_cursor| MockVoteCall {
            term: Term(3),
            cursor: OpId::new(3, 100),
            must_have_cursor,
            patience_ms: 0,
        };
        let voter = |term, log_end: Option<(u64, u64)>| {
            let log_end = log_end.map(|(term, index)| OpId::new(term, index));
            (Term(term), log_end)
        };
        let table = [
            (voter(3, Some((3, 100))), true, Ok(())),
            (voter(3, Some((3, 250))), true, Ok(())),
            (
                voter(4, Some((3, 100))),
                true,
                Err(Judgement::LaterTerm(Term(4))),
            ),
            (
                voter(3, Some((4, 90))),
                false,
                Err(Judgement::LaterLog(OpId::new(4, 90))),
            ),
            (
                voter(3, Some((3, 90))),
                true,
                Err(Judgement::Lags { by: 10 }),
            ),
            (voter(3, None), true, Err(Judgement::Lags { by: 101 })),
            // This voter is in another region. It may lag, because the election does not need it to have all entries.
            (voter(3, Some((3, 90))), false, Ok(())),
            (voter(2, None), false, Ok(())),
        ];
        for (voter, must_have_cursor, expected) in table {
            let judged = judge(voter.0, voter.1, &call(must_have_cursor));
            assert_eq!(judged, expected, "{voter:?}");
        }
    }

    #[test]
    fn a_majority_of_every_set_and_the_candidate_itself_have_to_agree() {
        let set = |ids: &[u64]| ids.iter().copied().map(MemberId).collect();
        let won = |refusing: &[u64]| {
            let votes = (1..=6).map(|id| MockVote {
                voter: MemberId(id),
                log_end: None,
                refusal: refusing.contains(&id).then(|| "no".to_owned()),
            });
            MockElection {
                candidate: MemberId(4),
                cursor: OpId::new(1, 1),
                sets: vec![set(&[1, 2, 3]), set(&[4, 5, 6])],
                votes: votes.collect(),
            }
            .is_won()
        };
        assert!(won(&[]));
        assert!(won(&[1, 5]));
        assert!(!won(&[1, 2]));
        assert!(!won(&[5, 6]));
        assert!(!won(&[4]), "a candidate that refuses itself");
    }
}
