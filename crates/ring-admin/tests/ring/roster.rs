//! Members are added and removed while the ring runs.

use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use raft_types::{MemberId, MemberKind};
use ring_admin::RecordChange;

use crate::support::memory_log::MemoryDisk;
use crate::support::ring::{Ring, TIMERS, record, within};

#[tokio::test]
async fn a_member_joins_gets_its_vote_and_leaves_again() {
    let mut ring = Ring::over(
        "a: 1d 2w 3w | b: 4d 5w 6w",
        QuorumPolicy::SingleRegionDynamic,
    )
    .await;
    ring.commit("before").await;
    let (leader, _) = ring.serving().await;
    let newcomer = MemberId(7);
    let newcomers_record = record(newcomer, "a", MemberKind::Witness);
    ring.records.insert(newcomer, newcomers_record.clone());
    ring.disks.insert(newcomer, MemoryDisk::default());
    ring.start(newcomer).await;
    let member = ring.member(leader).clone();
    within(
        "the joining",
        member.add_member(newcomer, newcomers_record.clone(), None, "anna"),
    )
    .await
    .unwrap();
    let again = member
        .add_member(newcomer, newcomers_record, None, "anna")
        .await
        .unwrap_err();
    assert!(
        again.to_string().contains("has a member 7 already"),
        "{again}"
    );
    within("its vote", async {
        loop {
            let view = member.status().ring_view;
            if view.member(newcomer).is_some_and(|one| one.voter) {
                assert_eq!(view.voter_sets.len(), 1);
                assert_eq!(view.voter_sets[0].len(), 4);
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let last = ring.commit("with the newcomer").await;
    ring.committed_everywhere(last).await;

    let leads = member.remove_member(leader, "anna").await.unwrap_err();
    assert!(
        leads.to_string().contains("promote another member first"),
        "{leads}"
    );
    for gone in [newcomer, MemberId(2)] {
        within("the leaving", member.remove_member(gone, "anna"))
            .await
            .unwrap();
        ring.crash(gone).await;
        ring.records.remove(&gone);
    }
    // The number of a removed member is refused, whichever member gets the order.
    let wiped = record(newcomer, "a", MemberKind::Witness);
    let used = member
        .add_member(newcomer, wiped.clone(), None, "anna")
        .await;
    let used = used.unwrap_err().to_string();
    assert!(used.contains("a member 7 was in the ring before"), "{used}");
    let other = ring.member(MemberId(5));
    within("the other's knowledge", async {
        while other.check_new_member(newcomer, &wiped).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let view = member.status().ring_view;
    assert_eq!(view.voter_sets, [[1, 3].map(MemberId).into()]);
    let refused = member.remove_member(MemberId(2), "anna").await.unwrap_err();
    assert!(refused.to_string().contains("no member 2"), "{refused}");
    let last = ring.commit("without them").await;
    ring.committed_everywhere(last).await;
}

#[tokio::test]
async fn a_member_is_not_let_go_with_the_majority() {
    let mut ring = Ring::over("a: 1d | b: 2d | c: 3d", QuorumPolicy::Majority).await;
    ring.commit("before").await;
    let (leader, _) = ring.serving().await;
    let others: Vec<MemberId> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    let (stays, dies) = (others[0], others[1]);
    ring.crash(dies).await;
    let member = ring.member(leader).clone();
    let refused = within("a refusal", async {
        loop {
            let view = member.status().ring_view;
            let silent = view.member(dies).and_then(|one| one.answered);
            if silent.is_some_and(|age| age > TIMERS.lease) {
                return member.remove_member(stays, "anna").await;
            }
            tokio::time::sleep(TIMERS.heartbeat / 4).await;
        }
    })
    .await;
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("only 1 of the 2 voters"), "{words}");
    ring.commit("with two of three").await;
    within(
        "the leaving of the dead one",
        member.remove_member(dies, "anna"),
    )
    .await
    .unwrap();
    ring.commit("with two of two").await;
}

/// The engine answers the append of a membership before it publishes that membership. The next change must nevertheless be based on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_based_on_the_previous_one() {
    let ring = Ring::over("a: 1d 2w 3w", QuorumPolicy::SingleRegionDynamic).await;
    ring.commit("before").await;
    let (leader, _) = ring.serving().await;
    let member = ring.member(leader);
    let changed = MemberId(3);
    for priority in 1..=400 {
        let change = RecordChange {
            priority: Some(priority),
            ..RecordChange::default()
        };
        let done = within(
            "the change",
            member.update_member(changed, &change, false, "anna"),
        )
        .await
        .unwrap();
        assert_eq!(done.after.priority, priority);
        let view = member.status().ring_view;
        let shown = view.member(changed).map(|one| one.record.priority);
        assert_eq!(shown, Some(priority), "later than its own answer");
    }
}
