//! A dropped session ends completely: all code that serves it releases its requests.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use proxy::{ProxyMode, ProxyOptions, ProxyRequest};
use raft_types::MemberId;

use crate::support::ring::{Ring, TERM};
use crate::support::sending::request;

/// Returns a request followed by an endless pause, and a handle that shows whether the stream still exists.
fn endless(request: ProxyRequest) -> (BoxStream<'static, ProxyRequest>, std::sync::Weak<()>) {
    let held = Arc::new(());
    let watched = Arc::downgrade(&held);
    let requests = stream::iter([request]).chain(stream::pending());
    let requests = requests.inspect(move |_| {
        let _held = &held;
    });
    (requests.boxed(), watched)
}

/// Begins a session, drops it later, and waits until all parts of it are released.
async fn ends_whole(ring: &Ring, onward: &[u64], asked: ProxyRequest) {
    let relay = ring.lines.relay(MemberId(2));
    let (requests, watched) = endless(asked);
    let onward = onward.iter().copied().map(MemberId).collect();
    let mut answers = relay.serve(onward, requests);
    let a_while = tokio::time::sleep(Duration::from_millis(100));
    tokio::pin!(a_while);
    loop {
        tokio::select! {
            answer = answers.next() => assert!(answer.is_some(), "it is over already"),
            () = &mut a_while => break,
        }
    }
    assert!(watched.upgrade().is_some(), "it runs");
    drop(answers);
    let gone = async {
        while watched.upgrade().is_some() {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_millis(1), gone).await;
    gone.expect("no task holds it");
}

#[tokio::test(start_paused = true)]
async fn when_everything_is_answered() {
    let ring = Ring::with_proxy(1, 5).await;
    let asked = ProxyRequest::from(&request(&ring.log(1), 0..5));
    ends_whole(&ring, &[3], asked).await;
}

#[tokio::test(start_paused = true)]
async fn while_entries_are_waited_for() {
    let ring = Ring::with_proxy(1, 0).await;
    ring.log(1).push(TERM, 5);
    let asked = ProxyRequest::from(&request(&ring.log(1), 0..5));
    ends_whole(&ring, &[3], asked).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_member_does_not_answer() {
    let ring = Ring::with_proxy(1, 5).await;
    ring.members.deafen(MemberId(3));
    let asked = ProxyRequest::from(&request(&ring.log(1), 0..5));
    ends_whole(&ring, &[3], asked).await;
}

#[tokio::test(start_paused = true)]
async fn over_another_proxy() {
    let options = ProxyOptions {
        mode: ProxyMode::Off,
        ..ProxyOptions::default()
    };
    let ring = Ring::with(options, 2);
    ring.log(1).push(TERM, 5);
    let asked = ProxyRequest::from(&request(&ring.log(1), 0..5));
    ends_whole(&ring, &[3, 4], asked).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_drops_its_stream_ends_the_session() {
    let mut ring = Ring::with_proxy(1, 5).await;
    ring.members.deafen(MemberId(3));
    let stream = ring.stream(3).await;
    stream.send(0..5);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(ring.lines.open_sessions(MemberId(2)), 1);
    drop(stream);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(ring.lines.open_sessions(MemberId(2)), 0);
}
