//! The HTTP interface of a member, with Patroni's meanings: the status code is the answer, and the JSON body has the details.
//! GET and HEAD change nothing; a change needs a POST or a DELETE with a token (`orders.rs`).

mod access;
#[cfg(feature = "fuzzing")]
#[path = "../../../../lab/fuzz/inside/witness_bin_http.rs"]
pub(crate) mod fuzzing;
mod listener;
mod metrics;
mod orders;
mod page;
mod questions;
mod reports;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use member::status::Question;
use member::{MemberError, Opened};
use serde_json::json;
use tokio::net::TcpListener;

use crate::config::Config;
use crate::http::access::readers_only;
pub(crate) use crate::http::access::unusable_tokens;
pub use crate::http::access::{Access, Credentials};
pub use crate::http::listener::serve;
pub use crate::http::metrics::{Expiries, Histograms, registry};
pub use crate::http::orders::{OrderApi, OrderTaker};
pub use crate::http::page::RingPage;
pub use crate::http::questions::Endpoints;
use crate::http::questions::{check, cluster, config, freshness, metrics, question, root, status};
pub use crate::http::reports::RingReports;
use crate::operator::Asker;

/// Serves a member over HTTP as configured, until the member closes. Returns the parts that a reload can replace: the certificate and the
/// tokens, and the expiries of certificates. `None` if HTTP is not configured.
///
/// # Errors
/// When the address cannot be bound, or the certificate or a token cannot be read.
pub async fn serve_member(
    config: &Config,
    member: &Opened,
    histograms: &Histograms,
) -> Result<Option<(Access, Expiries)>, MemberError> {
    let Some(settings) = &config.http else {
        return Ok(None);
    };
    let address = &settings.listen;
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|source| MemberError::Listen {
        key: "http.listen",
        address: address.clone(),
        source,
    })?;
    let access = Access::new(Credentials::load(settings)?);
    let expiries = Expiries::of(&config.member);
    let registry = registry(
        member.view(),
        &config.member.data_dir,
        expiries.clone(),
        histograms,
    );
    let orders = OrderApi {
        taker: Arc::new(member.commands()),
        access: access.clone(),
        view: member.view(),
    };
    let asker = Asker::of_member(&config.member, member.tls(), member.view());
    let page = RingPage {
        view: member.view(),
        reports: RingReports::new(asker),
        events: Arc::default(),
    };
    let endpoints = Endpoints {
        registry: Arc::new(registry),
        orders,
        page: page.clone(),
        throttle_threshold: settings.throttle_threshold,
    };
    let end = member.end();
    let until = end.clone();
    tokio::spawn(async move { until.run_until_cancelled(page.watch()).await });
    tokio::spawn(serve(listener, access.clone(), endpoints.router(), end));
    Ok(Some((access, expiries)))
}

impl Endpoints {
    fn router(self) -> Router {
        let (access, reports) = (self.orders.access.clone(), self.page.reports.clone());
        page::routes::<Self>()
            .route("/", get(root))
            .route("/status", get(status))
            .route("/cluster", get(cluster))
            .route("/config", get(config))
            .route("/history", get(orders::history))
            .route("/metrics", get(metrics))
            .route_layer(from_fn_with_state(access, readers_only))
            // These routes need no token for reading: load balancers and orchestrators have none, runbooks are public, and orders need the
            // token of `http.token_file`.
            .route("/runbooks/{name}", get(page::runbook))
            .route("/liveness", question(Question::Liveness))
            .route("/readiness", question(Question::Readiness))
            .route("/health", question(Question::Health))
            .route("/leader", question(Question::Leader))
            .route("/primary", question(Question::Primary))
            .route("/read-write", question(Question::Primary))
            .route("/replica", freshness(Question::Replica))
            .route("/read-only", freshness(Question::ReadOnly))
            .route("/witness", question(Question::Witness))
            .route("/check/{app}/mysql/{ring}", get(check))
            .route("/pause", post(orders::pause))
            .route("/resume", post(orders::resume))
            .route(
                "/switchover",
                post(orders::switchover).delete(orders::cancel_switchover),
            )
            .route("/failover", post(orders::failover))
            .route("/reinitialize", post(orders::reinitialize))
            .route("/restart", post(orders::restart))
            .route("/reload", post(orders::reload))
            .layer(from_fn_with_state(reports, orders::to_the_leader))
            .fallback(unknown)
            .with_state(self)
    }
}

async fn unknown() -> Response {
    no_such_page(
        "/ /ring /liveness /readiness /health /leader /primary /read-write /replica /read-only /witness /check/APP/mysql/RING \
         /status /cluster /config /history /metrics /runbooks/NAME, and by POST \
         /pause /resume /switchover /failover /reinitialize /restart /reload",
    )
}

pub(crate) fn no_such_page(known: &str) -> Response {
    let reason = format!("no such page; there are {known}");
    (StatusCode::NOT_FOUND, Json(json!({ "reason": reason }))).into_response()
}
