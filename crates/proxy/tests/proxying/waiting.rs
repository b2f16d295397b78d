//! Entries that a proxy lacks. The proxy waits for entries that may arrive, and immediately reports those that will not.

use std::time::Duration;

use futures::{FutureExt, StreamExt, stream};
use openraft::raft::StreamAppendError;
use proxy::{ProxyAnswer, ProxyOptions, ProxyRequest};
use raft_types::{Entry, MemberId, OpId, REPLICATION_WINDOW_BYTES, Vote};
use tokio::time::Instant;

use crate::support::direct::Received;
use crate::support::log::{entry, sized_entry};
use crate::support::ring::{LEADER, Ring, TERM};
use crate::support::sending::request;

const LARGE: usize = REPLICATION_WINDOW_BYTES;

/// Returns an entry that is large enough for the leader to delay its request.
fn large_entry(index: u64) -> Entry {
    sized_entry(TERM, index, vec![0; LARGE].into())
}

fn indexes(received: &[Received]) -> Vec<Vec<u64>> {
    received.iter().map(Received::indexes).collect()
}

/// Sends concurrent requests to the proxy, and returns its answers as text.
async fn asked_directly(ring: &Ring, requests: Vec<ProxyRequest>) -> Vec<String> {
    let relay = ring.lines.relay(MemberId(2));
    let answers = relay.serve(vec![MemberId(3)], stream::iter(requests).boxed());
    answers.map(|answer| in_words(&answer)).collect().await
}

fn in_words(answer: &ProxyAnswer) -> String {
    match answer {
        ProxyAnswer::Answered(answered) => match &answered.result {
            Ok(Some(matching)) => format!("has {}", OpId::from(*matching)),
            Ok(None) => "has nothing".to_owned(),
            Err(StreamAppendError::Conflict(at)) => format!("conflict at {}", OpId::from(*at)),
            Err(StreamAppendError::HigherVote(vote)) => format!("vote {vote}"),
        },
        ProxyAnswer::SentOn { upto, .. } => format!("sent on up to {upto}"),
        ProxyAnswer::Missing { op_id, purged } => format!("missing {op_id}, purged: {purged}"),
        ProxyAnswer::CannotCall { member, .. } => format!("cannot call {member}"),
        ProxyAnswer::Refused(why) => format!("refused: {why}"),
    }
}

