//! Explanations of the ring's state: for each member why it can or cannot win an election now, and which acknowledgements
//! a commit waits for. Pure. They are made from the leader's view, because only the leader has the progress of the others.

use std::collections::{BTreeMap, BTreeSet};

use consensus::quorum::{
    QuorumHealth, QuorumPlan, RegionQuorum, RingRules, majority_of, plan, region_quorums,
};
use consensus::{Fault, Leadership, RestoredDirectory, RingMember, RingPause, RingView, Timers};
use raft_types::{MemberId, MemberKind, OpId, RingId, Term, lock};
use serde::{Deserialize, Serialize};

use crate::administration::LeaderTask;
use crate::formats::FormatStatus;
use crate::member::Member;

/// Whether one member could win an election now, for `witness status --explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prospects {
    /// The member that would be the candidate.
    pub member: MemberId,
    /// True if the member could be elected if the leader failed now.
    pub could_win: bool,
    /// Why the member could or could not be elected.
    pub because: String,
}

/// The reason for the quorum's state, as text for an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Which acknowledgements a commit waits for.
    pub commit: String,
    /// The change of the quorum that the leader intends, and its obstacle, if any; `None` if the quorum is as the policy requires.
    pub quorum: Option<String>,
    /// The prospects of every member.
    pub members: Vec<Prospects>,
}

/// Explains the ring from its leader's view; `None` when this member does not lead.
pub fn explain(view: &RingView, rules: &RingRules) -> Option<Explanation> {
    let own = view.member(view.own).filter(|_| view.leads)?;
    let members = view.members.iter().map(|peer| {
        let (could_win, because) = prospects(view, peer);
        Prospects {
            member: peer.id,
            could_win,
            because,
        }
    });
    let quorum = match plan(rules, view, &own.record.region) {
        QuorumPlan::Settled => None,
        QuorumPlan::Step(next) => Some(format!(
            "policy {} requires other voters: moving to {}",
            rules.policy,
            sets(&next)
        )),
        QuorumPlan::Blocked(why) => Some(format!(
            "policy {} requires other voters, but the move is not possible now: {why}",
            rules.policy
        )),
    };
    Some(Explanation {
        commit: commit(view),
        quorum,
        members: members.collect(),
    })
}

fn prospects(view: &RingView, peer: &RingMember) -> (bool, String) {
    let record = &peer.record;
    if peer.id == view.own {
        return (true, "it leads".to_owned());
    }
    if !record.votes {
        return (
            false,
            "it only receives the log: it does not vote".to_owned(),
        );
    }
    if !peer.voter {
        let because = format!(
            "it is outside the quorum, which is {}; promote it, and the quorum moves there",
            sets(&view.voter_sets)
        );
        return (false, because);
    }
    if !view.answers(peer) {
        return (false, "it does not answer; bring it back".to_owned());
    }
    // A member votes for the candidate if its own log is not longer. The leader counts as failed.
    for set in &view.voter_sets {
        let required = majority_of(set.len());
        let (mut granting, mut ahead, mut silent) = (0, Vec::new(), Vec::new());
        for voter in set.iter().filter(|voter| **voter != view.own) {
            match view.member(*voter) {
                Some(voter) if !view.answers(voter) => silent.push(voter.id),
                Some(voter) if voter.matched > peer.matched => ahead.push(voter.id),
                Some(_) => granting += 1,
                None => silent.push(*voter),
            }
        }
        if granting < required {
            let mut because = format!(
                "without the leader, {granting} of {} voters would elect it and {required} have to",
                set.len()
            );
            if !ahead.is_empty() {
                because += &format!("; member {} has a longer log", list(&ahead));
            }
            if !silent.is_empty() {
                because += &format!("; member {} does not answer", list(&silent));
            }
            return (false, because);
        }
    }
    let because = match record.kind {
        MemberKind::Witness => {
            "its log is long enough; as a witness it would transfer the leadership immediately"
        }
        MemberKind::Database => "its log is long enough",
    };
    (true, because.to_owned())
}

