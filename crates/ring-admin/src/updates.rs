//! Changes to members' records and to the ring's rules at runtime. Each change is one entry, which does not change a voter set. The leader
//! tasks then move the quorum as the new rules require. Each step intersects with the one before, and no step leads to a set that could not
//! commit. So no change can create two disjoint quorums.

use std::collections::{BTreeMap, BTreeSet};

use consensus::quorum::{
    MoveObstacle, PolicyGap, QuorumPlan, QuorumPolicy, RingRules, VoterSets, plan, policy,
    wanted_sets,
};
use consensus::{Greeting, HistoryEvent, Named, Question, RingView};
use raft_types::{MemberId, MemberRecord, OpId, Region, host_and_port};
use serde::{Deserialize, Serialize};

use crate::administration::Administration;
use crate::member::Member;
use crate::members::{self, ReconfigurationError, Reconfigured};

/// An operator's change to a member's record. Omitted values do not change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordChange {
    /// A new name, unique in the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new region.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// True if the member may count in a quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub votes: Option<bool>,
    /// The member's priority as the primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The address for the other members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// An operator's change to the rules. Omitted values do not change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RulesChange {
    /// A new policy; the leader tasks then move the quorum accordingly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<QuorumPolicy>,
    /// Regions in the order of preference for a new leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_preference: Option<Vec<Region>>,
    /// The number of voters that each region is expected to have; 0 removes the expectation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub expected_voters: BTreeMap<Region, usize>,
}

/// A change of a record or the rules, applied or only planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amendment<T> {
    /// The record or rules before the change.
    pub before: T,
    /// The record or rules after the change.
    pub after: T,
    /// The voter sets in force.
    pub sets: VoterSets,
    /// The voter sets that the change requires. The leader tasks move the quorum there step by step.
    pub wanted: VoterSets,
    /// The log entry with the change, if it was applied.
    pub entry: Option<OpId>,
}

/// Returns the result of a change to a record, or why it is refused.
fn amended_record(
    view: &RingView,
    rules: &RingRules,
    id: MemberId,
    change: &RecordChange,
) -> Reconfigured<Amendment<MemberRecord>> {
    let peer = view
        .member(id)
        .ok_or(ReconfigurationError::NoSuchMember(id))?;
    let before = peer.record.clone();
    let mut after = before.clone();
    replace(&mut after.name, change.name.as_ref());
    replace(&mut after.region, change.region.as_ref());
    replace(&mut after.votes, change.votes.as_ref());
    replace(&mut after.priority, change.priority.as_ref());
    replace(&mut after.address, change.address.as_ref());
    if after.has_same_settings(&before) {
        return Err(ReconfigurationError::AsItIs);
    }
    if !host_and_port(&after.address).is_ok_and(|(_, port)| port > 0) {
        return Err(ReconfigurationError::NotAnAddress(after.address));
    }
    if after.name.trim().is_empty() {
        return Err(ReconfigurationError::NoName);
    }
    members::check_unique(view, id, &after)?;
    let others_count = after.region != before.region || after.votes != before.votes;
    let mut then = view.clone();
    for peer in &mut then.members {
        if peer.id == id {
            peer.record = after.clone();
        }
    }
    if others_count {
        if id == view.own {
            return Err(ReconfigurationError::Leads(id));
        }
        if !after.votes && before.pause.is_some() {
            return Err(ReconfigurationError::PausedPrimary(id));
        }
        check_quorum(view, rules, &then, rules)?;
    }
    Ok(Amendment {
        before,
        after,
        sets: view.voter_sets.clone(),
        wanted: wanted(&then, rules),
        entry: None,
    })
}

/// Returns the result of a change to the rules, or why it is refused.
fn amended_rules(
    view: &RingView,
    before: &RingRules,
    change: &RulesChange,
) -> Reconfigured<Amendment<RingRules>> {
    let mut after = before.clone();
    replace(&mut after.policy, change.policy.as_ref());
    let preference = change.region_preference.as_ref();
    replace(&mut after.region_preference, preference);
    after.expected_voters.extend(change.expected_voters.clone());
    after.expected_voters.retain(|_, voters| *voters > 0);
    if after == *before {
        return Err(ReconfigurationError::AsItIs);
    }
    if let QuorumPolicy::Unknown(words) = &after.policy {
        let why = MoveObstacle::Policy(PolicyGap::UnknownPolicy(words.clone()));
        return Err(ReconfigurationError::QuorumCannotFollow(why));
    }
    let regions: BTreeSet<&Region> = view
        .members
        .iter()
        .map(|peer| &peer.record.region)
        .collect();
    let policy_regions = match &after.policy {
        QuorumPolicy::Regions(named) | QuorumPolicy::SomeRegions { regions: named, .. } => {
            named.iter().collect()
        }
        _ => Vec::new(),
    };
    let named = policy_regions.into_iter().chain(&after.region_preference);
    let mut named = named.chain(after.expected_voters.keys());
    if let Some(unknown) = named.find(|region| !regions.contains(region)) {
        return Err(ReconfigurationError::NoSuchRegion(unknown.clone()));
    }
    check_quorum(view, before, view, &after)?;
    let wanted = wanted(view, &after);
    if !wanted.iter().any(|set| set.contains(&view.own)) {
        return Err(ReconfigurationError::OutsideTheQuorum(view.own));
    }
    Ok(Amendment {
        before: before.clone(),
        after,
        sets: view.voter_sets.clone(),
        wanted,
        entry: None,
    })
}

