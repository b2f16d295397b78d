//! The clock of a follower's host is an hour fast or slow. The follower reports a small lag under load, and the true lag
//! while it is blocked.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant, SystemTime};

use testkit::cluster::{Cluster, MemberDatabase};
use testkit::other_clock;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const PRIMARY: usize = 0;
const FOLLOWER: usize = 3;
const HELD_UP: Duration = Duration::from_secs(4);

fn lag_ms(set: &Cluster) -> Option<u64> {
    set.status(FOLLOWER).unwrap()["mysql"]["lag_ms"].as_u64()
}

/// Returns the time in the last line that the follower has logged.
fn time_there(set: &Cluster) -> SystemTime {
    let output = set.output(FOLLOWER);
    let times = output.lines().rev().filter_map(|line| {
        let time = line.split_whitespace().next()?;
        humantime::parse_rfc3339(time).ok()
    });
    times.into_iter().next().unwrap()
}

#[test]
fn a_follower_with_a_clock_an_hour_off_reports_its_lag() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |mut options| {
        let member = &mut options.members[FOLLOWER];
        member.database = match std::mem::replace(&mut member.database, MemberDatabase::Nothing) {
            MemberDatabase::Child(server) => MemberDatabase::from(server.without_preload()),
            other => other,
        };
        options
    })
    .unwrap();
    set.client(PRIMARY)
        .sql("CREATE TABLE acked.clock (id INT PRIMARY KEY AUTO_INCREMENT)")
        .unwrap();
    let write = |set: &Cluster| {
        set.client(PRIMARY)
            .sql("INSERT INTO acked.clock VALUES ()")
            .unwrap();
    };
    for (clock, off) in [
        ("-1h", SystemTime::now() - HOUR),
        ("+1h", SystemTime::now() + HOUR),
    ] {
        set.follows(FOLLOWER, SOON).unwrap();
        set.stop(FOLLOWER).unwrap();
        let wrapper = other_clock::wrapper(clock).unwrap();
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        set.start_wrapped(FOLLOWER, &wrapper).unwrap();
        set.follows(FOLLOWER, SOON).unwrap();
        let there = time_there(&set);
        let apart = there
            .duration_since(off)
            .unwrap_or_else(|apart| apart.duration());
        assert!(apart < HOUR / 2, "{clock}: its clock says {there:?}");

        // The lag is small while the follower applies everything.
        let until = Instant::now() + Duration::from_secs(3);
        let mut most = 0;
        while Instant::now() < until {
            write(&set);
            most = lag_ms(&set).unwrap_or_default().max(most);
        }
        assert!(most < 10_000, "{clock}: {most} ms");

        let holding = set
            .client(FOLLOWER)
            .start_sql("LOCK TABLES acked.clock READ; DO SLEEP(60)")
            .unwrap();
        let sleeps =
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'DO SLEEP(60)%'";
        set.eventually("its table is locked", SOON, || {
            set.client(FOLLOWER).value(sleeps).unwrap() == "1"
        })
        .unwrap();
        let since = Instant::now();
        write(&set);
        std::thread::sleep(HELD_UP);
        let lag = lag_ms(&set).unwrap();
        let at_most = since.elapsed().as_millis() + 500;
        println!("{clock}: at most {most} ms behind under load, and {lag} ms where it was held up");
        assert!(
            u128::from(lag) >= HELD_UP.as_millis() - 1000 && u128::from(lag) <= at_most,
            "{clock}: {lag} ms, and it was held up for {HELD_UP:?} to {at_most} ms"
        );
        let asked = set.get(FOLLOWER, "/replica?lag=2s").unwrap();
        assert_eq!(asked.status, 503, "{asked:?}");
        drop(holding);
        set.eventually("it has caught up", SOON, || {
            set.get(FOLLOWER, "/replica?lag=2s").unwrap().status == 200
        })
        .unwrap();
    }
    set.equal("acked", SOON).unwrap();
    // The follower is stopped, not killed, because libfaketime's shared state outlives a killed process.
    set.stop(FOLLOWER).unwrap();
}
