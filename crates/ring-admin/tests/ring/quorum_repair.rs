//! An operator's order repairs a permanently lost quorum. Members that rejoin later cannot continue with entries that the repair gave up.

use std::time::{Duration, SystemTime};

use consensus::quorum::QuorumPolicy;
use consensus::{Answer, Fault, MemberCalls, Question, Recollection};
use openraft::raft::VoteRequest;
use raft_types::{MemberId, OpId, Region, TermRun, Vote};
use ring_admin::{
    MemberEvidence, PauseRequest, RepairPlan, RepairRefusal, accept_repair, plan_repair,
};

use crate::support::ring::{Ring, TIMERS, leadership_is, within};

const REGIONS: &str = "a: 1d 2w 3w | b: 4d 5w 6w";

async fn evidence(ring: &Ring) -> Vec<MemberEvidence> {
    let members = ring.members.values();
    futures::future::join_all(members.map(ring_admin::Member::evidence)).await
}

/// Waits until no leader is known and a repair is possible, and returns its plan.
async fn plan(ring: &Ring) -> RepairPlan {
    within("a plan", async {
        loop {
            match plan_repair(&evidence(ring).await) {
                Ok(plan) => return plan,
                Err(RepairRefusal::Led { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(refusal) => panic!("{refusal}"),
            }
        }
    })
    .await
}

/// Executes the plan, and waits until the quorum is in region b and its database member leads.
async fn repair(ring: &Ring, plan: &RepairPlan) -> OpId {
    let survivor = ring.member(plan.survivor);
    let accepted = plan.loss.as_ref().and_then(|loss| loss.after);
    let repaired = survivor
        .repair_quorum(plan, accepted, SystemTime::now(), "anna")
        .await;
    within("the database member of region b", async {
        while ring.serving().await.0 != MemberId(4) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let repaired = repaired.unwrap();
    let history = ring.member(MemberId(4)).history();
    let noted = history.iter().find(|entry| entry.by == "anna");
    assert_eq!(noted.map(|entry| entry.term.0), Some(repaired.term));
    repaired
}

#[tokio::test]
async fn a_member_reports_the_last_common_entry() {
    let ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    let last = ring.commit("the last one").await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let run = TermRun {
        term: last.term,
        first: last.index - 1,
        last: last.index + 5,
    };
    let calls = ring.board.port(MemberId(6));
    let asked = calls.ask(
        leader,
        &ring.records[&leader],
        Question::Agreement(Recollection::new(vec![run], None)),
        TIMERS.lease,
    );
    let Answer::Agreement(agreement) = asked.await.unwrap() else {
        panic!("another question was answered")
    };
    let said = (agreement.common, agreement.last, agreement.committed);
    assert_eq!(said, (Some(last), Some(last), Some(last)));
    assert_eq!(agreement.purged, None);
}

#[tokio::test]
async fn a_ring_continues_after_the_loss_of_two_of_three() {
    let mut ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    for number in 0..20 {
        ring.commit(&format!("acknowledged {number}")).await;
    }
    let last = ring.commit("the last one").await;
    ring.committed_everywhere(last).await;
    let acknowledged = ring.disks[&MemberId(1)].transactions();
    let quiet = plan_repair(&evidence(&ring).await).unwrap_err();
    assert!(matches!(quiet, RepairRefusal::Led { .. }), "{quiet}");

    ring.crash(MemberId(1)).await;
    ring.crash(MemberId(2)).await;
    let plan = plan(&ring).await;
    assert!(plan.loss.is_some(), "{plan:?}");
    let survivor = ring.member(plan.survivor);
    let refused = survivor
        .repair_quorum(&plan, None, SystemTime::now(), "anna")
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("it cannot be proven"), "{refused}");
    let other = ring
        .ids()
        .into_iter()
        .find(|id| *id != plan.survivor && id.0 > 2);
    let misled = ring
        .member(other.unwrap())
        .repair_quorum(&plan, plan.log_end, SystemTime::now(), "anna")
        .await;
    assert_eq!(misled, Err(RepairRefusal::OtherSurvivor(plan.survivor)));

    repair(&ring, &plan).await;
    let after = ring.commit("after the repair").await;
    assert!(after.term > plan.term.0);
    let log = ring.disks[&MemberId(4)].transactions();
    assert_eq!(log[..acknowledged.len()], acknowledged);

    // The two missing members start again, and take part in the ring.
    ring.start(MemberId(1)).await;
    ring.start(MemberId(2)).await;
    let last = ring.commit("with all of them").await;
    ring.committed_everywhere(last).await;
    assert_eq!(ring.serving().await.0, MemberId(4));
}

/// Regression test: a leader that has lost its quorum still sends heartbeats. So each member that it reached reported a leader, and no
/// repair was possible.
#[tokio::test]
async fn a_leader_without_a_quorum_survives_with_its_longer_log() {
    let mut ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    let shared = ring.commit("on all members").await;
    ring.committed_everywhere(shared).await;
    // Region b does not receive the last transactions.
    for id in [4, 5, 6].map(MemberId) {
        ring.board.isolate(id, ring.ids());
    }
    ring.commit("in region a alone").await;
    ring.crash(MemberId(2)).await;
    ring.crash(MemberId(3)).await;
    let leader = ring.member(MemberId(1)).clone();
    leadership_is(&leader, |now| now.serving_term().is_none()).await;
    // Region b receives heartbeats again, but none of the entries.
    let follower = ring.member(MemberId(4)).clone();
    ring.board.heal();
    within("the heartbeats of the leader", async {
        while follower.status().ring_view.leader.is_none() {
            tokio::time::sleep(TIMERS.heartbeat / 10).await;
        }
    })
    .await;
    let plan = plan_repair(&evidence(&ring).await).unwrap();
    assert_eq!(plan.survivor, MemberId(1));
    let others = plan.unused.iter().map(|log| log.member).collect::<Vec<_>>();
    assert_eq!(others, [4, 5, 6].map(MemberId));
    let accepted = plan.loss.as_ref().and_then(|loss| loss.after);
    let repaired = leader
        .repair_quorum(&plan, accepted, SystemTime::now(), "anna")
        .await;
    repaired.unwrap();
    let last = ring.commit("after the repair").await;
    ring.committed_everywhere(last).await;
    let log = ring.disks[&MemberId(4)].transactions();
    assert_eq!(
        log,
        ["on all members", "in region a alone", "after the repair"]
    );
}

#[tokio::test]
async fn a_plan_is_refused_once_a_missing_member_is_back() {
    let mut ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    ring.commit("acknowledged").await;
    ring.crash(MemberId(1)).await;
    ring.crash(MemberId(2)).await;
    let plan = plan(&ring).await;
    let accepted = plan.loss.as_ref().and_then(|loss| loss.after);
    // While the operator reads the plan, one of the missing members restarts.
    ring.start(MemberId(2)).await;
    let refused = ring
        .member(plan.survivor)
        .repair_quorum(&plan, accepted, SystemTime::now(), "anna")
        .await;
    assert_eq!(refused, Err(RepairRefusal::Back([MemberId(2)].into())));
    // Nothing has changed, and no entry is lost.
    ring.commit("with the two of region a that are there").await;
    assert!(ring.serving().await.1 < plan.term);
}

#[tokio::test]
async fn a_plan_is_refused_once_its_survivor_has_moved_on() {
    let mut ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    ring.commit("acknowledged").await;
    ring.crash(MemberId(1)).await;
    ring.crash(MemberId(2)).await;
    let plan = plan(&ring).await;
    let survivor = ring.member(plan.survivor);
    let accepted = plan.loss.as_ref().and_then(|loss| loss.after);
    let end = plan.log_end.unwrap();
    // Simulates a last entry that arrived after the plan was made, and then a vote in a later term after the plan.
    let made_before_an_entry = RepairPlan {
        log_end: Some(OpId::new(end.term, end.index - 1)),
        ..plan.clone()
    };
    let made_before_a_vote = RepairPlan {
        term: survivor.evidence().await.term,
        ..plan.clone()
    };
    for stale in [made_before_an_entry, made_before_a_vote] {
        let refused = survivor
            .repair_quorum(&stale, accepted, SystemTime::now(), "anna")
            .await;
        assert!(
            matches!(refused, Err(RepairRefusal::Changed(_))),
            "{stale:?}: {refused:?}"
        );
        assert_eq!(survivor.evidence().await.log_end, plan.log_end);
    }
    repair(&ring, &plan).await;
}

#[tokio::test]
async fn a_member_with_given_up_entries_stops() {
    let mut ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    let shared = ring.commit("everybody has it").await;
    ring.committed_everywhere(shared).await;
    // Region b receives no more messages.
    for id in [4, 5, 6].map(MemberId) {
        ring.board.isolate(id, [1, 2, 3].map(MemberId));
    }
    for number in 0..20 {
        ring.commit(&format!("only in region a {number}")).await;
    }
    // The operator gives up region a, although member 3 runs. The ring continues from region b, which lacks the last entries.
    ring.crash(MemberId(1)).await;
    ring.crash(MemberId(2)).await;
    let survivors: Vec<MemberEvidence> = within("silence", async {
        loop {
            let seen: Vec<MemberEvidence> = evidence(&ring)
                .await
                .into_iter()
                .filter(|one| one.member.0 >= 4)
                .collect();
            if seen.iter().all(|one| one.leader.is_none()) {
                return seen;
            }
            tokio::time::sleep(TIMERS.heartbeat).await;
        }
    })
    .await;
    let plan = plan_repair(&survivors).unwrap();
    assert_eq!(accept_repair(&plan, plan.log_end), Ok(()));
    repair(&ring, &plan).await;
    for number in 0..30 {
        ring.commit(&format!("after the repair {number}")).await;
    }
    ring.board.heal();
    let fault = within("the contradiction", ring.member(MemberId(3)).fault()).await;
    assert!(matches!(fault, Fault::Contradicted { .. }), "{fault}");
}

/// Members that a repair has given up may receive its term, and be isolated before they receive its entry. They must not elect one of
/// themselves, although they are as many as before the repair.
#[tokio::test]
async fn members_aware_of_a_repair_elect_no_log_without_it() {
    let mut ring = Ring::over(REGIONS, QuorumPolicy::SingleRegionDynamic).await;
    let last = ring.commit("everybody has it").await;
    ring.committed_everywhere(last).await;
    let given_up = ring.member(MemberId(3));
    assert_eq!(given_up.evidence().await.elects_from, None);
    let inbound = given_up.inbound();
    // The survivor campaigns in a term that only a repair can reach. Its log is shorter than member 3's log, so it gets no vote.
    let leap = last.term + (1 << 24);
    let heard = VoteRequest::new(Vote::new(leap, MemberId(4)), None);
    let answer = inbound.vote(heard).await.unwrap();
    assert!(!answer.vote_granted, "{answer:?}");
    let needed = given_up.evidence().await.elects_from;
    assert!(
        needed.is_some_and(|needed| needed.term >= leap),
        "{needed:?}"
    );
    // When no leader is known, another member that was given up campaigns. It has all entries that were committed before the repair.
    for other in ring.ids() {
        if other != MemberId(3) {
            ring.board.isolate(MemberId(3), [other]);
        }
    }
    within("silence", async {
        while given_up.evidence().await.leader.is_some() {
            tokio::time::sleep(TIMERS.heartbeat).await;
        }
    })
    .await;
    let own_end = given_up.evidence().await.log_end.map(Into::into);
    let asked = VoteRequest::new(Vote::new(leap + 7, MemberId(2)), own_end);
    let answer = inbound.vote(asked.clone()).await.unwrap();
    assert!(!answer.vote_granted, "{answer:?}");
    // Regression test: the member lost this record if it restarted while it was isolated.
    ring.crash(MemberId(3)).await;
    ring.start(MemberId(3)).await;
    let restarted = ring.member(MemberId(3));
    assert_eq!(restarted.evidence().await.elects_from, needed);
    let answer = restarted.inbound().vote(asked).await.unwrap();
    assert!(!answer.vote_granted, "{answer:?}");
}

/// A limit that decision 130 describes: openraft accepts no membership entry while another is uncommitted. So a region that is lost at that
/// moment cannot be replaced. A repair of the quorum solves this without a loss.
#[tokio::test]
async fn a_region_lost_under_an_uncommitted_membership_needs_a_repair() {
    let named = ["a", "b", "c"].map(|name| Region(name.to_owned()));
    let policy = QuorumPolicy::SomeRegions {
        required: 2,
        regions: named.into(),
    };
    let mut ring = Ring::over("a: 1d 2w 3w | b: 4d 5w 6w | c: 7d 8w 9w", policy).await;
    let acknowledged = ring.commit("acknowledged").await;
    ring.committed_everywhere(acknowledged).await;
    let (leader, term) = ring.serving().await;
    let sets = ring.member(leader).status().ring_view.voter_sets;
    let lost = sets.into_iter().find(|set| !set.contains(&leader)).unwrap();
    for id in lost {
        ring.crash(id).await;
    }
    let request = PauseRequest {
        by: "anna".to_owned(),
        reason: String::new(),
        for_seconds: None,
    };
    let paused = ring.member(leader).pause(&request).await.unwrap_err();
    println!("{paused}");
    within("the end of the leadership", async {
        while ring.member(leader).leadership().borrow().serving_term() == Some(term) {
            tokio::time::sleep(TIMERS.heartbeat).await;
        }
    })
    .await;
    let plan = plan(&ring).await;
    let survivor = ring.member(plan.survivor);
    let accepted = plan.loss.as_ref().and_then(|loss| loss.after);
    let repaired = survivor
        .repair_quorum(&plan, accepted, SystemTime::now(), "anna")
        .await;
    repaired.unwrap();
    let last = ring.commit("after the repair").await;
    ring.committed_everywhere(last).await;
    let log = ring.disks[&plan.survivor].transactions();
    assert_eq!(log.len(), 2);
}
