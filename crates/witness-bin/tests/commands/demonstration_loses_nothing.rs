//! The demonstration ends with success, reports every event, loses no transaction, and leaves equal log files.

use crate::program::played::played;
use crate::program::{Scratch, witness};

#[test]
fn it_succeeds_and_lists_its_events() {
    let run = &played().run;
    assert_eq!(run.code, 0, "{run}");
    let report = run.json();
    assert_eq!(report["ok"], true);
    assert_eq!(report["lost_total"], 0);
    assert_eq!(report["doubled_total"], 0);
    assert_eq!(report["difference"], serde_json::Value::Null);
    assert!(
        report["acknowledged_total"]
            .as_u64()
            .is_some_and(|total| total > 100),
        "{run}"
    );
    assert!(
        report["compared_bytes"]
            .as_u64()
            .is_some_and(|bytes| bytes > 10_000),
        "{run}"
    );
    let events = report["events"].as_array().expect("events");
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| event["what"].as_str())
        .collect();
    for what in [
        "witness-1 crashes",
        "the log rotates",
        "both witnesses crash",
        "db-1, the leader, crashes",
        "db-1 is back",
    ] {
        assert!(told.contains(&what), "{what} is not in {told:?}");
    }
}

#[test]
fn the_files_that_stay_are_equal_and_whole() {
    let played = played();
    let scratch = Scratch::new();
    let [database, first, second] =
        ["db-1", "witness-1", "witness-2"].map(|name| played.member(name));
    for other in [&first, &second] {
        let run = witness(&scratch)
            .args(["log", "diff"])
            .args([&database, other])
            .run();
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "the logs are the same, byte by byte\n")
        );
    }
    for member in [&database, &first, &second] {
        let run = witness(&scratch)
            .args(["log", "verify"])
            .args([member])
            .run();
        assert_eq!(run.code, 0, "{run}");
    }
    assert!(
        first.join("log/binlog.000002").is_file(),
        "the log was rotated"
    );
}

#[test]
fn a_directory_with_files_is_refused() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.join("d")).expect("a directory");
    scratch.write("d/precious", "x");
    let run = witness(&scratch).args(["demo", "--data-dir", "d"]).run();
    assert_eq!(run.code, 4, "{run}");
    assert!(run.stderr.contains("d is not empty"), "{run}");
}
