//! `GET /check/APP/mysql/RING`: whether an application that can wait may write now, with freno's meanings: 200 yes, 404 no
//! such store, 429 replicas lag too far, 500 unknown. Pure except for the handler.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;

use crate::http::questions::Endpoints;
use crate::operator::RingReport;

/// The answer, by freno's names.
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

/// For any application: none is rejected by its name.
pub(super) async fn check(
    State(endpoints): State<Endpoints>,
    Path((_, ring)): Path<(String, String)>,
) -> Response {
    let report = endpoints.reports.report().await;
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
        return told(500, 0.0, "nobody serves as the leader".to_owned());
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

/// Of the mysqlds that follow the ring. Others serve no readers (`/replica` reports no), so no application waits for them.
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
    use crate::operator::Asked;

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
        let mut asked = vec![Asked::sample(1, "db-1", leader.ok_or_else(silent))];
        for (id, (following, lag)) in (2..).zip(replicas) {
            let mut view = replica(*following, *lag);
            view.member.id = MemberId(id);
            asked.push(Asked::sample(id, &format!("db-{id}"), Ok(view)));
        }
        asked.push(Asked::sample(9, "db-9", Err(silent())));
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
