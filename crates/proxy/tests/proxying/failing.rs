//! A failing proxy is no longer used in time, and is used again later after each failure.

use std::time::Duration;

use openraft::raft::StreamAppendError;
use proxy::{ProxyAnswer, ProxyMode, ProxyOptions};
use raft_types::{LogId, MemberId, OpId, Vote};
use tokio::time::{Instant, sleep};

use crate::support::lines::Behaviour;
use crate::support::ring::{Ring, TERM, vote};

const PROXY: MemberId = MemberId(2);

/// Returns a ring in which all witnesses use the same proxy, and no other member can replace it. With the mode `region`, another member
/// would.
async fn ring_with_proxy(witnesses: u64) -> Ring {
    let edges = (3..3 + witnesses).map(|witness| (format!("m{witness}"), "m2".to_owned()));
    let options = ProxyOptions {
        mode: ProxyMode::Edges(edges.collect()),
        ..ProxyOptions::default()
    };
    let mut ring = Ring::with(options, witnesses);
    ring.log(1).push(TERM, 5);
    ring.bring_up(2).await;
    ring
}

/// Returns the longest time without new entries for a member. A periodic check may detect an event one interval later, and a call takes 10
/// ms at most.
fn in_time() -> Duration {
    let silence = ProxyOptions::default().silence();
    silence + silence / 8 + Duration::from_millis(10)
}

fn answered(index: u64) -> ProxyAnswer {
    let matching: LogId = OpId::new(TERM, index).into();
    ProxyAnswer::Answered(consensus::log_probe::Answered {
        result: Ok(Some(matching)),
        report: None,
    })
}

fn rejected(error: StreamAppendError<raft_types::TypeConfig>) -> ProxyAnswer {
    ProxyAnswer::Answered(consensus::log_probe::Answered {
        result: Err(error),
        report: None,
    })
}

