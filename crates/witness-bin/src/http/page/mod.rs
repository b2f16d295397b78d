//! The page at `/`: the ring as a picture and as text. A browser gets the page; any other client gets the answer of `/primary`, as
//! from Patroni's `/`. The page shows the data of `GET /ring`, which any member answers. The member queries the others only when a
//! client, such as an open page, requests a report of the ring. It always records the events that it observes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use consensus::quorum::majority_of;
use member::status::{MemberView, ViewSource};
use raft_types::MemberId;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::http::reports::RingReports;
use crate::operator::events::Events;
use crate::operator::{MemberReport, RingReport, hops};
use crate::text::event::Event;
use crate::text::member::{mysqld, notes, role};
use crate::text::ring::{self, explained};
use crate::text::times::now_ms;

/// The interval at which a member observes its own state.
const LOOK: Duration = Duration::from_secs(1);
/// A report of the ring up to this age counts as current.
const FRESH: Duration = Duration::from_secs(5);

/// The data of the page. Clones share it.
#[derive(Clone)]
pub struct RingPage {
    pub(super) view: Arc<dyn ViewSource>,
    /// Reports of all members, collected only for clients.
    pub(super) reports: RingReports,
    pub(super) events: Arc<Mutex<Events>>,
}

impl RingPage {
    /// Observes this member every second, so that events are recorded while no browser has the page open. Does not return.
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

// The assets for the browser. This member serves all of them, and no inline script runs.

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

/// True if a browser sent the request. A browser's `Accept` names HTML; load balancers and scripts name no type, or all types.
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
        // Browsers must not cache an asset: after an upgrade, the page needs its new script.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (StatusCode::OK, headers, text).into_response()
}

// `GET /runbooks/NAME`: this version's runbooks from `docs/`. An operator can read them even if only the member is reachable.

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
    "restored-data-directory"
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

// `GET /ring`: the ring at one moment, with all data that the page shows. Pure.

/// Returns the JSON document of `GET /ring`. Later versions may add fields, but not remove any. `own` is the view of the member that
/// answers, and `now_ms` is the time on its clock.
pub(super) fn ring_document(
    now_ms: u64,
    own: &MemberView,
    report: &RingReport,
    events: &Events,
) -> Value {
    let explained = explained(report);
    let verdict = ring::quorum(report);
    let leader = report.leader_view();
    // If there is no leader, the voters are read from this member's log.
    let ring = leader.unwrap_or(own);
    let counted: BTreeSet<_> = ring.voter_sets.iter().flatten().copied().collect();
    // A commit needs a majority of each voter set.
    let voter_sets = ring.voter_sets.iter();
    let voter_sets =
        voter_sets.map(|set| json!({ "members": set, "required": majority_of(set.len()) }));
    let members = report.members.iter();
    let members = members.map(|one| member(one, report, &counted));
    let seen = events.kept().rev().map(|Event { at_ms, change }| {
        json!({ "at_ms": at_ms, "level": change.level(), "text": change.to_string() })
    });
    json!({
        "ring": report.ring,
        "now_ms": now_ms,
        "seen_by": own.member.name,
        "version": own.version,
        "uptime_seconds": own.uptime_seconds,
        "leader": report.leader,
        "quorum": report.quorum,
        // The sentence about the quorum: its beginning, and the rest.
        "verdict": [verdict.begins, &verdict.rest],
        "verdict_level": verdict.level,
        "tolerates": report.tolerates,
        "policy": ring.rules.policy.to_string(),
        "commit": explained.commit,
        "elections": explained.elections,
        "voter_sets": voter_sets.collect::<Vec<_>>(),
        "warnings": warnings(report),
        "members": members.collect::<Vec<_>>(),
        // The path of log entries; empty without a leader.
        "hops": leader.map(hops).unwrap_or_default(),
        // The events that this member observed, the newest first.
        "events": seen.collect::<Vec<_>>(),
    })
}

/// Returns the warnings: contradictions, the pause of failover, and the notes on each member.
fn warnings(report: &RingReport) -> Vec<String> {
    let mut warnings = report.warnings.clone();
    warnings.extend(ring::pause(report));
    for member in &report.members {
        let notes = notes(member).into_iter();
        warnings.extend(notes.map(|note| format!("`{}`: {note}", member.name)));
    }
    warnings
}

