//! The primary's member is killed and restarted under load. Commits wait, then finish. No row is lost or
//! written twice.

use std::thread;
use std::time::Duration;

use witness_tests::{Scene, assert_nothing_lost_or_doubled};

use crate::SCENES;

#[test]
fn commits_wait_for_the_member_and_finish_once() {
    let _turn = SCENES.take();
    let mut scene = Scene::launch(|options| options).unwrap();
    let running = scene.start_load(4, Duration::from_secs(25)).unwrap();
    let writers = scene.start_writers(4).unwrap();

    for round in 0..5 {
        scene.ring.kill(0).unwrap();
        thread::sleep(Duration::from_millis(200));
        let stuck = writers.acknowledged();
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(
            writers.acknowledged(),
            stuck,
            "no member may acknowledge while the member is down"
        );
        scene.ring.start(0).unwrap();
        let waited = writers.wait_for_more(50, Duration::from_secs(20)).unwrap();
        println!("round {round}: fifty further commits {waited:?} after the member was started");
    }
    running.finish().unwrap();
    let written = writers.finish().unwrap();

    assert_eq!(written.errors(), [], "commits wait, they do not fail");
    let files = scene
        .ring
        .wait_until_equal(Duration::from_secs(30))
        .unwrap();
    assert_nothing_lost_or_doubled(&scene.server, &files, &written).unwrap();
}
