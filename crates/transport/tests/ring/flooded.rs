//! Silent callers do not block others: members keep their connections, and callers with a certificate are accepted.

use std::net::SocketAddr;
use std::time::Duration;

use raft_types::MemberId;
use raft_types::MemberKind::Database;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use transport::{AdminClient, TlsMaterial};

use crate::support::certificates::Authority;
use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction};

/// Number of silent connections, more than a port accepts.
const FLOOD: usize = 600;

async fn flood(port: SocketAddr) -> Vec<TcpStream> {
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        flood.push(socket.connect(port).await.unwrap());
    }
    flood
}

/// Returns the number of closed connections.
async fn closed(flood: &mut [TcpStream]) -> usize {
    let mut closed = 0;
    for stream in flood {
        // Reads the server's first bytes, and then the end of the connection.
        let mut all = Vec::new();
        let end = stream.read_to_end(&mut all);
        closed += usize::from(timeout(Duration::from_millis(10), end).await.is_ok());
    }
    closed
}

async fn a_ring_goes_on(tls: Option<TlsMaterial>) {
    let ring = GrpcRing::with(&[Database; 3], TIMERS, tls.clone()).await;
    let first = ring.commit(transaction("one")).await;
    ring.committed_everywhere(first).await;
    let (leader, term) = ring.serving().await;
    let follower = ring.nodes.keys().find(|id| **id != leader).unwrap();
    for flooded in [leader, *follower] {
        let address: SocketAddr = ring.records[&flooded].address.parse().unwrap();
        let mut flood = flood(address).await;
        // A caller with a new connection does not wait for the silent callers.
        let client = AdminClient::new(&address.to_string(), tls.as_ref(), ring.config).unwrap();
        client.status().await.unwrap();
        assert!(closed(&mut flood).await >= FLOOD - 512);
        let last = ring.commit(transaction("more")).await;
        ring.committed_everywhere(last).await;
    }
    assert_eq!(
        ring.serving().await,
        (leader, term),
        "no member was elected"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_silent_callers_replaces_only_itself() {
    let authority = Authority::new();
    let member = authority.sign("member", &["127.0.0.1"]);
    a_ring_goes_on(Some(TlsMaterial::load(&member).unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_without_tls() {
    a_ring_goes_on(None).await;
}

/// A member without a connection can connect during a flood, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_joins_its_ring_during_a_flood() {
    let authority = Authority::new();
    let tls = TlsMaterial::load(&authority.sign("member", &["127.0.0.1"])).unwrap();
    let mut ring = GrpcRing::with(&[Database; 3], TIMERS, Some(tls)).await;
    let (leader, _) = ring.serving().await;
    let other = MemberId(if leader == MemberId(3) { 2 } else { 3 });
    let disk = ring.stop(other).await;
    let address = ring.records[&leader].address.parse().unwrap();
    let _flood = flood(address).await;
    ring.restart(other, disk).await;
    let last = ring.commit(transaction("one")).await;
    ring.committed_everywhere(last).await;
}
