//! An unreachable member is retried after a pause, not in a busy loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use raft_types::{MemberId, MemberKind};
use tokio::net::TcpListener;

use crate::support::grpc_ring::GrpcRing;

/// Maximum number of attempts per second. Each of ten heartbeats makes one attempt, and the stream of entries retries after pauses of at
/// least 50 ms. Without the pause, there were thousands of attempts.
const MOST_PER_SECOND: usize = 250;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_cannot_be_reached_is_called_with_pauses() {
    let kinds = [
        MemberKind::Database,
        MemberKind::Witness,
        MemberKind::Witness,
    ];
    let mut ring = GrpcRing::of(&kinds).await;
    ring.serving().await;
    ring.stop(MemberId(3)).await;
    let address = &ring.records[&MemberId(3)].address;
    let listener = TcpListener::bind(address).await.unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let door = tokio::spawn(async move {
        // Each connection is accepted and closed immediately.
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    door.abort();
    let calls = calls.load(Ordering::Relaxed);
    println!("{calls} calls in two seconds");
    assert!(calls > 0, "the leader must continue to try");
    assert!(calls < 2 * MOST_PER_SECOND, "{calls} calls in two seconds");
}
