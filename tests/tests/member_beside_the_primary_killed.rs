//! The member beside the primary is killed and started again under load: commits wait, then finish, none twice, none lost.

use std::thread;
use std::time::Duration;

use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;
use testkit::ring::{ProcessRing, Profile, RingOptions, witness_binary};
use testkit::sysbench::Sysbench;
use witness_tests::{AckedWriters, assert_nothing_lost_or_doubled};

#[test]
fn commits_wait_for_the_member_and_finish_once() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let binary = witness_binary(Profile::Dev).unwrap();
    let mut ring = ProcessRing::launch(&binary, &RingOptions::around(&server)).unwrap();
    AckedWriters::prepare(&server).unwrap();
    let load = Sysbench::on(&server)
        .tables(2, 500)
        .threads(4)
        .duration(Duration::from_secs(35));
    load.prepare(&server).unwrap();
    let running = load.start().unwrap();
    let writers = AckedWriters::start(&server, 4, 0);
    writers.wait_for_more(20, Duration::from_secs(30)).unwrap();

    for round in 0..5 {
        ring.kill(0).unwrap();
        thread::sleep(Duration::from_millis(200));
        let stuck = writers.acknowledged();
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(
            writers.acknowledged(),
            stuck,
            "nobody may acknowledge while the member is down"
        );
        ring.start(0).unwrap();
        let waited = writers.wait_for_more(50, Duration::from_secs(20)).unwrap();
        println!("round {round}: fifty further commits {waited:?} after the member was started");
    }
    running.finish().unwrap();
    let written = writers.finish().unwrap();

    assert_eq!(written.errors(), [], "commits wait, they do not fail");
    let files = ring.wait_until_equal(Duration::from_secs(30)).unwrap();
    assert_nothing_lost_or_doubled(&server, &files, &written).unwrap();
}
