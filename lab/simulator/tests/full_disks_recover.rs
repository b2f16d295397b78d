//! The disks of all members become full at the same time. No member stops, a new leader can be elected, and commits continue after space is
//! freed.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Command;

fn run(seed: u64, more: &[&str]) -> serde_json::Value {
    let mut simulator = Command::new(env!("CARGO_BIN_EXE_simulator"));
    simulator.args(["--scenario", "full-disks", "--seed", &seed.to_string()]);
    let output = simulator.args(more).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(said.lines().last().unwrap()).unwrap()
}

#[test]
fn a_ring_with_full_disks_elects_and_recovers() {
    for seed in 1..=5 {
        let said = run(seed, &[]);
        assert!(said["checker"].is_null(), "seed {seed}: {said}");
        // The only fault is the kill of a leader.
        assert_eq!(said["counts"]["faults"], 1, "seed {seed}: {said}");
    }
}

#[test]
fn proposing_without_reserving_room_is_found() {
    let found = (1..=2).filter(|seed| {
        let said = run(*seed, &["--mutate", "propose-without-room"]);
        !said["checker"].is_null()
    });
    assert_eq!(found.count(), 2);
}
