//! The subcommands of `witness log` on the intact and the damaged files of a stopped member.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::program::played::played;
use crate::program::{Run, Scratch, witness};

fn log(verb: &str, path: &Path, more: &[&str]) -> Run {
    witness(&Scratch::new())
        .args(["log", verb])
        .args([path])
        .args(more)
        .run()
}

fn flip_a_byte(file: &Path, offset: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .expect("the file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the byte");
    file.write_all_at(&[!byte[0]], offset)
        .expect("the other byte");
}

#[test]
fn files_entries_and_events_are_listed() {
    let member = played().member("witness-2");
    let list = log("list", &member, &["--output", "json"]).json();
    let names: Vec<_> = list
        .as_array()
        .expect("files")
        .iter()
        .map(|file| &file["log_name"])
        .collect();
    assert_eq!(names, ["binlog.000001", "binlog.000002"]);
    assert_eq!(list[0]["closed"], true);
    assert_eq!(list[1]["closed"], false);
    // The first membership entry is written in term 1, before any member is elected.
    assert_eq!(list[0]["first_op_id"], "1.0");
    let table = log("list", &member, &[]);
    assert!(
        table
            .stdout
            .starts_with("Log_name       File_size  Entries"),
        "{table}"
    );

    let show = log("show", &member, &["--limit", "3", "--output", "json"]);
    let kinds: Vec<_> = show
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["kind"].clone())
        .collect();
    assert_eq!(kinds, ["membership", "blank", "transaction"]);
    let events = log(
        "show",
        &member,
        &["--events", "--from", "2", "--limit", "1"],
    );
    assert!(events.stdout.contains("CREATE DATABASE demo"), "{events}");
}

#[test]
fn one_entry_is_found_three_ways() {
    let member = played().member("db-1");
    let by_index = log("find", &member, &["--index", "10", "--output", "json"]).json();
    let (op_id, gtid) = (by_index["op_id"].as_str(), by_index["gtid"].as_str());
    let by_op_id = log(
        "find",
        &member,
        &["--op-id", op_id.expect("text"), "--output", "json"],
    )
    .json();
    let by_gtid = log(
        "find",
        &member,
        &["--gtid", gtid.expect("text"), "--output", "json"],
    )
    .json();
    assert_eq!(by_index, by_op_id);
    assert_eq!(by_index, by_gtid);
    let missing = log("find", &member, &["--index", "99999999"]);
    assert_eq!(missing.code, 1, "{missing}");
    assert!(
        missing
            .stderr
            .contains("does not have an entry with the index 99999999"),
        "{missing}"
    );
    assert_eq!(
        log("find", &member, &[]).code,
        2,
        "what to look for must be said"
    );
    assert_eq!(log("find", &member, &["--gtid", "x"]).code, 2);
}

#[test]
fn one_file_alone_is_read_like_a_directory() {
    let file = played().member("db-1").join("log/binlog.000002");
    let verify = log("verify", &file, &["--output", "json"]).json();
    assert_eq!((&verify["files"], &verify["ok"]), (&1.into(), &true.into()));
    let show = log("show", &file, &["--limit", "1"]);
    assert!(show.stdout.contains("binlog.000002"), "{show}");
}

#[test]
fn a_changed_byte_in_a_closed_file_is_named_with_its_place() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    flip_a_byte(&copy.join("log/binlog.000001"), 20_000);
    let verify = log("verify", &copy, &[]);
    assert_eq!(verify.code, 7, "{verify}");
    assert!(
        verify.stdout.contains("DAMAGED: binlog.000001 at offset 1"),
        "{verify}"
    );
    assert_eq!(
        log("verify", &copy, &["--output", "json"]).json()["ok"],
        false
    );
    let diff = log(
        "diff",
        &copy,
        &[played().member("witness-1").to_str().expect("text")],
    );
    assert_eq!(diff.code, 1, "{diff}");
    assert!(
        diff.stdout
            .contains("binlog.000001: differs from byte 20000 on"),
        "{diff}"
    );
}

#[test]
fn an_unfinished_end_is_no_damage_to_a_reader() {
    let scratch = Scratch::new();
    let copy = played().copy("witness-1", &scratch);
    let file = copy.join("log/binlog.000002");
    let size = fs::metadata(&file).expect("the file").len();
    OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|file| file.set_len(size - 7))
        .expect("a cut");
    let verify = log("verify", &copy, &[]);
    assert_eq!(verify.code, 0, "{verify}");
    assert!(
        verify
            .stdout
            .contains("unfinished at the end: binlog.000002 at offset"),
        "{verify}"
    );
    let diff = log(
        "diff",
        &copy,
        &[played().member("witness-1").to_str().expect("text")],
    );
    assert!(diff.stdout.contains("binlog.000002: "), "{diff}");
    assert!(
        diff.stdout.contains(&format!("ends at {}", size - 7)),
        "{diff}"
    );
}

