//! sysbench, stock semi-sync replication and mysqlbinlog work with the fixture's servers. Other tests rely on
//! this.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::verified_sql;
use testkit::mysqld::sysbench::Sysbench;
use testkit::mysqld::{Mysqld, MysqldOptions};

#[test]
fn mysqld_under_sysbench_commits_the_reported_transactions() {
    let server = Mysqld::launch(&MysqlTree::require()).unwrap();
    let load = Sysbench::on(&server)
        .tables(2, 500)
        .threads(2)
        .duration(Duration::from_secs(2));
    load.prepare(&server).unwrap();
    let before = committed(&server).unwrap();
    let report = load.run().unwrap();
    let after = committed(&server).unwrap();
    assert_eq!(after - before, report.transactions, "{report:?}");
    assert!(
        report.latency_p50_ms <= report.latency_p95_ms
            && report.latency_p95_ms <= report.latency_p99_ms
    );
}

#[test]
fn mysqld_that_dies_under_sysbench_is_an_error_of_the_run() {
    let mut server = Mysqld::launch(&MysqlTree::require()).unwrap();
    let load = Sysbench::on(&server)
        .tables(1, 500)
        .duration(Duration::from_secs(30));
    load.prepare(&server).unwrap();
    let mut run = load.start().unwrap();
    thread::sleep(Duration::from_secs(1));
    assert!(!run.is_finished().unwrap());
    server.kill().unwrap();
    let error = run.finish().unwrap_err();
    assert!(error.to_string().contains("FATAL"), "{error:#}");
}

#[test]
fn mysqld_as_semi_sync_source_waits_for_its_replica() {
    let tree = MysqlTree::require();
    let source = Mysqld::launch(&tree).unwrap();
    let replica = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(2)).unwrap();
    source.client().create_replication_user().unwrap();
    source
        .client()
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)")
        .unwrap();
    source.client().enable_semi_sync_source(1).unwrap();
    let mut commit = source
        .client()
        .start_sql("INSERT INTO d.t VALUES (1)")
        .unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(!commit.is_finished().unwrap(), "no replica acknowledged it");
    assert_eq!(
        source.client().value("SELECT COUNT(*) FROM d.t").unwrap(),
        "0",
        "AFTER_SYNC shows nothing un-acked"
    );
    replica.replicate_from(&source, true).unwrap();
    commit.finish(Duration::from_secs(20)).unwrap();
    source
        .client()
        .wait_for_status("Rpl_semi_sync_source_clients", "1", Duration::from_secs(20))
        .unwrap();
    let gtids = source.client().gtid_executed().unwrap();
    replica
        .client()
        .wait_for_gtids(&gtids, Duration::from_secs(20))
        .unwrap();
    assert_eq!(
        source.client().table_checksums("d").unwrap(),
        replica.client().table_checksums("d").unwrap()
    );
}

#[test]
fn mysqld_binlogs_replay_and_a_flipped_bit_is_found() {
    let tree = MysqlTree::require();
    let mut source = Mysqld::launch(&tree).unwrap();
    source
        .client()
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT)")
        .unwrap();
    source
        .client()
        .sql("INSERT INTO d.t VALUES (1, 'é'), (2, NULL); DELETE FROM d.t WHERE id = 1")
        .unwrap();
    let expected = (
        source.client().table_checksums("d").unwrap(),
        source.client().gtid_executed().unwrap(),
    );
    source.stop().unwrap();
    let files = source.binlog_files().unwrap();
    let replay = verified_sql(&tree, &files).unwrap();
    let target = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(2)).unwrap();
    target.client().sql(&replay).unwrap();
    assert_eq!(
        (
            target.client().table_checksums("d").unwrap(),
            target.client().gtid_executed().unwrap()
        ),
        expected
    );

    let mut damaged = fs::read(&files[0]).unwrap();
    let middle = damaged.len() - 300;
    damaged[middle] ^= 1;
    fs::write(&files[0], damaged).unwrap();
    assert!(verified_sql(&tree, &files).is_err());
}

/// Returns how many transactions the server has committed, from its GTIDs of one source.
fn committed(server: &Mysqld) -> anyhow::Result<u64> {
    let gtids = server.client().gtid_executed()?;
    let (_, last) = gtids
        .rsplit_once('-')
        .context("several transactions were expected")?;
    Ok(last.parse()?)
}
