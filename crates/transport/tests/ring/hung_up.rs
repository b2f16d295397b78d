//! With real connections: a leader whose process exits closes its connections, and is replaced before its lease ends. A leader whose
//! connections only break stays.

use std::time::{Duration, Instant};

use consensus::Timers;
use raft_types::MemberKind::{Database, Witness};
use transport::TlsMaterial;

use crate::support::certificates::Authority;
use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction};

/// With these timers, no member campaigns because of missing heartbeats during the first test.
const SLOW: Timers = Timers::from_heartbeat(Duration::from_secs(10));

/// Much shorter than a lease. A stopping server waits two seconds for running calls.
const AT_ONCE: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_detect_an_exited_leader_immediately() {
    let authority = Authority::new();
    let secured = TlsMaterial::load(&authority.sign("member", &["127.0.0.1"])).unwrap();
    for tls in [None, Some(secured)] {
        let mut ring = GrpcRing::with(&[Database, Database, Witness], SLOW, tls).await;
        let first = ring.commit(transaction("before")).await;
        ring.committed_everywhere(first).await;
        let (leader, term) = ring.serving().await;
        let gone = Instant::now();
        let disk = ring.stop(leader).await;
        let (_, next) = ring.serving().await;
        let took = gone.elapsed();
        assert!(took < AT_ONCE && next > term, "{took:?}");
        ring.restart(leader, disk).await;
        let last = ring.commit(transaction("later")).await;
        ring.committed_everywhere(last).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_loses_its_connections_stays_the_leader() {
    let (ring, wires) = GrpcRing::behind_wires(&[Database; 3], TIMERS).await;
    let first = ring.commit(transaction("before")).await;
    ring.committed_everywhere(first).await;
    let (leader, term) = ring.serving().await;
    for _ in 0..5 {
        wires.values().for_each(|wire| wire.cut());
        tokio::time::sleep(Duration::from_millis(5)).await;
        wires.values().for_each(|wire| wire.repair());
        let last = ring.commit(transaction("on")).await;
        ring.committed_everywhere(last).await;
        tokio::time::sleep(TIMERS.lease / 2).await;
        assert_eq!(ring.serving().await, (leader, term));
    }
}
