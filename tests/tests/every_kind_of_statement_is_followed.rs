//! A ring with a follower of each kind, the member's applier and mysqld's own replica threads. The scripts of `corpus/` run at
//! the primary, one after the other; behind each, all servers have the same rows, definitions and accounts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::time::Duration;

use witness_tests::{Replicaset, difference, server_contents};

const SOON: Duration = Duration::from_secs(60);
/// The database whose own threads apply, and the one whose member does.
const NATIVE: usize = 3;
const ROWS: usize = 4;

#[test]
fn a_corpus_of_workloads_is_followed_by_rows_and_by_replica_threads() {
    let set = Replicaset::launch_with(3, |options| options.with_native(NATIVE)).unwrap();
    set.follows(NATIVE, SOON).unwrap();
    set.follows(ROWS, SOON).unwrap();
    let primary = set.client(set.primary(SOON).unwrap());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    scripts.sort();
    assert!(scripts.len() > 10, "{scripts:?}");
    let mut failed = Vec::new();
    for script in &scripts {
        let name = script.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(script).unwrap();
        primary
            .sql(&text)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let executed = primary.gtid_executed().unwrap();
        let expected = server_contents(&primary).unwrap();
        for member in [NATIVE, ROWS] {
            let follower = set.client(member);
            if let Err(error) = follower.wait_for_gtids(&executed, SOON) {
                panic!("{name}: member {member} stopped: {error}\n{}", set.words());
            }
            if let Some(differing) = difference(&expected, &server_contents(&follower).unwrap()) {
                failed.push(format!("{name}, member {member}: {differing}"));
            }
        }
        println!(
            "{name}: {}",
            if failed.is_empty() {
                "equal"
            } else {
                "looked at"
            }
        );
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
