//! A leader crashes, and a witness in its region moves the quorum to a region with a round-trip time of 60 ms. For that, it must find the
//! last matching entry of each member's log in that region. The tests measure the number of round trips in the runtime's virtual time,
//! which does not advance while tasks run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consensus::quorum::QuorumPolicy;
use consensus::{AppliedFloor, Leadership};
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, MemberId, Membership, MembershipPayload, OpId, Region,
    StoredMembership, TransactionPayload, Vote,
};
use ring_admin::Member;
use testkit::statistics::nearest_rank;
use tokio::time::Instant;

use crate::support::memory_log::MemoryDisk;
use crate::support::ring::{Ring, leadership_is};
use crate::support::switchboard::Switchboard;

const REGIONS: &str = "a: 1d 2w 3w | b: 4d 5w 6w";
const HOME: [u64; 3] = [1, 2, 3];
const FAR: [u64; 3] = [4, 5, 6];
const ROUND_TRIP: Duration = Duration::from_millis(60);
/// The last term in the logs of these tests.
const LAST_TERM: u64 = 3;

fn membership(ring: &Ring) -> Membership {
    let mut sets = vec![HOME.map(MemberId).into()];
    if let QuorumPolicy::Regions(_) = ring.rules.policy {
        sets.push(FAR.map(MemberId).into());
    }
    Membership::new(sets, ring.records.clone()).unwrap()
}

/// Returns a log: the first entry, which bootstraps the ring, then transactions in runs of a term and its last index.
fn log(ring: &Ring, runs: &[(u64, u64)]) -> Vec<Entry> {
    let mut entries = vec![Entry {
        log_id: OpId::new(0, 0).into(),
        payload: EntryPayload::Membership(MembershipPayload::seal(membership(ring))),
    }];
    for &(term, last) in runs {
        for index in entries.len() as u64..=last {
            let bytes = format!("{term}.{index}").into();
            let payload = AppEntry::Transaction(TransactionPayload::seal(bytes));
            entries.push(Entry {
                log_id: OpId::new(term, index).into(),
                payload: EntryPayload::Normal(payload),
            });
        }
    }
    entries
}

/// Returns a ring whose members already have logs: `home` in region a, `far` in region b.
async fn ring(home: &[(u64, u64)], far: &[(u64, u64)], searches_locally: bool) -> Ring {
    let ring = prepared(home, far, searches_locally);
    running(ring).await
}

/// Returns a ring whose members all have the same log, and have applied all but its last ten entries.
async fn worked_in(log: &[(u64, u64)], searches_locally: bool) -> Ring {
    let ring = prepared(log, log, searches_locally);
    running(with_applied(ring, log)).await
}

fn with_applied(mut ring: Ring, log: &[(u64, u64)]) -> Ring {
    let last = log.last().map_or(0, |run| run.1);
    let applied = OpId::new(LAST_TERM, last - 10);
    for id in ring.ids() {
        let floor = applied_at(&ring, applied);
        ring.floors.insert(id, floor);
    }
    ring
}

fn applied_at(ring: &Ring, applied: OpId) -> AppliedFloor {
    AppliedFloor {
        last_applied: Some(applied.into()),
        membership: StoredMembership::new(Some(OpId::new(0, 0).into()), membership(ring)),
    }
}

fn prepared(home: &[(u64, u64)], far: &[(u64, u64)], searches_locally: bool) -> Ring {
    let ring = Ring::laid_out(REGIONS, QuorumPolicy::SingleRegionDynamic);
    with_logs(ring, home, far, searches_locally)
}

fn with_logs(
    mut ring: Ring,
    home: &[(u64, u64)],
    far: &[(u64, u64)],
    searches_locally: bool,
) -> Ring {
    ring.searches_locally = searches_locally;
    let vote = Vote::new(LAST_TERM, MemberId(1));
    for (runs, ids) in [(home, HOME), (far, FAR)] {
        let entries = log(&ring, runs);
        for id in ids {
            ring.disks[&MemberId(id)].preload(vote, entries.clone());
        }
    }
    for one in HOME {
        for other in FAR {
            let one_way = ROUND_TRIP / 2;
            ring.board
                .set_distance(MemberId(one), MemberId(other), one_way);
        }
    }
    ring
}

