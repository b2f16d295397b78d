//! A ring with two kinds of followers: one with the member's applier, one with mysqld's replica threads. The scripts of `corpus/` run at
//! the primary sequentially. After each script, all servers have the same rows, definitions and accounts. `CORPUS_SCRIPT=name` selects
//! one script.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use witness_tests::{difference, replicaset_with, server_contents};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// Time limit for one script on a busy machine.
const SCRIPT_LIMIT: Duration = Duration::from_secs(120);
/// The default, with which even a busy machine should not cause an election.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// The database member whose mysqld applies with its replica threads. At the others the member applies.
const NATIVE: usize = 3;

#[test]
fn a_corpus_of_workloads_is_followed_by_rows_and_by_replica_threads() {
    let _turn = SCENES.take();
    let set = replicaset_with(3, |options| {
        options.with_native(NATIVE).with_heartbeat(HEARTBEAT)
    })
    .unwrap();
    let leads = set.primary(SOON).unwrap();
    assert_ne!(leads, NATIVE, "it shall follow");
    let followers: Vec<usize> = set
        .databases()
        .into_iter()
        .filter(|&member| member != leads)
        .collect();
    for &member in &followers {
        set.follows(member, SOON).unwrap();
    }
    let primary = set.client(leads);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    if let Ok(only) = std::env::var("CORPUS_SCRIPT") {
        scripts.retain(|script| script.file_stem().unwrap().to_string_lossy() == only);
    }
    scripts.sort();
    assert!(!scripts.is_empty());
    let mut failed = Vec::new();
    for script in &scripts {
        let name = script.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(script).unwrap();
        let began = Instant::now();
        primary
            .sql_within(&text, SCRIPT_LIMIT)
            .unwrap_or_else(|error| panic!("{name}: {error}\n{}", set.words()));
        let executed = primary.gtid_executed().unwrap();
        let expected = server_contents(&primary).unwrap();
        let before = failed.len();
        for &member in &followers {
            let follower = set.client(member);
            if let Err(error) = follower.wait_for_gtids(&executed, SOON) {
                panic!("{name}: member {member} stopped: {error}\n{}", set.words());
            }
            if let Some(differing) = difference(&expected, &server_contents(&follower).unwrap()) {
                failed.push(format!("{name}, member {member}: {differing}"));
            }
        }
        let equal = if failed.len() == before {
            "equal"
        } else {
            "DIFFERENT"
        };
        println!("{name}: {equal}, {:.1} s", began.elapsed().as_secs_f64());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