fn commit(view: &RingView) -> String {
    if view.voter_sets.is_empty() {
        return "the ring has no voters yet; bootstrap it".to_owned();
    }
    let waits = view.voter_sets.iter().map(|set| {
        let required = majority_of(set.len());
        let mut voters: Vec<&RingMember> = set.iter().filter_map(|id| view.member(*id)).collect();
        voters.sort_by_key(|voter| (!view.answers(voter), std::cmp::Reverse(voter.matched)));
        let deciding = voters.get(required - 1);
        let names = list(set);
        let what = match (set.len(), view.region_of(set)) {
            (1, _) => format!("member {names}"),
            (of, Some(region)) => {
                format!("{required} of the {of} voters of region {region} (members {names})")
            }
            (of, None) => format!("{required} of {of} voters (members {names})"),
        };
        match deciding {
            Some(voter) if !view.answers(voter) => format!(
                "{what}; member {} has to come back before anything commits",
                voter.id
            ),
            Some(voter) if voter.matched < view.last_log && voter.id != view.own => format!(
                "{what}; the next answer that counts is that of member {}, {} entries behind",
                voter.id,
                voter.lag.unwrap_or(u64::MAX)
            ),
            _ => what,
        }
    });
    let waits: Vec<String> = waits.collect();
    format!("a commit waits for {}", waits.join(", and for "))
}

fn sets(of: &[BTreeSet<MemberId>]) -> String {
    let sets = of
        .iter()
        .map(|set| format!("a majority of {{{}}}", list(set)));
    sets.collect::<Vec<_>>().join(" and ")
}

pub(crate) fn list<'a>(members: impl IntoIterator<Item = &'a MemberId>) -> String {
    let names = members.into_iter().map(MemberId::to_string);
    names.collect::<Vec<_>>().join(", ")
}

// The status of a member's Raft for operators, as owned values.

/// The status of one member's Raft at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    /// The id of the member's ring.
    pub ring: RingId,
    /// The number of this member.
    pub member: MemberId,
    /// The member's role, and whether it serves clients.
    pub leadership: Leadership,
    /// The member's term.
    pub term: Term,
    /// The last entry that the member has recorded as committed.
    pub committed: Option<OpId>,
    /// The last entry that the member has purged; `None` if it has purged none.
    pub purged: Option<OpId>,
    /// The member's view of the ring. Only a leader's view has the progress of the other members.
    pub ring_view: RingView,
    /// The pause of failover in force, if any.
    pub pause: Option<RingPause>,
    /// The rules of the quorum and the region preference in this member's log.
    pub rules: RingRules,
    /// The state of the quorum in each region; empty if this member does not lead.
    pub regions: Vec<RegionQuorum>,
    /// The reasons for the ring's state; `None` if this member does not lead.
    pub explanation: Option<Explanation>,
    /// Which voters answer; `None` if this member does not lead.
    pub quorum: Option<QuorumHealth>,
    /// Bytes of proposals that are not committed yet.
    pub proposals_bytes: u64,
    /// The leader's current task to move the quorum or the leadership as the policy requires.
    pub leader_task: Option<LeaderTask>,
    /// Why the member does not vote or campaign; `None` if it takes part in elections.
    pub stays_out_of_elections: Option<String>,
    /// The members whose data directories were restored to an earlier state, as far as this member knows. May include this member.
    pub restored: BTreeMap<MemberId, RestoredDirectory>,
    /// The timers in use.
    pub timers: Timers,
    /// The running program, and the ring's format.
    pub formats: FormatStatus,
    /// Why the engine has stopped; `None` if it runs.
    pub fault: Option<Fault>,
}

