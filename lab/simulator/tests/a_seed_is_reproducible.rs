//! A seed is reproducible down to the last message, so that a failure can be analysed.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn hash(seed: u64) -> String {
    hash_of(&["--seed", &seed.to_string()])
}

fn hash_of(arguments: &[&str]) -> String {
    let mut simulator = Command::new(env!("CARGO_BIN_EXE_simulator"));
    let output = simulator.args(arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let said: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert!(said["counts"]["messages"].as_u64().unwrap() > 100, "{said}");
    said["hash"].as_str().unwrap().to_owned()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_does_not() {
    let first = hash(17);
    assert_eq!(hash(17), first);
    assert_eq!(hash(17), first);
    assert_ne!(hash(18), first);
}

#[test]
fn a_seed_with_simulated_servers_repeats_itself() {
    let seed = |seed| hash_of(&["--scenario", "mysqlds", "--seed", seed]);
    assert_eq!(seed("3"), seed("3"));
    assert_ne!(seed("3"), seed("4"));
}

/// The folders' names are drawn from the seed. If a run left a folder, the next run of the same seed would have to draw another name.
#[test]
fn a_run_leaves_no_folders_of_its_hosts() {
    let mut simulator = Command::new(env!("CARGO_BIN_EXE_simulator"));
    simulator.args(["--scenario", "mysqlds", "--seed", "3"]);
    let mut run = simulator.stdout(Stdio::null()).spawn().unwrap();
    let folder = |memory: &str| PathBuf::from(format!("{memory}/simulated-{:06x}", run.id()));
    let folder = match Path::new("/dev/shm").is_dir() {
        true => folder("/dev/shm"),
        false => folder(&std::env::temp_dir().display().to_string()),
    };
    let began = Instant::now();
    while !folder.is_dir() {
        assert!(
            began.elapsed().as_secs() < 60,
            "there is no {}",
            folder.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(run.wait().unwrap().success());
    assert!(!folder.exists(), "{} is left", folder.display());
}

#[test]
fn a_seed_with_operators_at_simulated_servers_repeats_itself() {
    let seed = |seed| hash_of(&["--scenario", "mysqld-operations", "--seed", seed]);
    assert_eq!(seed("2"), seed("2"));
    assert_ne!(seed("2"), seed("3"));
}

#[test]
fn a_seed_with_copies_of_simulated_servers_repeats_itself() {
    let seed = |seed| hash_of(&["--scenario", "provisioning", "--seed", seed]);
    assert_eq!(seed("2"), seed("2"));
    assert_ne!(seed("2"), seed("3"));
}

#[test]
fn a_seed_with_conversions_repeats_itself() {
    let seed = |seed| hash_of(&["--scenario", "conversions", "--seed", seed]);
    assert_eq!(seed("2"), seed("2"));
    assert_ne!(seed("2"), seed("3"));
}

#[test]
fn a_seed_over_the_real_transport_repeats_itself() {
    let seed = |seed| hash_of(&["--scenario", "transport", "--seed", seed]);
    assert_eq!(seed("1"), seed("1"));
    assert_ne!(seed("1"), seed("2"));
}

#[test]
fn many_seeds_repeat_themselves() {
    for seed in 100..110 {
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
}
