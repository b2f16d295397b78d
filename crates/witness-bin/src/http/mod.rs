//! The member over HTTP: the status code is the answer, JSON the detail, with Patroni's meanings.
//! GET and HEAD; nothing here changes anything.

mod cluster;
mod metrics;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get};
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::status::{Question, ViewSource, answer};

pub(crate) use metrics::CONTENT_TYPE as METRICS_CONTENT_TYPE;
pub use metrics::{FlushMetrics, registry};

/// What the endpoints are served from.
#[derive(Clone)]
pub struct Endpoints {
    source: Arc<dyn ViewSource>,
    registry: Arc<Registry>,
}

impl Endpoints {
    /// Endpoints over a member's view and its metrics.
    pub fn new(source: Arc<dyn ViewSource>, registry: Registry) -> Self {
        Self {
            source,
            registry: Arc::new(registry),
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
            .route("/replica", question(Question::Replica))
            .route("/witness", question(Question::Witness))
            .route("/status", get(status))
            .route("/cluster", get(cluster))
            .route("/metrics", get(metrics))
            .fallback(unknown)
            .with_state(self)
    }
}

fn question(question: Question) -> MethodRouter<Endpoints> {
    get(move |State(endpoints): State<Endpoints>| async move {
        let view = endpoints.source.view();
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
        });
        (code, Json(detail))
    })
}

async fn status(State(endpoints): State<Endpoints>) -> Response {
    Json(endpoints.source.view()).into_response()
}

async fn cluster(State(endpoints): State<Endpoints>) -> Response {
    Json(cluster::cluster(&endpoints.source.view())).into_response()
}

async fn metrics(State(endpoints): State<Endpoints>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &endpoints.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn unknown() -> Response {
    let known = "/liveness /readiness /health /primary /read-write /replica /witness /status /cluster /metrics";
    (
        StatusCode::NOT_FOUND,
        Json(json!({ "reason": format!("no such page; there are {known}") })),
    )
        .into_response()
}
