//! Every witness that leads transfers the leadership to a database member that has its log. If it cannot, it reports the reason.

use std::sync::Arc;
use std::time::Duration;

use consensus::{DatabaseState, Outcome, TransferRefusal};
use futures::future::BoxFuture;
use raft_types::MemberId;
use raft_types::MemberKind::{Database, Witness};
use ring_admin::{
    Database as Mysqld, LeaderTask, Member, NotPaused, PromotionError, PromotionPhase,
    PromotionProgress, Writer,
};
use tokio::sync::watch;

use crate::support::ring::{Ring, TIMERS, transaction, within};

const DATABASE: MemberId = MemberId(3);

#[tokio::test]
async fn the_database_member_ends_up_leading() {
    // Member 1, a witness, bootstraps the ring and campaigns first.
    let ring = Ring::of(&[Witness, Witness, Database]).await;
    within("the database member leads", async {
        while ring.serving().await.0 != DATABASE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let committed = ring.commit("one").await;
    ring.committed_everywhere(committed).await;
    assert_eq!(ring.serving().await.0, DATABASE);
}

#[tokio::test]
async fn a_witness_without_a_target_leads_and_reports_why() {
    let mut ring = Ring::of(&[Witness, Witness, Database]).await;
    ring.crash(DATABASE).await;
    let status = within("a witness that waits", async {
        loop {
            let (leader, _) = ring.serving().await;
            let status = ring.member(leader).status();
            if let Some(LeaderTask::Waiting(why)) = &status.leader_task
                && why.contains("database member 3 (member-3) does not answer")
            {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let quorum = status.quorum.unwrap();
    assert!(quorum.ok, "two witnesses are a majority: {quorum}");

    ring.start(DATABASE).await;
    within("the database member leads", async {
        while ring.serving().await.0 != DATABASE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for id in [1, 2].map(MemberId) {
        assert_eq!(ring.member(id).status().leader_task, None);
    }
}

/// The target of a transfer waits only about one heartbeat for entries that it lacks. If the witness transferred the leadership too early,
/// the other witness would be elected, would transfer the leadership too early as well, and so on.
#[tokio::test(start_paused = true)]
async fn a_witness_hands_over_when_the_heir_has_its_log_and_not_before() {
    let mut ring = Ring::of(&[Witness, Witness, Database]).await;
    within("the database member leads", async {
        while ring.serving().await.0 != DATABASE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    ring.crash(DATABASE).await;
    let slow = TIMERS.lease * 9 / 10;
    ring.disks[&DATABASE].set_flush_time(slow);
    let (witness, term) = ring.serving().await;
    assert_ne!(witness, DATABASE);
    ring.start(DATABASE).await;
    within("the database member leads", async {
        while ring.serving().await.0 != DATABASE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let handed_over = ring.serving().await.1;
    assert_eq!(handed_over.0, term.0 + 1, "another member led in between");
}

const FIRST: MemberId = MemberId(1);

/// A mysqld with a pending commit, which completes when the writes are stopped.
struct LastCommit(Member);

impl Writer for LastCommit {
    fn pause(&self) -> BoxFuture<'_, Result<(), NotPaused>> {
        Box::pin(async move {
            let term = self.0.leadership_now().serving_term().unwrap();
            let last = self.0.propose(transaction("the last one"), term).await;
            let outcome = last.unwrap().outcome().await;
            assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
            Ok(())
        })
    }

    fn resume(&self) {}
}

/// Returns a ring that the first database member leads. From then on, the disk of the target takes this long to write an entry. If the
/// target does not take over a transferred leadership, the other database members campaign.
async fn ring_with_a_slow_heir(flush_time: Duration) -> Ring {
    let ring = Ring::of(&[Database; 5]).await;
    let last = ring.commit("one").await;
    ring.committed_everywhere(last).await;
    assert_eq!(ring.serving().await.0, FIRST);
    let first = ring.member(FIRST);
    first.set_writer(Arc::new(LastCommit(first.clone())));
    ring.disks[&DATABASE].set_flush_time(flush_time);
    ring
}

/// Observed: the message "member 2 was elected instead of member 3", and no primary for more than a second.
#[tokio::test(start_paused = true)]
async fn an_old_primary_hands_over_when_the_heir_has_its_log_and_not_before() {
    let ring = ring_with_a_slow_heir(TIMERS.lease * 49 / 50).await;
    let (_, term) = ring.serving().await;
    let first = ring.member(FIRST);
    let promoted = first.promote(DATABASE, watch::Sender::default()).await;
    let promoted = promoted.unwrap();
    assert_eq!(promoted.leader, DATABASE);
    assert_eq!(promoted.term.0, term.0 + 1, "another member led in between");
}

#[tokio::test(start_paused = true)]
async fn the_primary_stays_if_the_targets_disk_is_too_slow() {
    let ring = ring_with_a_slow_heir(TIMERS.lease * 10).await;
    let before = ring.serving().await;
    let first = ring.member(FIRST);
    let promoted = first.promote(DATABASE, watch::Sender::default()).await;
    let Err(PromotionError::TargetLags(refusal, _)) = promoted else {
        panic!("{promoted:?}");
    };
    assert_eq!(
        refusal,
        TransferRefusal::Slow {
            member: DATABASE,
            lag: 1,
            waited: TIMERS.lease
        }
    );
    assert_eq!(ring.serving().await, before);
    ring.commit("as before").await;
}

/// A stopping leader tries the transfer again and again. Clients must not have to wait during each attempt.
#[tokio::test(start_paused = true)]
async fn writes_are_not_stopped_for_an_heir_that_does_not_keep_up() {
    let ring = ring_with_a_slow_heir(TIMERS.lease * 10).await;
    let last = ring.commit("two").await;
    let progress = watch::Sender::<PromotionProgress>::default();
    let seen = progress.subscribe();
    let promoted = ring.member(FIRST).promote(DATABASE, progress).await;
    assert!(
        matches!(promoted, Err(PromotionError::TargetLags { .. })),
        "{promoted:?}"
    );
    assert_eq!(seen.borrow().under_way, Some(PromotionPhase::CatchUp));
    let next = ring.commit("three").await;
    assert_eq!(next.index, last.index + 1, "nothing was drained");
}

/// A mysqld that reports this number of missing transactions, or the reason why it cannot be the primary.
struct Says(Result<u64, &'static str>);

impl Mysqld for Says {
    fn version(&self) -> Option<String> {
        None
    }

    fn state(&self, _: Option<String>) -> BoxFuture<'_, DatabaseState> {
        let state = match self.0 {
            Ok(lag) => DatabaseState {
                lag: Some(lag),
                ..DatabaseState::default()
            },
            Err(why) => DatabaseState {
                unfit: Some(why.to_owned()),
                ..DatabaseState::default()
            },
        };
        Box::pin(std::future::ready(state))
    }
}

fn says(ring: &Ring, id: u64, state: Result<u64, &'static str>) {
    ring.member(MemberId(id))
        .set_database(Arc::new(Says(state)));
}

/// Observed with real processes: the leadership was transferred to the member of a mysqld that had been killed seconds before.
#[tokio::test]
async fn a_leader_that_stops_gives_the_leadership_to_the_member_whose_mysqld_is_level() {
    let ring = Ring::started(&[Database, Database, Database, Witness, Witness]).await;
    says(&ring, 2, Ok(1_663));
    says(&ring, 3, Ok(0));
    ring.bootstrap().await;
    ring.commit("one").await;
    assert_eq!(ring.serving().await.0, MemberId(1));
    let promoted = ring.member(MemberId(1)).give_leadership_away().await;
    assert_eq!(promoted.unwrap().leader, MemberId(3));
}

#[tokio::test]
async fn a_witness_that_was_elected_gives_the_leadership_to_the_member_whose_mysqld_is_fit() {
    let ring = Ring::started(&[Witness, Witness, Database, Database, Database]).await;
    says(&ring, 3, Err("stopped: table d.t is not there"));
    says(&ring, 4, Ok(1_663));
    says(&ring, 5, Ok(2));
    ring.bootstrap().await;
    let served = within("a database member leads", async {
        loop {
            let (leader, _) = ring.serving().await;
            if leader.0 > 2 {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(served, MemberId(5));
}
