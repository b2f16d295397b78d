//! The primary's member is killed while its host stays up. The next primary does not wait for missing heartbeats. A member that is
//! stopped (SIGSTOP) keeps its connections open, so its election timeout applies.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::{Duration, Instant};

use rustix::process::Signal;
use witness_tests::{Writers, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// No member begins an election because of missing heartbeats earlier than one interval after the last heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(4);

#[test]
fn clients_write_again_long_before_a_heartbeat_is_missed() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |options| options.with_heartbeat(HEARTBEAT)).unwrap();
    set.follows(3, SOON).unwrap();
    let writers = Writers::of(&set, 4, 0);
    writers.wait_for_more(100, SOON).unwrap();

    let killed = Instant::now();
    set.kill_host(0).unwrap();
    writers.wait_for_more(10, SOON).unwrap();
    let took = killed.elapsed();
    println!("writes continue {took:?} after the kill; the heartbeat is {HEARTBEAT:?}");
    assert!(took < HEARTBEAT, "{took:?}");
    assert_eq!(set.primary(SOON).unwrap(), 3);

    set.start(0).unwrap();
    set.follows(0, SOON).unwrap();
    // The member hangs: its kernel still answers, and closes no connection.
    set.signal(3, Signal::STOP).unwrap();
    std::thread::sleep(HEARTBEAT / 2);
    assert_ne!(set.primary_now(), Some(0), "it is waited for");
    set.signal(3, Signal::CONT).unwrap();
    writers.wait_for_more(100, SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), 3);
    let written = writers.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    written.ensure_all_are_in(&set.client(0)).unwrap();
}
