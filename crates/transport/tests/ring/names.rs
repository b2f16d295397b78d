//! Members call each other by name.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use raft_types::{MemberId, MemberKind};
use sockets::Names;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::support::grpc_ring::{GrpcRing, transaction, within};
use crate::support::memory_log::MemoryDisk;

const KINDS: [MemberKind; 3] = [
    MemberKind::Database,
    MemberKind::Witness,
    MemberKind::Witness,
];

/// Time of a lookup, longer than opening a connection or any call may take. It models glibc's wait for a dead name server.
const LOOKUP: Duration = Duration::from_millis(1500);

/// Regression: if the first name server was dead, a restarted member could call no other member, and a restarted ring had no leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_connect_while_the_name_server_is_down() {
    let names = || {
        Names::by(|_| {
            sleep(LOOKUP);
            Ok(vec![[127, 0, 0, 1].into()])
        })
    };
    let mut ring = GrpcRing::named(&KINDS, |id| format!("member-{id}.test"), names).await;
    assert!(ring.config.connect_deadline < LOOKUP && ring.config.call_deadline < LOOKUP);
    let last = ring.commit(transaction("before")).await;
    ring.committed_everywhere(last).await;
    let (leader, _) = ring.serving().await;
    // The next leader has been restarted, so it has no cached addresses.
    let disk = ring.stop(leader).await;
    restart(&mut ring, leader, disk).await;
    ring.serving().await;
    for id in [1, 2, 3]
        .map(MemberId)
        .into_iter()
        .filter(|id| *id != leader)
    {
        let disk = ring.stop(id).await;
        restart(&mut ring, id, disk).await;
    }
    let last = ring.commit(transaction("after it")).await;
    ring.committed_everywhere(last).await;
}

/// At the name's first address, another member accepts the connection and refuses every call.
#[tokio::test]
async fn a_name_of_another_member_is_looked_up_again() {
    static THIRD: Mutex<IpAddr> = Mutex::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    let names = || {
        Names::by(|host| {
            Ok(vec![match host {
                "member-3.test" => *THIRD.lock().unwrap(),
                _ => [127, 0, 0, 1].into(),
            }])
        })
    };
    let ring = GrpcRing::named(&KINDS, |id| format!("member-{id}.test"), names).await;
    // At the first address, the third member's port leads to the second member.
    let at = |id| port(&ring, MemberId(id));
    let front = TcpListener::bind(("127.0.0.2", at(3))).await.unwrap();
    let second = ("127.0.0.1", at(2));
    tokio::spawn(async move {
        while let Ok((mut caller, _)) = front.accept().await {
            let mut member = TcpStream::connect(second).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut caller, &mut member).await });
        }
    });
    let refused = async {
        loop {
            let troubles = ring.nodes[&MemberId(1)].factory.troubles();
            if troubles
                .get(&MemberId(3))
                .is_some_and(|trouble| trouble.refusal.is_some())
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("a refusal", refused).await;
    *THIRD.lock().unwrap() = [127, 0, 0, 1].into();
    let last = ring.commit(transaction("to all")).await;
    ring.committed_everywhere(last).await;
}

fn port(ring: &GrpcRing, id: MemberId) -> u16 {
    let (_, port) = ring.records[&id].address.rsplit_once(':').unwrap();
    port.parse().unwrap()
}

async fn restart(ring: &mut GrpcRing, id: MemberId, disk: MemoryDisk) {
    let listener = TcpListener::bind(("127.0.0.1", port(ring, id))).await;
    ring.start(id, listener.unwrap(), disk).await;
}
