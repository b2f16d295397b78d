//! A failure of the log's storage stops the member, and all waiting callers get an error.

use consensus::{Fault, Leadership, Outcome, Unknown};
use raft_types::MemberKind::Database;

use crate::support::ring::{Ring, leadership_is, transaction, within};

#[tokio::test]
async fn a_failed_disk_ends_the_member_and_not_the_ring() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let acknowledged = ring.commit("before").await;
    let member = ring.members.remove(&leader).unwrap();
    ring.disks[&leader].set_broken();

    let mut ticket = member.propose(transaction("lost"), term).await.unwrap();
    let outcome = within("an outcome", ticket.outcome()).await;
    assert!(
        matches!(outcome, Outcome::Unknown(Unknown::EngineStopped)),
        "{outcome:?}"
    );
    let fault = within("the fault", member.fault()).await;
    assert!(
        matches!(&fault, Fault::Storage(reason) if reason.contains("the disk is broken")),
        "{fault}"
    );
    leadership_is(&member, |now| *now == Leadership::Follower { leader: None }).await;
    assert_eq!(member.status().fault, Some(fault));
    assert!(
        member
            .propose(transaction("late"), term)
            .await
            .is_ok_and(|mut ticket| { matches!(ticket.resolved_now(), Some(Outcome::Refused(_))) })
    );

    ring.board.disconnect(leader);
    let committed = ring.commit("after").await;
    assert!(committed.index > acknowledged.index);
    ring.committed_everywhere(committed).await;
    for id in ring.members.keys() {
        assert_eq!(ring.disks[id].transactions(), ["before", "after"]);
    }
}

/// A member must stop if one of its tasks panics. Otherwise it would continue to lead or vote without the task, and no other member would
/// detect the failure.
#[tokio::test]
async fn a_task_that_panics_ends_the_member_and_not_the_ring() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    let whole = ring.member(leader);
    whole.essential("a test", async {}).await;
    assert_eq!(whole.status().fault, None, "one that ends does not");
    let member = ring.members.remove(&leader).unwrap();
    let broken = member.essential("a test", async { panic!("on purpose") });
    broken.await;
    assert_eq!(within("the fault", member.fault()).await, Fault::Panicked);
    leadership_is(&member, |now| *now == Leadership::Follower { leader: None }).await;
    ring.board.disconnect(leader);
    let committed = ring.commit("after").await;
    ring.committed_everywhere(committed).await;
}

/// A panic stops the member also if the task is one that every member runs.
#[tokio::test]
async fn a_member_whose_own_task_panics_stops() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    let other = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    ring.crash(other).await;
    ring.calls_panic = Some(other);
    ring.start(other).await;
    let member = ring.member(other);
    assert_eq!(within("the fault", member.fault()).await, Fault::Panicked);
}

#[tokio::test]
async fn a_shutdown_is_no_failure() {
    let ring = Ring::of(&[Database]).await;
    ring.commit("one").await;
    let (leader, _) = ring.serving().await;
    ring.member(leader).shutdown().await;
    assert_eq!(ring.member(leader).fault().await, Fault::Stopped);
}
