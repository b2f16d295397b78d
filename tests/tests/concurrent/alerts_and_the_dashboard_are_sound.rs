//! Checks the alerts and the dashboard in `monitoring/`: Prometheus' own checks and unit tests of the rules, the metrics that they use,
//! and the pages that they link. All of it also runs against a ring with a real mysqld and a real Prometheus that scrapes it.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use testkit::cluster::prometheus::{Prometheus, PrometheusPrograms};
use testkit::wait::eventually;
use witness_tests::{StockReplica, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

fn repository() -> PathBuf {
    testkit::checkout()
}

fn monitoring(file: &str) -> PathBuf {
    repository().join("monitoring").join(file)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the values after a key at the beginning of a line.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text.lines();
    lines
        .filter_map(|line| line.trim().strip_prefix(key))
        .map(str::trim)
        .collect()
}

/// Returns the program's metrics that a text contains.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let named = words.filter(|word| word.starts_with("witness_") || word.starts_with("process_"));
    named.map(str::to_owned).collect()
}

/// Returns the queries of the dashboard, with its variables replaced.
fn dashboard_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read(&monitoring("dashboard.json"))).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    queries
        .map(|query| {
            let query = query.replace("$ring", "test").replace("$region", ".*");
            query.replace("$__rate_interval", "1m")
        })
        .collect()
}

#[test]
fn prometheus_accepts_the_alerts_and_each_fires_in_one_case_and_not_in_another() {
    let _turn = SCENES.take();
    let programs = PrometheusPrograms::provide().unwrap();
    let folder = repository().join("monitoring");
    programs
        .check(&folder, &["check", "rules", "alerts.yaml"])
        .unwrap();
    programs
        .check(&folder, &["test", "rules", "alerts_test.yaml"])
        .unwrap();

    let alerts = read(&monitoring("alerts.yaml"));
    let alerts: BTreeSet<&str> = values(&alerts, "- alert:").into_iter().collect();
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    let cases = read(&monitoring("alerts_test.yaml"));
    for case in cases.split("alertname: ").skip(1) {
        let (name, expected) = case.split_once('\n').unwrap();
        match expected.trim_start().starts_with("exp_alerts: []") {
            true => silent.insert(name),
            false => fires.insert(name),
        };
    }
    assert!(alerts.len() > 20, "{alerts:?}");
    assert_eq!(fires, alerts);
    assert_eq!(silent, alerts);
}

#[test]
fn each_alert_leads_to_a_page_and_each_page_is_found() {
    let _turn = SCENES.take();
    let alerts = read(&monitoring("alerts.yaml"));
    let linked = values(&alerts, "runbook_url:");
    assert_eq!(linked.len(), values(&alerts, "- alert:").len());
    for page in &linked {
        assert!(repository().join(page).is_file(), "{page} is no file");
    }
    let page = read(&repository().join("docs/monitoring.md"));
    for (alert, runbook) in values(&alerts, "- alert:").iter().zip(&linked) {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{alert}` (")));
        let link = runbook.trim_start_matches("docs/");
        assert!(
            row.is_some_and(|row| row.contains(link)),
            "docs/monitoring.md lacks {alert}, or its link to {link}"
        );
    }
    let folder = repository().join("docs/runbooks");
    let index = read(&folder.join("README.md"));
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_linked = linked.iter().any(|page| page.ends_with(&name));
        assert!(
            name == "README.md" || is_linked || index.contains(&format!("]({name})")),
            "no alert refers to docs/runbooks/{name}"
        );
    }
}

#[test]
fn a_real_prometheus_scrapes_a_ring_with_mysqld_and_its_alerts_fire() {
    let _turn = SCENES.take();
    let programs = PrometheusPrograms::provide().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = folder.path().join("cert.pem");
    let key = folder.path().join("key.pem");
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut set = replicaset_with(2, |options| {
        let section = "binlog_server";
        options
            .with_binlog_servers()
            .with(section, format!("tls_certificate_file = {certificate:?}"))
            .with(section, format!("tls_key_file = {key:?}"))
            .with("hooks", "on_primary = [\"true\"]")
            .with(
                "archive",
                format!("url = \"file://{}\"", folder.path().display()),
            )
    })
    .unwrap();
    set.follows(3, SOON).unwrap();
    let how = "SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1";
    let _consumer = StockReplica::attach(11, set.binlog_server(0), how).unwrap();
    let members: Vec<_> = (0..set.size()).map(|member| set.http(member)).collect();
    let prometheus = Prometheus::start(&programs, &members, &monitoring("alerts.yaml")).unwrap();
    set.client(0)
        .sql("INSERT INTO acked.rows VALUES (1, 0, 'one')")
        .unwrap();

    // If Prometheus refuses a member's page, the member counts as down.
    let all = format!("sum(up) == {}", members.len());
    eventually("all members are scraped", SOON, || {
        !prometheus.query(&all).unwrap().is_empty()
    })
    .unwrap();
    let named: BTreeSet<String> = dashboard_queries()
        .iter()
        .chain([&read(&monitoring("alerts.yaml"))])
        .flat_map(|text| metrics(text))
        .filter(|name| name != "witness_")
        .collect();
    assert!(named.len() > 40, "{named:?}");
    let missing = || -> BTreeSet<String> {
        let known = prometheus.metric_names().unwrap();
        let known: BTreeSet<String> = known.into_iter().collect();
        named.difference(&known).cloned().collect()
    };
    // This metric exists only after a fallback from a proxy.
    let rare = BTreeSet::from(["witness_proxy_fallbacks_total".to_owned()]);
    eventually("every metric that is named is there", SOON, || {
        let missing: Vec<String> = missing().difference(&rare).cloned().collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(format!("{missing:?}")),
        }
    })
    .unwrap();
    for query in dashboard_queries() {
        prometheus.query(&query).unwrap();
    }
    for (what, counted) in [
        (
            "a commit's wait was counted",
            "sum(witness_commit_wait_seconds_count) > 0",
        ),
        (
            "the primary's takeover was timed to its end",
            "sum(witness_takeover_phase_seconds_count{phase=\"open\"}) > 0",
        ),
    ] {
        eventually(what, SOON, || {
            !prometheus.query(counted).unwrap().is_empty()
        })
        .unwrap();
    }
    assert_eq!(
        prometheus.firing().unwrap(),
        Vec::<String>::new(),
        "all is well: {}",
        prometheus.words()
    );

    // Without both witnesses no entry can be committed.
    set.kill(1).unwrap();
    set.kill(2).unwrap();
    set.kill(3).unwrap();
    let expected = [
        "WitnessNoQuorum",
        "WitnessNoServingLeader",
        "WitnessNoWritablePrimary",
    ];
    eventually("the lost quorum is reported", SOON, || {
        let firing = prometheus.firing().unwrap();
        let told = expected
            .iter()
            .all(|name| firing.iter().any(|fires| fires == name));
        told.then_some(()).ok_or_else(|| format!("{firing:?}"))
    })
    .unwrap();
    for member in [1, 2, 3] {
        set.start(member).unwrap();
    }
    eventually("all is well again", SOON, || {
        let firing = prometheus.firing().unwrap();
        let over = expected
            .iter()
            .all(|name| !firing.iter().any(|fires| fires == name));
        over.then_some(()).ok_or_else(|| format!("{firing:?}"))
    })
    .unwrap();
}
