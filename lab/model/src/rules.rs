//! Decides what a member may do, from its own state and a request: votes, quorums, a follower's handling of entries, membership changes,
//! serving. The exploration uses these rules, and traces of the real code are checked against them.

use consensus::quorum::{is_safe_step, majority_of};

use crate::naming::named_sets;
use crate::ring::{
    Content, Count, End, Entry, Id, Leader, Member, Members, Membership, Role, Term, common, count,
};
use crate::scope::Broken;

/// The rules, without the rule `broken`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) broken: Option<Broken>,
}

impl Rules {
    pub(crate) fn lacks(self, rule: Broken) -> bool {
        self.broken == Some(rule)
    }

    /// Returns whether the members `have` are a majority of each set.
    pub(crate) fn is_quorum(self, sets: &[Members], have: Members) -> bool {
        let count = |set: &Members| match self.lacks(Broken::CountALearner) {
            true => have.len(),
            false => set.and(have).len(),
        };
        sets.iter().all(|set| count(set) >= majority_of(set.len()))
    }

    /// Returns whether these votes elect the member.
    pub(crate) fn is_elected(self, member: &Member, votes: Members) -> bool {
        let sets = member.voters();
        let has_majority = |set: &Members| set.and(votes).len() >= majority_of(set.len());
        !sets.is_empty() && sets.iter().all(has_majority)
    }

    /// Returns whether a member may request votes, ignoring its promises. In openraft, members without a vote also campaign.
    pub(crate) fn may_campaign(self, member: &Member) -> bool {
        let in_doubt = member.doubt.is_some() && !self.lacks(Broken::TrustACutTail);
        let lags = member.told.is_some() && !self.lacks(Broken::ElectBehindTheRing);
        member.is_up()
            && member.leads().is_none()
            && !member.voters().is_empty()
            && !in_doubt
            && !lags
    }

    /// Returns whether a voter may vote in `term` for a candidate with this end of its log, ignoring the voter's promises.
    pub(crate) fn may_vote(self, voter: &Member, candidate: Id, term: Term, end: End) -> bool {
        let free =
            voter.term < term || voter.term == term && voter.vote.is_none_or(|to| to == candidate);
        let has_all = end >= voter.end() || self.lacks(Broken::VoteWithoutTheLogCheck);
        let lacks = |needed: End| end < needed;
        let doubted = voter.doubt.is_some_and(|doubt| lacks(doubt.needed))
            && !self.lacks(Broken::TrustACutTail);
        let lags = voter.told.is_some_and(lacks) && !self.lacks(Broken::ElectBehindTheRing);
        voter.is_up() && free && has_all && !doubted && !lags
    }

    /// Returns whether a member accepts the calls of a leader of `term`.
    pub(crate) fn may_follow(self, member: &Member, term: Term) -> bool {
        let passed_over = member.told.is_some_and(|(told, _)| term < told);
        member.is_up()
            && member.term <= term
            && (!passed_over || self.lacks(Broken::FollowBehindTheRing))
    }

    /// Returns the length of the prefix of a leader's log that a quorum has acknowledged.
    pub(crate) fn agreed(self, id: Id, member: &Member, leader: &Leader) -> Count {
        let has = |index: Count| -> Members {
            let others = (0..leader.matched.len()).filter(|other| *other != id);
            let others = others.filter(|other| leader.matched[*other] >= index);
            others.chain([id]).collect()
        };
        self.committed_by(member, has)
    }

    /// Returns the length of the committed prefix of a leader's log. `has(n)` returns the members that have the first `n` entries.
    pub(crate) fn committed_by(self, member: &Member, has: impl Fn(Count) -> Members) -> Count {
        let sets = member.voters();
        let own_term = |index: &Count| {
            self.lacks(Broken::CommitAnEarlierTerm)
                || member.log[*index as usize - 1].term == member.term
        };
        let agreed = (member.commit + 1..=count(&member.log))
            .rev()
            .filter(own_term)
            .find(|index| self.is_quorum(sets, has(*index)));
        agreed.unwrap_or(member.commit)
    }

