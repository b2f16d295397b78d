//! The page at `/`: the ring as a picture and as text. A browser gets the page; any other client gets the answer of `/primary`, as
//! from Patroni's `/`. The page shows `GET /ring`, which any member answers. The member asks the others while a browser has the page
//! open, and keeps the events that it observed.

mod document;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use member::status::ViewSource;
use serde_json::Value;
use tokio::time::MissedTickBehavior;

use crate::http::page::document::ring_document;
use crate::http::reports::RingReports;
use crate::operator::events::Events;
use crate::text::times::now_ms;

/// The interval at which a member observes its own state.
const LOOK: Duration = Duration::from_secs(1);
/// Answers of this age count as current.
const FRESH: Duration = Duration::from_secs(5);

/// The data of the page. Clones share it.
#[derive(Clone)]
pub struct RingPage {
    pub(super) view: Arc<dyn ViewSource>,
    /// Of the other members.
    pub(super) reports: RingReports,
    pub(super) events: Arc<Mutex<Events>>,
}

impl RingPage {
    /// Observes the member for as long as it is polled, so that events are recorded while no browser has the page open.
    pub async fn watch(&self) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.look();
        }
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self) {
        let view = self.view.view();
        let report = self.reports.not_older(FRESH);
        self.events().see(now_ms(), &view, report.as_deref());
    }

    async fn document(&self) -> Value {
        let report = self.reports.report().await;
        self.look();
        let own = self.view.view();
        ring_document(now_ms(), &own, &report, &self.events())
    }
}

// The assets for the browser. All are served by this member: none is fetched from elsewhere, and no inline script runs.

const HTML: &str = include_str!("assets/page.html");
const CSS: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
const ICON: &str = include_str!("assets/icon.svg");

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /ring`, and the assets of the page.
pub(super) fn routes<S>() -> Router<S>
where
    RingPage: FromRef<S>,
    S: Clone + Send + Sync + 'static,
{
    let file = |kind, text| get(move || async move { asset(kind, text) });
    Router::new()
        .route("/ring", get(ring))
        .route("/page/page.css", file("text/css; charset=utf-8", CSS))
        .route(
            "/page/page.js",
            file("text/javascript; charset=utf-8", SCRIPT),
        )
        .route("/page/icon.svg", file("image/svg+xml", ICON))
}

/// The page.
pub(super) fn html() -> Response {
    asset("text/html; charset=utf-8", HTML)
}

async fn ring(State(page): State<RingPage>) -> Response {
    let document = page.document().await;
    ([(header::CACHE_CONTROL, "no-store")], Json(document)).into_response()
}

/// A browser's `Accept` names HTML; load balancers and scripts name no type, or all types.
pub(super) fn is_a_browser(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // The page of the next version has another script.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (StatusCode::OK, headers, text).into_response()
}

// `GET /runbooks/NAME`: this version's runbooks from `docs/`, so that the page and `witness status` can refer to them where only the
// member is reachable.

macro_rules! runbooks {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../../docs/runbooks/", $name, ".md")))),*]
    };
}

const RUNBOOKS: [(&str, &str); 22] = runbooks!(
    "adding-a-region"
    "archive-behind"
    "archive-gap"
    "certificates"
    "consumer-behind"
    "data-directory-put-back"
    "errant-transactions"
    "full-disk"
    "hooks"
    "leader-flapping"
    "lost-member"
    "lost-quorum"
    "lost-region"
    "mysqld-down"
    "pause"
    "replica-lag"
    "restore"
    "ring-not-scraped"
    "slow-disk"
    "stalled-primary"
    "two-serve"
    "unprotected-primary"
);

pub(super) async fn runbook(Path(name): Path<String>) -> Response {
    let found = RUNBOOKS.iter().find(|(known, _)| *known == name);
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    match found {
        Some((_, text)) => (headers, *text).into_response(),
        None => {
            let known: Vec<_> = RUNBOOKS.iter().map(|(known, _)| *known).collect();
            let known = known.join(" ");
            let text = format!("no runbook has that name; there are {known}\n");
            (StatusCode::NOT_FOUND, headers, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_is_told_from_a_balancer() {
        let asks = |accept: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.extend(accept.map(|accept| (header::ACCEPT, accept.parse().unwrap())));
            is_a_browser(&headers)
        };
        let firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert!(asks(Some(firefox)));
        for other in [None, Some("*/*"), Some("application/json")] {
            assert!(!asks(other), "{other:?}");
        }
    }

    #[test]
    fn the_page_needs_nobody_else_and_runs_nothing_of_what_it_shows() {
        for (name, text) in [
            ("html", HTML),
            ("css", CSS),
            ("script", SCRIPT),
            ("icon", ICON),
        ] {
            let named = text.replace("http://www.w3.org/2000/svg", "");
            for foreign in ["http:", "https:", "//cdn", "@import", "url("] {
                assert!(!named.contains(foreign), "{name} has {foreign}");
            }
        }
        // The policy forbids inline scripts and styles; a browser would ignore them.
        for inside in ["<script>", "<style", " style=", " onclick=", " onload="] {
            assert!(!HTML.contains(inside), "{inside}");
        }
        // A member may be named `<script>`: its name is text, and is never parsed as HTML.
        for parses in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "eval(",
            "new Function",
        ] {
            assert!(!SCRIPT.contains(parses), "{parses}");
        }
        assert!(!POLICY.contains("unsafe") && POLICY.starts_with("default-src 'none'"));
    }
}

#[cfg(test)]
mod runbook_tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_runbook_of_the_documentation_is_served() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runbooks");
        let pages = std::fs::read_dir(folder).unwrap();
        let names = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
        let mut names: BTreeSet<String> = names
            .filter_map(|name| Some(name.strip_suffix(".md")?.to_owned()))
            .collect();
        names.remove("README");
        let served = RUNBOOKS.iter().map(|(name, _)| (*name).to_owned());
        assert_eq!(served.collect::<BTreeSet<_>>(), names);
    }

    #[test]
    fn every_runbook_of_a_sentence_is_served() {
        let sentences = include_str!("../../text/sentences.txt");
        let mut named = 0;
        for rest in sentences.split("See the runbook ").skip(1) {
            let name = rest
                .split(|c: char| !c.is_ascii_lowercase() && c != '-')
                .next();
            let is_served = RUNBOOKS.iter().any(|(known, _)| Some(*known) == name);
            assert!(is_served, "{name:?}");
            named += 1;
        }
        assert!(named > 10, "{named}");
    }
}
