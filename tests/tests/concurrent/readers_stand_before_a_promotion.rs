//! At every follower an idle reader blocks DDL of its table. The primary dies, and clients wait until a follower has applied the blocked
//! DDL. The same is tested for a session that owns the next GTID.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use mysql_link::{ConnectOptions, Connection, Endpoint};
use testkit::cluster::{CLIENT, CLIENT_PASSWORD, Cluster};
use tokio::runtime::Runtime;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// The first follower applies with the member's applier, the second one with mysqld's replica threads.
const FOLLOWERS: [usize; 2] = [3, 4];
const NAMED: &str =
    "has locked table acked.held: `ALTER TABLE acked.held ADD j INT` has waited for it";

/// Starts a ring whose followers wait for readers. Returns it with the readers' connections.
fn held_up(runtime: &Runtime, kill_after: &str) -> (Cluster, Vec<Connection>) {
    let set = replicaset_with(3, |options| {
        let limit = format!("kill_statements_after = \"{kill_after}\"");
        options.with_native(FOLLOWERS[1]).with("mysql", limit)
    })
    .unwrap();
    if set.primary(SOON).unwrap() != 0 {
        set.promote("db-1", SOON).unwrap();
    }
    let primary = set.client(0);
    let make = "CREATE TABLE acked.held (i INT PRIMARY KEY); INSERT INTO acked.held VALUES (1)";
    primary.sql(make).unwrap();
    set.equal("acked", SOON).unwrap();
    let readers = FOLLOWERS.map(|follower| {
        runtime.block_on(async {
            let mut reader = Connection::open(&reports(&set, follower)).await.unwrap();
            reader.execute("BEGIN").await.unwrap();
            reader.query("SELECT * FROM acked.held").await.unwrap();
            reader
        })
    });
    let alter = "ALTER TABLE acked.held ADD j INT; INSERT INTO acked.held VALUES (2, 2)";
    primary.sql(alter).unwrap();
    for follower in FOLLOWERS {
        is_named(&set, follower, NAMED);
    }
    (set, readers.into())
}

/// Returns the options of a client that reads at a follower.
fn reports(set: &Cluster, follower: usize) -> ConnectOptions {
    let socket = Endpoint::unix(set.server(follower).socket());
    let mut options = ConnectOptions::new(socket, CLIENT, CLIENT_PASSWORD);
    options.program_name = "reports".to_owned();
    options
}

fn is_named(set: &Cluster, follower: usize, words: &str) {
    let what = format!("{} says that a session {words}", set.name(follower));
    set.eventually(&what, SOON, || {
        set.status(follower)
            .is_ok_and(|status| status["mysql"]["warnings"].to_string().contains(words))
    })
    .unwrap();
}

fn is_there(runtime: &Runtime, reader: &mut Connection) -> bool {
    runtime.block_on(reader.query("SELECT 1")).is_ok()
}

/// Returns the follower that accepts a write, if there is one.
fn writable(set: &Cluster) -> Option<usize> {
    let write = "INSERT INTO acked.held VALUES (3, 3)";
    let takes = |follower: &usize| {
        set.primary_now() == Some(*follower) && set.client(*follower).sql(write).is_ok()
    };
    FOLLOWERS.into_iter().find(takes)
}

#[test]
fn a_reader_holds_a_promotion_up_for_the_operators_limit_alone() {
    let _turn = SCENES.take();
    const LIMIT: Duration = Duration::from_secs(15);
    const MARGIN: Duration = Duration::from_secs(10);
    let runtime = Runtime::new().unwrap();
    let (mut set, mut readers) = held_up(&runtime, "15s");
    set.kill_host(0).unwrap();
    let died = Instant::now();
    let primary = set
        .eventually("a member accepts writes", SOON, || writable(&set))
        .unwrap();
    let took = died.elapsed();
    println!("writes {took:?} after the primary's end");
    assert!(took < LIMIT + MARGIN, "{took:?}\n{}", set.words());
    let killed = FOLLOWERS
        .iter()
        .position(|follower| *follower == primary)
        .unwrap();
    assert!(!is_there(&runtime, &mut readers[killed]));
    // The reader at the other follower has blocked for as long. It must not be killed now.
    std::thread::sleep(LIMIT);
    assert!(is_there(&runtime, &mut readers[1 - killed]));
    drop(readers);
    set.start(0).unwrap();
    set.equal("acked", SOON).unwrap();
}

