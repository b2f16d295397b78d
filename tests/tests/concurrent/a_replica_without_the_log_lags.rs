//! Followers whose logs are at their disk limit receive heartbeats but no entries. Their mysqlds have applied all entries of the local
//! log, and lag nevertheless. This is tested for the member's applier and for mysqld's replica threads.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::cluster::Cluster;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const PRIMARY: usize = 0;
/// The first follower applies with the member's applier, the second one with mysqld's replica threads.
const FOLLOWERS: [usize; 2] = [3, 4];

fn lag_ms(set: &Cluster, member: usize) -> Option<u64> {
    set.status(member).unwrap()["mysql"]["lag_ms"].as_u64()
}

#[test]
fn a_follower_at_its_disk_limit_is_not_close_to_the_primary() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(3, |options| options.with_native(FOLLOWERS[1])).unwrap();
    for follower in FOLLOWERS {
        set.follows(follower, SOON).unwrap();
        set.stop(follower).unwrap();
        let small = [
            "--log-disk-limit-bytes=1MiB",
            "--log-disk-reserve-bytes=64KiB",
        ];
        set.start_with(follower, &small).unwrap();
        set.follows(follower, SOON).unwrap();
    }
    let primary = set.primary(SOON).unwrap();
    assert_eq!(primary, PRIMARY);
    let write = |id: u32| {
        let row = format!("INSERT INTO acked.large VALUES ({id}, REPEAT('x', 200000))");
        set.client(PRIMARY).sql(&row).unwrap();
    };
    set.client(PRIMARY)
        .sql("CREATE TABLE acked.large (id INT PRIMARY KEY, text MEDIUMTEXT)")
        .unwrap();
    (0..20).for_each(write);

    for follower in FOLLOWERS {
        let refused = set.eventually("it says how far it is behind", SOON, || {
            let answer = set.get(follower, "/replica?lag=2s").unwrap();
            let reason = answer.json().unwrap()["reason"].as_str()?.to_owned();
            (answer.status == 503 && reason.contains(" ms behind")).then_some(reason)
        });
        println!("{}: {}", set.name(follower), refused.unwrap());
        assert_eq!(set.get(follower, "/replica").unwrap().status, 200);
        let has = set.client(follower).gtid_executed().unwrap();
        assert_ne!(has, set.client(PRIMARY).gtid_executed().unwrap());
    }
    // The lag grows with time, and new commits do not reduce it.
    let before = FOLLOWERS.map(|follower| lag_ms(&set, follower).unwrap());
    std::thread::sleep(Duration::from_secs(3));
    write(20);
    for (follower, before) in FOLLOWERS.into_iter().zip(before) {
        let now = lag_ms(&set, follower).unwrap();
        assert!(now >= before + 3000, "{now} and before {before}");
    }
    let throttled = set.get(PRIMARY, "/check/archiver/mysql/test").unwrap();
    assert_eq!(throttled.status, 429, "{throttled:?}");

    for follower in FOLLOWERS {
        set.stop(follower).unwrap();
        set.start(follower).unwrap();
        set.follows(follower, SOON).unwrap();
    }
    set.equal("acked", SOON).unwrap();
}