/// Refuses a change after which the quorum could not move to the required sets. If the same obstacle blocks the quorum already, the change
/// is accepted.
fn check_quorum(
    view: &RingView,
    rules: &RingRules,
    then: &RingView,
    rules_then: &RingRules,
) -> Reconfigured {
    let planned = |view: &RingView, rules: &RingRules| plan(rules, view, &home_of(view));
    match (planned(then, rules_then), planned(view, rules)) {
        (QuorumPlan::Blocked(why), QuorumPlan::Blocked(before)) if why == before => Ok(()),
        (QuorumPlan::Blocked(why), _) => Err(ReconfigurationError::QuorumCannotFollow(why)),
        _ => Ok(()),
    }
}

fn home_of(view: &RingView) -> Region {
    let own = view.member(view.own);
    own.map(|own| own.record.region.clone()).unwrap_or_default()
}

/// Returns the voter sets that the rules require in this ring. If the rules cannot be satisfied, returns the sets in force.
fn wanted(view: &RingView, rules: &RingRules) -> VoterSets {
    wanted_sets(rules, view, &home_of(view)).unwrap_or_else(|_| view.voter_sets.clone())
}

/// Replaces the value with a clone of `given`, if that is `Some`.
fn replace<T: Clone>(value: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        value.clone_from(given);
    }
}

impl Member {
    /// Changes a member's record in the log, except its identity. With `dry_run`, only returns the result.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn update_member(
        &self,
        id: MemberId,
        change: &RecordChange,
        dry_run: bool,
        by: &str,
    ) -> Reconfigured<Amendment<MemberRecord>> {
        let admin = self.admin();
        let decide = |view: &RingView| amended_record(view, &admin.rules(), id, change);
        let done = amend(admin, by, dry_run, decide, |members, after| {
            members.insert(id, after.clone());
            let member = Named::of(id, after);
            HistoryEvent::Updated { member }
        });
        let done = done.await?;
        if dry_run {
            return Ok(done);
        }
        // While this member leads, the engine keeps its client for the changed member. That client uses the newest record with which any
        // task has called the member. So this call makes it use the new record.
        let (node, record) = (self.node().clone(), done.after.clone());
        tokio::spawn(async move {
            let question = Question::Greeting(Greeting::default());
            let deadline = node.timers().lease;
            drop(node.calls().ask(id, &record, question, deadline).await);
        });
        Ok(done)
    }

    /// Changes the rules of the ring. With `dry_run`, only returns the result.
    ///
    /// # Errors
    /// [`ReconfigurationError`].
    pub async fn set_rules(
        &self,
        change: &RulesChange,
        dry_run: bool,
        by: &str,
    ) -> Reconfigured<Amendment<RingRules>> {
        let admin = self.admin();
        let decide = |view: &RingView| amended_rules(view, &admin.rules(), change);
        let done = amend(admin, by, dry_run, decide, |members, after| {
            policy::write(members, after);
            let policy = after.policy.to_string();
            HistoryEvent::RulesSet { policy }
        });
        done.await
    }
}

/// Appends a change to the log: `decide` plans it, and `apply` makes it. With `dry_run`, only returns the plan.
async fn amend<T>(
    admin: &Administration,
    by: &str,
    dry_run: bool,
    decide: impl Fn(&RingView) -> Reconfigured<Amendment<T>>,
    apply: impl FnOnce(&mut BTreeMap<MemberId, MemberRecord>, &T) -> HistoryEvent,
) -> Reconfigured<Amendment<T>> {
    if dry_run {
        return decide(&members::leading_view(admin)?);
    }
    let mut decided = None;
    let entry = members::change(admin, by, |view, members| {
        let amendment = decide(view)?;
        let event = apply(members, &amendment.after);
        decided = Some(amendment);
        Ok((view.voter_sets.clone(), event))
    })
    .await?;
    let decided = decided.ok_or(ReconfigurationError::Busy)?;
    Ok(Amendment {
        entry: Some(entry),
        ..decided
    })
}

#[cfg(test)]
mod tests {
    use raft_types::Incarnation;

    use super::*;
    use crate::test_ring::Ring;

    fn ring() -> Ring {
        let mut ring =
            Ring::new("a: 1d 2w 3w | b: 4d 5w 6w | c: 7d 8w 9n").with_sets(&[&[1, 2, 3]]);
        for id in 1..=9 {
            ring = ring.with(id, |peer| {
                peer.record.address = format!("host{id}:7400");
                peer.record.incarnation = Incarnation::random();
            });
        }
        ring
    }

