//! The log is purged by hand, never beyond what is applied; a member that still needs purged entries
//! does not get the rest, and the leader's status says so.

use consensus::PurgeError;
use raft_types::MemberKind::Database;
use raft_types::OpId;

use crate::support::ring::{Ring, within};

#[tokio::test]
async fn purged_entries_are_gone_and_missed_by_who_needs_them() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    ring.commit("seen by all").await;
    let absent = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    ring.crash(absent).await;
    let mut last = OpId::default();
    for number in 0..20 {
        last = ring.commit(&format!("missed {number}")).await;
    }
    ring.committed_everywhere(last).await;

    let member = ring.member(leader).clone();
    let beyond = OpId::new(last.term, last.index + 1);
    let refused = member.purge(beyond).await;
    assert!(
        matches!(refused, Err(PurgeError::NotApplied { .. })),
        "{refused:?}"
    );
    assert_eq!(member.status().purged, None);

    let upto = OpId::new(last.term, last.index - 5);
    within("the purge", async {
        loop {
            // Entries that are being sent are kept; asking again is the remedy.
            member.purge(upto).await.unwrap();
            if member.status().purged == Some(upto) {
                return;
            }
            ring.commit("more").await;
        }
    })
    .await;
    let first = ring.disks[&leader]
        .all()
        .first()
        .map(|entry| entry.log_id.index);
    assert_eq!(first, Some(upto.index + 1));

    ring.start(absent).await;
    within("the status", async {
        loop {
            let view = member.status().ring_view;
            if view.member(absent).unwrap().needs_purged_entries {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    let committed = ring.commit("the ring goes on").await;
    let mut mark = member.committed();
    let reached = mark.wait_for(|at| at.is_some_and(|at| at.index >= committed.index));
    within("the commit mark", reached).await.unwrap();
}
