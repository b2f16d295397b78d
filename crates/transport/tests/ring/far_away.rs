//! Entries for another region use several connections, or one connection if the member's program does not support several.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use raft_types::MemberId;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server, server::TcpIncoming};
use tonic::{Code, Status};

use crate::support::grpc_ring::{GrpcRing, listener, transaction, within};
use crate::support::memory_log::MemoryDisk;
use crate::support::wire::Wire;

const ENTRY_BYTES: usize = 512 << 10;
const ENTRIES: u64 = 40;
/// Bytes per second of each connection. The data in flight then takes longer than the deadline of a ping.
const SLOW: u64 = 1 << 20;

/// Starts a ring with a relay in front of its far member.
async fn behind_a_wire() -> (GrpcRing, MemberId, Wire) {
    let mut wires = Vec::new();
    let (ring, far) = GrpcRing::one_far_away(async |address| {
        let (wire, front) = Wire::to(address).await;
        wires.push(wire);
        front
    })
    .await;
    (ring, far, wires.remove(0))
}

/// Proposes entries. The far member receives them as fast as its connections allow.
async fn write(ring: &GrpcRing) {
    for number in 0..ENTRIES {
        let bytes = vec![number as u8; ENTRY_BYTES];
        ring.commit(transaction(bytes)).await;
    }
}

async fn all_is_there(ring: &GrpcRing, far: MemberId) {
    let last = ring.commit(transaction("last")).await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    let (theirs, ours) = (&ring.nodes[&far].disk, &ring.nodes[&leader].disk);
    assert!(
        theirs.all() == ours.all(),
        "the log of the far member differs"
    );
}

async fn has_entries(disk: &MemoryDisk, count: u64) {
    within("entries at the far member", async {
        while (disk.transactions().len() as u64) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_connections_stay_open_and_several_are_faster() {
    let (ring, far, wire) = behind_a_wire().await;
    let leads = ring.serving().await;
    wire.slow_down(SLOW);
    // Bytes carried, by the number of the connection.
    let carried = || -> BTreeMap<u64, u64> {
        let carried = (0..).zip(wire.carried());
        carried.filter(|(_, bytes)| *bytes > SLOW).collect()
    };
    write(&ring).await;
    all_is_there(&ring, far).await;
    if carried().len() < 6 {
        // On a busy machine, some connections opened only after all data had arrived. By now all are open.
        write(&ring).await;
        all_is_there(&ring, far).await;
    }
    assert_eq!(ring.serving().await, leads, "the leader did not change");
    let (carried, open) = (carried(), wire.open());
    assert!(
        carried.len() == 6 && carried.keys().all(|connection| open.contains(connection)),
        "connections that carried entries: {carried:?}; open are {open:?}"
    );
    // Each of the two other members keeps one connection, and the follower has one more for its greetings. Five more are for entries; a
    // leader opens them twice at its start.
    let made = wire.connections();
    assert!(made <= 13, "connections were given up: {made} were made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_loses_no_entries() {
    let (ring, far, wire) = behind_a_wire().await;
    wire.slow_down(4 * SLOW);
    write(&ring).await;
    let disk = &ring.nodes[&far].disk;
    for upto in [4, 12, 20] {
        has_entries(disk, upto).await;
        wire.cut();
        tokio::time::sleep(Duration::from_millis(200)).await;
        wire.repair();
    }
    all_is_there(&ring, far).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_leader_closes_its_connections_for_entries() {
    let (ring, far, wire) = behind_a_wire().await;
    let (leader, _) = ring.serving().await;
    within("the leader's connections", async {
        while wire.open().len() < 7 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let of_the_leader = wire.open();
    let mut members = ring.records.keys().copied();
    let next = members.find(|id| ![leader, far].contains(id)).unwrap();
    ring.transfer(leader, next).await;
    all_is_there(&ring, far).await;
    within("an end of those for entries", async {
        // The two connections that every pair of members keeps stay open.
        while wire.open().intersection(&of_the_leader).count() > 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A relay that makes a member look like an older version, which does not support streams over several connections.
#[derive(Clone)]
struct Older {
    member: Channel,
    refused: Arc<AtomicUsize>,
}

impl NamedService for Older {
    const NAME: &'static str = "witness.ring.v1.Raft";
}

impl Service<http::Request<Body>> for Older {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut this = self.clone();
        async move {
            if request.uri().path().contains("/AppendStripe") {
                this.refused.fetch_add(1, Relaxed);
                return Ok(Status::new(Code::Unimplemented, "").into_http());
            }
            let ready = std::future::poll_fn(|context| this.member.poll_ready(context)).await;
            let answer = match ready {
                Ok(()) => this.member.call(request).await,
                Err(error) => Err(error),
            };
            Ok(answer.unwrap_or_else(|error| Status::unavailable(error.to_string()).into_http()))
        }
        .boxed()
    }
}

/// Serves the relay, and returns its address.
async fn older(member: SocketAddr, refused: Arc<AtomicUsize>) -> SocketAddr {
    let (listener, address): (TcpListener, _) = listener().await;
    let member = Endpoint::from_shared(format!("http://{member}")).unwrap();
    let member = member.connect_lazy();
    let server = Server::builder().add_service(Older { member, refused });
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_an_older_version_gets_one_stream() {
    let refused = Arc::<AtomicUsize>::default();
    let (ring, far) = GrpcRing::one_far_away(|address| older(address, refused.clone())).await;
    write(&ring).await;
    all_is_there(&ring, far).await;
    assert_eq!(refused.load(Relaxed), 1, "asked once");
}
