//! A prepared XA transaction keeps its locks at the server where a client prepared it. After a change of the primary, clients write rows
//! that these locks block at the former primary. It must follow nevertheless, and be able to become the primary again.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::cluster::Cluster;
use witness_tests::{replicaset, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// The database members.
const FIRST: usize = 0;
const SECOND: usize = 3;

/// Statements that prepare a transaction. It locks a gap and an unchanged row, and has read a table.
const PREPARED: &str = "XA START 'x'; INSERT INTO acked.rows VALUES (1, 0, 'xa'); DELETE FROM acked.rows WHERE id BETWEEN 12 AND 18; \
     SELECT * FROM acked.rows WHERE id = 20 FOR UPDATE; SELECT * FROM acked.reference; XA END 'x'; XA PREPARE 'x'";
const ROWS: &str = "INSERT INTO acked.rows VALUES (10, 0, 'ten'), (20, 0, 'twenty'); CREATE TABLE acked.reference (id INT PRIMARY KEY)";

/// Prepares a transaction at the first database member, and makes the second one the primary.
fn moved(set: &Cluster) {
    set.follows(SECOND, SOON).unwrap();
    set.client(FIRST).sql(ROWS).unwrap();
    set.client(FIRST).sql(PREPARED).unwrap();
    set.equal("acked", SOON).unwrap();
    set.promote("db-2", SOON).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), SECOND);
    set.follows(FIRST, SOON).unwrap();
}

fn began(set: &Cluster, member: usize) -> String {
    let since = "SELECT NOW() - INTERVAL VARIABLE_VALUE SECOND FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime'";
    set.client(member).value(since).unwrap()
}

fn the_former_primary_catches_up(set: &Cluster) {
    moved(set);
    let before = began(set, FIRST);
    for in_the_way in [
        "INSERT INTO acked.rows VALUES (15, 0, 'in the gap')",
        "UPDATE acked.rows SET note = 'changed' WHERE id = 20",
        "ALTER TABLE acked.reference ADD COLUMN more INT",
    ] {
        set.client(SECOND).sql(in_the_way).unwrap();
    }
    set.equal("acked", SOON).unwrap();
    assert!(began(set, FIRST) > before, "it was started again");
    let prepared = set.client(FIRST).sql("XA RECOVER CONVERT XID").unwrap();
    let prepared = format!("{prepared:?}");
    assert!(
        prepared.contains("0x78"),
        "it is prepared still: {prepared}"
    );
    set.client(SECOND).sql("XA COMMIT 'x'").unwrap();
    set.equal("acked", SOON).unwrap();
    let committed = "SELECT COUNT(*) FROM acked.rows WHERE id = 1";
    assert_eq!(set.client(FIRST).value(committed).unwrap(), "1");
}

#[test]
fn a_former_primary_with_an_applier_catches_up() {
    let _turn = SCENES.take();
    the_former_primary_catches_up(&replicaset(2).unwrap());
}

#[test]
fn a_former_primary_with_replica_threads_catches_up() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| options.with_native(FIRST)).unwrap();
    the_former_primary_catches_up(&set);
}

/// The former primary must apply the waiting transactions. Otherwise the ring would have no primary.
#[test]
fn a_former_primary_that_waits_for_such_locks_is_promoted() {
    let _turn = SCENES.take();
    let mut set = replicaset(2).unwrap();
    moved(&set);
    let in_the_gap = "INSERT INTO acked.rows VALUES (15, 0, 'in the gap')";
    set.client(SECOND).sql(in_the_gap).unwrap();
    set.kill_host(SECOND).unwrap();
    assert_eq!(set.primary(SOON).unwrap(), FIRST);
    set.client(FIRST).sql("XA COMMIT 'x'").unwrap();
    let rows = "SELECT GROUP_CONCAT(id ORDER BY id) FROM acked.rows";
    assert_eq!(set.client(FIRST).value(rows).unwrap(), "1,10,15,20");
    set.start(SECOND).unwrap();
    set.follows(SECOND, SOON).unwrap();
    set.equal("acked", SOON).unwrap();
    // The applier waits for the locks of the prepared transaction.
    sessions_waiting_for_its_end_are_named(&set);
}

/// A client can end the transaction at a follower. The status then reports the outcome there, and where to end it.
#[test]
fn an_end_at_a_follower_is_reported_as_errant() {
    let _turn = SCENES.take();
    let set = replicaset(2).unwrap();
    moved(&set);
    set.client(FIRST).sql("XA COMMIT 'x'").unwrap();
    set.eventually("what is errant is named", SOON, || {
        let status = set.get(FIRST, "/status")?;
        let named = status
            .body
            .contains("A client ended transactions here that XA had prepared")
            && status.body.contains("XA COMMIT X'78',X'',1");
        anyhow::ensure!(named, "{status:?}");
        Ok(())
    })
    .unwrap();
    assert_eq!(set.primary(SOON).unwrap(), SECOND);
    set.client(SECOND).sql("XA COMMIT 'x'").unwrap();
}

/// In a table without a primary key, mysqld reads every row to find a row of the log, and so reaches the locked rows. The member reports
/// the prepared transaction, does not restart mysqld, and the remedy in the documentation works.
fn sessions_waiting_for_its_end_are_named(set: &Cluster) {
    set.follows(SECOND, SOON).unwrap();
    set.client(FIRST)
        .sql("CREATE TABLE acked.keyless (a INT, b INT); INSERT INTO acked.keyless VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
        .unwrap();
    set.equal("acked", SOON).unwrap();
    let process = set.server(SECOND).process();
    // This statement does not wait, because locked rows that do not match are skipped.
    let by_commits = "SET SESSION transaction_isolation = 'READ-COMMITTED'";
    set.client(FIRST)
        .sql(&format!(
            "{by_commits}; XA START 'k'; DELETE FROM acked.keyless WHERE a = 2; XA END 'k'; XA PREPARE 'k'"
        ))
        .unwrap();
    set.client(FIRST)
        .sql(&format!(
            "{by_commits}; UPDATE acked.keyless SET b = 40 WHERE a = 4"
        ))
        .unwrap();
    set.eventually("it is named", SOON, || {
        let status = set.get(SECOND, "/status")?;
        let named = status
            .body
            .contains("a transaction that XA has prepared has locked rows of acked.keyless");
        anyhow::ensure!(
            named && status.body.contains("What a log cannot say"),
            "{status:?}"
        );
        Ok(())
    })
    .unwrap();
    assert_eq!(set.server(SECOND).process(), process, "no start helps");

    let executed = set.client(FIRST).gtid_executed().unwrap();
    set.client(FIRST).sql("XA COMMIT 'k'").unwrap();
    let end = set
        .client(FIRST)
        .value(&format!(
            "SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{executed}')"
        ))
        .unwrap();
    set.client(SECOND)
        .sql(&format!(
            "SET gtid_next = '{end}'; XA COMMIT 'k'; SET gtid_next = 'AUTOMATIC'"
        ))
        .unwrap();
    set.equal("acked", SOON).unwrap();
    assert_eq!(set.server(SECOND).process(), process);
}

#[test]
fn replica_threads_wait_for_a_table_without_a_primary_key_is_named() {
    let _turn = SCENES.take();
    let set = replicaset_with(2, |options| options.with_native(SECOND)).unwrap();
    sessions_waiting_for_its_end_are_named(&set);
}