#[tokio::test(start_paused = true)]
async fn entries_in_flight_are_forwarded_as_they_arrive() {
    let mut ring = Ring::with_proxy(1, 3).await;
    let (leader, proxy) = (ring.log(1), ring.log(2));
    leader.push(TERM, 6);
    let mut stream = ring.stream(3).await;
    let begun = Instant::now();
    stream.send(0..9);
    assert_eq!(stream.matching().await, Some(2));
    for count in [1, 3, 2] {
        tokio::time::sleep(Duration::from_millis(100)).await;
        proxy.push(TERM, count);
        assert_eq!(stream.matching().await, Some(proxy.next_index() - 1));
    }
    assert!(begun.elapsed() < ring.options.wait);
    let received = ring.members.received(MemberId(3));
    let pieces = [vec![0, 1, 2], vec![3], vec![4, 5, 6], vec![7, 8]];
    assert_eq!(indexes(&received), pieces);
    assert!(ring.fallbacks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_proxy_sends_signs_of_life() {
    let ring = Ring::with_proxy(1, 3).await;
    ring.log(1).push(TERM, 3);
    let asked = vec![ProxyRequest::from(&request(&ring.log(1), 0..6))];
    assert_eq!(
        asked_directly(&ring, asked).await,
        [
            "has 7.2",
            "sent on up to 2",
            "sent on up to 2",
            "has 7.2",
            "missing 7.3, purged: false"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_cover_the_first_entry_and_a_slow_member() {
    let ring = Ring::with_proxy(1, 0).await;
    ring.log(1).push(TERM, 1);
    ring.members.deafen(MemberId(3));
    let asked = ProxyRequest::from(&request(&ring.log(1), 0..1));
    let relay = ring.lines.relay(MemberId(2));
    let mut answers = relay.serve(
        vec![MemberId(3)],
        stream::iter([asked]).chain(stream::pending()).boxed(),
    );
    let begun = Instant::now();
    // After the wait, the empty request is forwarded, which the member does not answer.
    while begun.elapsed() < ring.options.wait * 4 {
        let said = tokio::time::timeout(ring.options.silence(), answers.next()).await;
        let said = said.expect("a sign of life in time").unwrap();
        assert_eq!(in_words(&said), "sent on up to 0");
    }
}

#[tokio::test(start_paused = true)]
async fn late_entries_are_left_to_the_leader() {
    let mut ring = Ring::with_proxy(1, 3).await;
    ring.log(1).push(TERM, 3);
    let mut stream = ring.stream(3).await;
    stream.send(0..3);
    assert_eq!(stream.matching().await, Some(2));
    let begun = Instant::now();
    stream.send(3..6);
    // The empty request is answered, so the member has received a call of its leader.
    assert_eq!(stream.matching().await, Some(2));
    let over = stream.answer().await.unwrap().unwrap_err();
    assert!(over.to_string().contains("entry 7.3"), "{over}");
    assert!(begun.elapsed() < ring.options.silence());
    assert!(stream.answer().await.is_none());
    let received = ring.members.received(MemberId(3));
    assert_eq!(indexes(&received), [vec![0, 1, 2], vec![]]);
    assert_eq!(ring.fallbacks(), [(2, "lacks_entries", 1)]);

    // The leader itself sends the entries of the engine's next stream.
    stream.open_another().await;
    stream.send(3..6);
    assert_eq!(stream.matching().await, Some(5));
    let received = ring.members.received(MemberId(3));
    assert_eq!(received[0].from, LEADER);
    assert_eq!(ring.route(3), [] as [u64; 0]);
}

#[tokio::test(start_paused = true)]
async fn arriving_parts_extend_the_wait_for_an_entry() {
    let mut ring = Ring::with_proxy(1, 3).await;
    let relay = ring.lines.relay(MemberId(2));
    ring.log(1).push(TERM, 3);
    let mut stream = ring.stream(3).await;
    stream.send(0..3);
    assert_eq!(stream.matching().await, Some(2));
    let begun = Instant::now();
    stream.send(3..5);
    // The wait is longer than a member may leave its proxy's requests unanswered.
    for _ in 0..12 {
        assert!(stream.matching().now_or_never().is_none());
        tokio::time::sleep(ring.options.wait * 4 / 5).await;
        relay.part_arrives();
    }
    assert!(begun.elapsed() > ring.options.wait * 6);
    ring.log(2).push(TERM, 2);
    assert_eq!(stream.matching().await, Some(4));
    assert!(ring.fallbacks().is_empty());

    // The parts of the next entry stop arriving.
    stream.send(5..6);
    tokio::time::sleep(ring.options.wait * 4 / 5).await;
    relay.part_arrives();
    let begun = Instant::now();
    assert_eq!(stream.matching().await, Some(4));
    let over = stream.answer().await.unwrap().unwrap_err();
    assert!(over.to_string().contains("entry 7.5"), "{over}");
    assert!(begun.elapsed() < ring.options.silence() * 2);
    assert_eq!(ring.fallbacks(), [(2, "lacks_entries", 1)]);
}

/// The proxy does not have the entry yet, for example because the leader compresses it for the other region.
#[tokio::test(start_paused = true)]
async fn a_large_entry_is_requested_once_it_was_sent() {
    let mut ring = Ring::with_proxy(1, 3).await;
    let mut stream = ring.stream(3).await;
    stream.send(0..3);
    assert_eq!(stream.matching().await, Some(2));
    ring.log(1).push_entries([large_entry(3)]);
    ring.lines.requests(MemberId(2));
    stream.send(3..4);
    tokio::time::sleep(ring.options.wait * 5).await;
    assert!(ring.lines.requests(MemberId(2)).is_empty());
    ring.log(2).push_entries([large_entry(3)]);
    ring.bring_up(2).await;
    assert_eq!(stream.matching().await, Some(3));
    assert!(ring.fallbacks().is_empty());
    let received = ring.members.received(MemberId(3));
    assert_eq!(received.last().unwrap().from, MemberId(2));

    // The first request of a stream is delayed too.
    ring.log(1).push_entries([large_entry(4)]);
    drop(stream);
    let mut stream = ring.stream(3).await;
    stream.send(4..5);
    tokio::time::sleep(ring.options.wait * 5).await;
    ring.bring_up(2).await;
    assert_eq!(stream.matching().await, Some(4));
    assert!(ring.fallbacks().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_leader_sends_a_large_entry_that_its_proxy_never_gets() {
    let mut ring = Ring::with_proxy(1, 3).await;
    ring.log(1).push_entries([large_entry(3)]);
    let mut stream = ring.stream(3).await;
    let begun = Instant::now();
    stream.send(3..4);
    // The member receives a call of its leader, and answers that it lacks the preceding entry.
    stream.answer().await.unwrap().unwrap();
    let took = begun.elapsed();
    let allowed = ring.options.wait * 6 + Duration::from_secs(LARGE as u64 / (16 << 20));
    assert!(took >= allowed, "{took:?}");
    assert!(took < allowed + ring.options.silence(), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn purged_entries_are_not_waited_for() {
    let ring = Ring::with_proxy(1, 5).await;
    ring.log(2).purge_below(2);
    let begun = Instant::now();
    let asked = vec![ProxyRequest::from(&request(&ring.log(1), 0..5))];
    assert_eq!(
        asked_directly(&ring, asked).await,
        ["has nothing", "missing 7.0, purged: true"]
    );
    assert!(begun.elapsed() < ProxyOptions::default().wait / 10);
}

#[tokio::test(start_paused = true)]
async fn unreadable_entries_are_not_reported_as_purged() {
    let ring = Ring::with_proxy(1, 5).await;
    ring.log(2).becomes_unreadable();
    let begun = Instant::now();
    let asked = vec![ProxyRequest::from(&request(&ring.log(1), 0..5))];
    assert_eq!(
        asked_directly(&ring, asked).await,
        ["has nothing", "missing 7.0, purged: false"]
    );
    assert!(begun.elapsed() < ProxyOptions::default().wait / 10);
}

#[tokio::test(start_paused = true)]
async fn entries_of_another_term_are_not_forwarded() {
    let ring = Ring::with_proxy(1, 0).await;
    // The proxy has entries of an earlier leader. This leader's entries have not arrived there yet.
    ring.log(1)
        .push_entries([entry(5, 0), entry(TERM, 1), entry(TERM, 2)]);
    ring.log(2)
        .push_entries([entry(5, 0), entry(6, 1), entry(6, 2)]);
    let asked = vec![ProxyRequest::from(&request(&ring.log(1), 0..3))];
    let said = asked_directly(&ring, asked).await;
    assert_eq!(said.first().unwrap(), "has 5.0");
    assert_eq!(said.last().unwrap(), "missing 7.1, purged: false");
    assert_eq!(ring.log(3).all(), [entry(5, 0)]);
}

#[tokio::test(start_paused = true)]
async fn entries_that_replace_another_terms_in_time_are_forwarded() {
    let mut ring = Ring::with_proxy(1, 0).await;
    ring.log(1)
        .push_entries([entry(5, 0), entry(TERM, 1), entry(TERM, 2)]);
    ring.log(2)
        .push_entries([entry(5, 0), entry(6, 1), entry(6, 2)]);
    let mut stream = ring.stream(3).await;
    stream.send(0..3);
    assert_eq!(stream.matching().await, Some(0));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let replaced = request(&ring.log(1), 1..3).request;
    ring.log(2).append(&replaced).unwrap();
    assert_eq!(stream.matching().await, Some(2));
    assert_eq!(ring.log(3).all(), ring.log(1).all());
}

#[tokio::test(start_paused = true)]
async fn a_proxy_reports_a_later_leader() {
    let mut ring = Ring::with_proxy(1, 5).await;
    let later = Vote::new_committed(TERM + 1, MemberId(3));
    ring.log(2).set_vote(later);
    let mut stream = ring.stream(3).await;
    stream.send(0..5);
    let answered = stream.answer().await.unwrap().unwrap();
    match answered.result {
        Err(StreamAppendError::HigherVote(vote)) => assert_eq!(vote, later),
        other => panic!("{other:?}"),
    }
    assert!(ring.members.received(MemberId(3)).is_empty());
    assert!(ring.fallbacks().is_empty(), "it is no fault of the proxy's");
}