#[test]
fn what_is_no_log_is_said_to_be_none() {
    let scratch = Scratch::new();
    for verb in ["list", "show", "verify", "follow"] {
        let run = log(verb, scratch.path(), &[]);
        assert_eq!(run.code, 1, "{run}");
        assert!(run.stderr.contains("has no log files"), "{run}");
    }
    scratch.write("binlog.000001", "not a binlog file at all");
    let run = log("verify", &scratch.join("binlog.000001"), &[]);
    assert_eq!(run.code, 7, "{run}");
    let run = witness(&scratch).args(["log", "list"]).run();
    assert_eq!(run.code, 2, "{run}");
    assert!(
        run.stderr
            .contains("neither a path nor a configuration is given"),
        "{run}"
    );
}

/// Files that a real mysqld wrote: a closed file, a file that is still in use, and a file without checksums.
#[test]
fn mysqlds_own_binlog_is_read_and_never_called_damaged() {
    let golden = |name: &str| {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../binlog-format/testdata")
            .join(name)
    };
    let scratch = Scratch::new();
    // The files have the names that they would have in mysqld's data directory.
    fs::create_dir(scratch.join("data")).expect("a directory");
    for (at, name) in ["rows.binlog", "no_checksum.binlog", "in_use.binlog"]
        .into_iter()
        .enumerate()
    {
        let to = scratch.join("data").join(format!("binlog.00000{}", at + 1));
        fs::copy(golden(name), to).expect("a copy");
    }
    let data = scratch.join("data");
    let verify = log("verify", &data, &[]);
    assert_eq!(verify.code, 0, "{verify}");
    assert!(verify.stdout.contains("mysqld's own binlog"), "{verify}");
    let json = log("verify", &data, &["--output", "json"]).json();
    assert_eq!(
        (&json["owner"], &json["ok"]),
        (&"mysqld".into(), &true.into())
    );
    assert_eq!(
        (&json["files"], &json["unfinished"]),
        (&3.into(), &().into())
    );
    let list = log("list", &data, &["--output", "json"]).json();
    assert_eq!(list[0]["closed"], true, "{list}");
    assert_eq!(list[2]["closed"], false, "{list}");
    assert_eq!(list[0]["first_op_id"], serde_json::Value::Null);

    // A single file may have any name.
    let rows = golden("rows.binlog");
    let show = log("show", &rows, &["--output", "json"]);
    assert_eq!(show.code, 0, "{show}");
    let lines: Vec<serde_json::Value> = (show.stdout.lines())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(list[0]["entries"], lines.len(), "{show}");
    let second = lines[1].clone();
    let gtid = second["gtid"].as_str().expect("a GTID").to_owned();
    let found = log("find", &data, &["--gtid", &gtid, "--output", "json"]).json();
    assert_eq!(found["pos"], second["pos"]);
    let events = log("show", &rows, &["--events"]);
    let position = second["pos"].to_string();
    let begins = |line: &str| line.contains(&position) && line.contains(&gtid);
    assert!(events.stdout.lines().any(begins), "{events}");

    // Only a member's log has op ids, so arguments with an op id or an index are rejected.
    for (verb, more) in [
        ("find", ["--index", "3"]),
        ("show", ["--from", "3"]),
        ("follow", ["--limit", "1"]),
    ] {
        let run = log(verb, &data, &more);
        assert!(run.code == 1 || run.code == 2, "{run}");
        assert!(run.stderr.contains("is mysqld's own binlog"), "{run}");
    }

    // A damaged file is reported as damaged. An encrypted file is not.
    flip_a_byte(&scratch.join("data/binlog.000001"), 1_000);
    for verb in ["verify", "list", "show"] {
        assert_eq!(log(verb, &data, &[]).code, 7, "{verb}");
    }
    let encrypted = scratch.join("mysql-bin.000009");
    fs::write(&encrypted, [&[0xfd][..], b"bin", &[0; 600]].concat()).expect("a file");
    let run = log("verify", &encrypted, &[]);
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("it is encrypted"), "{run}");
}

#[test]
fn following_shows_what_is_there_and_ends_at_its_limit() {
    let member = played().member("db-1");
    let run = log(
        "follow",
        &member,
        &["--from", "5", "--limit", "2", "--output", "json"],
    );
    assert_eq!(run.code, 0, "{run}");
    let ids: Vec<_> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["op_id"].clone())
        .collect();
    let ids: Vec<_> = ids
        .iter()
        .filter_map(|id| id.as_str()?.split_once('.').map(|(_, index)| index))
        .collect();
    assert_eq!(ids, ["5", "6"]);
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let scratch = Scratch::new();
    let path = played().member("db-1");
    let mut child = witness(&scratch)
        .args(["log", "show"])
        .args([&path])
        .spawn();
    let mut first = String::new();
    let mut reader = BufReader::with_capacity(64, child.stdout.take().expect("piped"));
    reader.read_line(&mut first).expect("a line");
    drop(reader);
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
