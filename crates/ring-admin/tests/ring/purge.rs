//! The log is purged on order, and never beyond the applied entries. A member that needs purged entries restarts its log with a later file,
//! and receives all entries from that file on.

use std::time::Duration;

use bytes::Bytes;
use consensus::quorum::QuorumPolicy;
use consensus::{NeededBy, PurgeError};
use raft_types::MemberKind::Database;
use raft_types::{
    Entry, EntryPayload, FileStart, LogId, MemberId, Membership, MembershipPayload, OpId,
    StoredMembership, Vote,
};

use crate::support::ring::{Ring, transaction, within};

/// Commits entries until the leader has purged all but the last five, and returns the last purged entry.
async fn purged(ring: &Ring, leader: MemberId) -> OpId {
    let mut last = OpId::default();
    for number in 0..20 {
        last = ring.commit(&format!("missed {number}")).await;
    }
    let upto = OpId::new(last.term, last.index - 5);
    let member = ring.member(leader);
    within("the purge", async {
        loop {
            // Entries that are being sent are not purged, so this is tried again.
            member.purge(upto).await.unwrap();
            if member.status().purged == Some(upto) {
                return upto;
            }
            ring.commit("more").await;
        }
    })
    .await
}

/// Waits until a member's log equals the leader's log after `floor`.
async fn has_the_rest(ring: &Ring, id: MemberId, leader: MemberId, floor: OpId) {
    let last = ring.commit("the last one").await;
    within("the rest of the log", async {
        loop {
            let entries = ring.disks[&id].all();
            if entries.last().map(|entry| OpId::from(entry.log_id)) == Some(last) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let found = ring.disks[&id].all();
    assert_eq!(found.first().unwrap().log_id.index, floor.index + 1);
    assert_eq!(found, ring.disks[&leader].all());
    assert_eq!(ring.disks[&id].purged().0, Some(LogId::from(floor)));
    ring.committed_everywhere(last).await;
}

#[tokio::test]
async fn nothing_is_purged_that_is_not_applied() {
    let ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    let last = ring.commit("seen by all").await;
    let member = ring.member(leader);
    let beyond = OpId::new(last.term, last.index + 1);
    let refused = member.purge(beyond).await;
    assert!(
        matches!(refused, Err(PurgeError::NotApplied { .. })),
        "{refused:?}"
    );
    assert_eq!(member.status().purged, None);
}

#[tokio::test]
async fn a_member_that_was_away_gets_the_log_from_a_later_file_on() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    ring.commit("seen by all").await;
    let absent = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    ring.crash(absent).await;
    let floor = purged(&ring, leader).await;
    let first = ring.disks[&leader].all()[0].log_id.index;
    assert_eq!(first, floor.index + 1);

    ring.start(absent).await;
    has_the_rest(&ring, absent, leader, floor).await;

    // After a crash, the member continues from the later start, with the ring's membership.
    ring.crash(absent).await;
    ring.start(absent).await;
    has_the_rest(&ring, absent, leader, floor).await;
    let view = ring.member(absent).status().ring_view;
    assert_eq!(view.voter_sets[0].len(), 3);
}

#[tokio::test]
async fn a_member_without_any_entry_begins_with_a_later_file() {
    let mut ring = Ring::started(&[Database; 4]).await;
    let newcomer = MemberId(4);
    ring.crash(newcomer).await;
    ring.bootstrap().await;
    let (leader, _) = ring.serving().await;
    let floor = purged(&ring, leader).await;
    ring.start(newcomer).await;
    has_the_rest(&ring, newcomer, leader, floor).await;
}

#[tokio::test]
async fn an_uncommitted_tail_is_dropped_with_the_old_log() {
    let ring = Ring::of(&[Database; 3]).await;
    let (old, term) = ring.serving().await;
    ring.commit("seen by all").await;
    ring.board.isolate(old, ring.ids());
    for number in 0..10 {
        let lost = transaction(&format!("not replicated {number}"));
        // The outcome is not awaited: this member is isolated, so the entry is never committed.
        drop(ring.member(old).propose(lost, term).await.unwrap());
    }
    let tail = ring.disks[&old].all().len();
    let leader = within("another leader", async {
        loop {
            let others = ring.ids().into_iter().filter(|id| *id != old);
            let serving = others.into_iter().find(|id| {
                ring.member(*id)
                    .leadership()
                    .borrow()
                    .serving_term()
                    .is_some()
            });
            match serving {
                Some(id) => return id,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    let floor = within("the purge", async {
        let mut last = OpId::default();
        for number in 0..30 {
            let member = ring.member(leader);
            let term = member.leadership().borrow().serving_term().unwrap();
            let proposed = member
                .propose(transaction(&format!("{number}")), term)
                .await;
            last = match proposed.unwrap().outcome().await {
                consensus::Outcome::Committed(op_id) => op_id,
                other => panic!("{other:?}"),
            };
        }
        ring.member(leader).purge(last).await.unwrap();
        last
    })
    .await;
    assert!(
        floor.index as usize > tail,
        "the tail ends before the floor"
    );
    within("the purge", async {
        while ring.member(leader).status().purged != Some(floor) {
            ring.member(leader).purge(floor).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    ring.board.heal();
    has_the_rest(&ring, old, leader, floor).await;
}

#[tokio::test]
async fn a_follower_asks_the_leader_for_the_purge_floor() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    let seen = ring.commit("seen by all").await;
    ring.committed_everywhere(seen).await;
    let others: Vec<MemberId> = ring.ids().into_iter().filter(|id| *id != leader).collect();
    let (asking, absent) = (others[0], others[1]);
    ring.crash(absent).await;
    let last = ring.commit("missed by one").await;
    ring.committed_everywhere(last).await;

    let floor = |absent_after| ring.member(asking).purge_floor(absent_after);
    let hour = Duration::from_secs(3_600);
    let held = within("an answer", floor(hour)).await.unwrap();
    assert!(held.upto < Some(last), "{held:?}");
    assert_eq!(held.needed_by, Some(NeededBy::Member(absent)));
    // If the member is absent for longer than the limit, it does not delay a purge: the majority of its region has all entries.
    within("the floor", async {
        while floor(Duration::from_millis(100)).await.unwrap().upto < Some(last) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;

    // Without a leader, there is no answer, so nothing may be purged.
    ring.crash(leader).await;
    within("no leader", async {
        while ring.member(asking).purge_floor(hour).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Returns a ring of three in which only member 1 runs and has a log: the membership, then one blank entry of each of these terms.
async fn alone_with(terms: impl IntoIterator<Item = u64>) -> (Ring, Vec<Entry>) {
    let mut ring = Ring::laid_out("a: 1d 2d 3d", QuorumPolicy::Majority);
    let id = MemberId(1);
    let mut entries = vec![Entry {
        log_id: OpId::new(0, 0).into(),
        payload: EntryPayload::Membership(MembershipPayload::seal(
            Membership::new(vec![[1, 2, 3].map(MemberId).into()], ring.records.clone()).unwrap(),
        )),
    }];
    entries.extend((1..).zip(terms).map(|(index, term)| Entry {
        log_id: OpId::new(term, index).into(),
        payload: EntryPayload::Blank,
    }));
    let last = entries.last().unwrap().log_id;
    let vote = Vote::new_committed(OpId::from(last).term, MemberId(2));
    ring.disks[&id].preload(vote, entries.clone());
    ring.start(id).await;
    (ring, entries)
}

fn offer(before: OpId) -> FileStart {
    FileStart {
        before,
        membership: StoredMembership::default(),
        header: Bytes::new(),
    }
}

/// A leader offers a later start for a member's log before it learns that the member has received the entries. Such an offer must change
/// nothing.
#[tokio::test]
async fn an_offer_that_crossed_the_entries_changes_nothing() {
    let (ring, entries) = alone_with([3; 9]).await;
    let id = MemberId(1);
    let vote = Vote::new_committed(3, MemberId(2));
    let inbound = ring.member(id).inbound();
    let answer = inbound.install(vote, offer(OpId::new(3, 5))).await.unwrap();
    assert_eq!(answer.vote, vote, "the leader takes it for done");
    assert_eq!(ring.disks[&id].all(), entries);
    assert_eq!(ring.member(id).status().purged, None);

    // An offer of a start after the log's end is accepted.
    let later = OpId::new(3, 12);
    inbound.install(vote, offer(later)).await.unwrap();
    assert_eq!(ring.disks[&id].all(), []);
    assert_eq!(ring.member(id).status().purged, Some(later));
}

/// A leader was elected twice, and wrote entries only to its own log. The ring's log continued with entries of an earlier term, which are
/// now purged. The engine alone would refuse the later start, because the member's log has entries of later terms.
#[tokio::test]
async fn a_tail_of_later_terms_is_dropped_with_the_old_log() {
    let (ring, _) = alone_with([3, 3, 3, 8, 9]).await;
    let id = MemberId(1);
    let vote = Vote::new_committed(12, MemberId(2));
    let inbound = ring.member(id).inbound();
    let later = OpId::new(3, 12);
    let answer = inbound.install(vote, offer(later)).await.unwrap();
    assert_eq!(answer.vote, vote);
    assert_eq!(ring.disks[&id].all(), []);
    assert_eq!(ring.member(id).status().purged, Some(later));
}
