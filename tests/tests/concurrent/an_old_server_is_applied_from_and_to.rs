//! The oldest server that is tested with `witness apply`, as a source (over the dump protocol) and as a target. Impossible combinations
//! are reported before any transaction is applied.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::time::Duration;

use testkit::bounded_run;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{REPLICATION_PASSWORD, REPLICATION_USER};
use witness_tests::Pair;

use crate::SCENES;

const LIMIT: Duration = Duration::from_secs(60);
const WORK: &str = "CREATE DATABASE d; \
    CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20), j JSON, UNIQUE KEY (v)); \
    INSERT INTO d.t (v, j) VALUES ('one', '{\"a\": 1}'), ('two', NULL), ('three', '[1, 2]'); \
    UPDATE d.t SET v = 'zwei' WHERE id = 2; DELETE FROM d.t WHERE id = 3; \
    ALTER TABLE d.t ADD COLUMN n INT DEFAULT 5; INSERT INTO d.t (v, n) VALUES ('vier', 4); \
    BEGIN; INSERT INTO d.t (v) VALUES ('five'); SAVEPOINT s; INSERT INTO d.t (v) VALUES ('six'); ROLLBACK TO s; COMMIT";

#[test]
fn an_old_server_is_a_source_and_a_target_and_a_newer_log_is_refused_at_the_start() {
    let _turn = SCENES.take();
    let (old, new) = (MysqlTree::require_oldest(), MysqlTree::require());
    let pair = Pair::of_trees(&old, &new).unwrap();
    let source = pair.source.client();
    source.create_replication_user().unwrap();
    source.sql(WORK).unwrap();
    let executed = source.gtid_executed().unwrap();
    let dump = |mode: &str| {
        let mut command = pair.command_without_files(&["--from-user", REPLICATION_USER]);
        let address = pair.source.address().to_string();
        command.args(["--from-mysql", &address, "--until", &executed]);
        command.args(["--from-tls", mode, "--patience", "5s"]);
        command.env("WITNESS_FROM_PASSWORD", REPLICATION_PASSWORD);
        bounded_run::run("witness apply", command, Vec::new(), LIMIT).unwrap()
    };
    // The server's TLS version is no longer supported. If TLS is required, that is an error.
    let demanded = dump("required");
    let said = String::from_utf8_lossy(&demanded.stderr).into_owned();
    println!("required: {said}");
    assert!(
        !demanded.status.success() && said.contains("TLS with mysqld"),
        "{said}"
    );
    let preferred = dump("preferred");
    let said = String::from_utf8_lossy(&preferred.stderr).into_owned();
    assert!(preferred.status.success(), "{said}");
    let rows = "SELECT * FROM d.t ORDER BY id";
    let expected = source.sql(rows).unwrap();
    assert_eq!(pair.target.client().sql(rows).unwrap(), expected);

    // The new server's log cannot be applied to the old server, so no transaction of it is applied.
    let back = Pair::of_trees(&new, &old).unwrap();
    back.source.client().sql("CREATE DATABASE e").unwrap();
    let refused = back.run(&[]).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    println!("{said}");
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("the target is MySQL 8.0.15"), "{said}");
    assert_eq!(back.target.client().gtid_executed().unwrap(), "");

    // An old server's log can be applied to another old server, here from its files.
    let files = pair.source.binlog_files().unwrap();
    let mut command = back.command_without_files(&[]);
    command.args(files);
    let done = bounded_run::run("witness apply", command, Vec::new(), LIMIT).unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    assert_eq!(back.target.client().sql(rows).unwrap(), expected);
}
