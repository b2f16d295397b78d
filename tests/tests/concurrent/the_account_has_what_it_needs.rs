//! A ring whose mysqlds apply with their own replica threads, with the account that a member creates in a new server. The primary
//! moves, hosts die, events run at each primary, and a mysqld gets a copy of the other one's data. mysqld must not deny any statement
//! of the members.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::cluster::{
    ChildServer, Cluster, ClusterOptions, MemberDatabase, Profile, witness_binary,
};
use testkit::mysql_tree::MysqlTree;
use witness_tests::{MAKE_ROWS, Writers};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const DATABASES: [usize; 2] = [0, 3];

#[test]
fn a_ring_of_replica_threads_needs_no_more_than_the_listed_rights() {
    let _turn = SCENES.take();
    let tree = MysqlTree::require();
    let scratch = tempfile::tempdir().unwrap();
    let password = scratch.path().join("password");
    std::fs::write(&password, "very secret\n").unwrap();
    let server = |server_id: u32| {
        let data_dir = scratch.path().join(server_id.to_string());
        let made = ChildServer::to_be_made(&tree, server_id, data_dir).unwrap();
        MemberDatabase::from(made.with_account("witness"))
    };
    let options = ClusterOptions::new(server(1))
        .with_more([server(2)])
        .with_native(DATABASES[0])
        .with_native(DATABASES[1])
        .with("mysql", format!("password_file = {password:?}"));
    let mut set = Cluster::prepare(&witness_binary(Profile::Dev).unwrap(), options).unwrap();
    set.bootstrap().unwrap();
    let primary = set.primary(2 * SOON).unwrap();
    set.create_client(primary, MAKE_ROWS).unwrap();
    set.client(primary)
        .sql(
            "CREATE USER ticker; CREATE SCHEMA e; GRANT ALL ON e.* TO ticker; CREATE TABLE e.ticks (server INT); \
             CREATE DEFINER = ticker EVENT e.tick ON SCHEDULE EVERY 1 SECOND DO INSERT INTO e.ticks VALUES (@@server_id)",
        )
        .unwrap();
    set.follows(other(primary), 2 * SOON).unwrap();
    for database in DATABASES {
        let grants = set
            .client(database)
            .sql("SHOW GRANTS FOR witness@localhost");
        let grants = format!("{:?}", grants.unwrap().0);
        for word in ["ALL PRIVILEGES", "SUPER", "SYSTEM_USER", "DROP", "INSERT, "] {
            assert!(!grants.contains(word), "{word}: {grants}");
        }
    }

    let clients = Writers::of(&set, 2, 0);
    clients.wait_for_more(20, SOON).unwrap();
    // A switchover in both directions.
    for name in ["db-2", "db-1", "db-2"] {
        let target = if name == "db-1" {
            DATABASES[0]
        } else {
            DATABASES[1]
        };
        if set.primary_now() != Some(target) {
            set.follows(target, SOON).unwrap();
            set.promote(name, SOON).unwrap();
        }
        clients.wait_for_more(20, SOON).unwrap();
        event_runs(&set, target);
        nothing_was_denied(&set);
    }
    // A failover.
    let dies = set.primary(SOON).unwrap();
    set.follows(other(dies), SOON).unwrap();
    set.kill_host(dies).unwrap();
    clients.wait_for_more(20, SOON).unwrap();
    event_runs(&set, other(dies));
    set.start(dies).unwrap();
    set.follows(dies, SOON).unwrap();
    nothing_was_denied(&set);

    // A copy of the primary's data replaces errant writes.
    set.client(dies)
        .sql("SET GLOBAL super_read_only = OFF; CREATE DATABASE errant; SET GLOBAL super_read_only = ON")
        .unwrap();
    let config = set.config(dies).display().to_string();
    let names = ["db-1", "db-2"];
    let name = names[usize::from(dies != DATABASES[0])];
    let words = ["reprovision", "--config", &config, name, "--from", "--yes"];
    let copied = set.cli_within(&words, 4 * SOON).unwrap();
    assert!(copied.status.success(), "{copied:?}\n{}", set.words());
    set.follows(dies, SOON).unwrap();
    nothing_was_denied(&set);
    clients.wait_for_more(20, SOON).unwrap();
    let written = clients.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    for database in DATABASES {
        written.ensure_all_are_in(&set.client(database)).unwrap();
        let left = "SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'witness%clone%'";
        assert_eq!(set.client(database).value(left).unwrap(), "0");
    }
    // A clean stop, and a start.
    let stopped = set.primary(SOON).unwrap();
    set.stop(stopped).unwrap();
    set.primary(SOON).unwrap();
    set.start(stopped).unwrap();
    set.follows(stopped, SOON).unwrap();
    nothing_was_denied(&set);
}

fn other(database: usize) -> usize {
    DATABASES[0] + DATABASES[1] - database
}

/// Checks that the event is enabled at this primary, where it arrived by replication.
fn event_runs(set: &Cluster, primary: usize) {
    let status = "SELECT status FROM information_schema.events WHERE event_name = 'tick'";
    let client = set.client(primary);
    let enabled = set.eventually("the event is enabled", SOON, || {
        client.value(status).is_ok_and(|status| status == "ENABLED")
    });
    enabled.unwrap();
}

/// Checks that no statement of a member was denied for lack of a privilege since the servers' start.
fn nothing_was_denied(set: &Cluster) {
    let refused = "SELECT error_name, sum_error_raised FROM performance_schema.events_errors_summary_by_user_by_error \
         WHERE user = 'witness' AND sum_error_raised > 0 AND (error_name LIKE '%DENIED%' OR error_name LIKE '%PRIVILEGE%')";
    for database in DATABASES {
        let refused = set.client(database).sql(refused).unwrap();
        assert!(refused.0.is_empty(), "{refused:?}\n{}", set.words());
        let said = set.output(database);
        for word in ["lacks", "denied"] {
            assert!(!said.contains(word), "{word}: {said}");
        }
    }
}
