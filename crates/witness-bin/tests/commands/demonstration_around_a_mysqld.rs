//! The demonstration with a real mysqld and members that are killed by SIGKILL succeeds, and leaves no
//! process running.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use testkit::mysql_tree::{MysqlTree, TREE_VARIABLE};

use crate::program::{Scratch, witness};

/// Returns the directory of an unpacked mysqld: the one that the tester names, or the checkout's. The demonstration itself prefers
/// `$MYSQLD` and a mysqld on the PATH.
fn tree() -> PathBuf {
    let named = std::env::var_os(TREE_VARIABLE).map_or_else(MysqlTree::folder, PathBuf::from);
    let named = named.canonicalize().expect("a tree of `cargo xtask mysql`");
    match named.is_dir() {
        true => named,
        false => named.parent().expect("its directory").to_owned(),
    }
}

/// Returns the number of processes with these words in their command lines.
fn processes_with(words: &str) -> usize {
    let entries = std::fs::read_dir("/proc")
        .expect("processes")
        .filter_map(Result::ok);
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| String::from_utf8_lossy(line).contains(words))
        .count()
}

#[test]
fn around_a_mysqld_it_succeeds_and_leaves_no_process() {
    let scratch = Scratch::new();
    symlink(tree(), scratch.join(".mysql")).expect("a link");
    let demo = [
        "demo",
        "--mysql",
        "--pause",
        "1",
        "--data-dir",
        "files",
        "--output",
        "json",
    ];
    let run = witness(&scratch).args(demo).run();
    assert_eq!(run.code, 0, "{run}");
    let report = run.json();
    assert_eq!(
        (&report["ok"], &report["lost_total"]),
        (&true.into(), &0.into()),
        "{run}"
    );
    assert!(
        report["acknowledged_total"]
            .as_u64()
            .is_some_and(|total| total > 50),
        "{run}"
    );
    let files = scratch.join("files");
    for witness_name in ["witness-1", "witness-2"] {
        let paths = [files.join("db-1"), files.join(witness_name)];
        let diff = witness(&scratch).args(["log", "diff"]).args(&paths).run();
        assert_eq!(diff.code, 0, "{diff}");
    }
    let named = files
        .canonicalize()
        .expect("the files")
        .display()
        .to_string();
    assert_eq!(processes_with(&named), 0, "something still runs");
}

#[test]
fn without_a_mysqld_the_advice_names_one() {
    let scratch = Scratch::new();
    let run = witness(&scratch)
        .env("MYSQLD", "/nowhere/mysqld")
        .args(["demo", "--mysql"])
        .run();
    assert_eq!(run.code, 4, "{run}");
    assert!(
        run.stderr
            .contains("MYSQLD names no usable mysqld: /nowhere/mysqld cannot be started"),
        "{run}"
    );
    assert!(run.stderr.contains("cargo xtask mysql"), "{run}");
}
