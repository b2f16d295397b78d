//! The mysqld of one database member receives nothing of the ring's log, so it must not become the primary. If this member is elected,
//! it transfers the leadership as soon as another member's mysqld can be the primary.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::time::{Duration, Instant};

use testkit::cluster::Cluster;
use witness_tests::replicaset;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn it_transfers_the_leadership_to_the_first_possible_primary() {
    let _turn = SCENES.take();
    let (first, without, other) = (0, 3, 4);
    let mut set = replicaset(3).unwrap();
    for follower in [without, other] {
        set.follows(follower, SOON).unwrap();
    }
    assert!(set.stop(without).unwrap().success());
    let config = fs::read_to_string(set.config(without)).unwrap();
    let config = config.replace("[mysql]", "[mysql]\napply = \"off\"");
    fs::write(set.config(without), config).unwrap();
    set.start(without).unwrap();
    let insert = |set: &Cluster, at: usize, id: u32| {
        let row = format!("INSERT INTO acked.rows VALUES ({id}, 0, 'x')");
        set.client(at).sql(&row).unwrap();
    };
    insert(&set, first, 1);
    says(
        &set,
        without,
        "promotion",
        "nothing of the ring's log is applied",
    );
    let refused = set.cli_of(1, &["switchover", "db-2", "--yes"]).unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{told}");
    assert!(told.contains("mysql.apply"), "{told}");

    // The member votes, and it has precedence over the other one if both can be elected.
    set.follows(other, SOON).unwrap();
    let killed = Instant::now();
    set.kill_host(first).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), other);
    println!("the other one is the primary {:?} later", killed.elapsed());
    insert(&set, other, 2);
    set.start(first).unwrap();
    set.follows(first, SOON).unwrap();

    // Apart from this member, only witnesses can be elected. It is the leader without accepting writes, and reports the reason.
    set.kill_host(first).unwrap();
    set.kill_host(other).unwrap();
    let reason = says(
        &set,
        without,
        "demotion",
        "nothing of the ring's log is applied",
    );
    println!("{reason}");
    let view = set.status(without).unwrap();
    assert_eq!(
        (&view["serving"], &view["mysql"]["writable"]),
        (&true.into(), &false.into()),
        "{view}"
    );
    assert_eq!(set.get(without, "/primary").unwrap().status, 503);
    let read_only = set.client(without).variable("super_read_only").unwrap();
    assert_eq!(read_only, "1");

    set.start(first).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), first);
    insert(&set, first, 3);
    set.start(other).unwrap();
    set.follows(other, SOON).unwrap();
    let rows = |at: usize| set.client(at).value("SELECT COUNT(*) FROM acked.rows");
    set.eventually("all rows are there", SOON, || {
        (rows(other).ok()? == "3").then_some(())
    })
    .unwrap();
    assert_eq!(rows(without).unwrap(), "0", "nothing was applied to it");
}

/// Returns what a member reports about its mysqld under `key`, after waiting until that contains these words.
fn says(set: &Cluster, member: usize, key: &str, words: &str) -> String {
    let said = set.eventually(&format!("{key} says: {words}"), SOON, || {
        let said = set.status(member).ok()?["mysql"][key].to_string();
        said.contains(words).then_some(said)
    });
    said.unwrap()
}
