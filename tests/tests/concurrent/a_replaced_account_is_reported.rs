//! A dump of all databases of another server replaces the grant tables at the primary. The members' account disappears from every
//! server, while existing sessions continue. Each member reports this, with the statements that restore the account. Then the ring
//! fails over.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::Path;
use std::time::Duration;

use testkit::cluster::{
    ChildServer, Cluster, ClusterOptions, MemberDatabase, Profile, witness_binary,
};
use testkit::mysql_tree::MysqlTree;
use witness_tests::{MAKE_ROWS, Writers};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// The database members. At the first one the member applies, at the second one mysqld's replica threads apply.
const DATABASES: [usize; 2] = [0, 3];
const PASSWORD: &str = "very secret";
/// Tables that are emptied and refilled, as by a dump of a server without the account.
const TABLES: [&str; 5] = ["user", "global_grants", "db", "tables_priv", "proxies_priv"];

/// Starts a ring of two servers. Returns it, and the member that is not the primary.
fn ring(scratch: &Path) -> (Cluster, usize) {
    let tree = MysqlTree::require();
    let password = scratch.join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let server = |server_id: u32| {
        let data_dir = scratch.join(server_id.to_string());
        let made = ChildServer::to_be_made(&tree, server_id, data_dir).unwrap();
        MemberDatabase::from(made.with_account("witness"))
    };
    let options = ClusterOptions::new(server(1))
        .with_more([server(2)])
        .with_native(DATABASES[1])
        .with("mysql", format!("password_file = {password:?}"));
    let mut set = Cluster::prepare(&witness_binary(Profile::Dev).unwrap(), options).unwrap();
    set.bootstrap().unwrap();
    let primary = set.primary(2 * SOON).unwrap();
    let follower = DATABASES[0] + DATABASES[1] - primary;
    set.create_client(primary, MAKE_ROWS).unwrap();
    set.follows(follower, 2 * SOON).unwrap();
    assert_eq!(
        DATABASES.map(|database| warning(&set, database)),
        [None, None]
    );
    (set, follower)
}

#[test]
fn a_ring_with_replaced_accounts_reports_the_statements_that_restore_them() {
    let _turn = SCENES.take();
    let scratch = tempfile::tempdir().unwrap();
    let (mut set, follower) = ring(scratch.path());
    let primary = DATABASES[0] + DATABASES[1] - follower;

    for table in TABLES {
        let replaced = format!(
            "CREATE SCHEMA dump; CREATE TABLE dump.t AS SELECT * FROM mysql.{table} WHERE user <> 'witness'; \
             TRUNCATE mysql.{table}; INSERT INTO mysql.{table} SELECT * FROM dump.t; DROP SCHEMA dump"
        );
        set.client(primary).sql(&replaced).unwrap();
    }
    for database in DATABASES {
        says(&set, database, "is no longer in any grant table");
    }
    let clients = Writers::of(&set, 2, 0);
    clients.wait_for_more(20, SOON).unwrap();
    set.client(primary).sql("FLUSH PRIVILEGES").unwrap();
    for database in DATABASES {
        says(&set, database, "is no longer let in: Access denied");
    }
    clients.wait_for_more(20, SOON).unwrap();

    for database in DATABASES {
        let told = warning(&set, database).unwrap();
        let (_, statements) = told.split_once("run: ").unwrap();
        let statements = statements.replace('…', PASSWORD);
        run(&set, database, &statements);
        set.eventually("it has its account", SOON, || {
            warning(&set, database).is_none()
        })
        .unwrap();
    }
    set.follows(follower, SOON).unwrap();
    set.kill_host(primary).unwrap();
    clients.wait_for_more(20, SOON).unwrap();
    set.start(primary).unwrap();
    set.follows(primary, SOON).unwrap();
    let written = clients.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    for database in DATABASES {
        written.ensure_all_are_in(&set.client(database)).unwrap();
    }
}

#[test]
fn a_ring_with_few_sessions_per_account_reports_the_required_number() {
    let _turn = SCENES.take();
    let scratch = tempfile::tempdir().unwrap();
    let (mut set, follower) = ring(scratch.path());
    for database in DATABASES {
        let client = set.client(database);
        client.sql("SET GLOBAL max_user_connections = 6").unwrap();
        says(&set, database, "sessions");
        // The account has as many connections as the member reports to need, and not one more.
        let told = warning(&set, database).unwrap();
        let (_, needed) = told.split_once("needs up to ").unwrap();
        let (needed, _) = needed.split_once('.').unwrap();
        let (_, statements) = told.split_once("run: ").unwrap();
        run(&set, database, &statements.replace("1000", needed));
        set.eventually("it has enough", SOON, || warning(&set, database).is_none())
            .unwrap();
    }
    let clients = Writers::of(&set, 2, 0);
    let mut follows = follower;
    for _ in 0..2 {
        let primary = DATABASES[0] + DATABASES[1] - follows;
        clients.wait_for_more(20, SOON).unwrap();
        set.kill_host(primary).unwrap();
        clients.wait_for_more(20, SOON).unwrap();
        set.start(primary).unwrap();
        set.follows(primary, SOON).unwrap();
        follows = primary;
    }
    let written = clients.finish().unwrap();
    set.equal("acked", SOON).unwrap();
    for database in DATABASES {
        written.ensure_all_are_in(&set.client(database)).unwrap();
        assert_eq!(warning(&set, database), None);
    }
}

/// Runs the statements of a warning as an administrator does.
fn run(set: &Cluster, database: usize, statements: &str) {
    let client = set.client(database);
    let closed = client.value("SELECT @@GLOBAL.super_read_only").unwrap();
    let all = match &closed[..] {
        "1" => format!(
            "SET GLOBAL super_read_only = OFF; {statements}; SET GLOBAL super_read_only = 1"
        ),
        _ => statements.to_owned(),
    };
    client.sql(&all).unwrap();
}

/// Returns a member's warning about its account.
fn warning(set: &Cluster, database: usize) -> Option<String> {
    let status = set.status(database).unwrap();
    let warnings = status["mysql"]["warnings"].as_array().unwrap();
    let warnings = warnings.iter().filter_map(|warning| warning.as_str());
    let mut of_account = warnings.filter(|warning| warning.starts_with("the account "));
    of_account.next().map(str::to_owned)
}

fn says(set: &Cluster, database: usize, words: &str) {
    let what = format!("{} says that its account {words}", set.name(database));
    set.eventually(&what, SOON, || {
        warning(set, database).is_some_and(|warning| warning.contains(words))
    })
    .unwrap();
}
