//! While both witnesses are down, commits wait and no commit is acknowledged. After one witness is back,
//! the commits finish.

use std::thread;
use std::time::Duration;

use witness_tests::{Scene, assert_nothing_lost_or_doubled};

use crate::SCENES;

const NO_QUORUM: i32 = 3;

#[test]
fn both_witnesses_down_acknowledges_nothing_until_one_is_back() {
    let _turn = SCENES.take();
    let mut scene = Scene::launch(|options| options).unwrap();
    let running = scene.start_load(2, Duration::from_secs(15)).unwrap();
    let writers = scene.start_writers(4).unwrap();

    scene.ring.kill(1).unwrap();
    scene.ring.kill(2).unwrap();
    // Entries that a witness made durable before it died may still be acknowledged. Later entries must
    // not be.
    thread::sleep(Duration::from_secs(1));
    let stuck = writers.acknowledged();
    thread::sleep(Duration::from_secs(5));
    assert_eq!(
        writers.acknowledged(),
        stuck,
        "something was acknowledged without a quorum"
    );
    let visible = scene
        .server
        .client()
        .value("SELECT COUNT(*) FROM acked.rows")
        .unwrap();
    assert_eq!(
        visible,
        stuck.to_string(),
        "a reader must not see what is not acknowledged"
    );
    let config = scene.ring.config(0).to_str().unwrap().to_owned();
    let status = scene
        .ring
        .cli(&["status", "--config", &config, "--output", "json"])
        .unwrap();
    assert_eq!(
        status.status.code(),
        Some(NO_QUORUM),
        "{}",
        String::from_utf8_lossy(&status.stdout)
    );
    assert_eq!(scene.ring.get(0, "/primary").unwrap().status, 503);

    scene.ring.start(2).unwrap();
    let waited = writers.wait_for_more(50, Duration::from_secs(20)).unwrap();
    println!("fifty further commits {waited:?} after one witness came back");
    scene.ring.start(1).unwrap();
    running.finish().unwrap();
    let written = writers.finish().unwrap();

    assert_eq!(written.errors(), [], "commits wait, they do not fail");
    let files = scene
        .ring
        .wait_until_equal(Duration::from_secs(30))
        .unwrap();
    assert_nothing_lost_or_doubled(&scene.server, &files, &written).unwrap();
}
