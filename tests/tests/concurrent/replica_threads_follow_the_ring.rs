//! In this ring the first database follows with the member's applier, and the second one with mysqld's replica threads. The primary moves
//! back and forth with connected clients, and hosts of both kinds die. An error of the replica threads stops them, and is reported.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::cluster::Cluster;
use testkit::mysqld::MysqlClient;
use witness_tests::{Writers, WrittenRows, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// The database member whose mysqld applies with its replica threads; `ROWS` is the other one.
const NATIVE: usize = 3;
const ROWS: usize = 0;

#[test]
fn the_primary_moves_between_an_applier_and_replica_threads() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |options| options.with_native(NATIVE)).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    let native = set.client(NATIVE);
    assert_eq!(native.variable("super_read_only").unwrap(), "1");
    let refused = native.sql("INSERT INTO acked.rows VALUES (1, 0, 'errant')");
    assert!(refused.unwrap_err().to_string().contains("super-read-only"));
    assert_eq!(channels(&set, NATIVE), "1");

    let mut written = WrittenRows::default();
    for (round, name) in ["db-2", "db-1", "db-2", "db-1"].into_iter().enumerate() {
        let primary = set.primary(SOON).unwrap();
        // The follower must have caught up before the clients begin. They write as fast as they can, and on a busy machine a follower may
        // never catch up with them.
        set.follows(NATIVE - primary, SOON).unwrap();
        let clients = Writers::of(&set, 4, round as u64 * 100_000);
        clients.wait_for_more(20, SOON).unwrap();
        set.promote(name, SOON).unwrap();
        clients.wait_for_more(50, SOON).unwrap();
        written = written.and(clients.finish().unwrap());
    }
    nothing_is_lost(&set, &written);

    // Hosts die: the host of each database member once as the primary, and once as the follower.
    for (round, dies) in [ROWS, NATIVE, NATIVE, ROWS].into_iter().enumerate() {
        let primary = set.primary(SOON).unwrap();
        set.follows(NATIVE - primary, SOON).unwrap();
        let clients = Writers::of(&set, 4, (round as u64 + 1) * 1_000_000);
        clients.wait_for_more(50, SOON).unwrap();
        set.kill_host(dies).unwrap();
        clients.wait_for_more(50, SOON).unwrap();
        set.start(dies).unwrap();
        written = written.and(clients.finish().unwrap());
        let primary = set.primary(SOON).unwrap();
        println!("round {round}: member {dies} died, member {primary} is the primary");
        set.follows(NATIVE - primary, SOON).unwrap();
    }
    // Only mysqld dies; its member continues.
    let primary = set.primary(SOON).unwrap();
    set.server(NATIVE - primary).kill().unwrap();
    nothing_is_lost(&set, &written);
    let primary = set.primary(SOON).unwrap();
    set.follows(NATIVE - primary, SOON).unwrap();
    let expected = if primary == NATIVE { "0" } else { "1" };
    assert_eq!(channels(&set, NATIVE), expected);
}

/// After replica threads have applied an XA PREPARE without logging it, its GTID is only in mysqld's memory, however long ago that was.
/// InnoDB does not store this GTID as it stores those of other transactions.
#[test]
fn xa_transactions_that_replica_threads_have_applied_outlive_a_crash() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |options| options.with_native(NATIVE)).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    let write = |set: &Cluster, ids: std::ops::Range<u32>| {
        let one = |id: u32| {
            format!(
                "XA START '{id}'; INSERT INTO acked.rows VALUES ({id}, 0, 'xa'); XA END '{id}'; XA PREPARE '{id}'; XA COMMIT '{id}'; \
                 INSERT INTO acked.rows VALUES ({id} + 1000, 0, 'between');"
            )
        };
        set.client(ROWS)
            .sql(&ids.map(one).collect::<String>())
            .unwrap();
    };
    write(&set, 0..10);
    set.equal("acked", SOON).unwrap();
    set.kill_host(NATIVE).unwrap();
    write(&set, 10..20);
    set.start(NATIVE).unwrap();
    set.follows(NATIVE, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
    let executed = |member| set.client(member).gtid_executed().unwrap();
    assert_eq!(executed(NATIVE), executed(ROWS));
}

