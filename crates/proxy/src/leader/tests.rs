use std::time::Duration;

use consensus::log_probe::{Answered, Asked};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, future, stream};
use openraft::raft::AppendEntriesRequest;
use raft_types::{MemberId, MemberRecord, Vote};

use crate::leader::Session;
use crate::policy::ProxyOptions;
use crate::proxy_op::{LineBroken, ProxyAnswer, ProxyAnswers, ProxyCalls, ProxyRequest};
use crate::route_table::RouteTable;

/// A proxy that answers everything and never says that a session is over, as when it has lost its line.
#[derive(Clone)]
struct NeverOver;

impl ProxyCalls for NeverOver {
    fn open(
        &self,
        _: MemberId,
        _: &MemberRecord,
        _: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let answers = requests.map(|request| {
            Ok(ProxyAnswer::Answered(Answered {
                result: Ok(request.last()),
                report: None,
            }))
        });
        let answers = answers.chain(stream::pending());
        future::ready(Ok(answers.boxed())).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_over_when_all_is_answered_although_its_proxy_does_not_say_so() {
    let [own, proxy, target] = [1, 2, 3].map(MemberId);
    let (record, heard_within) = (MemberRecord::default(), Duration::from_secs(1));
    let route_table = RouteTable::new(own, &record, ProxyOptions::default(), heard_within);
    route_table.begin(proxy, &record);
    let asked = Asked {
        request: AppendEntriesRequest {
            vote: Vote::new_committed(3, own),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        },
        wants_report: false,
    };
    let requests = stream::iter([asked.clone(), asked]).boxed();
    let session = Session::open(&NeverOver, route_table, &[proxy], target, requests);
    let answers = session.into_answers().collect::<Vec<_>>();
    let answers = tokio::time::timeout(Duration::from_secs(3600), answers).await;
    let answers = answers.expect("it is over");
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(Result::is_ok));
}
