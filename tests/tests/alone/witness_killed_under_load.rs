//! A witness is killed and restarted ten times, while sysbench and the writers of this test commit without interruption.

use std::thread;
use std::time::Duration;

use witness_tests::{Scene, assert_nothing_lost_or_doubled};

use crate::SCENES;

/// With heartbeats of 300 ms, an election takes at most 1 s: a lease of 480 ms, and a random wait of at most the same time. Two seconds
/// allow for a busy machine. No election should be needed.
const AN_ELECTION: Duration = Duration::from_secs(2);

#[test]
fn ten_kills_of_a_witness_fail_no_commit_and_leave_equal_files() {
    let _turn = SCENES.take();
    let mut scene =
        Scene::launch(|options| options.with("log", "max_file_bytes = \"4MiB\"")).unwrap();
    let running = scene.start_load(4, Duration::from_secs(35)).unwrap();
    let writers = scene.start_writers(4).unwrap();

    for round in 0..10 {
        let witness = 1 + round % 2;
        scene.ring.kill(witness).unwrap();
        writers.wait_for_more(50, AN_ELECTION * 2).unwrap();
        thread::sleep(Duration::from_millis(500));
        scene.ring.start(witness).unwrap();
        thread::sleep(Duration::from_millis(1500));
    }
    let report = running.finish().unwrap();
    let written = writers.finish().unwrap();

    assert_eq!(written.errors(), [], "no commit may fail");
    println!(
        "{} sysbench transactions, {} own commits, the longest took {:?}",
        report.transactions,
        written.commits.len(),
        written.longest()
    );
    assert!(
        written.longest() < AN_ELECTION,
        "a commit took {:?}",
        written.longest()
    );
    let files = scene
        .ring
        .wait_until_equal(Duration::from_secs(30))
        .unwrap();
    assert!(
        files.paths().len() > 1,
        "the load must have rotated: {files:?}"
    );
    assert_nothing_lost_or_doubled(&scene.server, &files, &written).unwrap();
}