/// Starts all members except the database member of region a, which has crashed.
async fn running(mut ring: Ring) -> Ring {
    for id in 2..=6 {
        ring.start(MemberId(id)).await;
        // The members must not start at the same moment: with a paused clock, they would campaign at the same moment again and again.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ring
}

/// The times of the steps of a failover, since the election of the witness.
#[derive(Debug)]
struct Failover {
    joint: Duration,
    moved: Duration,
    served: Duration,
    /// The most requests with entries that any member of region b got before the joint step was committed.
    requests: u64,
}

impl Failover {
    fn round_trips(&self) -> f64 {
        self.joint.as_secs_f64() / ROUND_TRIP.as_secs_f64()
    }
}

async fn led(member: &Member) -> MemberId {
    leadership_is(member, |now| now.leading_term().is_some()).await;
    member.id()
}

/// The commits that one member has recorded, with their times.
#[derive(Clone, Default)]
struct Marks(Arc<Mutex<Vec<(u64, Duration, u64)>>>);

impl Marks {
    async fn keep(self, ring: Switchboard, of: Member, begun: Instant) {
        let mut committed = of.committed();
        loop {
            let index = committed.borrow_and_update().map_or(0, |mark| mark.index);
            let to = |id| ring.requests(of.id(), MemberId(id));
            let requests = FAR.map(to).into_iter().max().unwrap_or(0);
            self.0
                .lock()
                .unwrap()
                .push((index, begun.elapsed(), requests));
            if committed.changed().await.is_err() {
                return;
            }
        }
    }

    fn of(&self, index: u64) -> (Duration, u64) {
        let marks = self.0.lock().unwrap();
        let mark = marks.iter().find(|mark| mark.0 >= index);
        mark.map(|mark| (mark.1, mark.2)).expect("it is committed")
    }
}

async fn failover(ring: &Ring) -> Failover {
    let witness = tokio::select! {
        witness = led(ring.member(MemberId(2))) => witness,
        witness = led(ring.member(MemberId(3))) => witness,
    };
    let begun = Instant::now();
    let marks = Marks::default();
    let keeping = marks
        .clone()
        .keep(ring.board.clone(), ring.member(witness).clone(), begun);
    let keeping = tokio::spawn(keeping);
    let target = ring.member(MemberId(4));
    leadership_is(target, |now| matches!(now, Leadership::Serving { .. })).await;
    let served = begun.elapsed();
    // The witness receives the last commits after the transfer.
    tokio::time::sleep(ROUND_TRIP * 4).await;
    keeping.abort();
    let entries = ring.disks[&MemberId(4)].all();
    let moves = entries.iter().filter(|entry| {
        entry.log_id.index > 0 && matches!(entry.payload, EntryPayload::Membership(_))
    });
    let moves: Vec<u64> = moves.map(|entry| entry.log_id.index).collect();
    let [joint, moved] = moves[..] else {
        panic!("the quorum moves in two steps: {moves:?}");
    };
    let (joint, requests) = marks.of(joint);
    Failover {
        joint,
        moved: marks.of(moved).0,
        served,
        requests,
    }
}

/// Checks after a failover that no entry of the home region's log is lost, and that all logs are equal.
async fn nothing_is_lost(ring: &mut Ring, home: &[(u64, u64)]) {
    ring.start(MemberId(1)).await;
    let last = ring.commit("after").await;
    ring.committed_everywhere(last).await;
    let before = log(ring, home);
    let logs: Vec<_> = ring.disks.values().map(MemoryDisk::all).collect();
    let longest = logs.iter().max_by_key(|log| log.len()).expect("six logs");
    for found in &logs {
        // Some logs begin later than others.
        assert!(longest.ends_with(found));
    }
    let purged = longest[0].log_id.index as usize;
    assert!(longest.starts_with(&before[purged..]));
}

#[tokio::test(start_paused = true)]
async fn the_joint_step_takes_two_round_trips_however_long_the_log_is() {
    for length in [100, 10_000, 100_000] {
        let home = [(1, length / 2), (LAST_TERM, length)];
        let mut ring = worked_in(&home, true).await;
        let failover = failover(&ring).await;
        assert!(failover.round_trips() < 2.2, "{length}: {failover:?}");
        assert!(failover.requests <= 4, "{length}: {failover:?}");
        nothing_is_lost(&mut ring, &home).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_alone_takes_more_the_longer_the_log_is() {
    let mut before = 2.5;
    for length in [100, 10_000] {
        let home = [(LAST_TERM, length)];
        let ring = worked_in(&home, false).await;
        let failover = failover(&ring).await;
        assert!(failover.round_trips() > before, "{length}: {failover:?}");
        before = failover.round_trips() + 2.0;
    }
}

/// Measures the round trips until a leader's first commit. Each commit needs both regions, so the leader must only search before it.
async fn first_commit(log: &[(u64, u64)], searches_locally: bool) -> f64 {
    let regions = ["a", "b"].map(|name| Region(name.to_owned()));
    let ring = Ring::laid_out(REGIONS, QuorumPolicy::Regions(regions.into()));
    let ring = with_logs(ring, log, log, searches_locally);
    let ring = running(with_applied(ring, log)).await;
    loop {
        let leading = ring.members.values().map(|member| Box::pin(led(member)));
        let (leader, ..) = futures::future::select_all(leading).await;
        let begun = Instant::now();
        let outcome =
            |now: &Leadership| now.serving_term().is_some() || now.leading_term().is_none();
        let now = leadership_is(ring.member(leader), outcome).await;
        // Members that start at about the same time may elect several leaders one after another.
        if now.serving_term().is_some() {
            return begun.elapsed().as_secs_f64() / ROUND_TRIP.as_secs_f64();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_over_two_regions_commits_after_one_round_trip() {
    for length in [100, 10_000] {
        let log = [(LAST_TERM, length)];
        let round_trips = first_commit(&log, true).await;
        assert!(round_trips < 1.1, "{length}: {round_trips}");
        let alone = first_commit(&log, false).await;
        assert!(alone > 2.9, "{length}: {alone}");
    }
}

#[tokio::test(start_paused = true)]
async fn lagging_or_diverged_members_cost_no_more() {
    let home = [(1, 2_000), (LAST_TERM, 5_000)];
    let cases: [(&str, &[(u64, u64)]); 4] = [
        ("200 entries behind", &[(1, 2_000), (LAST_TERM, 4_800)]),
        ("a whole term less", &[(1, 1_900)]),
        ("a tail of their own", &[(1, 1_950), (2, 2_150)]),
        ("a longer one", &[(1, 1_990), (2, 6_000)]),
    ];
    for (what, far) in cases {
        let mut ring = ring(&home, far, true).await;
        let failover = failover(&ring).await;
        assert!(failover.round_trips() < 2.2, "{what}: {failover:?}");
        nothing_is_lost(&mut ring, &home).await;
    }
}

#[tokio::test(start_paused = true)]
async fn purged_logs_are_searched_too() {
    let home = [(1, 2_000), (LAST_TERM, 5_000)];
    // The last purged entry in region a, that in region b, and the last matching entry.
    for (own, theirs, upto) in [(3_000, 0, 5_000), (0, 3_000, 4_990), (4_500, 4_500, 4_600)] {
        let far = [(1, 2_000), (LAST_TERM, upto)];
        let mut ring = prepared(&home, &far, true);
        for (ids, purged) in [(HOME, own), (FAR, theirs)] {
            for id in ids.map(MemberId).iter().filter(|_| purged > 0) {
                let purged: LogId = OpId::new(LAST_TERM, purged).into();
                let floor = applied_at(&ring, purged.into());
                ring.disks[id].purge_upto(purged, floor.membership.clone());
                ring.floors.insert(*id, floor);
            }
        }
        let mut ring = running(ring).await;
        let failover = failover(&ring).await;
        assert!(
            failover.round_trips() < 2.2,
            "{own} {theirs} {upto}: {failover:?}"
        );
        nothing_is_lost(&mut ring, &home).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_purged_during_the_search_is_found_all_the_same() {
    let home = [(1, 2_000), (LAST_TERM, 5_000)];
    let far = [(1, 2_000), (LAST_TERM, 4_999)];
    let mut ring = ring(&home, &far, true).await;
    let witnesses = [2, 3].map(|id| ring.member(MemberId(id)).clone());
    let purging = tokio::spawn(async move {
        let [one, other] = &witnesses;
        let leader = tokio::select! {
            _ = led(one) => one,
            _ = led(other) => other,
        };
        // Each millisecond, 100 more entries are purged, while the search requests are in flight.
        let mut purged = 0;
        for upto in (1_000..4_990).step_by(100) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            purged = purged.max(upto);
            leader
                .purge(OpId::new(if upto > 2_000 { LAST_TERM } else { 1 }, upto))
                .await
                .ok();
        }
        leader.status().purged
    });
    let failover = failover(&ring).await;
    assert!(purging.await.unwrap().is_some(), "something was purged");
    assert!(failover.round_trips() < 2.2, "{failover:?}");
    nothing_is_lost(&mut ring, &home).await;
}

/// Prints the table of `docs/performance.md`. It is measured in real time, which includes the time for computing.
#[tokio::test]
#[ignore = "a measurement: run it alone, with --ignored --nocapture"]
async fn measured_failover_across_regions() {
    println!("| entries | search | joint ms [range] | moved ms | first leader there serves ms |");
    for length in [1_000, 100_000] {
        for searches_locally in [false, true] {
            let home = [(LAST_TERM, length)];
            let mut runs = Vec::new();
            for _ in 0..5 {
                let mut ring = worked_in(&home, searches_locally).await;
                runs.push(failover(&ring).await);
                nothing_is_lost(&mut ring, &home).await;
            }
            let column = |of: fn(&Failover) -> Duration| {
                let mut column: Vec<_> = runs.iter().map(|run| of(run).as_millis()).collect();
                column.sort_unstable();
                let median = nearest_rank(&column, 50).expect("five runs");
                (median, column[0], column[4])
            };
            let (joint, least, most) = column(|run| run.joint);
            let (moved, ..) = column(|run| run.moved);
            let (served, ..) = column(|run| run.served);
            let search = if searches_locally { "here" } else { "engine" };
            println!("| {length} | {search} | {joint} [{least} to {most}] | {moved} | {served} |");
        }
    }
}