impl Member {
    /// Returns the status of this member's Raft, for operators.
    pub fn status(&self) -> MemberStatus {
        let admin = self.admin();
        let node = &admin.node;
        let role = node.role();
        let ring_view = node.ring_view_in(&role);
        let rules = admin.rules();
        let leadership = node.leadership_in(&role);
        let quorum = ring_view.leads.then(|| {
            QuorumHealth::judge(role.voter_sets(), |id| {
                ring_view
                    .member(id)
                    .is_some_and(|peer| ring_view.answers(peer))
            })
        });
        MemberStatus {
            ring: self.config().ring,
            member: self.id(),
            leadership,
            term: role.term,
            committed: *self.committed().borrow(),
            purged: node.progress().purged,
            explanation: explain(&ring_view, &rules),
            regions: match ring_view.leads {
                true => region_quorums(&ring_view),
                false => Vec::new(),
            },
            rules,
            pause: ring_view.pause(),
            ring_view,
            quorum,
            proposals_bytes: self.proposals_bytes(),
            stays_out_of_elections: self.stays_out_of_elections(),
            restored: self.restored(),
            timers: node.timers(),
            formats: FormatStatus {
                ring: self.ring_format(),
                others: lock(&admin.local.programs).clone(),
                refused: lock(&admin.local.refused).clone(),
            },
            leader_task: admin.leader_task.borrow().clone(),
            fault: self.fault_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use raft_types::OpId;

    use super::*;
    use crate::test_ring::Ring;

    fn ring() -> Ring {
        Ring::new("a: 1d 2w 3w | b: 4d 5w 6n").with_sets(&[&[1, 2, 3]])
    }

    fn explained(ring: &Ring) -> Explanation {
        explain(&ring.view(), &RingRules::default()).unwrap()
    }

    fn of(explanation: &Explanation, id: u64) -> (bool, &str) {
        let mut members = explanation.members.iter();
        let found = members.find(|prospects| prospects.member.0 == id).unwrap();
        (found.could_win, &found.because)
    }

    #[test]
    fn each_member_has_its_reason() {
        let all_well = explained(&ring());
        assert_eq!(of(&all_well, 1), (true, "it leads"));
        assert!(of(&all_well, 2).0 && of(&all_well, 2).1.contains("as a witness"));
        assert!(
            of(&all_well, 4)
                .1
                .contains("outside the quorum, which is a majority of {1, 2, 3}")
        );
        assert!(of(&all_well, 6).1.contains("does not vote"));
        assert_eq!(all_well.quorum, None);

        let troubled = explained(&ring().silent(&[3]));
        assert_eq!(
            of(&troubled, 3),
            (false, "it does not answer; bring it back")
        );
        let (could_win, because) = of(&troubled, 2);
        assert!(
            !could_win
                && because.contains(
                    "1 of 3 voters would elect it and 2 have to; member 3 does not answer"
                ),
            "{because}"
        );

        let lagging = explained(&ring().with(2, |peer| peer.matched = Some(OpId::new(2, 5))));
        let (could_win, because) = of(&lagging, 2);
        assert!(
            !could_win && because.contains("member 3 has a longer log"),
            "{because}"
        );
        assert!(of(&lagging, 3).0);
    }

    #[test]
    fn the_explanation_names_the_voters_that_commits_wait_for() {
        let commit = |ring: &Ring| explained(ring).commit;
        assert_eq!(
            commit(&ring()),
            "a commit waits for 2 of the 3 voters of region a (members 1, 2, 3)"
        );
        let lagging = |peer: &mut RingMember| {
            peer.matched = Some(OpId::new(2, 5));
            peer.lag = Some(4);
        };
        let lag = ring().with(2, lagging).with(3, lagging);
        assert!(
            commit(&lag).contains("that of member 2, 4 entries behind"),
            "{}",
            commit(&lag)
        );
        let lost = ring().silent(&[2, 3]);
        assert!(
            commit(&lost).contains("member 2 has to come back"),
            "{}",
            commit(&lost)
        );
        let joint = ring().with_sets(&[&[1, 2, 3], &[4, 5]]);
        assert!(
            commit(&joint).contains(", and for 2 of the 2 voters of region b"),
            "{}",
            commit(&joint)
        );
        assert!(
            explained(&joint)
                .quorum
                .unwrap()
                .contains("moving to a majority of {1, 2, 3}")
        );
    }
}
