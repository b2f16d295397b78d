//! An error at the target stops `witness apply`. It reports the GTID, table, row and the server's message, and earlier transactions
//! are applied. After the cause is removed, the same command continues.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use witness_tests::Pair;

use crate::SCENES;

#[test]
fn a_stopped_apply_reports_its_position_and_continues() {
    let _turn = SCENES.take();
    let pair = Pair::new().unwrap();
    let (source, target) = (pair.source.client(), pair.target.client());
    source
        .sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT, UNIQUE KEY (v)); \
             INSERT INTO d.t VALUES (1, 10), (2, 20), (3, 30)",
        )
        .unwrap();
    pair.apply(&[]).unwrap();

    // The target has an extra row, and lacks another one.
    target
        .sql("SET sql_log_bin = 0; INSERT INTO d.t VALUES (77, 50); DELETE FROM d.t WHERE id = 3")
        .unwrap();
    source
        .sql(
            "UPDATE d.t SET v = 11 WHERE id = 1; INSERT INTO d.t VALUES (4, 40), (5, 50), (6, 60); \
             UPDATE d.t SET v = 31 WHERE id = 3; UPDATE d.t SET v = 12 WHERE id = 1",
        )
        .unwrap();
    let gtid = |distance: u64| {
        let executed = source.gtid_executed().unwrap();
        let (uuid, interval) = executed.split_once(':').unwrap();
        let last: u64 = interval.rsplit('-').next().unwrap().parse().unwrap();
        format!("{uuid}:{}", last - distance)
    };
    let stopped = |arguments: &[&str]| {
        let done = pair.run(arguments).unwrap();
        assert!(!done.status.success());
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        println!("{said}");
        (done.status.code(), said)
    };

    for arguments in [&["--workers", "1"][..], &["--workers", "4"]] {
        let (code, said) = stopped(arguments);
        assert_eq!(code, Some(4), "{said}");
        for part in [
            &gtid(2),
            "d.t",
            "row 2",
            "Duplicate entry '50' for key 't.v'",
        ] {
            assert!(said.contains(part), "no `{part}` in: {said}");
        }
        // Earlier transactions are applied, and no change of the failed one remains.
        let rows = target.sql("SELECT id, v FROM d.t ORDER BY id").unwrap();
        let rows: Vec<String> = rows.0.iter().map(|row| row.join(":")).collect();
        assert_eq!(rows, ["1:11", "2:20", "77:50"]);
    }

    target
        .sql("SET sql_log_bin = 0; DELETE FROM d.t WHERE id = 77")
        .unwrap();
    let (code, said) = stopped(&["--workers", "4"]);
    assert_eq!(code, Some(4), "{said}");
    for part in [&gtid(1), "d.t", "row 1"] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }

    target
        .sql("SET sql_log_bin = 0; INSERT INTO d.t VALUES (3, 30)")
        .unwrap();
    pair.apply(&["--workers", "4"]).unwrap();
    pair.compare("d").unwrap();
}
