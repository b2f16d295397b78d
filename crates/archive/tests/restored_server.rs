//! After a restore of a former replica's data, the data directory has no replication source.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::time::{Duration, Instant};

use archive::restore::scratch_server::{ScratchServer, ServerProgram};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

const CHANNELS: &str =
    "SELECT channel_name FROM performance_schema.replication_connection_configuration";

/// A base backup of a follower contains its replication channels and the passwords of their accounts. With them, a server with the
/// operator's configuration would fetch the transactions from the ring that the restore left out.
#[tokio::test(flavor = "multi_thread")]
async fn restored_mysqld_has_no_replication_channels() {
    let tree = MysqlTree::require();
    let mut server = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(3)).unwrap();
    for channel in ["", "witness", "elsewhere"] {
        let sql = format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_USER = 'r', SOURCE_PASSWORD = 'secret', \
             SOURCE_AUTO_POSITION = 1 FOR CHANNEL '{channel}'"
        );
        server.client().sql(&sql).unwrap();
    }
    let begun = server
        .client()
        .sql("START REPLICA FOR CHANNEL 'witness'; SELECT 1");
    begun.unwrap();
    server.stop().unwrap();
    // Base backups exclude these files.
    for entry in fs::read_dir(server.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("-relay-bin") {
            fs::remove_file(path).unwrap();
        }
    }

    restored(&tree, &server).await;

    server.start().unwrap();
    let channels = server.client().sql(CHANNELS).unwrap();
    assert!(channels.0.is_empty(), "{channels:?}");
}

/// The source server that ran such an event disabled it without a binlog event. Recurring events, and events with a future time, are not
/// changed.
#[tokio::test(flavor = "multi_thread")]
async fn one_time_event_does_not_run_again_in_a_restored_mysqld() {
    let tree = MysqlTree::require();
    let options = MysqldOptions::with_server_id(3).with_arguments(["--event-scheduler=OFF"]);
    let mut server = Mysqld::launch_with(&tree, options).unwrap();
    // The applier leaves the event like this: it runs CREATE EVENT with the source's timestamp. By the restored server's clock, the event's
    // time has not passed.
    let created = "CREATE DATABASE d; CREATE TABLE d.ran (what VARCHAR(9)); CREATE USER clerk; SET timestamp = UNIX_TIMESTAMP() - 3600; \
         CREATE DEFINER = clerk@`%` EVENT d.once ON SCHEDULE AT NOW() + INTERVAL 1 MINUTE ON COMPLETION PRESERVE DO INSERT INTO d.ran VALUES ('once'); \
         CREATE EVENT d.later ON SCHEDULE AT NOW() + INTERVAL 1 DAY ON COMPLETION PRESERVE DO INSERT INTO d.ran VALUES ('later'); \
         CREATE EVENT d.often ON SCHEDULE EVERY 1 SECOND DO INSERT INTO d.ran VALUES ('often')";
    server.client().sql(created).unwrap();
    let executed = "SELECT @@GLOBAL.gtid_executed";
    let before = server.client().sql(executed).unwrap();
    server.stop().unwrap();

    restored(&tree, &server).await;

    server.start().unwrap();
    assert_eq!(server.client().sql(executed).unwrap().0, before.0);
    let events = "SELECT event_name, status, definer FROM information_schema.events WHERE event_schema = 'd' ORDER BY 1";
    let events = server.client().sql(events).unwrap();
    let expected = [
        ["later", "ENABLED", "root@localhost"],
        ["often", "ENABLED", "root@localhost"],
        ["once", "DISABLED", "clerk@%"],
    ];
    assert_eq!(events.0, expected);
    server
        .client()
        .sql("SET GLOBAL event_scheduler = ON")
        .unwrap();
    let ran = "SELECT DISTINCT what FROM d.ran";
    let until = Instant::now() + Duration::from_secs(30);
    while server.client().sql(ran).unwrap().0.is_empty() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ran = server.client().sql(ran).unwrap();
    assert_eq!(ran.0, [["often"]]);
}

/// Starts and stops a restore's mysqld on the data of a stopped server.
async fn restored(tree: &MysqlTree, server: &Mysqld) {
    let home = tempfile::tempdir().unwrap();
    let mut options = tree.server_options();
    if rustix::process::geteuid().is_root() {
        options.push("--user=root".to_owned());
    }
    let words = tree.words(&tree.mysqld);
    let words = words.into_iter().map(|word| word.into_string().unwrap());
    let program = ServerProgram {
        command: words.collect(),
        options,
    };
    let error_log = home.path().join("mysqld.err");
    let scratch = ScratchServer::start(&program, server.data_dir(), &error_log);
    let scratch = scratch.await.unwrap();
    scratch.stop().await.unwrap();
}
