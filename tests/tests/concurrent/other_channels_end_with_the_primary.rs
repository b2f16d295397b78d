//! A server outside of the ring replicates into the ring's primary. The channel ends when the primary is demoted. Replica threads write
//! even with `super_read_only`, and their writes at a former primary are errant.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use testkit::cluster::Cluster;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions, REPLICATION_PASSWORD, REPLICATION_USER};
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// The second database member, whose mysqld follows with its own replica threads.
const NATIVE: usize = 3;

fn is_named(set: &Cluster, member: usize, words: &str) {
    let what = format!("{} says: {words}", set.name(member));
    set.eventually(&what, SOON, || {
        set.status(member)
            .is_ok_and(|status| status["mysql"]["warnings"].to_string().contains(words))
    })
    .unwrap();
}

fn states(set: &Cluster, member: usize) -> String {
    let states = "SELECT CONCAT_WS(' ', r.SERVICE_STATE, a.SERVICE_STATE) FROM performance_schema.replication_connection_status r \
         JOIN performance_schema.replication_applier_status a USING (CHANNEL_NAME) WHERE CHANNEL_NAME = 'legacy'";
    set.client(member).value(states).unwrap()
}

#[test]
fn a_channel_of_an_operator_stops_before_the_primary_becomes_a_follower() {
    let _turn = SCENES.take();
    let source =
        Mysqld::launch_with(&MysqlTree::require(), MysqldOptions::with_server_id(77)).unwrap();
    source.client().create_replication_user().unwrap();
    let write = |values: &str| {
        let insert = format!("INSERT INTO legacy.t VALUES {values}");
        source.client().sql(&insert).unwrap();
    };
    source
        .client()
        .sql("CREATE DATABASE legacy; CREATE TABLE legacy.t (i INT PRIMARY KEY)")
        .unwrap();
    let set = replicaset_with(2, |options| options.with_native(NATIVE)).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    let from = format!("from {}", source.address());
    set.client(0)
        .sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, SOURCE_USER = '{REPLICATION_USER}', \
             SOURCE_PASSWORD = '{REPLICATION_PASSWORD}', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, \
             SOURCE_CONNECT_RETRY = 1 FOR CHANNEL 'legacy'; START REPLICA FOR CHANNEL 'legacy'",
            source.address().ip(),
            source.address().port(),
        ))
        .unwrap();
    is_named(
        &set,
        0,
        &format!("`legacy` {from} writes into this primary"),
    );
    write("(1), (2)");
    let arrived = "SELECT COUNT(*) FROM legacy.t";
    let came = |count: &str| {
        set.client(0)
            .value(arrived)
            .is_ok_and(|found| found == count)
    };
    set.eventually("the channel writes", SOON, || came("2"))
        .unwrap();
    set.equal("legacy", SOON).unwrap();

    set.promote("db-2", SOON).unwrap();
    write("(3)");
    set.follows(0, SOON).unwrap();
    is_named(&set, 0, &format!("`legacy` {from} is stopped here"));
    assert_eq!(states(&set, 0), "OFF OFF");
    // mysqld itself does not start the channel.
    set.server(0).kill().unwrap();
    write("(4)");
    let killed = Instant::now();
    set.eventually("the former primary is there again", SOON, || {
        killed.elapsed() > Duration::from_secs(3) && set.client(0).sql("SELECT 1").is_ok()
    })
    .unwrap();
    set.follows(0, SOON).unwrap();
    while killed.elapsed() < Duration::from_secs(20) {
        let status = set.status(0).unwrap();
        assert!(status["mysql"]["errant"].is_null(), "{status}");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(states(&set, 0), "OFF OFF");
    assert!(came("2"), "{}", set.words());
    set.equal("legacy", SOON).unwrap();

    set.promote("db-1", SOON).unwrap();
    is_named(
        &set,
        0,
        &format!("`legacy` {from} is stopped at this primary"),
    );
    set.client(0)
        .sql("START REPLICA FOR CHANNEL 'legacy'")
        .unwrap();
    set.eventually("the channel writes again", SOON, || came("4"))
        .unwrap();
    set.equal("legacy", SOON).unwrap();
}
