//! Entries arrive over a proxy as they would from the leader, and the leader sends only their op ids.

use consensus::log_probe::Lane;
use futures::{StreamExt, stream};
use openraft::network::RPCOption;
use raft_types::{MemberId, OwnLog};

use crate::support::ring::{LEADER, Ring, TERM};
use crate::support::sending::request;

#[tokio::test(start_paused = true)]
async fn entries_arrive_complete_and_in_order() {
    let mut ring = Ring::with_proxy(1, 40).await;
    let (_proxy, _witness) = (ring.replicate(2).await, ring.replicate(3).await);
    ring.log(2).reaches(40).await;
    for _ in 0..60 {
        ring.log(1).push(TERM, 1);
        tokio::task::yield_now().await;
    }
    ring.log(3).reaches(100).await;
    assert_eq!(ring.log(3).all(), ring.log(1).all());
}

#[tokio::test(start_paused = true)]
async fn several_members_share_a_proxy_and_the_leader_sends_only_op_ids() {
    let mut ring = Ring::with_proxy(3, 50).await;
    let mut streams = Vec::new();
    for witness in 3..=5 {
        let mut stream = ring.stream(witness).await;
        stream.send(0..20);
        stream.send(20..50);
        assert_eq!(stream.matching().await, Some(19));
        assert_eq!(stream.matching().await, Some(49));
        streams.push(stream);
    }
    let mut bytes = 0;
    for witness in 3..=5 {
        assert_eq!(ring.log(witness).all(), ring.log(1).all());
        let received = ring.members.received(MemberId(witness));
        assert!(received.iter().all(|request| request.from == MemberId(2)));
        let sent = ring.sent(witness);
        assert_eq!((sent.direct_entries, sent.direct_bytes), (0, 0));
        assert_eq!(sent.proxied_entries, 50);
        bytes += sent.spared_bytes;
    }
    let relayed = ring.relayed(2);
    assert_eq!((relayed.sessions, relayed.entries), (3, 150));
    assert_eq!(relayed.bytes, bytes, "both ends count the same payloads");
    assert_eq!(ring.sent(2).direct_entries, 50);
}

#[tokio::test(start_paused = true)]
async fn the_members_report_is_passed_on() {
    let mut ring = Ring::with_proxy(1, 6).await;
    let mut stream = ring.stream(3).await;
    let mut asked = request(&ring.log(1), 0..4);
    asked.wants_report = true;
    stream.ask(asked);
    stream.send(4..6);
    let first = stream.answer().await.unwrap().unwrap();
    let report = first.report.expect("the report that was asked for");
    assert_eq!(report.runs.last().unwrap().last, 3);
    let second = stream.answer().await.unwrap().unwrap();
    assert_eq!(second.report, None);
    assert_eq!(ring.log(3).report().runs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_members_rejection_is_passed_on() {
    let mut ring = Ring::with_proxy(1, 6).await;
    let mut stream = ring.stream(3).await;
    // The member lacks the entries before these.
    stream.send(4..6);
    let answered = stream.answer().await.unwrap().unwrap();
    let conflict = answered.result.unwrap_err().to_string();
    let expected = openraft::raft::StreamAppendError::<raft_types::TypeConfig>::Conflict(
        ring.log(1).id_at(3).unwrap(),
    );
    assert_eq!(conflict, expected.to_string());
    assert!(ring.fallbacks().is_empty(), "it is no fault of the proxy's");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_entries_takes_the_same_route() {
    let mut ring = Ring::with_proxy(1, 6).await;
    let mut stream = ring.stream(3).await;
    stream.send(0..6);
    stream.send(6..6);
    assert_eq!(stream.matching().await, Some(5));
    assert_eq!(stream.matching().await, Some(5));
    let received = ring.members.received(MemberId(3));
    assert_eq!(received.len(), 2);
    assert_eq!(received[1].from, MemberId(2));
    assert_eq!(
        received[1].asked.request.leader_commit,
        ring.log(1).id_at(5)
    );
}

#[tokio::test(start_paused = true)]
async fn heartbeats_are_never_proxied() {
    let ring = Ring::with_proxy(1, 6).await;
    let heartbeat = request(&ring.log(1), 0..0);
    let mut client = ring.client(Lane::Heartbeats, 3);
    let option = RPCOption::new(std::time::Duration::from_secs(1));
    let answers = client.stream(stream::iter([heartbeat]).boxed(), option);
    let answers: Vec<_> = answers.await.unwrap().collect().await;
    assert!(answers.len() == 1 && answers[0].is_ok(), "{answers:?}");
    let received = ring.members.received(MemberId(3));
    assert_eq!(received[0].from, LEADER);
    assert_eq!(ring.lines.sessions(MemberId(2)), 0);
}