/// Returns one member for the document. If the member does not answer, the fields that only it can report are null.
fn member(of: &MemberReport, report: &RingReport, counted: &BTreeSet<MemberId>) -> Value {
    let view = of.view.as_ref();
    let mysql = view.and_then(|view| view.mysql.as_ref());
    json!({
        "id": of.id,
        "name": of.name,
        "region": of.region,
        "kind": of.kind,
        "address": of.address,
        // True if the member may vote, and whether it counts in the quorum now.
        "votes": of.votes,
        "in_quorum": counted.contains(&of.id),
        "vote": vote(of, report, counted),
        "leads": report.leader == Some(of.id),
        "answers": view.is_some(),
        "role": view.map(|view| role(view, report)),
        "mysqld": mysql.map(mysqld),
        "lag_entries": of.lag_entries,
        "lag_ms": mysql.and_then(|mysql| mysql.lag_ms),
        "term": view.map(|view| view.term),
        "log_end": view.and_then(|view| view.log_end),
        "committed": view.and_then(|view| view.committed),
        "log_file": view.map(|view| &view.log.file),
        "log_file_bytes": view.map(|view| view.log.file_bytes),
        "mysqld_version": mysql.and_then(|mysql| mysql.version.as_ref()),
        "version": view.map(|view| &view.version),
        "uptime_seconds": view.map(|view| view.uptime_seconds),
    })
}

/// Returns a phrase for a member's part in the quorum: a voter that does not answer, in the quorum, not in it, or without a vote.
fn vote(of: &MemberReport, report: &RingReport, counted: &BTreeSet<MemberId>) -> &'static str {
    let leader = report.leader_view();
    let mut sets = leader.iter().flat_map(|view| &view.voter_set_health);
    let silent = of.view.is_none() || sets.any(|set| set.silent.contains(&of.id));
    match (counted.contains(&of.id), of.votes) {
        (true, _) if silent => "voter, does not answer",
        (true, _) => "in the quorum",
        (false, true) => "not in the quorum",
        (false, false) => "no vote",
    }
}

#[cfg(test)]
mod tests {
    use member::status::sample::{database_leader, witness_follower};
    use proxy::RouteView;

    use super::*;
    use crate::operator::MemberReport;

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

    fn document(own: &MemberView, asked: Vec<MemberReport>) -> Value {
        let report = RingReport::new("orders", asked);
        ring_document(1_000, own, &report, &Events::default())
    }

    fn silent() -> Result<MemberView, String> {
        Err("connection refused".to_owned())
    }

    #[test]
    fn the_document_has_what_the_page_draws() {
        let mut leader = database_leader();
        let routes = leader.replication_routes.as_mut().unwrap();
        let route = |member, through: &[u64]| RouteView {
            member: MemberId(member),
            through: through.iter().copied().map(MemberId).collect(),
            because: None,
        };
        routes.routes = vec![route(2, &[]), route(3, &[2])];
        let members = vec![
            MemberReport::sample(1, "db-1", Ok(leader)),
            MemberReport::sample(2, "witness-1", Ok(witness_follower())),
            MemberReport::sample(3, "witness-2", silent()),
        ];
        let seen = document(&witness_follower(), members);
        assert_eq!(seen["leader"], 1);
        let rest = ", `db-1` leads ring `orders`; it tolerates 1 more failure, but not of `db-1`, the only database member";
        assert_eq!(seen["verdict"][1], rest);
        assert_eq!(
            (&seen["tolerates"], &seen["verdict_level"]),
            (&json!(1), &json!("good"))
        );
        assert_eq!(
            seen["voter_sets"],
            json!([{ "members": [1, 2, 3], "required": 2 }])
        );
        assert_eq!(
            seen["hops"],
            json!([{ "from": 1, "to": 2 }, { "from": 2, "to": 3 }])
        );
        assert_eq!(
            seen["warnings"],
            json!(["`witness-2`: no answer: connection refused. See the runbook lost-member"])
        );
        let brief = |at: usize| {
            let member = &seen["members"][at];
            let keys = ["name", "leads", "answers", "role", "mysqld", "vote"];
            keys.map(|key| member[key].clone())
        };
        let expected = json!([
            ["db-1", true, true, "leader", "primary", "in the quorum"],
            ["witness-1", false, true, "follower", null, "in the quorum"],
            [
                "witness-2",
                false,
                false,
                null,
                null,
                "voter, does not answer"
            ],
        ]);
        assert_eq!(json!([brief(0), brief(1), brief(2)]), expected);
    }

    #[test]
    fn without_a_leader_it_says_why_and_what_to_do_and_whom_it_knows() {
        let mut own = witness_follower();
        own.leader = None;
        let members = vec![
            MemberReport::sample(1, "db-1", silent()),
            MemberReport::sample(2, "witness-1", Ok(own.clone())),
            MemberReport::sample(3, "witness-2", silent()),
        ];
        let seen = document(&own, members);
        assert_eq!(seen["leader"], Value::Null);
        assert_eq!(seen["verdict"][0], "No quorum");
        assert_eq!(
            seen["verdict"][1],
            ": 1 of 3 voters answer and 2 are needed. Commits wait."
        );
        let fix = seen["quorum"]["fix"].as_str().unwrap();
        assert!(fix.contains("start witness on `db-1`"), "{fix}");
        assert_eq!(seen["voter_sets"][0]["members"], json!([1, 2, 3]));
        assert_eq!(seen["members"].as_array().map(Vec::len), Some(3));
    }
}
