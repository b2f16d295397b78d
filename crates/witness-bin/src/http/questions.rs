//! Handlers of HTTP queries: each health check, the page, the status, the cluster in Patroni's format, metrics, and the throttle check in
//! freno's format.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use member::status::{Question, answer};
use prometheus_client::registry::Registry;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::access::Denied;
use crate::http::orders::OrderApi;
use crate::http::page::{self, RingPage};
use crate::http::reports;
use crate::openmetrics;
use crate::operator::RingReport;
use crate::text::times::milliseconds;

/// The data sources of the endpoints.
#[derive(Clone)]
pub struct Endpoints {
    pub(crate) registry: Arc<Registry>,
    pub(crate) orders: OrderApi,
    pub(crate) page: RingPage,
    /// The replica lag up to which throttled applications may write.
    pub(crate) throttle_threshold: Duration,
}

impl FromRef<Endpoints> for OrderApi {
    fn from_ref(endpoints: &Endpoints) -> Self {
        endpoints.orders.clone()
    }
}

impl FromRef<Endpoints> for RingPage {
    fn from_ref(endpoints: &Endpoints) -> Self {
        endpoints.page.clone()
    }
}

/// Returns the route of a health check. It answers GET, HEAD and OPTIONS, as Patroni does; OPTIONS is the default of HAProxy.
pub(super) fn question(question: Question) -> MethodRouter<Endpoints> {
    on(
        ASKING,
        move |State(endpoints): State<Endpoints>| async move { endpoints.answer(question) },
    )
}

const ASKING: MethodFilter = MethodFilter::GET.or(MethodFilter::OPTIONS);

/// The query parameters of `/replica` and `/read-only`.
#[derive(Debug, Deserialize)]
pub(super) struct Freshness {
    /// A duration with a unit, such as `2s`. A number without a unit is rejected, because in Patroni it means bytes.
    lag: Option<String>,
}

/// Returns the route of a health check that accepts a limit on the replica lag.
pub(super) fn freshness(of: fn(Option<u64>) -> Question) -> MethodRouter<Endpoints> {
    let too_coarse =
        "lag is a duration with a unit, such as 500ms, 2s, 1m; bytes, as in Patroni, are not known";
    let answer = move |State(endpoints): State<Endpoints>, Query(given): Query<Freshness>| async move {
        let most_behind_ms = match given.lag.as_deref().map(milliseconds) {
            Some(None) => return Denied::new(StatusCode::BAD_REQUEST, too_coarse).into_response(),
            most_behind_ms => most_behind_ms.flatten(),
        };
        endpoints.answer(of(most_behind_ms)).into_response()
    };
    on(ASKING, answer)
}

impl Endpoints {
    fn answer(&self, question: Question) -> (StatusCode, Json<serde_json::Value>) {
        let view = self.page.view.view();
        let (code, reason) = match answer(question, &view) {
            Ok(()) => (StatusCode::OK, None),
            Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, Some(reason.to_string())),
        };
        let detail = json!({
            "ok": reason.is_none(),
            "reason": reason,
            "ring": view.ring.name,
            "member": view.member.name,
            "kind": view.member.kind,
            "role": view.role,
            "serving": view.serving,
            "leader": view.leader,
            "term": view.term,
            "mysql": view.mysql.as_ref().map(|mysql| mysql.role.to_string()),
            "lag_ms": view.mysql.as_ref().and_then(|mysql| mysql.lag_ms),
        });
        (code, Json(detail))
    }
}

/// `GET /`: the page for a browser, the answer of `/primary` for any other client.
pub(super) async fn root(State(endpoints): State<Endpoints>, headers: HeaderMap) -> Response {
    let vary = [(header::VARY, "Accept")];
    if page::is_a_browser(&headers) {
        return (vary, page::html()).into_response();
    }
    (vary, endpoints.answer(Question::Primary)).into_response()
}

pub(super) async fn status(State(endpoints): State<Endpoints>) -> Response {
    Json(endpoints.page.view.view()).into_response()
}

pub(super) async fn cluster(State(endpoints): State<Endpoints>) -> Response {
    let report = endpoints.page.reports.report().await;
    let own = endpoints.page.view.view();
    Json(reports::cluster(
        &report,
        &own,
        &endpoints.page.reports.addresses(),
    ))
    .into_response()
}

/// `GET /config`: the configuration of the ring in its log, which is the same on every member.
pub(super) async fn config(State(endpoints): State<Endpoints>) -> Response {
    let view = endpoints.page.view.view();
    Json(json!({
        "ring": view.ring,
        "rules": view.rules,
        "pause": view.pause,
        "members": view.members,
    }))
    .into_response()
}

pub(super) async fn metrics(State(endpoints): State<Endpoints>) -> Response {
    openmetrics::page(&endpoints.registry)
}

// `GET /check/APP/mysql/RING`: whether a throttled application, such as a migration, may write now. The codes have freno's meanings: 200
// yes, 404 no such store, 429 replicas lag too far, 500 unknown.

