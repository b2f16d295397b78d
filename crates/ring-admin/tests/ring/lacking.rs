//! A member whose log accepts no entries receives the commit index with heartbeats, and reports how long it has lacked committed entries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use raft_types::MemberKind::Database;
use raft_types::{LogIntake, LogRoom, OpId, WaitingForLog};

use crate::support::ring::{Ring, within};

const LOOK: Duration = Duration::from_millis(5);

/// The disk of a log.
#[derive(Default)]
struct Disk {
    free: AtomicU64,
}

impl LogIntake for Disk {
    fn has(&self, _: OpId) -> bool {
        false
    }

    fn room(&self, _: u64) -> LogRoom {
        let free = self.free.load(Ordering::Relaxed);
        LogRoom {
            transactions: free,
            in_all: free,
        }
    }

    fn queue_room(&self, _: u64) -> WaitingForLog<'_> {
        Box::pin(std::future::ready(()))
    }
}

#[tokio::test]
async fn a_member_with_a_full_disk_reports_its_lag() {
    let mut ring = Ring::of(&[Database; 3]).await;
    let (leader, _) = ring.serving().await;
    let last = ring.commit("received").await;
    ring.committed_everywhere(last).await;
    let full = ring.ids().into_iter().find(|id| *id != leader).unwrap();
    let lacks = |ring: &Ring| ring.member(full).lacks_commits_for();
    let lacks_for = async |ring: &Ring, wanted: fn(Duration) -> bool| {
        let reached = async {
            while !lacks(ring).is_some_and(wanted) {
                tokio::time::sleep(LOOK).await;
            }
        };
        within("how long it has lacked something", reached).await;
    };
    lacks_for(&ring, |lack| lack.is_zero()).await;

    let disk = Arc::new(Disk::default());
    ring.member(full).take_in_by(disk.clone());
    ring.commit("not received").await;
    lacks_for(&ring, |lack| lack >= Duration::from_millis(500)).await;
    ring.commit("nor this").await;
    assert!(lacks(&ring).unwrap() >= Duration::from_millis(500));
    assert_eq!(ring.member(full).committed().borrow().unwrap(), last);

    // After a restart, the member receives the commit index, but not when these entries were committed.
    ring.crash(full).await;
    ring.start(full).await;
    ring.member(full).take_in_by(disk.clone());
    let hears = async {
        let mut leadership = ring.member(full).leadership();
        let hears = |now: &consensus::Leadership| *now != NO_LEADER;
        leadership.wait_for(hears).await.map(drop)
    };
    within("the leader is heard", hears).await.unwrap();
    assert_eq!(lacks(&ring), None);
    disk.free.store(u64::MAX, Ordering::Relaxed);
    lacks_for(&ring, |lack| lack.is_zero()).await;
}

const NO_LEADER: consensus::Leadership = consensus::Leadership::Follower { leader: None };
