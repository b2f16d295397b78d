//! `witness log parallelism` on binlog files of a mysqld and of a member.

use std::path::{Path, PathBuf};

use crate::program::played::played;
use crate::program::{Run, Scratch, witness};

fn parallelism(files: &[PathBuf], more: &[&str]) -> Run {
    witness(&Scratch::new())
        .args(["log", "parallelism"])
        .args(files)
        .args(more)
        .run()
}

/// Returns the path of a binlog file that a real server wrote.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../binlog-format/testdata")
        .join(name)
}

#[test]
fn groups_and_chains_are_told_as_a_table_and_as_json() {
    let files = [golden("rows.binlog"), golden("full_metadata.binlog")];
    let json = parallelism(&files, &["--output", "json"]).json();
    assert_eq!(json["transactions"], 15);
    assert_eq!(json["row_writes"], 25);
    assert_eq!(json["by_log"]["transactions"], 15);
    let policies: Vec<_> = json["chains"]
        .as_array()
        .expect("chains")
        .iter()
        .map(|chain| chain["policy"].as_str().expect("a policy"))
        .collect();
    assert_eq!(policies, ["serial", "log", "transactions", "rows"]);
    assert_eq!(json["chains"][0]["row_writes"], 25);

    let table = parallelism(&files, &[]);
    for expected in [
        "15 transactions, 0 of them applied alone; 25 row writes",
        "Group_size  Transactions  %_of_transactions  Groups  %_of_groups",
        "Policy        Row_writes  Parallelism",
        "The log has no unique keys except the primary one, and no foreign keys",
        "set binlog_row_metadata=FULL on the source",
    ] {
        assert!(table.stdout.contains(expected), "{table}");
    }
}

#[test]
fn a_members_files_are_read_like_a_servers() {
    let log = played().member("witness-2").join("log");
    let files = ["binlog.000001", "binlog.000002"].map(|name| log.join(name));
    let json = parallelism(&files, &["--output", "json"]).json();
    let listed = witness(&Scratch::new())
        .args(["log", "show"])
        .args([log.parent().expect("a data directory")])
        .args(["--output", "json"])
        .run();
    let transactions = listed
        .stdout
        .lines()
        .filter(|line| line.contains("\"kind\":\"transaction\""))
        .count();
    assert!(transactions > 0, "{listed}");
    assert_eq!(json["transactions"], transactions);
}

#[test]
fn what_is_no_binlog_is_refused_with_its_name() {
    let scratch = Scratch::new();
    let path = scratch.join("notes.txt");
    std::fs::write(&path, "no binlog").expect("a file");
    let run = parallelism(&[path], &[]);
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("notes.txt is no binlog file"), "{run}");
    // A pipe without a writer: opening it would block until a writer appears.
    let pipe = scratch.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let run = parallelism(&[pipe], &[]);
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("pipe is not a regular file"), "{run}");
}
