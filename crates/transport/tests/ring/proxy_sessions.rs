//! Sessions with one proxy share a line, end separately, and restart after the line breaks.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use proxy::{ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest, ProxyService};
use raft_types::MemberKind::Database;
use raft_types::{LogId, MemberId, OpId, Vote};

use crate::support::grpc_ring::{GrpcRing, within};

const CALLER: MemberId = MemberId(1);
const PROXY: MemberId = MemberId(2);

/// A proxy service that returns each request's route and first entry, and never ends a session.
#[derive(Default)]
struct Echo {
    /// Every session holds a reference to this value.
    sessions: Arc<()>,
}

impl Echo {
    fn open_sessions(&self) -> usize {
        Arc::strong_count(&self.sessions) - 1
    }

    async fn has_sessions(&self, count: usize) {
        within("the sessions that are wanted", async {
            while self.open_sessions() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

impl ProxyService for Echo {
    fn part_arrives(&self) {}

    fn serve(
        &self,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxStream<'static, ProxyAnswer> {
        let held = self.sessions.clone();
        let to = onward.first().map_or(0, |member| member.0);
        requests
            .map(move |request| ProxyAnswer::SentOn {
                upto: to * 1000 + request.first_index(),
                moves: false,
            })
            .chain(stream::pending())
            .inspect(move |_| {
                let _held = &held;
            })
            .boxed()
    }
}

fn request(previous: u64) -> ProxyRequest {
    let previous: LogId = OpId::new(3, previous).into();
    ProxyRequest {
        vote: Vote::new_committed(3, CALLER),
        previous: Some(previous),
        leader_commit: None,
        entries: Vec::new(),
        wants_report: false,
    }
}

/// Opens a session with two requests. If `goes_on` is true, more requests may follow.
async fn open(ring: &GrpcRing, onward: u64, goes_on: bool) -> ProxyAnswers {
    let requests = stream::iter([request(1), request(2)]);
    let requests = match goes_on {
        true => requests.chain(stream::pending()).boxed(),
        false => requests.boxed(),
    };
    let factory = &ring.nodes[&CALLER].factory;
    let opened = factory.open(
        PROXY,
        &ring.records[&PROXY],
        vec![MemberId(onward)],
        requests,
    );
    opened.await.unwrap()
}

async fn expect(session: &mut ProxyAnswers, onward: u64) {
    for next in [2, 3] {
        let said = within("an answer", session.next()).await;
        match said {
            Some(Ok(ProxyAnswer::SentOn { upto, .. })) => assert_eq!(upto, onward * 1000 + next),
            other => panic!("session {onward}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_line_carries_more_sessions_than_a_connection_has_streams() {
    const SESSIONS: u64 = 150;
    let echo = Arc::new(Echo::default());
    let (ring, _wires) = GrpcRing::sending_on_by(&[Database; 3], echo.clone()).await;
    let opened = (0..SESSIONS).map(|onward| open(&ring, onward, true));
    let mut sessions = join_all(opened).await;
    for (onward, session) in (0..).zip(&mut sessions) {
        expect(session, onward).await;
    }
    echo.has_sessions(SESSIONS as usize).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_session_ends_at_the_proxy_and_others_continue() {
    let echo = Arc::new(Echo::default());
    let (ring, _wires) = GrpcRing::sending_on_by(&[Database; 3], echo.clone()).await;
    let mut stays = open(&ring, 7, true).await;
    expect(&mut stays, 7).await;
    for more_would_come in [true, false] {
        let mut session = open(&ring, 8, more_would_come).await;
        expect(&mut session, 8).await;
        echo.has_sessions(2).await;
        drop(session);
        echo.has_sessions(1).await;
    }
    assert!(stays.next().now_or_never().is_none(), "it continues");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_ends_with_its_last_session_and_the_next_opens_another() {
    let echo = Arc::new(Echo::default());
    let (ring, _wires) = GrpcRing::sending_on_by(&[Database; 3], echo.clone()).await;
    // Every line that is served holds a reference to `echo`.
    let without_a_line = Arc::strong_count(&echo);
    for _ in 0..2 {
        let mut sessions = [open(&ring, 4, true).await, open(&ring, 5, false).await];
        expect(&mut sessions[0], 4).await;
        expect(&mut sessions[1], 5).await;
        let [first, last] = sessions;
        drop(first);
        echo.has_sessions(1).await;
        assert!(Arc::strong_count(&echo) > without_a_line);
        drop(last);
        within("the end of the line", async {
            while Arc::strong_count(&echo) > without_a_line {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_line_ends_its_sessions_and_the_next_session_opens_another() {
    let echo = Arc::new(Echo::default());
    let (ring, wires) = GrpcRing::sending_on_by(&[Database; 3], echo.clone()).await;
    let mut sessions = [open(&ring, 4, true).await, open(&ring, 5, false).await];
    expect(&mut sessions[0], 4).await;
    expect(&mut sessions[1], 5).await;
    wires[&PROXY].cut();
    for session in &mut sessions {
        let said = within("the end of the line", session.next()).await;
        assert!(matches!(said, Some(Err(_))), "{said:?}");
        assert!(session.next().await.is_none());
    }
    echo.has_sessions(0).await;
    wires[&PROXY].repair();
    within("another line", async {
        loop {
            let mut session = open(&ring, 6, true).await;
            if let Some(Ok(ProxyAnswer::SentOn { upto, .. })) = session.next().await {
                assert_eq!(upto, 6002);
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
