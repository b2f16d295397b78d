//! Two mysqlds have the same `auto.cnf`, as after a data directory was copied. The mysqld that is not the primary is not used until it
//! has a new UUID.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::time::Duration;

use testkit::cluster::Cluster;
use witness_tests::replicaset;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn of_two_servers_with_one_uuid_the_primary_alone_is_used() {
    let _turn = SCENES.take();
    let mut set = replicaset(2).unwrap();
    let (primary, follower) = (0, 3);
    set.follows(follower, SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), primary);

    set.stop(follower).unwrap();
    let auto = |member: usize, set: &Cluster| set.server(member).data_dir().join("auto.cnf");
    fs::copy(auto(primary, &set), auto(follower, &set)).unwrap();
    set.start(follower).unwrap();
    let words = said(&set, follower, |mysql| {
        mysql["trouble"].as_str().map(str::to_owned)
    });
    println!("{words}");
    assert!(
        words.contains("`db-1` have the same server_uuid"),
        "{words}"
    );
    let view = set.status(follower).unwrap();
    assert_eq!(view["mysql"]["following"], false, "{view}");

    // The primary continues, and its member reports the duplicate, too.
    let warning = said(&set, primary, |mysql| {
        mysql["warnings"][0].as_str().map(str::to_owned)
    });
    assert!(
        warning.contains("`db-2` have the same server_uuid"),
        "{warning}"
    );
    set.client(primary)
        .sql("INSERT INTO acked.rows VALUES (1, 0, 'x')")
        .unwrap();
    let refused = set
        .cli_of(primary, &["switchover", "db-2", "--yes"])
        .unwrap();
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert_eq!(set.primary(SOON).unwrap(), primary);

    set.stop(follower).unwrap();
    fs::remove_file(auto(follower, &set)).unwrap();
    set.start(follower).unwrap();
    set.follows(follower, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
    let quiet = set.eventually("nothing to warn of", SOON, || {
        let view = set.status(primary).ok()?;
        let warnings = view["mysql"]["warnings"].as_array()?;
        warnings.is_empty().then_some(())
    });
    quiet.unwrap();
}

/// Returns what a member's status reports about its mysqld's UUID, after waiting for it.
fn said(set: &Cluster, member: usize, of: impl Fn(&serde_json::Value) -> Option<String>) -> String {
    let said = set.eventually("a word about the UUID", SOON, || {
        let view = set.get(member, "/status").ok()?.json().ok()?;
        of(&view["mysql"]).filter(|words| words.contains("server_uuid"))
    });
    said.unwrap()
}
