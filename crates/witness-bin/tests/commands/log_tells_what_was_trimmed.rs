//! `witness log trimmed` lists the tails that were trimmed from the member's log and from its mysqld's binlog.

use std::fs;

use crate::program::{Scratch, witness};

/// The documents in their form on disk. They are literals, so that a change of the form makes this test fail.
const OF_MYSQLD: &str = r#"{"reason": "the ring had not committed it", "at": 1700000000, "from": "/d/binlog.000007",
  "offset": 1234, "bytes": 99, "gtids": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:5-7", "kept_as": "binlog.000007.from-1234.0a0b0c0d"}"#;
const OF_THE_LOG: &str = r#"{"reason": "a quorum was repaired", "at": 1600000000, "kept": {"term": 1, "index": 180},
  "first": {"term": 1, "index": 181}, "last": {"term": 1, "index": 200}, "committed": {"term": 1, "index": 190},
  "gtids": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:9", "parts": [{"file": 3, "offset": 500, "bytes": 77,
  "kept_as": "1.181-1.200.binlog.000003.from-500"}]}"#;

#[test]
fn both_kinds_of_tails_are_listed_with_the_file_to_look_into() {
    let scratch = Scratch::new();
    let data_dir = scratch.join("data");
    fs::create_dir_all(data_dir.join("trimmed/mysqld")).expect("a folder");
    let path = data_dir.to_string_lossy().into_owned();
    let trimmed = |more: &[&str]| {
        let arguments = ["log", "trimmed", path.as_str()];
        witness(&scratch).args(arguments).args(more).run()
    };
    assert_eq!(trimmed(&["-o", "json"]).json(), serde_json::json!([]));
    fs::write(data_dir.join("trimmed/1.181-1.200.json"), OF_THE_LOG).expect("a document");
    let name = "trimmed/mysqld/binlog.000007.from-1234.0a0b0c0d.json";
    fs::write(data_dir.join(name), OF_MYSQLD).expect("a document");

    let lines = trimmed(&["-o", "json"]).json();
    let of = |line: usize, field: &str| lines[line][field].clone();
    assert_eq!((of(0, "of"), of(1, "of")), ("log".into(), "mysqld".into()));
    assert_eq!(of(0, "from"), "binlog.000003");
    assert_eq!(of(1, "time"), "2023-11-14 22:13:20");
    assert_eq!((of(1, "offset"), of(1, "bytes")), (1234.into(), 99.into()));
    assert_eq!(of(1, "transactions"), 3);
    assert_eq!(
        of(1, "gtid_set"),
        "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:5-7"
    );
    let kept_in = of(1, "kept_in");
    let kept_in = kept_in.as_str().expect("a path");
    assert!(kept_in.ends_with("trimmed/mysqld/binlog.000007.from-1234.0a0b0c0d"));
    let table = trimmed(&[]);
    assert!(table.stdout.starts_with("Of      Time"), "{table}");

    fs::write(data_dir.join(name), "{").expect("a document");
    let broken = trimmed(&[]);
    assert!(broken.stderr.contains(name), "{broken}");
    assert_eq!(broken.code, 1);
}