/// Regression: a quarter of all reads found the second of two transactions and not the first.
#[test]
fn replica_threads_show_transactions_in_the_order_of_the_log() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| options.with_native(NATIVE)).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    let native = set.client(NATIVE);
    let in_order = || {
        let both =
            "SELECT CONCAT(@@GLOBAL.replica_preserve_commit_order, @@GLOBAL.binlog_order_commits)";
        native.value(both).is_ok_and(|both| both == "11")
    };
    for off in [
        "STOP REPLICA FOR CHANNEL 'witness'; SET GLOBAL replica_preserve_commit_order = OFF, GLOBAL binlog_order_commits = OFF",
        "SET GLOBAL binlog_order_commits = OFF",
    ] {
        native.sql(off).unwrap();
        assert!(!in_order());
        set.eventually("the member sets the order of commits", SOON, in_order)
            .unwrap();
        set.client(ROWS)
            .sql("REPLACE INTO acked.rows VALUES (7, 0, 'seven')")
            .unwrap();
        set.follows(NATIVE, SOON).unwrap();
        set.equal("acked", SOON).unwrap();
    }
    assert!(set.output(NATIVE).contains("binlog_order_commits was OFF"));
    an_error_of_the_replica_threads_is_reported_and_retried(&set);
}

fn an_error_of_the_replica_threads_is_reported_and_retried(set: &Cluster) {
    let native = set.client(NATIVE);
    native
        .sql("SET GLOBAL super_read_only = OFF; SET SESSION sql_log_bin = 0; INSERT INTO acked.rows VALUES (8, 0, 'hidden'); SET GLOBAL super_read_only = ON")
        .unwrap();
    set.client(ROWS)
        .sql("INSERT INTO acked.rows VALUES (8, 0, 'eight')")
        .unwrap();
    let trouble = set.eventually("the replica threads stop", SOON, || {
        let view = set.get(NATIVE, "/status").unwrap().json().unwrap();
        let trouble = view["mysql"]["trouble"].as_str()?;
        let stopped = trouble.contains("replica threads stopped");
        stopped.then(|| trouble.to_owned())
    });
    let trouble = trouble.unwrap();
    println!("{trouble}");
    let uuid = set.client(ROWS).variable("server_uuid").unwrap();
    assert!(
        trouble.contains(&uuid),
        "the transaction is named: {trouble}"
    );
    native
        .sql("SET GLOBAL super_read_only = OFF; SET SESSION sql_log_bin = 0; DELETE FROM acked.rows WHERE id = 8; SET GLOBAL super_read_only = ON")
        .unwrap();
    set.follows(NATIVE, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
}

/// A copy contains the donor's account, which has only few privileges if the donor applies with replica threads.
#[test]
fn no_copy_is_made_with_an_account_that_cannot_apply_rows() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| options.with_native(NATIVE)).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    set.promote("db-2", SOON).unwrap();
    set.follows(ROWS, SOON).unwrap();
    set.client(NATIVE)
        .sql("SET sql_log_bin = 0; REVOKE UPDATE, DELETE ON *.* FROM root@localhost")
        .unwrap();
    let order = ["reprovision", "db-1", "--from", "db-2", "--yes"];
    let refused = set.cli_of(1, &order).unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(4), "{told}");
    assert!(told.contains("lacks UPDATE, DELETE"), "{told}");
    assert!(told.contains("SET sql_log_bin = 0; GRANT ALL"), "{told}");
    // Nothing was removed.
    set.follows(ROWS, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
}

