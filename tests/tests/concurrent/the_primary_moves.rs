//! Several database members with real mysqlds follow. One is promoted while clients are connected, and the primary's host dies.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::cluster::{Cluster, HttpAnswer, http_order};
use testkit::wait::eventually;
use witness_tests::{Writers, WrittenRows, replicaset, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_switchover_is_ordered_over_http() {
    let _turn = SCENES.take();
    const TOKEN: &str = "an-operators-token";
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let set = replicaset_with(2, |options| {
        options.with("http", format!("token_file = {token:?}"))
    })
    .unwrap();
    set.follows(3, SOON).unwrap();
    let order = |member: usize, body: &str| -> HttpAnswer {
        http_order(set.http(member), "/switchover", TOKEN, body).unwrap()
    };
    // Invalid requests, and requests whose conditions are not met, change nothing.
    let stranger = http_order(set.http(0), "/switchover", "guessed", "{}").unwrap();
    let refused = [
        (stranger, 401),
        (order(0, "{}"), 400),
        (order(0, r#"{"candidate": "db-9"}"#), 412),
        (order(0, r#"{"leader": "db-2", "candidate": "db-1"}"#), 412),
        (order(0, r#"{"candidate": "db-1"}"#), 412),
        (order(3, r#"{"candidate": "db-2"}"#), 307),
    ];
    for (answer, expected) in refused {
        assert_eq!(answer.status, expected, "{answer:?}");
        assert_eq!(answer.json().unwrap()["ok"], false, "{answer:?}");
    }
    assert_eq!(set.primary(SOON).unwrap(), 0);

    let clients = Writers::of(&set, 4, 0);
    clients.wait_for_more(100, SOON).unwrap();
    // Restarting a follower's mysqld interrupts no writer.
    let restart = |member: usize| http_order(set.http(member), "/restart", TOKEN, "").unwrap();
    let up_since = |member: usize| {
        let since = "SELECT NOW() - INTERVAL VARIABLE_VALUE SECOND FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime'";
        set.client(member).value(since).unwrap()
    };
    let replica = up_since(3);
    assert_eq!(restart(0).status, 412);
    let restarted = restart(3);
    assert_eq!(restarted.status, 200, "{restarted:?}");
    set.follows(3, SOON).unwrap();
    assert!(up_since(3) > replica, "it is another one");
    assert_eq!(set.primary(SOON).unwrap(), 0);
    clients.wait_for_more(100, SOON).unwrap();
    let done = order(0, r#"{"leader": "db-1", "candidate": "db-2"}"#);
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(set.primary(SOON).unwrap(), 3);
    clients.wait_for_more(100, SOON).unwrap();
    let gone = order(0, r#"{"candidate": "db-2"}"#);
    assert_eq!(gone.status, 307, "{gone:?}");
    let leader = done.json().unwrap()["leader"].clone();
    assert_eq!(gone.json().unwrap()["leader"], leader, "{gone:?}");

    // The primary's mysqld is restarted only with `force`. Whichever member is the primary after that, no row is lost.
    set.follows(0, SOON).unwrap();
    let forced = http_order(set.http(3), "/restart", TOKEN, r#"{"force": true}"#).unwrap();
    assert_eq!(forced.status, 200, "{forced:?}");
    set.primary(SOON).unwrap();
    clients.wait_for_more(100, SOON).unwrap();
    let written = clients.finish().unwrap();
    nothing_is_lost(&set, &written);
}

/// The follower's apply stalls without a lag: its applier waits for mysqld to answer.
#[test]
fn neither_readers_nor_the_primary_go_to_a_mysqld_that_hangs_or_is_drained() {
    let _turn = SCENES.take();
    let set = replicaset(2).unwrap();
    set.follows(3, SOON).unwrap();
    let reason_of_no = |why: &str| {
        set.eventually(&format!("it is no replica: {why}"), SOON, || {
            let answer = set.get(3, "/replica")?;
            anyhow::ensure!(answer.status == 503, "{answer:?}");
            anyhow::ensure!(answer.body.contains(why), "{answer:?}");
            Ok(())
        })
        .unwrap();
    };
    assert!(set.server(3).signal(Signal::STOP).unwrap());
    reason_of_no("does not follow the ring");
    let refused = set.cli_of(1, &["switchover", "db-2", "--yes"]).unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{told}");
    assert!(told.contains("--force"), "{told}");
    assert_eq!(set.primary(SOON).unwrap(), 0);
    assert!(set.server(3).signal(Signal::CONT).unwrap());
    set.follows(3, SOON).unwrap();

    let offline_mode = |value: &str| {
        let set_it = format!("SET GLOBAL offline_mode = {value}");
        set.client(3).sql(&set_it).unwrap();
    };
    offline_mode("ON");
    reason_of_no("offline_mode is on");
    offline_mode("OFF");
    set.follows(3, SOON).unwrap();
    set.promote("db-2", SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 3);
}

/// Returns the program names of the sessions that a member keeps at its mysqld. The applier's workers are not included, and neither is
/// the short login that checks the account (docs/mysqld-sessions.md).
fn sessions_of_the_member(set: &Cluster, index: usize) -> Vec<String> {
    let rows = set
        .client(index)
        .sql(
            "SELECT a.attr_value FROM performance_schema.processlist AS p \
             JOIN performance_schema.session_connect_attrs AS a ON a.processlist_id = p.id \
             WHERE p.user = 'root' AND a.attr_name = 'program_name' AND a.attr_value LIKE 'witness%' \
             AND a.attr_value NOT IN ('witness-applier', 'witness-own-account') ORDER BY a.attr_value",
        )
        .unwrap();
    rows.0.into_iter().flatten().collect()
}

/// Lists the sessions repeatedly, for longer than every interval of a member's checks except the slowest.
fn keeps_at_most_five_sessions(set: &Cluster, primary: usize, follower: usize) {
    let until = Instant::now() + Duration::from_secs(6);
    let mut most = 0;
    while Instant::now() < until {
        for index in [primary, follower] {
            let sessions = sessions_of_the_member(set, index);
            assert!(sessions.len() <= 5, "member {index}: {sessions:?}");
            if index == primary {
                most = most.max(sessions.len());
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Two dumps, two sessions in reserve, and the session that watches mysqld.
    assert_eq!(most, 5, "{:?}", sessions_of_the_member(set, primary));
}

#[test]
fn a_promotion_moves_the_primary_with_clients_connected() {
    let _turn = SCENES.take();
    let set = replicaset(2).unwrap();
    set.follows(3, SOON).unwrap();
    let read_only = set.client(3).variable("read_only").unwrap();
    assert_eq!(read_only, "1", "clients cannot write to a follower");
    eventually("the sessions of the attachment are there", SOON, || {
        sessions_of_the_member(&set, 0).len() == 5
    })
    .unwrap();
    keeps_at_most_five_sessions(&set, 0, 3);
    let clients = Writers::of(&set, 4, 0);
    clients.wait_for_more(200, SOON).unwrap();
    keeps_at_most_five_sessions(&set, 0, 3);
    for (round, name) in ["db-2", "db-1", "db-2"].into_iter().enumerate() {
        // A switchover to a member that does not follow yet is refused.
        set.follows(3 - set.primary(SOON).unwrap(), SOON).unwrap();
        set.promote(name, SOON).unwrap();
        let promoted = set.primary(SOON).unwrap();
        assert_eq!(set.name(promoted), name);
        let waited = clients.wait_for_more(100, SOON).unwrap();
        println!("round {round}: a hundred commits {waited:?} after the promotion");
    }
    let written = clients.finish().unwrap();
    nothing_is_lost(&set, &written);
    println!(
        "{} commits, the longest pause {:?}",
        written.acknowledged().len(),
        written.longest_pause()
    );
}

#[test]
fn a_long_statement_holds_a_switchover_up_for_the_operators_limit_alone() {
    let _turn = SCENES.take();
    const LIMIT: Duration = Duration::from_secs(6);
    let set = replicaset_with(2, |options| {
        let limit = format!("kill_statements_after = \"{}s\"", LIMIT.as_secs());
        options.with("mysql", limit)
    })
    .unwrap();
    let primary = set.primary(SOON).unwrap();
    let other = 3 - primary;
    let client = set.client(primary);
    let rows: Vec<String> = (1..=60).map(|id| format!("({id}, 0)")).collect();
    client
        .sql(&format!(
            "CREATE TABLE acked.long_one (id INT PRIMARY KEY, n INT); INSERT INTO acked.long_one VALUES {}; \
             CREATE TABLE acked.locked LIKE acked.long_one",
            rows.join(", ")
        ))
        .unwrap();
    set.follows(other, SOON).unwrap();
    // An update that takes a second per row; a transaction that has locked a table; and a reader, which blocks nothing.
    let update = "BEGIN; UPDATE acked.long_one SET n = 1 WHERE id = 1; UPDATE acked.long_one SET n = 2 + 0 * SLEEP(1)";
    let pending = [
        update,
        "LOCK TABLES acked.locked WRITE; SELECT SLEEP(90)",
        "SELECT SLEEP(90)",
    ]
    .map(|statements| client.start_sql(statements).unwrap());
    let asleep =
        "SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_state = 'User sleep'";
    eventually("they run", SOON, || client.value(asleep).unwrap() == "3").unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    let clients = Writers::of(&set, 2, 1000);
    clients.wait_for_more(10, SOON).unwrap();

    let config = set.config(1).display().to_string();
    let name = if other == 0 { "db-1" } else { "db-2" };
    let arguments = ["switchover", name, "--yes", "--config", &config];
    let mut acknowledged = Vec::new();
    let (began, switchover, told) = std::thread::scope(|scope| {
        let switchover = scope.spawn(|| {
            let deadline = Instant::now() + SOON;
            loop {
                let began = Instant::now();
                let done = set.cli(&arguments).unwrap();
                let told = String::from_utf8_lossy(&done.stderr).into_owned();
                // On a busy machine the switchover may be refused for a short time, because the target has just missed an answer.
                let for_good = told.contains("statement") || Instant::now() > deadline;
                if done.status.success() || for_good {
                    return (began, done, told);
                }
            }
        });
        while !switchover.is_finished() {
            acknowledged.push((Instant::now(), clients.acknowledged()));
            std::thread::sleep(Duration::from_millis(50));
        }
        switchover.join().unwrap()
    });
    let took = began.elapsed();
    assert!(
        switchover.status.success(),
        "after {took:?}: {told}\n{}",
        set.words()
    );
    let first_half = began..began + LIMIT / 2;
    let mut first_half = acknowledged
        .iter()
        .filter(|(at, _)| first_half.contains(at));
    let (_, before) = first_half.next().unwrap();
    let during = first_half.next_back().unwrap().1 - before;
    assert_eq!(set.primary(SOON).unwrap(), other);
    println!("{took:?}; {during} commits in the first half of the limit");
    assert!(took > LIMIT, "they were not waited for: {took:?}");
    assert!(took < LIMIT * 3, "{took:?}");
    assert!(during > 0, "writes did not continue during the move");
    let [update, locker, reader] = pending;
    for killed in [update, locker] {
        let lost = killed.finish(SOON).unwrap_err().to_string();
        assert!(lost.contains("2013") || lost.contains("1317"), "{lost}");
    }
    drop(reader);
    clients.wait_for_more(20, SOON).unwrap();
    let written = clients.finish().unwrap();
    nothing_is_lost(&set, &written);
    let changed = set
        .client(other)
        .value("SELECT COUNT(*) FROM acked.long_one WHERE n > 0");
    assert_eq!(changed.unwrap(), "0", "the transaction was rolled back");
}

/// Regression, found by the nemesis: a leader lacked transactions when its mysqld started. It began and ended its applier indefinitely,
/// and never began to apply.
#[test]
fn a_leader_with_a_lagging_mysqld_catches_up_and_opens() {
    let _turn = SCENES.take();
    let mut set = replicaset(2).unwrap();
    set.follows(3, SOON).unwrap();
    set.server(3).kill().unwrap();
    let clients = Writers::of(&set, 4, 0);
    clients.wait_for_more(50, SOON).unwrap();
    set.kill_host(0).unwrap();
    // Its mysqld is down when the member becomes the leader.
    let serves = |set: &Cluster| {
        let status = set.get(3, "/status").and_then(|answer| answer.json());
        status.is_ok_and(|status| status["serving"] == true)
    };
    let led = set.eventually("it leads", SOON, || {
        let serves = serves(&set);
        set.server(3).kill().unwrap();
        serves
    });
    led.unwrap();
    // No other mysqld could be the primary. A leader whose mysqld cannot be the primary waits longer then.
    let waited = clients.wait_for_more(100, Duration::from_secs(25)).unwrap();
    println!("a hundred commits {waited:?} after it came to lead");
    let written = clients.finish().unwrap();
    set.start(0).unwrap();
    nothing_is_lost(&set, &written);
    the_host_of_the_primary_dies_and_returns_by_itself(&mut set, written);
}

fn the_host_of_the_primary_dies_and_returns_by_itself(set: &mut Cluster, mut written: WrittenRows) {
    for round in 1..5 {
        let follower = 3 - set.primary(SOON).unwrap();
        set.follows(follower, SOON).unwrap();
        let clients = Writers::of(set, 8, round * 1_000_000);
        clients.wait_for_more(200, SOON).unwrap();
        let primary = set.primary(SOON).unwrap();
        set.kill_host(primary).unwrap();
        let waited = clients.wait_for_more(1, SOON).unwrap();
        println!("round {round}: the first commit {waited:?} after the kill");
        clients.wait_for_more(100, SOON).unwrap();
        set.start(primary).unwrap();
        // The clients end, so that the follower can catch up.
        written = written.and(clients.finish().unwrap());
        set.follows(primary, SOON).unwrap();
    }
    nothing_is_lost(set, &written);
}

/// An administrator writes to a follower's mysqld. These writes are not the ring's, even if the member has lost its state and becomes the
/// leader before its next check.
#[test]
fn an_administrators_writes_to_a_follower_never_enter_the_ring() {
    let _turn = SCENES.take();
    let mut set = replicaset(2).unwrap();
    let insert = |id| format!("INSERT INTO acked.rows VALUES ({id}, 0, 'row')");
    set.client(0).sql(&insert(1)).unwrap();
    set.follows(3, SOON).unwrap();
    let follower = set.client(3);
    eventually("it has the row of the primary", SOON, || {
        let rows = follower.value("SELECT COUNT(*) FROM acked.rows");
        rows.is_ok_and(|rows| rows == "1")
    })
    .unwrap();
    set.kill(3).unwrap();
    follower.sql(&insert(2)).unwrap();
    let errant = format!("{}:1", follower.variable("server_uuid").unwrap());
    set.kill_host(0).unwrap();
    set.start(3).unwrap();
    let stopped = set.eventually("it leads and is no primary", SOON, || {
        let view = set.get(3, "/status").and_then(|answer| answer.json());
        let view = view.unwrap_or_default();
        let role = view["mysql"]["role"].as_str().unwrap_or_default();
        assert_ne!(role, "primary", "{}", set.words());
        if view["serving"] == true && role.starts_with("stopped") {
            assert!(role.contains(&errant), "{role}");
            // The transactions are also in a separate list, and are found again after both were restarted.
            let list = &view["mysql"]["errant"];
            assert_eq!(list["transactions"], 1, "{list}");
            assert_eq!(list["gtids"], errant.as_str(), "{list}");
            return true;
        }
        false
    });
    stopped.unwrap();
    assert!(follower.variable("read_only").unwrap() == "1");
    // The other member restarts and becomes the primary again, without any of these writes.
    set.start(0).unwrap();
    set.follows(0, SOON).unwrap();
    set.promote("db-1", SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 0);
    set.client(0).sql(&insert(3)).unwrap();
    let rows = set
        .client(0)
        .value("SELECT GROUP_CONCAT(id ORDER BY id) FROM acked.rows");
    assert_eq!(rows.unwrap(), "1,3");
}

/// A stopping primary waits for the preferred successor if that member is about to return.
#[test]
fn a_primary_that_is_stopped_hands_over_before_its_mysqld_ends() {
    let _turn = SCENES.take();
    // A member that stops waits eight leases for a member that can take over. That must be long enough on a busy machine.
    let mut set =
        replicaset_with(2, |options| options.with_heartbeat(Duration::from_secs(1))).unwrap();
    set.follows(3, SOON).unwrap();
    let clients = Writers::of(&set, 4, 0);
    clients.wait_for_more(100, SOON).unwrap();
    assert!(set.stop(0).unwrap().success());
    let said = set.output(0);
    let handed_over = said.find("transferred the leadership").unwrap();
    let stopped = said.find("mysqld is asked to stop").unwrap();
    assert!(handed_over < stopped, "{said}");
    clients.wait_for_more(100, SOON).unwrap();
    set.start(0).unwrap();
    set.follows(0, SOON).unwrap();
    set.promote("db-1", SOON).unwrap();
    set.follows(3, SOON).unwrap();

    let before = set.output(0).len();
    // Only the member that is stopped (SIGSTOP) could take over the leadership.
    set.signal(3, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    set.signal(0, Signal::TERM).unwrap();
    let waits = set.eventually("the stop waits for a member", SOON, || {
        set.output(0)[before..].contains("waiting for a member that can take over")
    });
    waits.unwrap();
    // Commits continue in the meantime.
    clients.wait_for_more(10, SOON).unwrap();
    set.signal(3, Signal::CONT).unwrap();
    assert!(set.wait_for_exit(0, SOON).unwrap().success());
    let said = set.output(0).split_off(before);
    let waited = said
        .find("waiting for a member that can take over")
        .unwrap();
    let handed_over = said.find("transferred the leadership").unwrap();
    let stopped = said.find("mysqld is asked to stop").unwrap();
    assert!(waited < handed_over && handed_over < stopped, "{said}");
    clients.wait_for_more(100, SOON).unwrap();
    let written = clients.finish().unwrap();
    println!("the longest pause {:?}", written.longest_pause());
    set.start(0).unwrap();
    nothing_is_lost(&set, &written);
}

/// Checks that every acknowledged row is on every mysqld, and that all mysqlds are equal.
fn nothing_is_lost(set: &Cluster, written: &WrittenRows) {
    set.equal("acked", SOON).unwrap();
    written.ensure_all_are_in(&set.client(0)).unwrap();
}
