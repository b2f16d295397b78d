//! Event Scheduler events run only at the primary, whichever way followers apply. This holds during promotions, and when a follower's
//! mysqld starts.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use anyhow::ensure;
use testkit::cluster::Cluster;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// The database member whose mysqld applies with its replica threads; `ROWS` is the other one.
const NATIVE: usize = 3;
const ROWS: usize = 0;
/// Longer than the event's interval.
const A_WHILE: Duration = Duration::from_millis(1500);

#[test]
fn events_run_at_the_primary_alone() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |mut options| {
        // The duration of a switchover does not matter here, and the event is an additional load on a busy machine.
        options.heartbeat = Some(Duration::from_millis(500));
        options.with_native(NATIVE)
    })
    .unwrap();
    set.follows(NATIVE, SOON).unwrap();
    set.client(ROWS)
        .sql(
            "CREATE USER ticker; CREATE SCHEMA e; GRANT ALL ON e.* TO ticker; \
             CREATE TABLE e.ticks (id INT AUTO_INCREMENT PRIMARY KEY, server INT); \
             CREATE DEFINER = ticker EVENT e.tick ON SCHEDULE EVERY 1 SECOND \
               DO INSERT INTO e.ticks (server) VALUES (@@server_id)",
        )
        .unwrap();
    it_ticks(&set, ROWS);
    it_runs_once(&set, ROWS, "first");
    it_rests(&set, NATIVE);
    set.server(NATIVE).kill().unwrap();
    it_rests(&set, NATIVE);

    set.promote("db-2", SOON).unwrap();
    it_ticks(&set, NATIVE);
    let event = "SELECT CONCAT(definer, ' ', status) FROM information_schema.events WHERE event_name = 'tick'";
    assert_eq!(set.client(NATIVE).value(event).unwrap(), "ticker@% ENABLED");
    it_does_not_run_again(&set, NATIVE, "first");
    it_runs_once(&set, NATIVE, "second");
    it_rests(&set, ROWS);
    set.server(ROWS).kill().unwrap();
    it_rests(&set, ROWS);

    set.promote("db-1", SOON).unwrap();
    it_ticks(&set, ROWS);
    it_does_not_run_again(&set, ROWS, "first");
    it_does_not_run_again(&set, ROWS, "second");
    it_rests(&set, NATIVE);
}

/// Creates a one-time event with ON COMPLETION PRESERVE, and checks that it runs at this primary. Its execution is not in the log.
fn it_runs_once(set: &Cluster, primary: usize, name: &str) {
    let client = set.client(primary);
    let create = format!(
        "CREATE TABLE e.{name} (server INT); CREATE DEFINER = ticker EVENT e.{name} \
         ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL 1 SECOND ON COMPLETION PRESERVE \
         DO INSERT INTO e.{name} VALUES (@@server_id)"
    );
    client.sql(&create).unwrap();
    let ran = set.eventually("the event runs once", SOON, || {
        let times = client.value(&format!("SELECT COUNT(*) FROM e.{name}"))?;
        ensure!(times == "1", "{times}");
        Ok(())
    });
    ran.unwrap();
}

/// Checks that the event does not run again at another primary, which never ran it. The event scheduler there is on by now.
fn it_does_not_run_again(set: &Cluster, primary: usize, name: &str) {
    std::thread::sleep(A_WHILE);
    let client = set.client(primary);
    let times = format!("SELECT COUNT(*) FROM e.{name}");
    assert_eq!(
        client.value(&times).unwrap(),
        "1",
        "{name}: {}",
        set.words()
    );
    let status =
        format!("SELECT status FROM information_schema.events WHERE event_name = '{name}'");
    assert_ne!(client.value(&status).unwrap(), "ENABLED", "{name}");
}

/// Checks that the recurring event runs at this primary.
fn it_ticks(set: &Cluster, primary: usize) {
    let client = set.client(primary);
    let ticks = || {
        let own = "SELECT COUNT(*) FROM e.ticks WHERE server = @@server_id";
        client.value(own).unwrap().parse::<u64>().unwrap()
    };
    let before = ticks();
    let what = format!("the event runs at member {primary}");
    let ran = set.eventually(&what, SOON, || {
        let scheduler = client.variable("event_scheduler")?;
        ensure!(ticks() >= before + 2, "the scheduler is {scheduler}");
        Ok(())
    });
    ran.unwrap();
}

/// Checks that this member's mysqld follows, and after `A_WHILE` has no transaction that the primary lacks.
fn it_rests(set: &Cluster, follower: usize) {
    std::thread::sleep(A_WHILE);
    set.follows(follower, SOON).unwrap();
    let has = set.client(follower).gtid_executed().unwrap();
    let subset = format!("SELECT GTID_SUBSET('{has}', @@GLOBAL.gtid_executed)");
    let primary = NATIVE - follower;
    assert_eq!(
        set.client(primary).value(&subset).unwrap(),
        "1",
        "member {follower} has {has}: {}",
        set.words()
    );
}
