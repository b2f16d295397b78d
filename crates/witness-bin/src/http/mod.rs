//! The member over HTTP: the status code is the answer, JSON the detail, with Patroni's meanings.
//! GET and HEAD change nothing; what changes something is a POST with a token (`orders.rs`).

mod cluster;
mod metrics;
mod orders;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use member::settings::PasswordSource;
use member::status::{Question, ViewSource, answer};
use member::{MemberError, Opened};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::openmetrics;

pub use metrics::{FlushMetrics, registry};
pub use orders::{OrderDesk, OrderTaker};

/// Serves a member where its configuration says, until it closes.
///
/// # Errors
/// When nobody can listen there, or the token that orders need cannot be read.
pub async fn serve_member(
    config: &Config,
    member: &Opened,
    flushes: &FlushMetrics,
) -> Result<(), MemberError> {
    let Some(address) = &config.http_listen else {
        return Ok(());
    };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| MemberError::Listen {
        key: "http.listen",
        address: address.clone(),
        source,
    })?;
    let token = config.http_token.as_ref();
    let token = token.map(PasswordSource::read).transpose();
    let token = token.map_err(|source| MemberError::PasswordFile {
        key: "http.token_file",
        source,
    })?;
    let registry = registry(member.view(), flushes);
    let orders = OrderDesk::new(Arc::new(member.commands()), token);
    let endpoints = Endpoints::new(member.view(), registry, orders);
    let end = member.end();
    tokio::spawn(async move {
        if let Err(error) = endpoints.serve(listener, end).await {
            tracing::error!(%error, "HTTP is not served any more");
        }
    });
    Ok(())
}

/// What the endpoints are served from.
#[derive(Clone)]
pub struct Endpoints {
    source: Arc<dyn ViewSource>,
    registry: Arc<Registry>,
    orders: OrderDesk,
}

impl Endpoints {
    /// Endpoints over a member's view, its metrics, and who carries orders out.
    pub fn new(source: Arc<dyn ViewSource>, registry: Registry, orders: OrderDesk) -> Self {
        Self {
            source,
            registry: Arc::new(registry),
            orders,
        }
    }

    /// Serves until `stop`; calls under way are finished.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let served = axum::serve(listener, self.router());
        served
            .with_graceful_shutdown(async move { stop.cancelled().await })
            .await
    }

    fn router(self) -> Router {
        Router::new()
            .route("/liveness", question(Question::Liveness))
            .route("/readiness", question(Question::Readiness))
            .route("/health", question(Question::Health))
            .route("/primary", question(Question::Primary))
            .route("/read-write", question(Question::Primary))
            .route("/replica", get(replica))
            .route("/witness", question(Question::Witness))
            .route("/status", get(status))
            .route("/cluster", get(cluster))
            .route("/metrics", get(metrics))
            .route("/pause", post(orders::pause))
            .route("/resume", post(orders::resume))
            .route("/switchover", post(orders::switchover))
            .fallback(unknown)
            .with_state(self)
    }
}

fn question(question: Question) -> MethodRouter<Endpoints> {
    get(move |State(endpoints): State<Endpoints>| async move { endpoints.answer(question) })
}

/// What `/replica` may be asked with.
#[derive(Debug, Deserialize)]
struct Freshness {
    /// Milliseconds that it may be behind, or a duration such as `2s`.
    lag: Option<String>,
}

async fn replica(
    State(endpoints): State<Endpoints>,
    Query(freshness): Query<Freshness>,
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
    endpoints
        .answer(Question::Replica(most_behind_ms))
        .into_response()
}

fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

impl Endpoints {
    fn answer(&self, question: Question) -> (StatusCode, Json<serde_json::Value>) {
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

async fn status(State(endpoints): State<Endpoints>) -> Response {
    Json(endpoints.source.view()).into_response()
}

async fn cluster(State(endpoints): State<Endpoints>) -> Response {
    Json(cluster::cluster(&endpoints.source.view())).into_response()
}

async fn metrics(State(endpoints): State<Endpoints>) -> Response {
    openmetrics::page(&endpoints.registry)
}

async fn unknown() -> Response {
    let known = "/liveness /readiness /health /primary /read-write /replica /witness /status /cluster /metrics, and by POST /pause /resume /switchover";
    (
        StatusCode::NOT_FOUND,
        Json(json!({ "reason": format!("no such page; there are {known}") })),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn a_bound_has_a_unit_or_is_in_milliseconds() {
        let read = ["250", "250ms", "2s", "1m"].map(milliseconds);
        assert_eq!(read, [Some(250), Some(250), Some(2_000), Some(60_000)]);
        for bad in [
            "",
            "s",
            "-1",
            "1h",
            "ms5",
            "2 s",
            "99999999999999999999",
            "18446744073709551615m",
        ] {
            assert_eq!(milliseconds(bad), None, "{bad}");
        }
    }
}
