//! In simulated rings, the real code follows the model's rules. Deliberately broken code violates them.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use model::trace::{Counts, Refusal, Replay};

/// Runs a seed and checks its trace against the rules.
fn held(arguments: &[&str]) -> Result<Counts, Refusal> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut simulator = Command::new(env!("CARGO_BIN_EXE_simulator"));
    simulator.args(arguments).arg("--write-trace");
    let output = simulator.arg(file.path()).output().unwrap();
    // Other tests check that seeds succeed. Here the run must only print its outcome.
    assert!(!output.stdout.is_empty(), "{output:?}");
    Replay::of(&fs::read_to_string(file.path()).unwrap())
}

/// Returns the sums of the counts over all seeds. The trace of each seed must follow the rules.
fn all_held(seeds: impl Iterator<Item = u64>, scenario: &[&str]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for seed in seeds {
        let number = seed.to_string();
        let arguments = [&["--seed", &number], scenario].concat();
        let counts = held(&arguments).unwrap_or_else(|why| panic!("{arguments:?}: {why}"));
        for (what, times) in counts.held {
            *sums.entry(what).or_default() += times;
        }
    }
    println!("{scenario:?}: {sums:?}");
    sums
}

#[test]
fn members_do_only_what_the_model_allows() {
    let sums = all_held(1..13, &[]);
    for what in [
        "acknowledgements",
        "campaigns",
        "commits",
        "elections",
        "entries taken",
        "entries taken back",
        "memberships",
        "proposals",
        "reads",
        "starts",
        "votes",
    ] {
        assert!(sums.contains_key(what), "no seed has {what}: {sums:?}");
    }
}

#[test]
fn agreements_of_fewer_voters_are_allowed_by_the_model() {
    let sums = all_held(5..6, &["--scenario", "removals"]);
    assert!(sums.contains_key("memberships"), "{sums:?}");
}

#[test]
fn repairs_and_returning_members_are_allowed_by_the_model() {
    let sums = all_held(1..9, &["--scenario", "lost-quorum"]);
    for what in ["repairs", "logs cut back"] {
        assert!(sums.contains_key(what), "no seed has {what}: {sums:?}");
    }
}

/// Number of further seeds to try if the known seed no longer exposes the mutation. Changes of election and timer draws may cause that.
const TRIED: u64 = 300;

/// Runs the known seed, and the following ones if necessary. Returns whether the trace of one is refused with this message.
fn is_refused(mutation: &str, seed: u64, words: &str) -> bool {
    for tried in seed..=seed + TRIED {
        let number = tried.to_string();
        let Err(refusal) = held(&["--seed", &number, "--mutate", mutation]) else {
            continue;
        };
        let refusal = refusal.to_string();
        println!("{mutation}, seed {tried} ({seed} was known): {refusal}");
        if refusal.contains(words) {
            return true;
        }
    }
    false
}

#[test]
fn broken_rules_are_refused() {
    for (mutation, seed, words) in [
        ("commit-on-a-minority", 1, "on which no quorum has agreed"),
        ("count-a-learner", 1, "entries had been acknowledged"),
        ("narrow-without-the-barrier", 97, "no entry of its own term"),
        ("acknowledge-before-the-disk", 4, "on disk"),
        ("answer-before-the-flush", 1, "on disk"),
        ("skip-the-metadata-sync", 24, "and had stored"),
        ("vote-without-the-log-check", 1, "with the votes of"),
        ("trust-a-cut-tail", 1, "than what was committed"),
        ("trust-a-wiped-disk", 21, "although its disk was lost"),
        (
            "reword-memberships",
            1,
            "of the leader of term 2 it would be",
        ),
        ("proxy-ignores-the-term", 1531, "of the leader of term"),
        ("repair-without-a-clock", 479, "lead term 1677"),
        ("believe-any-set", 2, "had said not to be lost"),
        ("forget-the-lease", 209, "entries had been acknowledged"),
        ("refuse-for-the-living", 1, "entries had been acknowledged"),
    ] {
        let refused = is_refused(mutation, seed, words);
        assert!(
            refused,
            "{mutation}: no seed from {seed} to {} is refused with {words:?}",
            seed + TRIED
        );
    }
}
