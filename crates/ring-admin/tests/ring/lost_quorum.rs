//! CheckQuorum: a leader without a quorum stops serving before another leader can start to serve. The outcome of its proposals is unknown,
//! and its uncommitted entries are truncated after it rejoins.

use std::time::{Duration, Instant};

use consensus::{Leadership, NotServing, Outcome, Unknown};
use raft_types::MemberKind::Database;

use crate::support::ring::{PATIENCE, Ring, TIMERS, leadership_is, transaction, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_leader_stops_serving_before_the_new_one_begins() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (old, old_term) = ring.serving().await;
    ring.commit("acknowledged").await;
    let isolated = ring.members.remove(&old).unwrap();

    let cut = Instant::now();
    ring.board.isolate(old, ring.ids());
    let mut tickets = Vec::new();
    for number in 0..10 {
        let text = format!("cut off {number}");
        tickets.push(
            isolated
                .propose(transaction(&text), old_term)
                .await
                .unwrap(),
        );
    }

    let watched = isolated.clone();
    let stopped = tokio::spawn(async move {
        let now = leadership_is(&watched, |now| now.serving_term().is_none()).await;
        (now, Instant::now())
    });
    let (new, new_term) = ring.serving().await;
    let began = Instant::now();
    let (now, stopped) = stopped.await.unwrap();
    assert!(stopped < began, "two leaders served at one time");
    assert!(
        stopped - cut < TIMERS.lease + Duration::from_millis(300),
        "{:?}",
        stopped - cut
    );
    let why = NotServing::QuorumSilent;
    assert_eq!(
        now,
        Leadership::LeaderNotServing {
            term: old_term,
            why
        }
    );
    assert!(new != old && new_term > old_term);

    let status = isolated.status();
    let cause = status.quorum.unwrap().to_string();
    assert!(
        cause.starts_with("1 of 3 voters answer and 2 are needed; no answer from"),
        "{cause}"
    );

    // The isolated leader has not resolved these proposals yet.
    assert!(
        tickets
            .iter_mut()
            .all(|ticket| ticket.resolved_now().is_none())
    );
    let after = ring.commit("by the new leader").await;
    ring.board.heal();
    for ticket in &mut tickets {
        let outcome = within("an outcome", ticket.outcome()).await;
        assert_eq!(outcome, Outcome::Unknown(Unknown::LeadershipLost));
    }
    ring.members.insert(old, isolated);
    let last = ring.commit("together").await;
    assert!(last.index > after.index);
    ring.committed_everywhere(last).await;
    for disk in ring.disks.values() {
        assert_eq!(
            disk.transactions(),
            ["acknowledged", "by the new leader", "together"]
        );
    }
}

#[tokio::test]
async fn commits_wait_for_a_quorum_and_then_finish() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let followers: Vec<_> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    for follower in &followers {
        ring.crash(*follower).await;
    }
    let member = ring.member(leader).clone();
    // During the lease, a proposal is accepted. After it, a proposal is refused.
    let mut waiting = member.propose(transaction("waits"), term).await.unwrap();
    leadership_is(&member, |now| now.serving_term().is_none()).await;
    // The engine also counts answers to entries, so its own lease may end up to one lease later.
    tokio::time::sleep(TIMERS.lease).await;
    let mut late = member.propose(transaction("late"), term).await.unwrap();
    let refused = within("a refusal", late.outcome()).await;
    assert!(matches!(refused, Outcome::Refused(_)), "{refused:?}");
    let still = tokio::time::timeout(TIMERS.lease * 2, waiting.outcome()).await;
    assert!(still.is_err(), "committed without a quorum: {still:?}");

    ring.start(followers[0]).await;
    let outcome = tokio::time::timeout(PATIENCE, waiting.outcome())
        .await
        .unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    // The leader continues in the same term: no other member was elected.
    assert_eq!(ring.serving().await, (leader, term));
}
