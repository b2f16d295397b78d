//! A member whose log may have lost its end takes part in no election until the leader, or all others, have said how far theirs go.

use std::time::Duration;

use raft_types::DoubtedTail;
use raft_types::MemberKind::Database;

use crate::support::ring::{Ring, TIMERS, within};

#[tokio::test]
async fn the_leaders_word_ends_the_doubt_and_that_of_one_follower_does_not() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let last = ring.commit("acknowledged").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let doubts = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    ring.crash(doubts).await;
    ring.disks[&doubts].set_doubt(DoubtedTail::of_term(term.0));

    // The other follower's log goes as far, but more than it has may have been acknowledged.
    ring.board.cut(doubts, leader);
    ring.board.cut(leader, doubts);
    ring.start(doubts).await;
    tokio::time::sleep(TIMERS.lease * 4).await;
    let member = ring.member(doubts);
    assert!(member.stays_out_of_elections().is_some());
    assert!(ring.disks[&doubts].is_in_doubt());

    ring.board.heal();
    within("the end of the doubt", async {
        while member.stays_out_of_elections().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!ring.disks[&doubts].is_in_doubt());
    let last = ring.commit("after it").await;
    ring.committed_everywhere(last).await;
}

/// So much that the leader's engine has to search for where the logs part, instead of sending from the beginning.
const ENTRIES: u64 = 200;

/// What was seen: the leader went on believing what it had been told before the loss. It sent the lost entries never again, and
/// one more death stopped the ring for good.
#[tokio::test(start_paused = true)]
async fn what_a_follower_acknowledged_and_lost_comes_again_from_the_same_leader() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let mut last = ring.commit("first").await;
    for number in 0..ENTRIES {
        last = ring.commit(&format!("transaction {number}")).await;
    }
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let others: Vec<_> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    let (loses, third) = (others[0], others[1]);
    ring.crash(loses).await;
    ring.disks[&loses].lose_from(last.index - 2);
    ring.disks[&loses].set_doubt(DoubtedTail::of_term(term.0));
    ring.start(loses).await;
    within("the end of the doubt", async {
        while ring.member(loses).stays_out_of_elections().is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(ring.serving().await, (leader, term));
    assert_eq!(
        ring.disks[&loses].transactions(),
        ring.disks[&leader].transactions()
    );
    // It counts again.
    ring.crash(third).await;
    let last = ring.commit("without the third").await;
    ring.committed_everywhere(last).await;
}