/// Puts load on the proxy, which begins to behave as given. Returns how long the witness receives nothing.
async fn without_entries(behaviour: Behaviour) -> (Ring, Duration) {
    let mut ring = ring_with_proxy(1).await;
    let (_proxy, _witness) = (ring.replicate(2).await, ring.replicate(3).await);
    ring.log(3).reaches(5).await;
    ring.log(1).push(TERM, 1);
    ring.log(3).reaches(6).await;
    assert_eq!(ring.route(3), [2]);
    ring.lines.set(PROXY, behaviour);
    ring.log(1).push(TERM, 1);
    let begun = Instant::now();
    ring.log(3).reaches(7).await;
    assert_eq!(ring.log(3).all(), ring.log(1).all());
    (ring, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_dead_proxy_is_left_immediately() {
    let (ring, lasted) = without_entries(Behaviour::Dead).await;
    assert!(lasted < Duration::from_millis(50), "{lasted:?}");
    assert_eq!(ring.fallbacks(), [(2, "unreachable", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_proxy_that_is_silent_is_left_in_time() {
    let (ring, lasted) = without_entries(Behaviour::Silent).await;
    assert!(lasted <= in_time(), "{lasted:?}");
    assert_eq!(ring.fallbacks(), [(2, "silent", 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_proxy_is_left_in_time() {
    let mut ring = ring_with_proxy(1).await;
    ring.lines.set(PROXY, Behaviour::Hangs);
    let begun = Instant::now();
    let _witness = ring.replicate(3).await;
    ring.log(3).reaches(5).await;
    assert!(begun.elapsed() <= in_time(), "{:?}", begun.elapsed());
    assert_eq!(ring.fallbacks(), [(2, "silent", 1)]);
}

#[tokio::test(start_paused = true)]
async fn impossible_answers_of_a_proxy_are_rejected() {
    let lies = [
        // These answers are for entries that were not sent, and for an entry of another term.
        answered(99),
        ProxyAnswer::Answered(consensus::log_probe::Answered {
            result: Ok(Some(OpId::new(TERM - 1, 3).into())),
            report: None,
        }),
        rejected(StreamAppendError::Conflict(OpId::new(TERM, 99).into())),
        // The first of these is the leader's own vote, the second is an earlier vote.
        rejected(StreamAppendError::HigherVote(vote())),
        rejected(StreamAppendError::HigherVote(Vote::new_committed(
            TERM - 1,
            PROXY,
        ))),
    ];
    for lie in lies {
        let words = format!("{lie:?}");
        let mut ring = ring_with_proxy(1).await;
        ring.lines.set(PROXY, Behaviour::Lies(vec![lie]));
        let mut stream = ring.stream(3).await;
        stream.send(0..5);
        let over = stream.answer().await.unwrap().unwrap_err();
        assert!(
            over.to_string().contains("without a request"),
            "{words}: {over}"
        );
        assert_eq!(ring.fallbacks(), [(2, "nonsense", 1)], "{words}");
        stream.open_another().await;
        stream.send(0..5);
        assert_eq!(stream.matching().await, Some(4));
        assert_eq!(ring.log(3).all(), ring.log(1).all());
    }
}

#[tokio::test(start_paused = true)]
async fn signs_of_life_without_answers_are_tolerated_for_a_while() {
    let mut ring = ring_with_proxy(2).await;
    ring.members.deafen(MemberId(3));
    let mut stream = ring.stream(3).await;
    let begun = Instant::now();
    stream.send(0..5);
    let over = stream.answer().await.unwrap().unwrap_err();
    assert!(over.to_string().contains("are not answered"), "{over}");
    let wait = ring.options.wait;
    assert!(begun.elapsed() >= wait * 6 && begun.elapsed() < wait * 7);
    // The other members still use the proxy.
    let mut other = ring.stream(4).await;
    other.send(0..5);
    assert_eq!(other.matching().await, Some(4));
    assert_eq!(ring.route(4), [2]);
}

#[tokio::test(start_paused = true)]
async fn each_failure_delays_the_return_of_a_proxy() {
    let mut ring = ring_with_proxy(1).await;
    let (_proxy, _witness) = (ring.replicate(2).await, ring.replicate(3).await);
    ring.log(3).reaches(5).await;
    let mut away = Vec::new();
    for _ in 0..4 {
        ring.lines.set(PROXY, Behaviour::Dead);
        let begun = Instant::now();
        ring.log(1).push(TERM, 1);
        ring.log(3).reaches(ring.log(1).next_index()).await;
        assert_eq!(ring.route(3), [] as [u64; 0]);
        ring.lines.set(PROXY, Behaviour::Serves);
        let sessions = ring.lines.sessions(PROXY);
        while ring.lines.sessions(PROXY) == sessions {
            sleep(Duration::from_millis(50)).await;
            ring.log(1).push(TERM, 1);
        }
        away.push(begun.elapsed().as_secs_f64().round());
        ring.log(3).reaches(ring.log(1).next_index()).await;
        assert_eq!(ring.route(3), [2]);
    }
    assert_eq!(away, [1.0, 2.0, 4.0, 8.0]);
}

#[tokio::test(start_paused = true)]
async fn all_members_leave_a_failed_proxy_and_its_failure_counts_once() {
    let mut ring = ring_with_proxy(4).await;
    let mut running = vec![ring.replicate(2).await];
    for witness in 3..=6 {
        running.push(ring.replicate(witness).await);
        ring.log(witness).reaches(5).await;
    }
    ring.lines.set(PROXY, Behaviour::Dead);
    let begun = Instant::now();
    ring.log(1).push(TERM, 1);
    for witness in 3..=6 {
        ring.log(witness).reaches(6).await;
    }
    assert!(begun.elapsed() < Duration::from_millis(50));
    ring.lines.set(PROXY, Behaviour::Serves);
    sleep(Duration::from_millis(1200)).await;
    ring.log(1).push(TERM, 1);
    for witness in 3..=6 {
        ring.log(witness).reaches(7).await;
        assert_eq!(ring.route(witness), [2], "member {witness}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_stream_leaves_a_proxy_that_failed_for_another_member() {
    let mut ring = ring_with_proxy(2).await;
    let mut waiting = ring.stream(4).await;
    waiting.send(0..5);
    assert_eq!(waiting.matching().await, Some(4));
    ring.lines.set(PROXY, Behaviour::Silent);
    let mut failing = ring.stream(3).await;
    failing.send(0..5);
    failing.answer().await.unwrap().unwrap_err();
    // No answer was due on this stream. So it ends without an error, and the engine opens another one.
    assert!(waiting.answer().await.is_none());
    assert_eq!(ring.fallbacks(), [(2, "silent", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_new_leadership_clears_penalties() {
    let mut ring = ring_with_proxy(1).await;
    ring.lines.set(PROXY, Behaviour::Dead);
    let mut stream = ring.stream(3).await;
    stream.send(0..5);
    stream.answer().await.unwrap().unwrap_err();
    ring.lines.set(PROXY, Behaviour::Serves);
    ring.bring_up(2).await;
    let mut stream = ring.stream(3).await;
    stream.send(0..5);
    assert_eq!(stream.matching().await, Some(4));
    assert_eq!(ring.route(3), [2]);
}
