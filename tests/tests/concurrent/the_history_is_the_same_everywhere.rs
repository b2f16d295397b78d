//! A ring's events are in its log: leaders with times and reasons, and commands with their authors. Every member reports the same history,
//! even after all members were restarted. A postponed switchover is also stored there.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, SystemTime};

use serde_json::Value;
use testkit::cluster::{Cluster, http_get, http_order};
use testkit::wait::eventually;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const TOKEN: &str = "an-operators-token";

/// Returns the events of `witness history`, in their order.
fn events(set: &Cluster) -> Vec<Value> {
    let told = set.cli_of(1, &["--output", "json", "history"]).unwrap();
    let told: Value = serde_json::from_str(&told.into_text("witness history").unwrap()).unwrap();
    told.as_array().unwrap().clone()
}

fn wait_for(set: &Cluster, what: &str, found: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually(what, SOON, || {
        let events = events(set);
        found(&events).then_some(events)
    })
    .unwrap()
}

/// Returns the history when it no longer changes: a member adds its entry some seconds after the event.
fn settled(set: &Cluster) -> Vec<Value> {
    let mut told = events(set);
    eventually("a history that stays as it is", SOON, || {
        std::thread::sleep(Duration::from_secs(8));
        let before = std::mem::replace(&mut told, events(set));
        (told == before).then_some(())
    })
    .unwrap();
    told
}

fn has(events: &[Value], event: &str, words: &str) -> bool {
    let mut events = events.iter();
    events.any(|one| one["event"] == event && one["what"].as_str().unwrap().contains(words))
}

#[test]
fn every_member_has_the_history_even_after_its_restart() {
    let _turn = SCENES.take();
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let mut set = replicaset_with(2, |options| {
        options.with("http", format!("token_file = {token:?}"))
    })
    .unwrap();
    set.follows(3, SOON).unwrap();
    set.promote("db-2", SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 3);
    set.follows(0, SOON).unwrap();
    let by_order = "switchover from `db-1`, ordered by";
    wait_for(&set, "the switchover in the history", |events| {
        has(events, "led", by_order)
    });

    // A failover, with the time during which writes were impossible.
    set.kill_host(3).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 0);
    wait_for(&set, "the failover in the history", |events| {
        let resumed = events.iter().rfind(|one| one["event"] == "writes_resumed");
        let lasted = |one: &Value| one["ended"]["lasted_ms"].as_u64();
        has(events, "led", "`db-1` leads: elected")
            && resumed.is_some_and(|one| one["member"]["name"] == "db-1" && lasted(one) > Some(0))
    });
    set.start(3).unwrap();
    set.follows(3, SOON).unwrap();

    // A command is stored in the same entry as its effect.
    set.cli_of(1, &["pause", "--reason", "disks"])
        .unwrap()
        .into_text("witness")
        .unwrap();
    set.cli_of(1, &["resume"])
        .unwrap()
        .into_text("witness")
        .unwrap();
    let told = events(&set);
    assert!(
        has(&told, "paused", "`db-1` stays the primary: disks"),
        "{told:?}"
    );
    assert!(
        has(&told, "resumed", "The pause of failover ended"),
        "{told:?}"
    );

    // A postponed switchover can be cancelled. Otherwise it is carried out at its time.
    let at = |seconds| {
        let at = SystemTime::now() + Duration::from_secs(seconds);
        humantime::format_rfc3339_seconds(at).to_string()
    };
    let over = http_order(
        set.http(0),
        "/switchover",
        TOKEN,
        r#"{"candidate": "db-2", "scheduled_at": "2020-01-01T00:00:00Z"}"#,
    );
    assert_eq!(over.unwrap().status, 412);
    set.cli_of(1, &["switchover", "db-2", "--at", &at(3600)])
        .unwrap()
        .into_text("witness")
        .unwrap();
    let status = set
        .cli_of(1, &["status"])
        .unwrap()
        .into_text("witness")
        .unwrap();
    assert!(
        status.contains("a switchover to `db-2` is scheduled"),
        "{status}"
    );
    set.cli_of(1, &["switchover", "--cancel"])
        .unwrap()
        .into_text("witness")
        .unwrap();
    let body = format!(r#"{{"candidate": "db-2", "scheduled_at": "{}"}}"#, at(3));
    let put_off = http_order(set.http(0), "/switchover", TOKEN, &body).unwrap();
    assert_eq!(put_off.status, 202, "{put_off:?}");
    let cluster = http_get(set.http(1), "/cluster").unwrap().json().unwrap();
    assert_eq!(
        cluster["scheduled_switchover"]["to"],
        set.id(3),
        "{cluster}"
    );
    eventually("the scheduled switchover is done", SOON, || {
        (set.primary_now() == Some(3)).then_some(())
    })
    .unwrap();
    wait_for(&set, "the scheduled switchover in the history", |events| {
        has(
            events,
            "led",
            "`db-2` leads: `db-1` gave the leadership away: scheduled switchover",
        )
    });
    let told = settled(&set);
    assert!(has(&told, "unscheduled", "was taken back"), "{told:?}");
    let cluster = http_get(set.http(1), "/cluster").unwrap().json().unwrap();
    assert_eq!(cluster["scheduled_switchover"], Value::Null, "{cluster}");

    for index in 0..set.size() {
        set.stop(index).unwrap();
    }
    for index in 0..set.size() {
        set.start(index).unwrap();
    }
    set.primary(SOON).unwrap();
    let begins_with =
        |events: &[Value]| events.len() > told.len() && events[..told.len()] == told[..];
    let after = wait_for(&set, "the leadership after the restart", |events| {
        let mut later = events.iter().skip(told.len());
        begins_with(events) && later.any(|one| one["event"] == "led")
    });
    println!("{} entries, then {}", told.len(), after.len());
    // Rows as in Patroni's history: term, index, reason, time, leader.
    let rows = |index: usize| {
        http_get(set.http(index), "/history")
            .unwrap()
            .json()
            .unwrap()
    };
    eventually("every member tells the same", SOON, || {
        let first = rows(0);
        let same = (1..set.size()).all(|index| rows(index) == first);
        (same && first[0][4] == "db-1").then_some(())
    })
    .unwrap();
}

