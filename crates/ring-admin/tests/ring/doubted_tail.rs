//! A member whose log may have lost its end takes part in no election until the leader, or all other members, have reported the ends of
//! their logs.

use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use consensus::{Answer, LogEnd, MemberCalls, Question};
use openraft::async_runtime::watch::WatchReceiver as _;
use raft_types::MemberKind::Database;
use raft_types::{DoubtedTail, MemberId, OpId};

use crate::support::ring::{Ring, TIMERS, leadership_is, transaction, within};

#[tokio::test]
async fn the_leaders_word_ends_the_doubt_and_that_of_one_follower_does_not() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let last = ring.commit("acknowledged").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let doubts = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    ring.crash(doubts).await;
    ring.disks[&doubts].set_doubt(DoubtedTail::of_term(term.0));

    // The other follower's log has the same length, but this proves nothing: later entries may have been acknowledged.
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

#[tokio::test]
async fn an_answer_has_the_log_s_end_who_leads_and_the_last_membership() {
    let ring = Ring::of(&[Database; 3]).await;
    let last = ring.commit("acknowledged").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    let membership = ring
        .member(leader)
        .engine()
        .metrics()
        .borrow_watched()
        .membership_config
        .log_id()
        .map(OpId::from);
    assert!(membership.is_some());
    for id in ring.ids() {
        let calls = ring.board.port(leader);
        let asked = calls.ask(id, &ring.records[&id], Question::LogEnd, TIMERS.lease);
        let end = LogEnd {
            last: Some(last),
            leads: (id == leader).then_some(term),
            membership,
        };
        assert_eq!(asked.await.unwrap(), Answer::LogEnd(end), "member {id}");
    }
}

/// So many entries that the leader's engine searches for the last common entry instead of sending the log from its beginning.
const ENTRIES: u64 = 200;

/// Regression test: the leader kept the follower's acknowledgements from before the loss. So it never resent the lost entries, and the
/// failure of one more member stopped the ring permanently.
#[tokio::test(start_paused = true)]
async fn lost_acknowledged_entries_are_sent_again_by_the_same_leader() {
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
    // The member takes part in elections again: without the third member, its vote is needed.
    ring.crash(third).await;
    let last = ring.commit("without the third").await;
    ring.committed_everywhere(last).await;
}

/// Regression test: the leader's last entries reached the member without a vote, but not the other voter, which had a full disk. Then the
/// leader lost these entries. It voted for no member that lacks them, and no voter had them, so the ring stalled permanently.
#[tokio::test(start_paused = true)]
async fn a_member_without_a_vote_leads_until_a_voter_has_what_it_alone_has() {
    let mut ring = Ring::over("a: 1d 2d | b: 3d", QuorumPolicy::SingleRegionDynamic).await;
    let [loses, lagging, has_all] = [1, 2, 3].map(MemberId);
    let last = ring.commit("acknowledged").await;
    ring.committed_everywhere(last).await;
    let (leader, term) = ring.serving().await;
    assert_eq!(leader, loses);
    ring.board.isolate(lagging, [loses, has_all]);
    let mut tickets = Vec::new();
    for number in 0..3 {
        let text = transaction(&format!("to the member without a vote alone {number}"));
        tickets.push(ring.member(loses).propose(text, term).await.unwrap());
    }
    within("the entries", async {
        while ring.disks[&has_all].transactions().len() < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let written = ring.disks[&has_all].transactions();

    ring.crash(loses).await;
    ring.disks[&loses].lose_from(last.index + 2);
    ring.disks[&loses].set_doubt(DoubtedTail::of_term(term.0));
    ring.board.heal();
    ring.start(loses).await;
    let stood_in = ring.member(has_all).clone();
    let leads = leadership_is(&stood_in, |now| now.leading_term().is_some()).await;
    assert!(leads.leading_term() > Some(term));
    // During its interim leadership, the member does not become the primary.
    let primacy = stood_in.primacy_now().leadership;
    assert_eq!(primacy.leading_term(), None);

    leadership_is(&stood_in, |now| now.leading_term().is_none()).await;
    let (leader, _) = ring.serving().await;
    assert!([loses, lagging].contains(&leader), "member {leader} leads");
    let last = ring.commit("after").await;
    ring.committed_everywhere(last).await;
    for id in [loses, lagging] {
        assert!(ring.disks[&id].transactions().starts_with(&written));
    }
    within("the end of the doubt", async {
        while ring.disks[&loses].is_in_doubt() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let voters = ring.member(has_all).status().ring_view.voter_sets;
    assert_eq!(voters, [[loses, lagging].into()]);
}

#[tokio::test(start_paused = true)]
async fn no_interim_leader_next_to_a_leader_or_with_a_vote() {
    let ring = Ring::over("a: 1d 2d | b: 3d", QuorumPolicy::SingleRegionDynamic).await;
    let last = ring.commit("led").await;
    ring.committed_everywhere(last).await;
    let before = ring.serving().await;
    for (id, expected) in [(2, "has a vote"), (3, "member 1 leads")] {
        let (id, calls) = (MemberId(id), ring.board.port(MemberId(1)));
        let asked = calls.ask(id, &ring.records[&id], Question::InterimLead, TIMERS.lease);
        let refused = asked.await.unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    tokio::time::sleep(TIMERS.lease * 4).await;
    assert_eq!(ring.serving().await, before);
}
