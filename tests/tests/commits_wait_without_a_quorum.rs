//! Both witnesses down: commits wait and nothing is acknowledged. One back: they finish.

use std::thread;
use std::time::Duration;

use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;
use testkit::ring::{ProcessRing, Profile, RingOptions, witness_binary};
use testkit::sysbench::Sysbench;
use witness_tests::{AckedWriters, assert_nothing_lost_or_doubled};

const NO_QUORUM: i32 = 3;

#[test]
fn both_witnesses_down_acknowledges_nothing_until_one_is_back() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let binary = witness_binary(Profile::Dev).unwrap();
    let mut ring = ProcessRing::launch(&binary, &RingOptions::around(&server)).unwrap();
    AckedWriters::prepare(&server).unwrap();
    let load = Sysbench::on(&server)
        .tables(2, 500)
        .threads(2)
        .duration(Duration::from_secs(25));
    load.prepare(&server).unwrap();
    let running = load.start().unwrap();
    let writers = AckedWriters::start(&server, 4, 0);
    writers.wait_for_more(20, Duration::from_secs(30)).unwrap();

    ring.kill(1).unwrap();
    ring.kill(2).unwrap();
    // What a witness had durably taken before it died may still be acknowledged; after that, nothing.
    thread::sleep(Duration::from_secs(1));
    let stuck = writers.acknowledged();
    thread::sleep(Duration::from_secs(5));
    assert_eq!(
        writers.acknowledged(),
        stuck,
        "something was acknowledged without a quorum"
    );
    let visible = server
        .client()
        .value("SELECT COUNT(*) FROM acked.rows")
        .unwrap();
    assert_eq!(
        visible,
        stuck.to_string(),
        "a reader must not see what is not acknowledged"
    );
    let config = ring.config(0).to_str().unwrap().to_owned();
    let status = ring
        .cli(&["status", "--config", &config, "--output", "json"])
        .unwrap();
    assert_eq!(
        status.status.code(),
        Some(NO_QUORUM),
        "{}",
        String::from_utf8_lossy(&status.stdout)
    );
    assert_eq!(ring.get(0, "/primary").unwrap().status, 503);

    ring.start(2).unwrap();
    let waited = writers.wait_for_more(50, Duration::from_secs(20)).unwrap();
    println!("fifty further commits {waited:?} after one witness came back");
    ring.start(1).unwrap();
    running.finish().unwrap();
    let written = writers.finish().unwrap();

    assert_eq!(written.errors(), [], "commits wait, they do not fail");
    let files = ring.wait_until_equal(Duration::from_secs(30)).unwrap();
    assert_nothing_lost_or_doubled(&server, &files, &written).unwrap();
}