/// Regression: no member named the owner of the GTID, and no follower became the primary. A replica thread waits for the GTID. The
/// member's applier has applied the rows, and cannot add their GTID to `gtid_executed`.
#[test]
fn an_owner_of_a_gtid_holds_a_promotion_up_for_the_operators_limit_alone() {
    let _turn = SCENES.take();
    const LIMIT: Duration = Duration::from_secs(10);
    const MARGIN: Duration = Duration::from_secs(12);
    let runtime = Runtime::new().unwrap();
    let mut set = replicaset_with(3, |options| {
        let limit = "kill_statements_after = \"10s\"";
        options.with_native(FOLLOWERS[1]).with("mysql", limit)
    })
    .unwrap();
    if set.primary(SOON).unwrap() != 0 {
        set.promote("db-1", SOON).unwrap();
    }
    let primary = set.client(0);
    let make = "CREATE TABLE acked.held (i INT PRIMARY KEY, j INT)";
    primary.sql(make).unwrap();
    set.equal("acked", SOON).unwrap();
    let uuid = primary.variable("server_uuid").unwrap();
    let own = format!(
        "GTID_SUBTRACT(@@GLOBAL.gtid_executed, GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{uuid}:1-999999'))"
    );
    let last = primary
        .value(&format!("SELECT REGEXP_REPLACE({own}, '.*[:-]', '')"))
        .unwrap();
    let next = last.parse::<u64>().unwrap() + 1;
    let owners = FOLLOWERS.map(|follower| {
        let owned = format!("SET gtid_next = '{uuid}:{next}'");
        runtime.block_on(async {
            let mut owner = Connection::open(&reports(&set, follower)).await.unwrap();
            owner.execute(owned).await.unwrap();
            owner.execute("BEGIN").await.unwrap();
            owner
        })
    });
    let write = "INSERT INTO acked.held VALUES (1, 1); INSERT INTO acked.held VALUES (2, 2)";
    primary.sql(write).unwrap();
    for follower in FOLLOWERS {
        is_named(&set, follower, &format!("owns the GTID {uuid}:{next}"));
    }
    set.kill_host(0).unwrap();
    let died = Instant::now();
    set.eventually("a follower takes writes", SOON, || writable(&set))
        .unwrap();
    let took = died.elapsed();
    println!("writes {took:?} after the primary's end");
    assert!(took < LIMIT + MARGIN, "{took:?}\n{}", set.words());
    drop(owners);
    set.start(0).unwrap();
    set.equal("acked", SOON).unwrap();
}

#[test]
fn a_reader_that_may_not_be_killed_is_named_and_waited_for() {
    let _turn = SCENES.take();
    let runtime = Runtime::new().unwrap();
    let (mut set, mut readers) = held_up(&runtime, "0s");
    set.kill_host(0).unwrap();
    let died = Instant::now();
    while died.elapsed() < Duration::from_secs(20) {
        assert_eq!(writable(&set), None, "{:?}", died.elapsed());
        std::thread::sleep(Duration::from_millis(500));
    }
    for (follower, reader) in FOLLOWERS.into_iter().zip(&mut readers) {
        assert!(is_there(&runtime, reader));
        let status = set.status(follower).unwrap();
        assert!(
            status["mysql"]["warnings"].to_string().contains(NAMED),
            "{status}"
        );
    }
    drop(readers);
    set.eventually("a member accepts writes", SOON, || writable(&set))
        .unwrap();
}
