//! Heartbeats do not wait for the disk: a leader continues to serve while earlier entries take several leases to become durable.

use consensus::{Leadership, Outcome};
use raft_types::MemberKind::Database;

use crate::support::ring::{Ring, TIMERS, transaction, within};

#[tokio::test]
async fn a_leader_serves_on_while_a_commit_takes_three_leases() {
    let ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    ring.commit("quick").await;
    for (id, disk) in &ring.disks {
        if *id != leader {
            disk.set_flush_time(TIMERS.lease * 3);
        }
    }
    let member = ring.member(leader);
    let mut leadership = member.leadership();
    leadership.mark_unchanged();
    let mut ticket = member.propose(transaction("slow"), term).await.unwrap();
    let outcome = within("a commit", ticket.outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert!(
        !leadership.has_changed().unwrap(),
        "{:?}",
        *leadership.borrow()
    );
    assert_eq!(*leadership.borrow(), Leadership::Serving { term });
}
