//! The candidate order: which voter campaigns first if several voters could succeed a leader. Database members come first, then the members
//! that the operator prefers. All members have the same membership, and so the same order.

use std::time::Duration;

use openraft::raft::{VoteRequest, VoteResponse};
use raft_types::{MemberId, MemberKind, Membership, TypeConfig};
use tokio::time::Instant;

/// A position in the candidate order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The number of candidates before this one.
    pub(crate) place: u32,
    /// The number of candidates.
    pub(crate) of: u32,
}

/// All voters in candidate order.
pub(crate) fn candidates(membership: &Membership) -> Vec<MemberId> {
    let mut voters: Vec<_> = membership
        .voter_ids()
        .map(|id| {
            let record = membership.get_node(&id);
            let is_database = record.is_some_and(|record| record.kind == MemberKind::Database);
            let priority = record.map_or(0, |record| record.priority);
            (!is_database, u32::MAX - priority, id)
        })
        .collect();
    voters.sort_unstable();
    voters.into_iter().map(|(_, _, id)| id).collect()
}

/// Returns the turn of `own` among these candidates; `None` if `own` is not one of them.
pub(crate) fn turn(candidates: &[MemberId], own: MemberId) -> Option<Turn> {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let place = candidates.iter().position(|id| *id == own)?;
    Some(Turn {
        place: count(place),
        of: count(candidates.len()),
    })
}

// Order of candidates after a split vote.
//
// After a lost election, only the random part of the engine's timer separates the next attempts. Between regions, this is not enough. If
// the timers expire within the latency between regions, each candidate collects its own region's votes before the other candidate's request
// arrives. While a quorum moves between two regions, a candidate needs a majority of both regions. Simulations have split the
// votes seven times in a row.
//
// So this rule applies if a voter refuses a candidate because it has voted for another candidate in that term. The voter compares the two
// candidates in the candidate order ([`candidates()`]), which is the same on all members. If the refused candidate comes first, the voter
// does not campaign during that candidate's next attempt. The attempt then gets all votes. A member never yields to a candidate with a
// shorter log. It never yields twice in a row, because the first candidate may have no connection to the other members.

/// Records whether this member yields to another candidate, and until when.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    /// The time until which another candidate goes first.
    until: Option<Instant>,
    /// The time before which this member does not yield again.
    again_from: Option<Instant>,
}

impl Yielding {
    /// Starts to yield for `pause`, and returns true. Returns false if the member has yielded before. After the pause, the member does not
    /// yield for the same time.
    pub(crate) fn begin(&mut self, now: Instant, pause: Duration) -> bool {
        if self.again_from.is_some_and(|from| now < from) {
            return false;
        }
        self.until = Some(now + pause);
        self.again_from = Some(now + pause * 2);
        true
    }

    /// Stops yielding: the member has voted, and the engine's timer now waits for that candidate.
    pub(crate) fn end(&mut self) {
        self.until = None;
    }

