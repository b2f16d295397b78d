//! The candidate order: which voter goes first where several could succeed a leader. Database members come first, then those that the
//! operator prefers. All members have the same membership, and so the same order.

use std::time::Duration;

use openraft::raft::{VoteRequest, VoteResponse};
use raft_types::{MemberId, MemberKind, Membership, TypeConfig};
use tokio::time::Instant;

/// A position in the candidate order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// How many go before it.
    pub(crate) place: u32,
    /// How many there are.
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

/// The turn of `own` among these; `None`: it has none.
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
// After a lost election, only the random part of the engine's timer separates the next attempts. Between regions that is not enough.
// If the timers expire within the latency between regions, each candidate collects its own region's votes before the other's request
// arrives. While a quorum moves between two regions, a majority of both must vote for one candidate. Such votes were split seven times
// and more in a row.
//
// So a voter that refuses a candidate because it voted for another in that term compares the two in the candidate order
// ([`candidates()`]). All members have the same order. If the refused candidate comes first, the voter does not campaign
// during that candidate's next attempt, which then gets all votes. A member never yields to a candidate with a shorter log. It never
// yields twice in a row, because the first candidate may be cut off from the others.

/// Whether and until when this member yields to another candidate.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    /// Until when another candidate goes first.
    until: Option<Instant>,
    /// Until then it does not yield again.
    again_from: Option<Instant>,
}

impl Yielding {
    /// Yields for `pause` and returns whether it does; afterwards this member has the same time for itself.
    pub(crate) fn begin(&mut self, now: Instant, pause: Duration) -> bool {
        if self.again_from.is_some_and(|from| now < from) {
            return false;
        }
        self.until = Some(now + pause);
        self.again_from = Some(now + pause * 2);
        true
    }

    /// It has voted: from now on it waits for that candidate by the engine's timer.
    pub(crate) fn end(&mut self) {
        self.until = None;
    }

    /// Until when it yields.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

/// The candidate to which a voter yields after this answer; `candidates` are the voters in candidate order.
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
