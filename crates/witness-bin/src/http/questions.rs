//! What is asked over HTTP: each question, the status, the cluster as Patroni shows it, and metrics.

use std::sync::Arc;

use axum::extract::{FromRef, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get};
use consensus::ScheduledSwitchover;
use member::status::{MemberView, PauseView, PeerView, Question, Role, ViewSource, answer};
use prometheus_client::registry::Registry;
use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::http::access::Access;
use crate::http::orders::OrderApi;
use crate::http::page::RingPage;
use crate::openmetrics;

/// What the endpoints are served from.
#[derive(Clone)]
pub struct Endpoints {
    pub(super) source: Arc<dyn ViewSource>,
    pub(super) registry: Arc<Registry>,
    pub(super) orders: OrderApi,
    pub(super) page: RingPage,
    pub(super) access: Access,
}

impl Endpoints {
    /// Endpoints over a member's view, its metrics, who carries orders out, the page, and who may ask.
    pub fn new(
        source: Arc<dyn ViewSource>,
        registry: Registry,
        orders: OrderApi,
        page: RingPage,
        access: Access,
    ) -> Self {
        Self {
            source,
            registry: Arc::new(registry),
            orders,
            page,
            access,
        }
    }
}

impl FromRef<Endpoints> for OrderApi {
    fn from_ref(endpoints: &Endpoints) -> Self {
        endpoints.orders.clone()
    }
}

impl FromRef<Endpoints> for Arc<dyn ViewSource> {
    fn from_ref(endpoints: &Endpoints) -> Self {
        endpoints.source.clone()
    }
}

pub(super) fn question(question: Question) -> MethodRouter<Endpoints> {
    get(move |State(endpoints): State<Endpoints>| async move { endpoints.answer(question) })
}

/// What `/replica` and `/read-only` may be asked with.
#[derive(Debug, Deserialize)]
pub(super) struct Freshness {
    /// Milliseconds that it may be behind, or a duration such as `2s`.
    lag: Option<String>,
}

/// A question with a bound on how old what is read may be.
pub(super) fn freshness(of: fn(Option<u64>) -> Question) -> MethodRouter<Endpoints> {
    get(move |State(endpoints), Query(freshness)| async move {
        fresh_enough(&endpoints, of, &freshness)
    })
}

fn fresh_enough(
    endpoints: &Endpoints,
    of: fn(Option<u64>) -> Question,
    freshness: &Freshness,
) -> Response {
    let most_behind_ms = match freshness.lag.as_deref().map(milliseconds) {
        None => None,
        Some(Some(most)) => Some(most),
        Some(None) => {
            let reason = "lag is milliseconds, or a duration such as 500ms, 2s, 1m";
            let detail = Json(json!({ "ok": false, "reason": reason }));
            return (StatusCode::BAD_REQUEST, detail).into_response();
        }
    };
    endpoints.answer(of(most_behind_ms)).into_response()
}

fn milliseconds(text: &str) -> Option<u64> {
    let with_unit = || {
        humantime::parse_duration(text)
            .ok()?
            .as_millis()
            .try_into()
            .ok()
    };
    text.parse().ok().or_else(with_unit)
}

impl Endpoints {
    pub(super) fn answer(&self, question: Question) -> (StatusCode, Json<serde_json::Value>) {
        let view = self.source.view();
        let (code, reason) = match answer(question, &view) {
            Ok(()) => (StatusCode::OK, None),
            Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, Some(reason)),
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
            "mysql": view.mysql.as_ref().map(|mysql| &mysql.role),
            "lag_ms": view.mysql.as_ref().and_then(|mysql| mysql.lag_ms),
        });
        (code, Json(detail))
    }
}

pub(super) async fn status(State(endpoints): State<Endpoints>) -> Response {
    Json(endpoints.source.view()).into_response()
}

pub(super) async fn cluster(State(endpoints): State<Endpoints>) -> Response {
    Json(cluster_view(&endpoints.source.view())).into_response()
}