    /// Returns the time until which the member yields; `None` if it does not yield.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

/// Returns the candidate to which a voter yields after this answer; `candidates` are the voters in candidate order.
pub(crate) fn goes_first(
    request: &VoteRequest<TypeConfig>,
    answer: &VoteResponse<TypeConfig>,
    candidates: &[MemberId],
) -> Option<MemberId> {
    let (asked, given) = (request.vote.leader_id, answer.vote.leader_id);
    let place = |id| candidates.iter().position(|candidate| *candidate == id);
    let is_split = !answer.vote_granted && !answer.vote.committed && asked.term == given.term;
    let has_enough = request.last_log_id >= answer.last_log_id;
    let is_ahead = match (place(asked.voted_for), place(given.voted_for)) {
        (Some(asked), Some(given)) => asked < given,
        (asked, given) => asked.is_some() && given.is_none(),
    };
    (is_split && has_enough && is_ahead).then_some(asked.voted_for)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use raft_types::MemberRecord;

    use super::*;

    #[test]
    fn databases_go_first_and_then_those_that_are_preferred() {
        let of = |kind, priority| MemberRecord {
            kind,
            priority,
            ..MemberRecord::default()
        };
        let records = [
            of(MemberKind::Witness, 900),
            of(MemberKind::Database, 100),
            of(MemberKind::Witness, 100),
            of(MemberKind::Database, 200),
            of(MemberKind::Database, 100),
            of(MemberKind::Database, 900),
        ];
        let records: BTreeMap<_, _> = (1..).map(MemberId).zip(records).collect();
        let voters: BTreeSet<_> = records.keys().copied().filter(|id| id.0 != 6).collect();
        let candidates = candidates(&Membership::new(vec![voters], records).unwrap());
        assert_eq!(candidates, [4, 2, 5, 1, 3].map(MemberId));
        let place = |id| turn(&candidates, MemberId(id));
        assert_eq!(place(5), Some(Turn { place: 2, of: 5 }));
        assert_eq!(place(6), None, "a learner");
    }
}

#[cfg(test)]
mod split_votes_tests {
    use raft_types::{LogId, OpId, Vote};

    use super::*;

    const CANDIDATES: [MemberId; 4] = [MemberId(13), MemberId(21), MemberId(22), MemberId(11)];

    fn first(
        (term, candidate, its_end): (u64, u64, u64),
        (own_term, voted_for, own_end): (u64, u64, u64),
    ) -> Option<u64> {
        let end = |index| Some(LogId::from(OpId::new(3, index)));
        let request = VoteRequest::new(Vote::new(term, MemberId(candidate)), end(its_end));
        let own = Vote::new(own_term, MemberId(voted_for));
        let answer = VoteResponse::new(own, end(own_end), false);
        goes_first(&request, &answer, &CANDIDATES).map(|id| id.0)
    }

    #[test]
    fn the_first_among_the_heirs_is_given_way_to_by_those_that_voted_for_another() {
        assert_eq!(first((4, 13, 15), (4, 21, 15)), Some(13));
        assert_eq!(first((4, 13, 15), (4, 22, 15)), Some(13), "for a third one");
        assert_eq!(first((4, 13, 15), (4, 99, 15)), Some(13), "for no voter");
        assert_eq!(first((4, 21, 15), (4, 13, 15)), None, "it comes later");
        assert_eq!(first((4, 99, 15), (4, 13, 15)), None, "it is no voter");
        assert_eq!(first((4, 13, 14), (4, 21, 15)), None, "it cannot win");
        assert_eq!(first((4, 13, 15), (5, 21, 15)), None, "another election");
    }

    #[test]
    fn a_voter_for_the_candidate_or_a_follower_does_not_yield() {
        let vote = Vote::new(4, MemberId(13));
        let request = VoteRequest::new(vote, None);
        let granted = VoteResponse::new(vote, None, true);
        assert_eq!(goes_first(&request, &granted, &CANDIDATES), None);
        let led = Vote::new_committed(4, MemberId(21));
        let refused = VoteResponse::new(led, None, false);
        assert_eq!(goes_first(&request, &refused, &CANDIDATES), None);
    }

    #[tokio::test(start_paused = true)]
    async fn no_member_yields_twice_in_a_row_and_a_vote_ends_it() {
        let mut way = Yielding::default();
        let (begun, pause) = (Instant::now(), Duration::from_millis(600));
        assert!(way.begin(begun, pause));
        assert!(!way.begin(begun + pause / 2, pause), "it does so already");
        assert_eq!(way.until(begun + pause / 2), Some(begun + pause));
        assert_eq!(way.until(begun + pause), None);
        assert!(!way.begin(begun + pause, pause), "its own turn");
        assert!(way.begin(begun + pause * 2, pause));
        way.end();
        assert_eq!(way.until(begun + pause * 2), None);
    }
}
