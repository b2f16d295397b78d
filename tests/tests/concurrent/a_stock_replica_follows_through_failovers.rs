//! A stock replica of a witness needs no configuration change while the primary's host dies three times.

use std::time::Duration;

use testkit::cluster::ClusterOptions;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::verified_sql;
use witness_tests::{
    StockReplica, Writers, WrittenRows, numbers_rise_in_each_file, replicaset_with,
};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn three_failovers_leave_the_replica_equal_to_the_ring() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |options| {
        options
            .with_binlog_servers()
            .with("log", "max_file_bytes = \"256KiB\"")
    })
    .unwrap();
    let replica = StockReplica::attach(
        77,
        set.binlog_server(1),
        "SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 0",
    )
    .unwrap();
    let mut written = WrittenRows::default();
    for round in 0..3 {
        let primary = set.primary(SOON).unwrap();
        set.follows(3 - primary, SOON).unwrap();
        let clients = Writers::of(&set, 4, round * 1_000_000);
        clients.wait_for_more(200, SOON).unwrap();
        set.kill_host(primary).unwrap();
        clients.wait_for_more(200, SOON).unwrap();
        set.start(primary).unwrap();
        written = written.and(clients.finish().unwrap());
        set.follows(primary, SOON).unwrap();
        assert_eq!(
            replica.connection().unwrap(),
            ("ON".to_owned(), String::new())
        );
    }
    let primary = set.primary(SOON).unwrap();
    let client = set.client(primary);
    let equal = replica.equals(&client, &["acked"], SOON);
    equal.unwrap_or_else(|error| panic!("{error:#}"));
    let rows = replica
        .client()
        .value("SELECT COUNT(*) FROM acked.rows")
        .unwrap();
    // A replica logs this warning if sequence numbers decrease within a file.
    assert!(!replica.words().contains("MY-010411"));
    let acknowledged = written.acknowledged().len();
    println!("{acknowledged} acknowledged commits, {rows} rows at the replica");
    assert!(
        rows.parse::<usize>().unwrap() >= acknowledged,
        "{rows} of {acknowledged}"
    );
}

/// Parallel workers of a replica use the sequence numbers of a file, which must increase. MySQL 8.0 stops with error 1755 if
/// they decrease.
#[test]
fn a_parallel_replica_of_mysql_8_0_follows_renumbered_transactions() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, ClusterOptions::with_binlog_servers).unwrap();
    let primary = set.client(set.primary(SOON).unwrap());
    let gtids = primary.gtid_executed().unwrap();
    let replica = StockReplica::attach_oldest(78, set.binlog_server(1), &gtids).unwrap();
    let mut written = WrittenRows::default();
    for round in 0..4 {
        let primary = set.primary(SOON).unwrap();
        set.follows(3 - primary, SOON).unwrap();
        let clients = Writers::of(&set, 4, round * 1_000_000);
        clients.wait_for_more(50, SOON).unwrap();
        match round {
            0 => drop(set.client(primary).sql("FLUSH BINARY LOGS").unwrap()),
            1 => set
                .promote(["db-2", "", "", "db-1"][primary], SOON)
                .unwrap(),
            2 => set.server(primary).kill().unwrap(),
            _ => set.kill_host(primary).unwrap(),
        }
        clients.wait_for_more(50, SOON).unwrap();
        if round == 3 {
            set.start(primary).unwrap();
        }
        written = written.and(clients.finish().unwrap());
        let primary = set.primary(SOON).unwrap();
        let equal = replica.equals(&set.client(primary), &["acked"], SOON);
        equal.unwrap_or_else(|error| panic!("round {round}: {error:#}"));
    }
    let files = set.wait_until_equal(SOON).unwrap();
    let sql = verified_sql(&MysqlTree::require(), &files.paths()).unwrap();
    numbers_rise_in_each_file(&sql).unwrap();
    let primary = set.primary(SOON).unwrap();
    written.ensure_all_are_in(&set.client(primary)).unwrap();
}
