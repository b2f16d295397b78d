//! A mysqld over data of a server that followed others: it leaves data behind that follow nobody.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;

use restore::scratch_server::{ScratchServer, ServerProgram};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

const CHANNELS: &str =
    "SELECT channel_name FROM performance_schema.replication_connection_configuration";

/// A base backup of a follower has its channels, and the passwords of their accounts; started by an operator, with an operator's
/// configuration, it would get from the ring again what the restore has left out.
#[tokio::test(flavor = "multi_thread")]
async fn a_followers_channels_are_not_in_what_was_restored() {
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
    // As they are left out of base backups.
    for entry in fs::read_dir(server.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("-relay-bin") {
            fs::remove_file(path).unwrap();
        }
    }

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

    server.start().unwrap();
    let channels = server.client().sql(CHANNELS).unwrap();
    assert!(channels.0.is_empty(), "{channels:?}");
}
