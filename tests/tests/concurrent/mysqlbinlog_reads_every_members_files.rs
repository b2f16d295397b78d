//! The stock `mysqlbinlog --verify-binlog-checksum` reads every member's files. When its output is replayed into a fresh mysqld, that
//! server has the primary's rows and GTIDs.

use std::time::Duration;

use testkit::cluster::{Cluster, ClusterOptions, Profile, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::verified_sql;
use testkit::mysqld::sysbench::Sysbench;
use testkit::mysqld::{Mysqld, MysqldOptions};

use crate::SCENES;

const REPLAY_LIMIT: Duration = Duration::from_secs(120);

#[test]
fn the_log_replayed_gives_the_primarys_rows_and_gtids() {
    let _turn = SCENES.take();
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let binary = witness_binary(Profile::Dev).unwrap();
    let options = ClusterOptions::around(&server).with("log", "max_file_bytes = \"256KiB\"");
    let ring = Cluster::launch(&binary, options).unwrap();

    let load = Sysbench::on(&server)
        .tables(2, 500)
        .threads(4)
        .duration(Duration::from_secs(5));
    load.prepare(&server).unwrap();
    load.run().unwrap();
    // Statements that sysbench does not use: other kinds of statements, compressed payloads, tags, XA, empty transactions.
    server
        .client()
        .sql(
            "CREATE DATABASE odd; USE odd;
             CREATE TABLE t (id INT PRIMARY KEY, j JSON, b LONGBLOB) ;
             INSERT INTO t VALUES (1, '{\"a\": [1, 2, 3]}', REPEAT('b', 100000));
             SET binlog_row_value_options = PARTIAL_JSON;
             UPDATE t SET j = JSON_SET(j, '$.a[1]', 7);
             SET binlog_transaction_compression = ON;
             INSERT INTO t VALUES (2, '[]', REPEAT('z', 300000));
             SET binlog_transaction_compression = OFF;
             SET gtid_next = 'AUTOMATIC:monthly'; INSERT INTO t VALUES (3, 'null', NULL); SET gtid_next = 'AUTOMATIC';
             XA START 'x'; INSERT INTO t VALUES (4, 'null', NULL); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x';
             SET gtid_next = '11111111-2222-3333-4444-555555555555:7'; BEGIN; COMMIT; SET gtid_next = 'AUTOMATIC';
             CREATE TABLE copy AS SELECT * FROM t;
             SET binlog_format = STATEMENT; INSERT INTO t VALUES (5, 'null', NULL); SET binlog_format = ROW;
             BEGIN; INSERT INTO t VALUES (6, 'null', NULL); SAVEPOINT s; INSERT INTO t VALUES (7, 'null', NULL); ROLLBACK TO s; COMMIT;
             TRUNCATE copy; DROP TABLE copy",
        )
        .unwrap();

    let files = ring.wait_until_equal(Duration::from_secs(30)).unwrap();
    assert!(
        files.paths().len() > 2,
        "the log must have rotated: {files:?}"
    );
    let mut replays = Vec::new();
    for member in 0..ring.size() {
        replays.push(verified_sql(&tree, &ring.log_files(member).unwrap().paths()).unwrap());
    }

    let target = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(2)).unwrap();
    target
        .client()
        .sql_within(&replays[0], REPLAY_LIMIT)
        .unwrap();
    assert_eq!(
        target.client().gtid_executed().unwrap(),
        server.client().gtid_executed().unwrap()
    );
    for schema in [Sysbench::schema(), "odd"] {
        let (source, replayed) = (
            server.client().table_checksums(schema).unwrap(),
            target.client().table_checksums(schema).unwrap(),
        );
        assert_eq!(source, replayed, "{schema}");
    }
}
