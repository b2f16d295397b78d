//! Proposals are pipelined, and are appended to the log in the order of their calls.

use consensus::{Outcome, Refusal, Term};
use raft_types::MemberKind::Database;
use raft_types::ProposalSequence;
use tokio::time::sleep;

use crate::support::ring::{Ring, transaction, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_resolve_in_the_order_of_the_calls() {
    const COUNT: usize = 500;
    let ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let mut tickets = Vec::new();
    for number in 0..COUNT {
        let proposed = ring
            .member(leader)
            .propose(transaction(&number.to_string()), term)
            .await;
        tickets.push(proposed.unwrap());
    }
    let mut last = None;
    for ticket in &mut tickets {
        let Outcome::Committed(op_id) = within("a commit", ticket.outcome()).await else {
            panic!("{ticket:?}");
        };
        assert_eq!(op_id.term, term.0);
        assert!(
            last.is_none_or(|last| op_id.index == last + 1),
            "{last:?} then {op_id}"
        );
        assert_eq!(ticket.resolved_now(), Some(Outcome::Committed(op_id)));
        last = Some(op_id.index);
    }
    let committed = *ring.member(leader).committed().borrow();
    assert_eq!(committed.map(|op_id| op_id.index), last);

    ring.committed_everywhere(committed.unwrap()).await;
    let expected: Vec<String> = (0..COUNT).map(|number| number.to_string()).collect();
    for disk in ring.disks.values() {
        assert_eq!(disk.transactions(), expected);
    }
}

#[tokio::test]
async fn only_the_leader_of_that_term_takes_a_proposal() {
    let ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let follower = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    for (id, term) in [(follower, term), (leader, Term(term.0 + 1))] {
        let mut ticket = ring
            .member(id)
            .propose(transaction("no"), term)
            .await
            .unwrap();
        let outcome = ticket.outcome().await;
        let Outcome::Refused(refusal) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(matches!(refusal, Refusal::NotLeader(_)), "{refusal:?}");
    }
    let committed = ring.commit("yes").await;
    ring.committed_everywhere(committed).await;
    for disk in ring.disks.values() {
        assert_eq!(disk.transactions(), ["yes"]);
    }
}

/// Without a quorum, the engine refuses entries. When a quorum answers again, it accepts entries in the same term. A proposal after a
/// refused one must be refused, too.
#[tokio::test]
async fn nothing_is_accepted_after_a_refused_entry() {
    let ring = Ring::of(&[Database; 3]).await;
    let (leader, term) = ring.serving().await;
    let far = ring.ids().into_iter().rfind(|id| *id != leader).unwrap();
    let sequence = ProposalSequence::default();
    let propose = async |text: &str| {
        let proposed = ring.member(leader);
        let proposed = proposed.propose_behind(transaction(text), term, &sequence);
        proposed.await.unwrap()
    };
    // No member receives messages, so no other leader is elected.
    for id in ring.ids() {
        ring.board.isolate(id, ring.ids());
    }
    let mut before = propose("before").await;
    let lease = ring.timers.lease;
    sleep(lease * 2).await;
    let mut refused = propose("refused").await;
    assert_eq!(
        within("a refusal", refused.outcome()).await,
        Outcome::Refused(Refusal::QuorumSilent)
    );

    ring.board.heal();
    ring.board.isolate(far, ring.ids());
    assert_eq!(ring.serving().await, (leader, term));
    let mut later = propose("later").await;
    assert_eq!(
        within("a refusal", later.outcome()).await,
        Outcome::Refused(Refusal::AfterRefused)
    );
    let outcome = within("a commit", before.outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    // A proposal outside of that sequence is accepted.
    let alone = ring.commit("again").await;
    ring.board.heal();
    ring.committed_everywhere(alone).await;
    for disk in ring.disks.values() {
        assert_eq!(disk.transactions(), ["before", "again"]);
    }
}