    fn update(
        ring: &Ring,
        id: u64,
        change: RecordChange,
    ) -> Result<Amendment<MemberRecord>, String> {
        let rules = RingRules::default();
        amended_record(&ring.view(), &rules, MemberId(id), &change)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_member_gets_another_address_name_or_priority_also_while_it_is_away() {
        let change = RecordChange {
            address: Some("elsewhere:7400".to_owned()),
            name: Some("db-new".to_owned()),
            priority: Some(7),
            ..RecordChange::default()
        };
        for id in [1, 2, 9] {
            let done = update(&ring().silent(&[2, 9]), id, change.clone()).unwrap();
            assert_eq!(done.before, done.after, "it is the same member");
            assert_eq!(done.after.address, "elsewhere:7400");
            assert_eq!(
                (done.after.name.as_str(), done.after.priority),
                ("db-new", 7)
            );
            assert_eq!(done.sets, done.wanted);
        }
    }

    #[test]
    fn invalid_member_changes_are_refused() {
        let change = RecordChange::default;
        let votes = |votes| RecordChange {
            votes: Some(votes),
            ..change()
        };
        let address = |text: &str| RecordChange {
            address: Some(text.to_owned()),
            ..change()
        };
        let region = |name: &str| RecordChange {
            region: Some(Region(name.to_owned())),
            ..change()
        };
        let table = [
            (12, votes(false), &[][..], "no member 12"),
            (2, votes(true), &[], "nothing would change"),
            (
                2,
                address("host3:7400"),
                &[],
                "member 3 has the same address",
            ),
            (2, address("host3"), &[], "`host3` is not an address"),
            (2, address("host3:0"), &[], "`host3:0` is not an address"),
            (
                2,
                address("2001:db8::12:7432"),
                &[],
                "`2001:db8::12:7432` is not an address",
            ),
            (2, address("[2001:db8::12]:7432"), &[], ""),
            (
                2,
                RecordChange {
                    name: Some(" ".to_owned()),
                    ..change()
                },
                &[],
                "a name",
            ),
            (1, votes(false), &[], "member 1 leads"),
            (1, region("b"), &[], "member 1 leads"),
            (2, votes(false), &[], ""),
            (
                2,
                votes(false),
                &[3],
                "only 1 of the 2 voters of region a answer",
            ),
            (
                2,
                region("b"),
                &[3],
                "only 1 of the 2 voters of region a answer",
            ),
            (5, votes(false), &[4, 6], ""),
        ];
        for (id, change, silent, words) in table {
            let refusal = update(&ring().silent(silent), id, change.clone());
            let refusal = refusal.err().unwrap_or_default();
            assert!(
                refusal.contains(words) && refusal.is_empty() == words.is_empty(),
                "{id} {change:?}: {refusal}"
            );
        }
    }

    #[test]
    fn the_rules_are_set_where_the_quorum_can_follow() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|name| Region((*name).to_owned()))
                .collect()
        };
        let some = |required, of: &[&str]| {
            let regions = names(of);
            Some(QuorumPolicy::SomeRegions { required, regions })
        };
        let policy = |policy| RulesChange {
            policy,
            ..RulesChange::default()
        };
        let expect = |region: &str, voters| RulesChange {
            expected_voters: [(Region(region.to_owned()), voters)].into(),
            ..RulesChange::default()
        };
        let table = [
            (
                policy(Some(QuorumPolicy::Majority)),
                &[][..],
                "[{1, 2, 3, 4, 5, 6, 7, 8}]",
            ),
            (
                policy(some(2, &["a", "b", "c"])),
                &[],
                "[{1, 2, 3}, {4, 5, 6}]",
            ),
            (
                policy(some(2, &["a", "b", "c"])),
                &[4, 5],
                "[{1, 2, 3}, {7, 8}]",
            ),
            (
                policy(Some(QuorumPolicy::Regions(names(&["a", "b"])))),
                &[4, 5],
                "refused: only 1 of the 3",
            ),
            (
                policy(some(3, &["a", "b"])),
                &[],
                "refused: 3 of the regions a, b are wanted",
            ),
            (
                policy(some(1, &["b", "c"])),
                &[],
                "refused: member 1, which leads, would be outside",
            ),
            (
                policy(some(1, &["a", "x"])),
                &[],
                "refused: no member of the ring runs in region x",
            ),
            (
                policy(Some(QuorumPolicy::SingleRegionDynamic)),
                &[],
                "refused: nothing would change",
            ),
            (expect("a", 3), &[], "[{1, 2, 3}]"),
            (
                expect("a", 4),
                &[],
                "refused: region a has 3 of 4 expected voting members",
            ),
            (expect("a", 0), &[], "refused: nothing would change"),
        ];
        for (change, silent, expected) in table {
            let view = ring().silent(silent).view();
            let done = amended_rules(&view, &RingRules::default(), &change);
            let refusal = match done {
                Ok(done) => format!("{:?}", numbers(&done.wanted)),
                Err(error) => format!("refused: {error}"),
            };
            assert!(
                refusal.contains(expected.trim_start_matches("refused: ")),
                "{change:?}: {refusal}"
            );
        }
    }

    fn numbers(sets: &VoterSets) -> Vec<BTreeSet<u64>> {
        let of = |set: &BTreeSet<MemberId>| set.iter().map(|id| id.0).collect();
        sets.iter().map(of).collect()
    }
}