/// The answer to a throttle check, with freno's field names.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Check {
    status_code: u16,
    message: String,
    /// The largest lag of a replica, in seconds.
    value: f64,
    /// The allowed lag, in seconds.
    threshold: f64,
}

/// Answers a throttle check. The answer does not depend on the name of the application.
pub(super) async fn check(
    State(endpoints): State<Endpoints>,
    Path((_, ring)): Path<(String, String)>,
) -> Response {
    let report = endpoints.page.reports.report().await;
    let check = judge(&ring, &report, endpoints.throttle_threshold);
    let code = StatusCode::from_u16(check.status_code);
    let code = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, Json(check)).into_response()
}

fn judge(ring: &str, report: &RingReport, threshold: Duration) -> Check {
    let told = |status_code: u16, value: f64, message: String| Check {
        status_code,
        message,
        value,
        threshold: threshold.as_secs_f64(),
    };
    if ring != report.ring {
        let known = &report.ring;
        return told(404, 0.0, format!("the ring here is `{known}`"));
    }
    if report.leader.is_none() {
        return told(500, 0.0, "no member serves as the leader".to_owned());
    }
    let Some((lag_ms, name)) = furthest_behind(report) else {
        return told(200, 0.0, String::new());
    };
    let value = Duration::from_millis(lag_ms);
    match value > threshold {
        true => {
            let message = format!("the mysqld of `{name}` is too far behind");
            told(429, value.as_secs_f64(), message)
        }
        false => told(200, value.as_secs_f64(), String::new()),
    }
}

/// Returns the largest lag, in milliseconds, and its member, among the mysqlds that follow the ring. Other mysqlds are ignored: `/replica`
/// answers 503 for them, so they serve no readers.
fn furthest_behind(report: &RingReport) -> Option<(u64, &str)> {
    let members = report.members.iter();
    let following = members.filter_map(|member| {
        let mysql = member.view.as_ref()?.mysql.as_ref()?;
        let lag = mysql.lag_ms.filter(|_| mysql.follows())?;
        Some((lag, member.name.as_str()))
    });
    following.max()
}

#[cfg(test)]
mod tests {
    use member::status::MemberView;
    use member::status::sample::{database_leader, witness_follower};
    use raft_types::{MemberId, MemberKind};

    use super::*;
    use crate::operator::MemberReport;

    fn replica(following: bool, lag_ms: u64) -> MemberView {
        let mut view = witness_follower();
        view.member.kind = MemberKind::Database;
        view.mysql = database_leader()
            .mysql
            .map(|mysql| member::status::MysqlView {
                following,
                lag_ms: Some(lag_ms),
                ..mysql
            });
        view
    }

    fn report(leader: Option<MemberView>, replicas: &[(bool, u64)]) -> RingReport {
        let silent = || "connection refused".to_owned();
        let mut asked = vec![MemberReport::sample(1, "db-1", leader.ok_or_else(silent))];
        for (id, (following, lag)) in (2..).zip(replicas) {
            let mut view = replica(*following, *lag);
            view.member.id = MemberId(id);
            asked.push(MemberReport::sample(id, &format!("db-{id}"), Ok(view)));
        }
        asked.push(MemberReport::sample(9, "db-9", Err(silent())));
        RingReport::new("orders", asked)
    }

    #[test]
    fn the_replica_that_is_furthest_behind_decides() {
        let table = [
            ("orders", vec![], 200, 0.0),
            ("orders", vec![(true, 200), (true, 1_000)], 200, 1.0),
            ("orders", vec![(true, 1_001), (true, 0)], 429, 1.001),
            ("orders", vec![(true, 10), (false, 90_000)], 200, 0.01),
            ("other", vec![(true, 90_000)], 404, 0.0),
        ];
        for (ring, replicas, code, value) in table {
            let report = report(Some(database_leader()), &replicas);
            let check = judge(ring, &report, Duration::from_secs(1));
            let told = (check.status_code, check.value, check.threshold);
            assert_eq!(told, (code, value, 1.0), "{ring} {replicas:?}");
            assert_eq!(check.message.is_empty(), code == 200, "{check:?}");
        }
    }

    #[test]
    fn without_a_leader_nobody_writes() {
        let check = judge(
            "orders",
            &report(None, &[(true, 0)]),
            Duration::from_secs(1),
        );
        assert_eq!(check.status_code, 500);
    }

    #[test]
    fn the_names_are_those_that_clients_of_freno_read() {
        let report = report(Some(database_leader()), &[(true, 2_500)]);
        let check = judge("orders", &report, Duration::from_secs(1));
        let expected = serde_json::json!({
            "StatusCode": 429, "Value": 2.5, "Threshold": 1.0,
            "Message": "the mysqld of `db-2` is too far behind",
        });
        assert_eq!(serde_json::to_value(check).unwrap(), expected);
    }
}
