//! Routes through more than one proxy.

use proxy::{ProxyMode, ProxyOptions};
use raft_types::MemberId;

use crate::support::lines::Behaviour;
use crate::support::ring::{Ring, TERM};

/// Entries are sent from the leader to 2, then to 3, then to 4. Members 2 and 3 have some of them already.
async fn chain() -> Ring {
    let edges = [("m3", "m2"), ("m4", "m3")];
    let edges = edges.map(|(to, from)| (to.to_owned(), from.to_owned()));
    let options = ProxyOptions {
        mode: ProxyMode::Edges(edges.into()),
        ..ProxyOptions::default()
    };
    let mut ring = Ring::with(options, 2);
    ring.log(1).push(TERM, 5);
    ring.bring_up(2).await;
    ring.bring_up(3).await;
    ring
}

#[tokio::test(start_paused = true)]
async fn entries_arrive_over_two_proxies() {
    let mut ring = chain().await;
    let reconstitute = |ring: &Ring| [2, 3].map(|id| ring.relayed(id).entries);
    let [before, _] = reconstitute(&ring);
    let mut stream = ring.stream(4).await;
    stream.send(0..2);
    stream.send(2..5);
    assert_eq!(stream.matching().await, Some(1));
    assert_eq!(stream.matching().await, Some(4));
    assert_eq!(ring.route(4), [2, 3]);
    assert_eq!(ring.log(4).all(), ring.log(1).all());
    let received = ring.members.received(MemberId(4));
    assert!(received.iter().all(|request| request.from == MemberId(3)));
    assert_eq!(
        reconstitute(&ring),
        [before, 5],
        "the last one restores the payloads"
    );
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_its_predecessor_cannot_call_is_skipped() {
    let mut ring = chain().await;
    ring.lines.set(MemberId(3), Behaviour::Dead);
    let mut stream = ring.stream(4).await;
    stream.send(0..5);
    // Then the leader tries to call member 3 itself, which fails too.
    for expected in ["cannot call member 3", "cannot be reached"] {
        let over = stream.answer().await.unwrap().unwrap_err();
        assert!(over.to_string().contains(expected), "{over}");
        stream.open_another().await;
        stream.send(0..5);
    }
    assert_eq!(stream.matching().await, Some(4));
    assert_eq!(ring.route(4), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_its_proxy_cannot_call_is_called_by_the_previous_proxy() {
    let mut ring = chain().await;
    ring.members.cut(MemberId(3), MemberId(4));
    let mut stream = ring.stream(4).await;
    stream.send(0..5);
    let over = stream.answer().await.unwrap().unwrap_err();
    assert!(over.to_string().contains("cannot call member 4"), "{over}");
    stream.open_another().await;
    stream.send(0..5);
    assert_eq!(stream.matching().await, Some(4));
    assert_eq!(ring.route(4), [2]);
    assert_eq!(ring.relayed(3).cannot_call, 1);
}

#[tokio::test(start_paused = true)]
async fn missing_entries_of_the_last_proxy_come_from_the_previous_one() {
    let mut ring = chain().await;
    ring.log(1).push(TERM, 1);
    ring.bring_up(2).await;
    let mut stream = ring.stream(4).await;
    stream.send(0..6);
    assert_eq!(stream.matching().await, Some(4));
    assert_eq!(stream.matching().await, Some(4));
    let over = stream.answer().await.unwrap().unwrap_err();
    assert!(over.to_string().contains("entry 7.5"), "{over}");
    stream.open_another().await;
    stream.send(5..6);
    assert_eq!(stream.matching().await, Some(5));
    assert_eq!(ring.route(4), [2]);
}

#[tokio::test(start_paused = true)]
async fn no_member_of_a_silent_chain_is_used() {
    let mut ring = chain().await;
    ring.lines.set(MemberId(3), Behaviour::Silent);
    let mut stream = ring.stream(4).await;
    stream.send(0..5);
    stream.answer().await.unwrap().unwrap_err();
    stream.open_another().await;
    stream.send(0..5);
    assert_eq!(stream.matching().await, Some(4));
    assert_eq!(ring.route(4), [] as [u64; 0]);
}
