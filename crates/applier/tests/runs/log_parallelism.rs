//! Analyses a real server's log with dependent and independent transactions.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions"
)]

use std::path::PathBuf;

use applier::log_parallelism::{Analysis, Report};
use applier::source::{FileSource, Source};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

fn report(files: Vec<PathBuf>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut source = FileSource::open(files, None, 1 << 30).await.unwrap();
        let mut analysis = Analysis::new(1 << 30);
        while let Some(transaction) = source.next().await.unwrap() {
            analysis.add(&transaction).unwrap();
        }
        analysis.report()
    })
}

fn chains(report: &Report) -> Vec<(&str, u64)> {
    let chains = report.chains.iter();
    chains
        .map(|chain| (chain.policy, chain.row_writes))
        .collect()
}

/// Returns ten transactions that each insert four rows and update one common row, then ten that each insert a row.
fn statements() -> String {
    let mut sql = String::new();
    for transaction in 0..10 {
        sql += "BEGIN;";
        for row in 0..4 {
            sql += &format!("INSERT INTO t VALUES ({}, 0);", transaction * 10 + row);
        }
        sql += "UPDATE hot SET n = n + 1; COMMIT;";
    }
    for row in 0..10 {
        sql += &format!("INSERT INTO t VALUES ({}, 0);", 1000 + row);
    }
    sql
}

#[test]
fn in_a_log_of_mysqld_rows_wait_for_the_hot_row_only_and_transactions_as_a_whole() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let client = server.client();
    client
        .sql(
            "SET GLOBAL binlog_row_metadata = FULL; CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, a INT); \
             CREATE TABLE hot (id INT PRIMARY KEY, n INT); INSERT INTO hot VALUES (1, 0); FLUSH BINARY LOGS;",
        )
        .unwrap();
    client
        .sql(&format!("USE d; {} FLUSH BINARY LOGS;", statements()))
        .unwrap();
    let file = server.binlog_files().unwrap().remove(1);
    let full = report(vec![file]);
    assert_eq!(
        (full.transactions, full.barriers, full.row_writes),
        (20, 0, 60)
    );
    // The ten updates of the common row follow each other. The four inserts of the first transaction precede them.
    assert_eq!(
        chains(&full),
        [
            ("serial", 60),
            ("log", 50),
            ("transactions", 50),
            ("rows", 14)
        ]
    );
    let levels: Vec<_> = full
        .by_writesets
        .sizes
        .iter()
        .map(|size| (size.size, size.groups))
        .collect();
    assert_eq!(levels, [(1, 9), (11, 1)]);
    assert_eq!(full.by_writesets.average_size, 2.0);
    assert_eq!(full.by_log.transactions, 20);
    assert_eq!(full.forgotten_keys, 0);
    assert!(
        full.tables_with_unknown_primary_key.is_empty()
            && full.tables_without_primary_key.is_empty()
    );
    // All files, including the barriers before.
    let whole = report(server.binlog_files().unwrap());
    assert_eq!((whole.transactions, whole.barriers), (24, 3));
    assert_eq!(chains(&whole)[3], ("rows", 3 + 14));
}

#[test]
fn in_a_log_of_mysqld_tables_whose_primary_key_is_missing_or_not_logged_are_named() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let client = server.client();
    client
        .sql(&format!(
            "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, a INT); CREATE TABLE hot (id INT PRIMARY KEY, n INT); \
             INSERT INTO hot VALUES (1, 0); FLUSH BINARY LOGS; {} FLUSH BINARY LOGS; SET GLOBAL binlog_row_metadata = FULL; \
             CREATE TABLE keyless (a INT); INSERT INTO keyless VALUES (1), (2);",
            statements()
        ))
        .unwrap();
    let files = server.binlog_files().unwrap();
    let minimal = report(vec![files[1].clone()]);
    assert_eq!(minimal.tables_with_unknown_primary_key, ["d.hot", "d.t"]);
    // The rows of each table are written sequentially. The common row is written concurrently with the next rows of
    // the other table.
    assert_eq!(chains(&minimal)[2..], [("transactions", 60), ("rows", 50)]);
    let keyless = report(vec![files[2].clone()]);
    assert_eq!(keyless.tables_without_primary_key, ["d.keyless"]);
    assert_eq!(chains(&keyless)[3], ("rows", 3));
}