    /// Returns whether a leader has committed an entry of its own term, and thus has recorded all committed entries.
    pub(crate) fn own_entry_is_committed(member: &Member) -> bool {
        let last = (member.commit as usize).checked_sub(1);
        last.is_some_and(|last| member.log[last].term == member.term)
    }

    /// Returns whether a leader may change the membership: the last change and an entry of the leader's own term are committed.
    pub(crate) fn may_change_the_membership(self, member: &Member) -> bool {
        let last = member.memberships().next().map(|(at, _)| at);
        let last_is_committed = last.is_none_or(|last| last < member.commit as usize);
        (last_is_committed || self.lacks(Broken::StepBeforeTheLastIsCommitted))
            && (Self::own_entry_is_committed(member) || self.lacks(Broken::NarrowWithoutTheBarrier))
    }

    /// Returns whether the voter sets may change from `from` to `to` in one step, by the product's own rule.
    pub(crate) fn is_step(from: &[Members], to: &[Members]) -> bool {
        is_safe_step(&named_sets(from), &named_sets(to))
    }

    /// Returns whether a leader that a quorum has answered recently may serve clients. Checks the other conditions of
    /// `lease::leadership::assess`.
    pub(crate) fn may_serve(self, id: Id, member: &Member) -> bool {
        let Some(leader) = member.leads() else {
            return false;
        };
        let leaving = leader.leaving && !self.lacks(Broken::ServeThroughATransfer);
        let own_entry =
            Self::own_entry_is_committed(member) || self.lacks(Broken::ServeBeforeTheOwnEntry);
        let another_alone =
            Self::another_alone(id, member) && !self.lacks(Broken::ServeBesideALoneVoter);
        own_entry && !leaving && !another_alone
    }

    /// Returns whether another member alone is a quorum, or was a quorum before an uncommitted step.
    fn another_alone(id: Id, member: &Member) -> bool {
        let mut open = true;
        let mut steps = member.memberships().take_while(|(at, _)| {
            let was_open = open;
            open = *at >= member.commit as usize;
            was_open
        });
        steps.any(|(_, membership)| {
            matches!(membership.sets.as_slice(), [only] if only.len() == 1 && !only.has(id))
        })
    }

    /// Returns a follower's state after it has received the leader's next entry, and the length of the prefix that both logs then share.
    pub(crate) fn appended(
        self,
        (leader, from): (Id, &Member),
        (to, follower): (Id, &Member),
    ) -> (Member, Count) {
        let mut after = follower.clone();
        let mut same = common(&from.log, &follower.log);
        let mark = follower.commit as usize;
        if self.lacks(Broken::TrustTheCommitMark) && mark <= from.log.len() {
            same = same.max(mark);
        }
        Self::follow(&mut after, from.term, leader);
        if same < mark && same < from.log.len() {
            // Members compare committed entries. Here they differ, so the follower stops.
            after.role = Role::Down;
            return (after, 0);
        }
        if let Some(next) = from.log.get(same) {
            after.log.truncate(same);
            after.log.push(self.written(to, next));
            after.has_grown();
        }
        let matched = count(&from.log).min(same as Count + 1);
        after.commit = after.commit.max(from.commit.min(matched));
        (after, matched)
    }

    /// Returns the entry as a follower writes it.
    fn written(self, by: Id, entry: &Entry) -> Entry {
        match &entry.content {
            Content::Membership(membership) if self.lacks(Broken::RewordMemberships) => Entry {
                content: Content::Membership(Membership {
                    wording: by as u64 + 1,
                    ..membership.clone()
                }),
                ..entry.clone()
            },
            _ => entry.clone(),
        }
    }

    /// Makes the member follow this leader.
    pub(crate) fn follow(member: &mut Member, term: Term, leader: Id) {
        member.term = member.term.max(term);
        member.vote = Some(leader);
        member.role = Role::Follower;
    }
}
