//! A primary with a stalled mysqld: mysqld is stopped, its disk is frozen or full, its member's log lacks space or waits for its disk,
//! or its binlog cannot be received. Another member's mysqld becomes the primary within a time limit. The stalled mysqld is killed, and
//! follows as soon as it can. No acknowledged row is lost.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::cluster::{Cluster, ClusterOptions};
use testkit::real_disks::LoopDisk;
use witness_tests::{Writers, client_session, replicaset_in, replicaset_with};

use crate::SCENES;

/// Time limit for a recovery on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// `mysql.demote_after` of this ring.
const PATIENCE: Duration = Duration::from_secs(6);
/// The time that docs/roles.md adds to `demote_after`: two failed checks, and an attempt to close mysqld for writes.
const NOTICED: Duration = Duration::from_secs(10);
/// Additional time for a busy machine.
const SLACK: Duration = Duration::from_secs(10);
const DISK: u64 = 700 << 20;

#[test]
fn a_primary_that_answers_and_does_not_commit_steps_down() {
    let _turn = SCENES.take();
    let home = tempfile::tempdir().unwrap();
    let disks = [0, 1].map(|number| {
        let folder = home.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        LoopDisk::mount(&folder, home.path(), DISK).unwrap()
    });
    let data_dirs = [0, 1].map(|number| Some(home.path().join(format!("{number}/data"))));
    let set = replicaset_in(data_dirs.to_vec(), patient).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    let writers = Writers::of(&set, 1, 0);

    moves(&set, &writers, "stopped", (0, 3), || {
        set.server(0).signal(Signal::STOP).unwrap();
    });
    set.follows(0, SOON).unwrap();
    moves(&set, &writers, "its disk frozen", (3, 0), || {
        disks[1].freeze().unwrap();
    });
    disks[1].thaw().unwrap();
    set.follows(3, SOON).unwrap();

    moves(&set, &writers, "its disk full", (0, 3), || {
        disks[0].fill().unwrap();
    });
    disks[0].make_room().unwrap();
    set.follows(0, SOON).unwrap();

    // Each mysqld was killed when it was demoted. The start guard's last report is not about its next start.
    for member in [0, 3] {
        let said = set.output(member);
        let again = said.contains("mysqld is killed and started again");
        assert!(!again, "member {member} killed its mysqld twice:\n{said}");
    }
    let written = writers.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    written.ensure_all_are_in(&set.client(0)).unwrap();
}

/// Commits wait for space in the log, so mysqld cannot be closed for writes.
#[test]
fn a_primary_with_a_full_disk_of_its_members_log_steps_down() {
    let _turn = SCENES.take();
    let (_home, disk, set) = with_a_disk_for_the_first_log();
    let writers = Writers::without_pauses(&set, 1, 0);

    let attached = || set.output(0).matches("attached to the primary").count();
    let before = attached();
    moves(&set, &writers, "its log without room", (0, 3), || {
        disk.fill().unwrap();
    });
    let again = attached() - before;
    assert!(again < 40, "the log without room was tried {again} times");
    disk.make_room().unwrap();
    set.follows(0, SOON).unwrap();

    let written = writers.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    written.ensure_all_are_in(&set.client(0)).unwrap();
}

/// The other members acknowledge the leader's entries, and its mysqld is healthy. The leader steps down nevertheless, before the queue to
/// its disk is full.
#[test]
fn a_primary_with_a_hung_disk_of_its_members_log_steps_down() {
    let _turn = SCENES.take();
    let (_home, disk, set) = with_a_disk_for_the_first_log();
    let writers = Writers::of(&set, 1, 0);

    gives_way(&set, &writers, "its log's disk frozen", 3, || {
        disk.freeze().unwrap();
    });
    let why = "the disk of this member's log has not finished a write or an fsync";
    assert!(set.output(0).contains(why), "{}", set.output(0));
    let notes = set.status(0).unwrap()["log"]["disk_busy_ms"].as_u64();
    assert!(notes.unwrap() > 5000, "{notes:?}");
    disk.thaw().unwrap();
    set.follows(0, SOON).unwrap();

    let written = writers.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    written.ensure_all_are_in(&set.client(0)).unwrap();
}