/// Counts the events of this kind that ended a state of at least this duration.
fn ended(events: &[Value], event: &str, at_least: Duration) -> usize {
    let long = |one: &&Value| {
        let lasted = one["ended"]["lasted_ms"].as_u64();
        one["event"] == event
            && lasted.is_some_and(|lasted| u128::from(lasted) >= at_least.as_millis())
    };
    events.iter().filter(long).count()
}

/// Regression: the history lacked a quorum loss and a stop of the whole ring. The duration of an outage began with the last request of a
/// leader that could not serve.
#[test]
fn interruptions_have_their_begin_their_end_and_their_cause() {
    let _turn = SCENES.take();
    let outage = Duration::from_secs(8);
    let mut set = replicaset_with(1, |options| options).unwrap();
    set.primary(SOON).unwrap();

    set.kill(1).unwrap();
    wait_for(&set, "the lost witness", |events| {
        has(events, "member_lost", "witness-1")
    });
    set.kill(2).unwrap();
    std::thread::sleep(outage);
    set.start(1).unwrap();
    set.start(2).unwrap();
    set.primary(SOON).unwrap();
    let told = wait_for(&set, "the end of the outage", |events| {
        ended(events, "quorum_back", outage) > 0 && ended(events, "writes_resumed", outage) > 0
    });
    assert_eq!(ended(&told, "quorum_back", outage), 1, "{told:?}");
    wait_for(&set, "the witness that came back", |events| {
        ended(events, "member_back", outage) > 0
    });
    assert!(
        has(
            &told,
            "writes_stopped",
            "Clients could no longer write at `db-1`: "
        ),
        "{told:?}"
    );
    let printed = set
        .cli_of(1, &["history"])
        .unwrap()
        .into_text("witness history")
        .unwrap();
    assert!(
        printed.contains("The longest time in which clients could not write: "),
        "{printed}"
    );

    for index in 0..set.size() {
        set.stop(index).unwrap();
    }
    std::thread::sleep(outage);
    for index in 0..set.size() {
        set.start(index).unwrap();
    }
    set.primary(SOON).unwrap();
    wait_for(&set, "the stop of the whole ring", |events| {
        ended(events, "writes_resumed", outage) > 1
    });
}
