//! Requests that a proxy refuses to forward, for every caller.

use futures::{StreamExt, stream};
use proxy::{ProxyAnswer, ProxyOptions, ProxyRequest};
use raft_types::{MemberId, TermRun};

use crate::support::ring::{Ring, TERM, vote};
use crate::support::sending::request;

/// Returns why the proxy refuses to forward this request to these members. The refusal must be its only answer.
async fn refusal(ring: &Ring, onward: &[u64], request: ProxyRequest) -> String {
    let relay = ring.lines.relay(MemberId(2));
    let onward = onward.iter().copied().map(MemberId).collect();
    let requests = stream::iter([request]).chain(stream::pending());
    let answers: Vec<_> = relay.serve(onward, requests.boxed()).collect().await;
    assert_eq!(ring.relayed(2).refused, 1);
    assert!(ring.members.received(MemberId(3)).is_empty());
    match answers.as_slice() {
        [ProxyAnswer::Refused(why)] => why.clone(),
        other => panic!("{other:?}"),
    }
}

fn whole(ring: &Ring) -> ProxyRequest {
    ProxyRequest::from(&request(&ring.log(1), 0..5))
}

#[tokio::test(start_paused = true)]
async fn routes_without_a_target() {
    for (onward, expected) in [
        (&[][..], "no member is named to forward to"),
        (&[2], "the route leads back to member 2"),
        (&[3, 2, 4], "the route leads back to member 2"),
        (&[9], "member 9 is not in this member's ring"),
    ] {
        let ring = Ring::with_proxy(1, 5).await;
        let why = refusal(&ring, onward, whole(&ring)).await;
        assert_eq!(why, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn routes_above_the_limit() {
    let options = ProxyOptions {
        max_hops: 2,
        ..ProxyOptions::default()
    };
    let ring = Ring::with(options, 3);
    let why = refusal(&ring, &[3, 4, 5], whole(&ring)).await;
    assert_eq!(why, "3 more hops are asked for, and 2 are allowed");
}

#[tokio::test(start_paused = true)]
async fn requests_with_gaps() {
    let run = |term, first, last| TermRun { term, first, last };
    for entries in [
        vec![run(TERM, 1, 4)],
        vec![run(TERM, 0, 1), run(TERM, 3, 4)],
        vec![run(TERM, 0, 1), run(5, 2, 4)],
        vec![run(TERM, 0, u64::MAX)],
    ] {
        let ring = Ring::with_proxy(1, 5).await;
        let torn = ProxyRequest {
            vote: vote(),
            previous: None,
            leader_commit: None,
            entries,
            wants_report: false,
        };
        let why = refusal(&ring, &[3], torn).await;
        assert_eq!(why, "the entries of a request do not follow each other");
    }
}
