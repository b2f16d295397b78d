use std::time::Duration;

use consensus::log_probe::{Answered, Asked, Departure};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, future, stream};
use openraft::raft::AppendEntriesRequest;
use raft_types::{MemberId, MemberRecord, REPLICATION_WINDOW_BYTES, Vote};

use crate::leader::Session;
use crate::policy::ProxyOptions;
use crate::proxy_op::samples::{at, sized};
use crate::proxy_op::{LineBroken, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest};
use crate::route_table::RouteTable;

/// A proxy whose answers are a function of the requests.
#[derive(Clone)]
struct Played(fn(BoxStream<'static, ProxyRequest>) -> ProxyAnswers);

impl ProxyCalls for Played {
    fn open(
        &self,
        _: MemberId,
        _: &MemberRecord,
        _: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        future::ready(Ok((self.0)(requests))).boxed()
    }
}

/// Answers every request, and never reports the end of a session, as after a lost connection.
fn never_over(requests: BoxStream<'static, ProxyRequest>) -> ProxyAnswers {
    let answers = requests.map(|request| {
        Ok(ProxyAnswer::Answered(Answered {
            result: Ok(request.last()),
            report: None,
        }))
    });
    answers.chain(stream::pending()).boxed()
}

/// Lacks the requested entries.
fn lacking(requests: BoxStream<'static, ProxyRequest>) -> ProxyAnswers {
    let answers = requests.map(|request| {
        Ok(ProxyAnswer::Missing {
            op_id: request.last().unwrap().into(),
            purged: false,
        })
    });
    answers.boxed()
}

/// Returns the table of a leader that sends to other members over this proxy.
fn route_table_over(own: MemberId, proxy: MemberId) -> RouteTable {
    let (record, heard_within) = (MemberRecord::default(), Duration::from_secs(1));
    let route_table = RouteTable::new(own, &record, ProxyOptions::default(), heard_within);
    route_table.begin(proxy, &record);
    route_table
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_its_last_answer() {
    let [own, proxy, target] = [1, 2, 3].map(MemberId);
    let route_table = route_table_over(own, proxy);
    let asked = Asked::new(
        AppendEntriesRequest {
            vote: Vote::new_committed(3, own),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        },
        false,
    );
    let requests = stream::iter([asked.clone(), asked]).boxed();
    let session = Session::open(&Played(never_over), route_table, &[proxy], target, requests);
    let answers = session.into_answers().collect::<Vec<_>>();
    let answers = tokio::time::timeout(Duration::from_secs(3600), answers).await;
    let answers = answers.expect("it is over");
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(Result::is_ok));
}

/// Two consecutive commit notices are sent as one.
#[tokio::test(start_paused = true)]
async fn a_superseded_commit_notice_gets_no_answer() {
    let [own, proxy, target] = [1, 2, 3].map(MemberId);
    let route_table = route_table_over(own, proxy);
    let news = |commit| {
        let request = AppendEntriesRequest {
            vote: Vote::new_committed(3, own),
            prev_log_id: Some(at(9)),
            entries: Vec::new(),
            leader_commit: Some(at(commit)),
        };
        Asked::new(request, false)
    };
    // The first notice is sent immediately.
    let requests = stream::iter([7, 8, 9].map(news)).boxed();
    let session = Session::open(&Played(never_over), route_table, &[proxy], target, requests);
    let answers = session.into_answers().collect::<Vec<_>>().await;
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_proxy_is_asked_again_once_it_has_a_large_entry() {
    const INDEX: u64 = 5;
    let [own, proxy, target] = [1, 2, 3].map(MemberId);
    let route_table = route_table_over(own, proxy);
    route_table.begin(target, &MemberRecord::default());
    let request = AppendEntriesRequest {
        vote: Vote::new_committed(3, own),
        prev_log_id: Some(at(INDEX - 1)),
        entries: vec![sized(INDEX, REPLICATION_WINDOW_BYTES)],
        leader_commit: None,
    };
    let departure = Departure::watched();
    departure.piece_left(true);
    route_table.departs(proxy, INDEX, &departure);
    for held_against in [0, 1] {
        let requests = stream::iter([Asked::new(request.clone(), false)]).boxed();
        let table = route_table.clone();
        let session = Session::open(&Played(lacking), table, &[proxy], target, requests);
        let answers = session.into_answers().collect::<Vec<_>>().await;
        assert!(matches!(answers.as_slice(), [Err(_)]), "{answers:?}");
        let fallbacks = route_table.traffic().counted().fallbacks;
        assert_eq!(fallbacks.values().sum::<u64>(), held_against);
        assert_eq!(route_table.waits_for(target), Some(INDEX));
    }
}
