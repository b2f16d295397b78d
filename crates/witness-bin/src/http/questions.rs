//! HTTP queries: each health check, the page, the status, the cluster in Patroni's format, and metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use member::status::{Question, ViewSource, answer};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;

use crate::http::access::{Access, Denied};
use crate::http::cluster::Cluster;
use crate::http::orders::OrderApi;
use crate::http::page::{self, RingPage};
use crate::http::reports::RingReports;
use crate::openmetrics;
use crate::text::times::milliseconds;

/// The data sources of the endpoints.
#[derive(Clone)]
pub struct Endpoints {
    pub(super) source: Arc<dyn ViewSource>,
    pub(super) registry: Arc<Registry>,
    pub(super) orders: OrderApi,
    pub(super) page: RingPage,
    pub(super) reports: RingReports,
    /// The replica lag up to which applications that can wait may write.
    pub(super) throttle_threshold: Duration,
    pub(super) access: Access,
}

impl Endpoints {
    /// Endpoints over the member's view, metrics, order executor, page and reports, with the replica lag for
    /// throttling and the access rules.
    pub fn new(
        source: Arc<dyn ViewSource>,
        registry: Registry,
        orders: OrderApi,
        page: RingPage,
        reports: RingReports,
        throttle_threshold: Duration,
        access: Access,
    ) -> Self {
        Self {
            source,
            registry: Arc::new(registry),
            orders,
            page,
            reports,
            throttle_threshold,
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

impl FromRef<Endpoints> for RingPage {
    fn from_ref(endpoints: &Endpoints) -> Self {
        endpoints.page.clone()
    }
}

/// By GET, HEAD and OPTIONS: HAProxy uses OPTIONS by default, which Patroni accepts, too.
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
    /// A duration with a unit, such as `2s`: a plain number means bytes in Patroni.
    lag: Option<String>,
}

/// A health check with a limit on the age of the data that clients read.
pub(super) fn freshness(of: fn(Option<u64>) -> Question) -> MethodRouter<Endpoints> {
    on(
        ASKING,
        move |State(endpoints), Query(freshness)| async move {
            fresh_enough(&endpoints, of, &freshness)
        },
    )
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
            let why = "lag is a duration with a unit, such as 500ms, 2s, 1m; bytes, as in Patroni, are not known";
            return Denied::new(StatusCode::BAD_REQUEST, why).into_response();
        }
    };
    endpoints.answer(of(most_behind_ms)).into_response()
}

impl Endpoints {
    fn answer(&self, question: Question) -> (StatusCode, Json<serde_json::Value>) {
        let view = self.source.view();
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
    Json(endpoints.source.view()).into_response()
}

pub(super) async fn cluster(State(endpoints): State<Endpoints>) -> Response {
    let report = endpoints.reports.report().await;
    let own = endpoints.source.view();
    Json(Cluster::new(&report, &own, &endpoints.reports.addresses())).into_response()
}

/// The ring's configuration in its log, which is the same on every member.
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
