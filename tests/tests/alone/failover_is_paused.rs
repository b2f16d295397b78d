//! Failover is paused in a ring with real mysqlds, and the primary's host dies. No other member becomes the primary until the host
//! restarts, an operator promotes a member, or an operator resumes failover.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use testkit::cluster::{Cluster, HttpAnswer, http_order};
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// Several times as long as a failover takes.
const LONG_ENOUGH: Duration = Duration::from_secs(8);
const TOKEN: &str = "an-operators-token";

#[test]
fn no_member_replaces_the_primary_of_a_paused_ring() {
    let _turn = SCENES.take();
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let mut set = replicaset_with(2, |options| {
        options.with("http", format!("token_file = {token:?}"))
    })
    .unwrap();
    set.follows(3, SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 0);
    let told = status(&set);
    assert!(told.contains("The quorum answers"), "{told}");
    let is = |name: &str, what: &str| {
        let mut lines = told.lines();
        lines.any(|line| line.contains(name) && line.contains(what))
    };
    assert!(is("db-1", " primary "), "{told}");
    assert!(is("db-2", " following "), "{told}");

    order(&set, &["pause", "--for", "1h", "--reason", "new disks"]);
    let told = status(&set);
    assert!(
        told.contains("Maintenance mode since") && told.contains("new disks"),
        "{told}"
    );
    write(&set, 0, 1);
    set.follows(3, SOON).unwrap();

    // After the host dies, no member becomes the primary, although the ring has a leader.
    set.kill_host(0).unwrap();
    no_member_is_the_primary(&set);
    let cluster = set.get(3, "/cluster").unwrap().json().unwrap();
    assert_eq!(cluster["pause"], true, "{cluster}");
    let metrics = set.get(1, "/metrics").unwrap().body;
    let gauge = metrics
        .lines()
        .find(|line| line.starts_with("witness_failover_paused"));
    assert!(
        gauge.is_some_and(|line| line.ends_with(" 1.0") || line.ends_with(" 1")),
        "{gauge:?}"
    );
    // After its restart, the member becomes the primary again without a command.
    set.start(0).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 0);
    write(&set, 0, 2);
    set.follows(3, SOON).unwrap();

    // While the host is down, an operator may promote another member.
    set.kill_host(0).unwrap();
    no_member_is_the_primary(&set);
    set.promote("db-2", SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 3);
    write(&set, 3, 3);
    set.start(0).unwrap();
    set.follows(0, SOON).unwrap();
    assert!(status(&set).contains("the primary stays on `db-2`"));

    // The pause is ended over HTTP, and failover works again.
    set.kill_host(3).unwrap();
    no_member_is_the_primary(&set);
    assert_eq!(post(&set, 0, "/resume", "another").status, 401);
    let resumed = set.eventually("failover continues", SOON, || {
        let mut answers = (0..3).map(|member| post(&set, member, "/resume", TOKEN));
        answers.any(|answer| answer.status == 200)
    });
    resumed.unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 0);
    write(&set, 0, 4);
    set.start(3).unwrap();
    set.follows(3, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
    let rows = set.client(3).value("SELECT COUNT(*) FROM acked.rows");
    assert_eq!(rows.unwrap(), "4");
}

fn post(set: &Cluster, member: usize, path: &str, token: &str) -> HttpAnswer {
    http_order(set.http(member), path, token, "").unwrap()
}

fn write(set: &Cluster, member: usize, id: u32) {
    let insert = format!("INSERT INTO acked.rows VALUES ({id}, 0, 'paused')");
    set.client(member).sql(&insert).unwrap();
}

fn no_member_is_the_primary(set: &Cluster) {
    let until = Instant::now() + LONG_ENOUGH;
    while Instant::now() < until {
        for member in set.databases() {
            let answer = set.get(member, "/primary");
            let is = answer.is_ok_and(|answer| answer.status == 200);
            assert!(!is, "member {member} is the primary:\n{}", set.words());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn status(set: &Cluster) -> String {
    let config = set.config(1).display().to_string();
    let done = set.cli(&["status", "--config", &config]).unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Repeats a command until it succeeds, since there may be no leader right after an election.
fn order(set: &Cluster, words: &[&str]) {
    let config = set.config(1).display().to_string();
    let arguments: Vec<&str> = words.iter().copied().chain(["--config", &config]).collect();
    let carried_out = set.eventually("the order is carried out", SOON, || {
        let done = set.cli(&arguments)?;
        done.into_text("the order")
    });
    carried_out.unwrap();
}
