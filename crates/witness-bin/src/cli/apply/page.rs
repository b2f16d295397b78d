//! The applier's HTTP page: progress, metrics, and settings that an operator may change while it runs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use applier::run::{Control, Passed, Progress, StageName};
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Access};
use crate::openmetrics::{self, MetricWriter, metrics};
use crate::terminal::{Attempt, Exit};

#[derive(Clone)]
pub(super) struct Page {
    progress: Arc<Progress>,
    control: Arc<watch::Sender<Control>>,
    registry: Arc<Registry>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    per_second: f64,
}

impl Page {
    pub(super) fn new(progress: Arc<Progress>, control: Arc<watch::Sender<Control>>) -> Self {
        let mut registry = Registry::with_prefix("witness_apply");
        registry.register_collector(Box::new(Metrics(progress.clone())));
        Self {
            progress,
            control,
            registry: Arc::new(registry),
        }
    }

    /// Serves the page over HTTP until `stop` is cancelled.
    pub(super) async fn serve(&self, address: SocketAddr, stop: CancellationToken) -> Attempt {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Exit::Usage.because(
                format!("cannot listen at {address}: {error}"),
                "give another address with --listen",
            )
        })?;
        let router = Router::new()
            .route("/status", get(status))
            .route("/metrics", get(metrics))
            .route("/pause", post(pause))
            .route("/resume", post(resume))
            .route("/rate", post(rate))
            .fallback(unknown)
            .with_state(self.clone());
        tokio::spawn(http::serve(listener, Access::default(), router, stop));
        Ok(())
    }

    fn view(&self) -> Value {
        let stage = |stage: StageName| {
            let passed = self.progress.passed(stage);
            json!({
                "transactions": passed.transactions,
                "rows": passed.rows,
                "bytes": passed.bytes,
                "last": passed.last.map(|last| last.to_string()),
                "lag_ms": self.progress.lag_ms(stage),
            })
        };
        let control = *self.control.borrow();
        let counts = self.progress.counts();
        json!({
            "paused": control.paused,
            "max_transactions_per_second": control.max_transactions_per_second,
            "received": stage(StageName::Received),
            "scheduled": stage(StageName::Scheduled),
            "committed": stage(StageName::Committed),
            "skipped": counts.skipped,
            "retries": counts.retries,
            "step_backs": counts.step_backs,
            "window_transactions": counts.window_transactions,
            "window_waits": counts.window_waits,
        })
    }

    fn change(&self, change: impl FnOnce(&mut Control)) -> Response {
        self.control.send_modify(change);
        Json(self.view()).into_response()
    }
}

async fn status(State(page): State<Page>) -> Response {
    Json(page.view()).into_response()
}

async fn pause(State(page): State<Page>) -> Response {
    page.change(|control| control.paused = true)
}

async fn resume(State(page): State<Page>) -> Response {
    page.change(|control| control.paused = false)
}

async fn rate(State(page): State<Page>, Query(rate): Query<Rate>) -> Response {
    if !rate.per_second.is_finite() || rate.per_second < 0.0 {
        let reason = "per_second has to be a number of 0 (no limit) or more";
        return (StatusCode::BAD_REQUEST, Json(json!({ "reason": reason }))).into_response();
    }
    let limit = (rate.per_second > 0.0).then_some(rate.per_second);
    page.change(|control| control.max_transactions_per_second = limit)
}

async fn metrics(State(page): State<Page>) -> Response {
    openmetrics::page(&page.registry)
}

async fn unknown() -> Response {
    http::no_such_page("GET /status /metrics, POST /pause /resume /rate?per_second=N")
}

#[derive(Debug)]
struct Metrics(Arc<Progress>);

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = MetricWriter::new(encoder);
        let (progress, counts) = (&self.0, self.0.counts());
        let stages = || {
            StageName::ALL
                .into_iter()
                .map(|stage| ([("stage", stage.name())], stage))
        };
        let passed = |read: fn(Passed) -> u64| {
            stages().map(move |(of, stage)| (of, read(progress.passed(stage))))
        };
        metrics! { writer;
            /// Transactions by stage
            counters "transactions" = passed(|passed| passed.transactions);
            /// Row writes by stage
            counters "rows" = passed(|passed| passed.rows);
            /// Bytes of transactions by stage
            counters "bytes" = passed(|passed| passed.bytes);
            /// Lag by commit timestamps, by stage; missing before the first transaction
            gauges "lag_milliseconds" = stages().filter_map(|(of, stage)| Some((of, progress.lag_ms(stage)? as f64)));
            /// Transactions that the target had already
            counter "skipped" = counts.skipped;
            /// Transactions begun again after a lock or a lost session
            counter "retries" = counts.retries;
            /// Transactions rolled back because an earlier one waited for their locks
            counter "rolled_back_for_earlier" = counts.step_backs;
            /// Times that reading waited for room
            counter "window_waits" = counts.window_waits;
            /// Transactions in memory
            gauge "window_transactions" = counts.window_transactions;
        }
    }
}