/// A replication delay would prolong the next failover, and would not be part of the lag.
#[test]
fn a_delay_is_reset_and_the_lag_counts_from_the_rings_commit() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| options.with_native(NATIVE)).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    let (primary, native) = (set.client(ROWS), set.client(NATIVE));
    primary
        .sql("INSERT INTO acked.rows VALUES (1, 0, 'one')")
        .unwrap();
    set.equal("acked", SOON).unwrap();
    native
        .sql("STOP REPLICA FOR CHANNEL 'witness'; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 3600 FOR CHANNEL 'witness'; START REPLICA FOR CHANNEL 'witness'")
        .unwrap();
    primary
        .sql("INSERT INTO acked.rows VALUES (2, 0, 'two')")
        .unwrap();
    set.equal("acked", SOON).unwrap();
    set.follows(NATIVE, SOON).unwrap();

    // The original commit timestamp is years old, as in a log that is replayed later.
    let reader = native
        .start_sql("BEGIN; SELECT * FROM acked.rows WHERE id = 1 FOR SHARE; DO SLEEP(8)")
        .unwrap();
    primary
        .sql("DO SLEEP(1); SET SESSION original_commit_timestamp = 1577836800000000; UPDATE acked.rows SET note = 'late' WHERE id = 1")
        .unwrap();
    let lag = set.eventually("it is behind", SOON, || {
        let view = set.get(NATIVE, "/status")?.json()?;
        let lag = view["mysql"]["lag_ms"].as_u64().unwrap_or(0);
        anyhow::ensure!(lag >= 1000, "{lag}");
        Ok(lag)
    });
    let lag = lag.unwrap();
    assert!(lag < 60_000, "{lag} ms");
    drop(reader);
    set.equal("acked", SOON).unwrap();
}

/// Clients of a follower occupy all connections. The member needs some connections to make the follower the primary.
#[test]
fn a_follower_without_a_free_connection_becomes_the_primary() {
    let _turn = SCENES.take();
    let mut set = replicaset_with(2, |options| options.with_native(NATIVE)).unwrap();
    set.begins_at_the_first(SOON).unwrap();
    set.client(ROWS)
        .sql("CREATE USER reader IDENTIFIED BY 'r'; GRANT SELECT ON acked.* TO reader")
        .unwrap();
    set.equal("acked", SOON).unwrap();
    set.client(NATIVE)
        .sql("SET GLOBAL max_connections = 20")
        .unwrap();
    let server = set.server(NATIVE);
    let reader = MysqlClient::over_tcp(server.tree(), server.address(), "reader", "r");
    let start = || reader.start_sql("DO SLEEP(120)");
    // The last of these clients are refused.
    let mut readers: Vec<_> = (0..24).map(|_| start().unwrap()).collect();
    set.eventually("no connection is free", SOON, || {
        if reader.value("SELECT 1").is_err() {
            return Ok(());
        }
        // The member has just released a connection; this client takes it.
        readers.push(start()?);
        anyhow::bail!("one is free");
    })
    .unwrap();
    set.kill_host(ROWS).unwrap();
    set.eventually("it is the primary", SOON, || {
        let answer = set.get(NATIVE, "/primary")?;
        anyhow::ensure!(answer.status == 200, "{answer:?}");
        Ok(())
    })
    .unwrap();
    let mut held = 0;
    for reader in &mut readers {
        held += usize::from(!reader.is_finished().unwrap());
    }
    assert!((15..readers.len()).contains(&held), "{held} are held");
}

/// Returns the number of a server's replication channels.
fn channels(set: &Cluster, member: usize) -> String {
    let asked = "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration WHERE channel_name = 'witness'";
    set.client(member).value(asked).unwrap()
}

/// Checks that every acknowledged row is on every mysqld, and that all mysqlds are equal.
fn nothing_is_lost(set: &Cluster, written: &WrittenRows) {
    set.equal("acked", SOON).unwrap();
    let rows = set.client(ROWS).sql("SELECT id FROM acked.rows").unwrap();
    let there: BTreeSet<u64> = rows.0.iter().map(|row| row[0].parse().unwrap()).collect();
    let lost: Vec<u64> = written.acknowledged().difference(&there).copied().collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}