/// MySQL logs a partially executed statement as lost events. No later event can be received, and commits wait.
#[test]
fn a_primary_that_sends_nothing_steps_down() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, patient).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    set.client(0)
        .sql(
            "CREATE TABLE acked.m (v LONGTEXT) ENGINE = MyISAM; SET GLOBAL max_binlog_stmt_cache_size = 4096",
        )
        .unwrap();
    let writers = Writers::of(&set, 1, 0);
    let mut lost = None;
    moves(&set, &writers, "its events are lost", (0, 3), || {
        let large = "INSERT INTO acked.m WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) \
                     SELECT REPEAT('x', 8000) FROM n";
        lost = Some(set.client(0).start_sql(large).unwrap());
    });
    // The write is only in a table, and not in the binlog. So a trim of the binlog does not remove it.
    set.eventually("the server is held", SOON, || {
        set.output(0)
            .contains("changes something that is not in the binlog")
    })
    .unwrap();
    drop(lost);
    let written = writers.finish().unwrap();
    written.ensure_all_are_in(&set.client(3)).unwrap();
}

/// Starts a ring in which the first member's log is on a separate disk.
fn with_a_disk_for_the_first_log() -> (TempDir, LoopDisk, Cluster) {
    let home = tempfile::tempdir().unwrap();
    let first = home.path().join("db-1");
    std::fs::create_dir(&first).unwrap();
    let disk = LoopDisk::mount(&first, home.path(), DISK).unwrap();
    let set = replicaset_with(2, |options| ClusterOptions {
        folder: Some(home.path().to_owned()),
        ..patient(options)
    })
    .unwrap();
    set.begins_at_the_first(SOON).unwrap();
    (home, disk, set)
}

/// Sets options with which a busy machine causes no election, and a stalled primary steps down after 6 s.
fn patient(options: ClusterOptions) -> ClusterOptions {
    let options = options.with("mysql", "demote_after = \"6s\"");
    options.with_heartbeat(Duration::from_secs(1))
}

/// Stalls the primary, and waits until clients commit at the other member. The stalled mysqld cannot be closed for writes, and is killed.
fn moves(
    set: &Cluster,
    writers: &Writers,
    what: &str,
    (from, to): (usize, usize),
    strike: impl FnOnce(),
) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut session = runtime
        .block_on(client_session(
            &set.server(from).socket(),
            Duration::from_secs(2),
        ))
        .unwrap();
    gives_way(set, writers, what, to, strike);
    let read = runtime.block_on(session.query("SELECT COUNT(*) FROM acked.rows"));
    assert!(read.is_err(), "{what}: it continues to answer its readers");
    let said = set.output(from);
    assert!(
        said.contains("mysqld is killed, because it has stalled"),
        "{what}:\n{said}"
    );
}

/// Stalls the primary, and waits until clients commit at the other member.
fn gives_way(set: &Cluster, writers: &Writers, what: &str, to: usize, strike: impl FnOnce()) {
    writers.wait_for_more(50, SOON).unwrap();
    // If a member has given up the leadership before (even during the bootstrap), it does so again only after its mysqld was healthy for
    // `PATIENCE`.
    std::thread::sleep(PATIENCE + Duration::from_secs(2));
    strike();
    let struck = Instant::now();
    let bound = PATIENCE + NOTICED + SLACK;
    let another = format!("{what}: another one is the primary");
    let moved = set.eventually(&another, bound, || set.primary(SOON).unwrap() == to);
    moved.unwrap();
    writers.wait_for_more(20, SOON).unwrap();
    println!("{what}: commits continue {:?} later", struck.elapsed());
}
