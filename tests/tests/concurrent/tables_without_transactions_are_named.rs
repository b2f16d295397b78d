//! A client creates a MyISAM table in a ring. A follower applies each write once, and reports the table's name until the table
//! is converted.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::cluster::Cluster;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const NAMED: &str = "writes to acked.isam, whose engine has no transactions";

fn is_named(set: &Cluster, member: usize) -> bool {
    let status = set.status(member);
    status.is_ok_and(|status| status["mysql"]["warnings"].to_string().contains(NAMED))
}

#[test]
fn a_table_without_transactions_is_named_by_its_followers_until_it_is_converted() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |options| options).unwrap();
    let primary = set.primary(SOON).unwrap();
    let follower = set.databases().into_iter().find(|one| *one != primary);
    let follower = follower.unwrap();
    set.follows(follower, SOON).unwrap();
    let client = set.client(primary);
    let write = |sql: &str| client.sql(sql).unwrap();
    write(
        "CREATE TABLE acked.isam (i INT) ENGINE = MyISAM; INSERT INTO acked.isam VALUES (1), (2)",
    );
    let named = set.eventually("the table is named", SOON, || is_named(&set, follower));
    named.unwrap();
    assert!(!is_named(&set, primary));

    // The same after a restart of the follower, from the first row on.
    set.stop(follower).unwrap();
    set.start(follower).unwrap();
    set.follows(follower, SOON).unwrap();
    write("UPDATE acked.isam SET i = 3 WHERE i = 2; INSERT INTO acked.isam VALUES (3)");
    set.equal("acked", SOON).unwrap();
    set.eventually("it is named again", SOON, || is_named(&set, follower))
        .unwrap();

    write("ALTER TABLE acked.isam ENGINE = InnoDB; INSERT INTO acked.isam VALUES (4)");
    set.eventually("the warning is gone", SOON, || !is_named(&set, follower))
        .unwrap();
    set.equal("acked", SOON).unwrap();
}
