//! A stock replica that is attached to a witness is not touched while the primary's host dies three times.

use std::time::Duration;

use witness_tests::{StockReplica, Writers, WrittenRows, replicaset_with};

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
    let acknowledged = written.acknowledged().len();
    println!("{acknowledged} acknowledged commits, {rows} rows at the replica");
    assert!(
        rows.parse::<usize>().unwrap() >= acknowledged,
        "{rows} of {acknowledged}"
    );
}
