//! `witness log flush` ends the current file on every member. FLUSH BINARY LOGS at the primary's mysqld ends it with the next
//! transaction.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::cluster::Cluster;
use witness_tests::replicaset;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

fn files(set: &Cluster, member: usize) -> Vec<String> {
    let log = set.directory(member).join("log");
    let entries = std::fs::read_dir(log).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("binlog.0")).collect();
    names.sort();
    names
}

#[test]
fn the_log_is_rotated_by_its_command_and_after_a_rotation_of_the_primary() {
    let _turn = SCENES.take();
    let set = replicaset(1).unwrap();
    let insert = |set: &Cluster, id: u32| {
        let insert = format!("INSERT INTO acked.rows VALUES ({id}, 0, 'flushed')");
        set.client(0).sql(&insert).unwrap();
    };
    insert(&set, 1);
    set.wait_until_equal(SOON).unwrap();
    let before = files(&set, 0);

    set.client(0).sql("FLUSH BINARY LOGS").unwrap();
    set.wait_until_equal(SOON).unwrap();
    assert_eq!(files(&set, 0), before, "nothing is in the primary's file");
    insert(&set, 2);
    set.wait_until_equal(SOON).unwrap();
    let flushed = files(&set, 0);
    assert_eq!(flushed.len(), before.len() + 1, "{flushed:?}");

    let config = set.config(1).display().to_string();
    let done = set.cli(&["log", "flush", "--config", &config]).unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{told}");
    insert(&set, 3);
    set.wait_until_equal(SOON).unwrap();
    for member in 0..set.size() {
        let after = files(&set, member);
        assert_eq!(after.len(), flushed.len() + 1, "member {member}: {after:?}");
        assert!(
            told.contains(after.last().unwrap()),
            "member {member}: {after:?}, before {flushed:?}; {told}"
        );
    }
    assert_eq!(
        set.client(0)
            .value("SELECT COUNT(*) FROM acked.rows")
            .unwrap(),
        "3"
    );
}
