//! The leader's mysqld can no longer be started. Another member's mysqld becomes the primary without an operator. When the first mysqld
//! is repaired, it follows, and no acknowledged row is lost.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use witness_tests::{Writers, replicaset, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_leader_without_a_startable_mysqld_transfers_the_leadership() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| {
        let options = options.with("mysql", "demote_after = \"4s\"");
        // Long heartbeats, because a busy machine must not cause an election first.
        options.with_heartbeat(Duration::from_secs(1))
    })
    .unwrap();
    set.client(0)
        .sql("INSERT INTO acked.rows VALUES (1, 0, 'before')")
        .unwrap();
    set.follows(3, SOON).unwrap();

    // Without its data dictionary, mysqld does not start.
    let dictionary = set.server(0).data_dir().join("mysql.ibd");
    let away = set.server(0).data_dir().join("mysql.ibd.away");
    std::fs::rename(&dictionary, &away).unwrap();
    let killed = Instant::now();
    set.server(0).kill().unwrap();
    let other = set.eventually("it steps down", SOON, || set.primary(SOON).unwrap() == 3);
    other.unwrap();
    let took = killed.elapsed();
    println!("another member's mysqld is the primary {took:?} after the kill; the patience is 4 s");
    let said = set.output(0);
    assert!(
        said.contains(
            "the leadership is transferred, because this member's mysqld cannot be the primary"
        ),
        "{said}"
    );
    set.client(3)
        .sql("INSERT INTO acked.rows VALUES (2, 0, 'after')")
        .unwrap();

    std::fs::rename(&away, &dictionary).unwrap();
    set.follows(0, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
    let rows = set.client(0).value("SELECT COUNT(*) FROM acked.rows");
    assert_eq!(rows.unwrap(), "2");
    assert_eq!(set.primary(SOON).unwrap(), 3, "it stays there");
}

/// This test runs alone on the machine. On a busy machine mysqld could restart before the transfer, and its member would keep the
/// leadership.
#[test]
fn the_mysqld_of_the_primary_dies_and_another_one_takes_over_immediately() {
    let _turn = SCENES.take();
    let set = replicaset(2).unwrap();
    set.follows(3, SOON).unwrap();
    let clients = Writers::of(&set, 4, 0);
    clients.wait_for_more(100, SOON).unwrap();
    set.server(0).kill().unwrap();
    clients.wait_for_more(100, SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 3);
    // The first mysqld rejoins without an operator, and has no transactions that the ring lacks. The transfer did not wait for it.
    set.follows(0, SOON).unwrap();
    let said = set.output(0);
    let given = said.find("transferred the leadership").unwrap();
    let back = said.rfind("mysqld is started").unwrap();
    assert!(given < back, "{said}");
    let written = clients.finish().unwrap();
    println!("the longest pause {:?}", written.longest_pause());
    set.equal("acked", SOON).unwrap();
    written.ensure_all_are_in(&set.client(0)).unwrap();
}