/// What the ring's log says of the ring: it is the same on every member.
pub(super) async fn config(State(endpoints): State<Endpoints>) -> Response {
    let view = endpoints.source.view();
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

// The ring as one member sees it, in the shape of Patroni's `/cluster`.

/// The ring as `GET /cluster` shows it.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Cluster {
    pub(crate) scope: String,
    /// Who leads, as far as the member knows.
    pub(crate) leader: Option<MemberId>,
    pub(crate) pause: bool,
    /// The pause, if one stands.
    pub(crate) paused: Option<PauseView>,
    /// The switchover that is scheduled, if one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheduled_switchover: Option<ScheduledSwitchover>,
    /// Everyone that the member knows of.
    pub(crate) members: Vec<ClusterMember>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ClusterMember {
    pub(crate) name: String,
    pub(crate) id: MemberId,
    pub(crate) region: String,
    pub(crate) role: &'static str,
    /// `running`, `silent`, or `unknown` when the member asked is not the leader.
    pub(crate) state: &'static str,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// Entries behind the leader; only the leader knows.
    pub(crate) lag: Option<u64>,
}

/// The ring from one member's view.
pub(crate) fn cluster_view(view: &MemberView) -> Cluster {
    let own = ClusterMember {
        name: view.member.name.clone(),
        id: view.member.id,
        region: view.member.region.0.clone(),
        role: role(view.member.id, view.leader, view.member.kind),
        state: "running",
        host: split(&view.member.address).0,
        port: split(&view.member.address).1,
        lag: (view.role == Role::Leader).then_some(0),
    };
    let peer = |peer: &PeerView| ClusterMember {
        name: peer.name.clone(),
        id: peer.id,
        region: peer.region.0.clone(),
        role: role(peer.id, view.leader, peer.kind),
        state: match (view.role, peer.answered_seconds) {
            (Role::Leader, Some(seconds)) if seconds < SILENT_AFTER_SECONDS => "running",
            (Role::Leader, _) => "silent",
            _ => "unknown",
        },
        host: split(&peer.address).0,
        port: split(&peer.address).1,
        lag: peer.behind_entries,
    };
    let mut members: Vec<_> = std::iter::once(own)
        .chain(view.peers.iter().map(peer))
        .collect();
    members.sort_by_key(|member| member.id);
    Cluster {
        scope: view.ring.name.clone(),
        leader: view.leader,
        pause: view.pause.is_some(),
        paused: view.pause.clone(),
        scheduled_switchover: view.scheduled_switchover.clone(),
        members,
    }
}

/// Some heartbeats of the slowest ring that the configuration allows.
const SILENT_AFTER_SECONDS: f64 = 15.0;

fn role(id: MemberId, leader: Option<MemberId>, kind: raft_types::MemberKind) -> &'static str {
    match (leader == Some(id), kind) {
        (true, _) => "leader",
        (false, raft_types::MemberKind::Witness) => "witness",
        (false, raft_types::MemberKind::Database) => "replica",
    }
}

fn split(address: &str) -> (String, Option<u16>) {
    match address.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), port.parse().ok()),
        None => (address.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn a_bound_has_a_unit_or_is_in_milliseconds() {
        let read = ["250", "250ms", "2s", "1m"].map(milliseconds);
        assert_eq!(read, [Some(250), Some(250), Some(2_000), Some(60_000)]);
        assert_eq!(milliseconds("1h"), Some(3_600_000));
        for bad in [
            "",
            "s",
            "-1",
            "ms5",
            "99999999999999999999",
            "18446744073709551615m",
        ] {
            assert_eq!(milliseconds(bad), None, "{bad}");
        }
    }
}

#[cfg(test)]
mod cluster_tests {
    use super::*;
    use member::status::sample::database_leader;

    #[test]
    fn the_leader_knows_everyone() {
        let seen = cluster_view(&database_leader());
        assert_eq!(seen.leader, Some(MemberId(1)));
        let brief: Vec<_> = seen
            .members
            .iter()
            .map(|m| (m.id.0, m.role, m.state, m.port, m.lag))
            .collect();
        assert_eq!(
            brief,
            [
                (1, "leader", "running", Some(7400), Some(0)),
                (2, "witness", "running", Some(7400), Some(2)),
            ]
        );
    }
}
