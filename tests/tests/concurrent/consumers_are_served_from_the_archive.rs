//! A ring has purged files that a consumer needs. A witness's binlog server reads them from the archive. An empty stock replica becomes
//! equal to the primary, and then follows the log. `mysqlbinlog` copies files that no member has any longer. Errors name the damaged
//! objects in the archive.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::bounded_run::Finished;
use testkit::cluster::{BINLOG_PASSWORD, BINLOG_USER};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::mysqlbinlog;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use witness_tests::{Scene, StockReplica};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_secs(120);
/// The member that serves the consumers.
const WITNESS: usize = 1;
const OTHER_WITNESS: usize = 2;
const BY_GTIDS: &str = "SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 0, GET_SOURCE_PUBLIC_KEY = 1";

fn remote(scene: &Scene, more: &[&str], file: &str) -> Finished {
    let address = scene.ring.binlog_server(WITNESS);
    let login = [
        format!("--host={}", address.ip()),
        format!("--port={}", address.port()),
        format!("--user={BINLOG_USER}"),
        format!("--password={BINLOG_PASSWORD}"),
        "--ssl-mode=DISABLED".to_owned(),
        "--get-server-public-key".to_owned(),
    ];
    let login = login.iter().map(String::as_str);
    let arguments: Vec<&str> = login.chain(more.iter().copied()).collect();
    mysqlbinlog(&MysqlTree::require(), &arguments, &[file]).unwrap()
}

/// Returns the names of the log files that the serving member has.
fn own_files(scene: &Scene) -> Vec<String> {
    let entries = fs::read_dir(scene.ring.directory(WITNESS).join("log")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("binlog.0")).collect();
    names.sort();
    names
}

/// Returns the archived object that contains a whole file, if there is one.
fn whole_file(archive: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(archive.join("log/00000001").join(name)).unwrap();
    let mut whole = entries.map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("0000000000000000-") && name.ends_with("-closed.zst")
    });
    whole.next()
}

fn status(scene: &Scene, member: usize) -> serde_json::Value {
    scene.ring.status(member).unwrap()["archive"].clone()
}

#[test]
fn a_returning_consumer_continues_and_damage_is_named() {
    let _turn = SCENES.take();
    let home = tempfile::tempdir().unwrap();
    let url = format!("url = \"file://{}\"", home.path().display());
    let scene = Scene::launch(|options| {
        options
            .with_binlog_servers()
            .with("archive", url)
            .with("archive", "interval = \"200ms\"")
            .with("archive", "serve_bytes = \"64MiB\"")
            .with("log", "max_file_bytes = \"64KiB\"")
            .with("log", "keep_bytes = \"128KiB\"")
    })
    .unwrap();
    let first = own_files(&scene)[0].clone();
    let copy_before = scene.ring.directory(WITNESS).join("log").join(&first);
    let writers = scene.start_writers(4).unwrap();
    writers.wait_for_more(200, SOON).unwrap();
    writers.wait_for_more(1_000, A_WHILE).unwrap();
    writers.finish().unwrap();
    scene
        .ring
        .eventually("the first files are in the archive alone", A_WHILE, || {
            !copy_before.exists() && status(&scene, WITNESS)["serves_from"] == first[..]
        })
        .unwrap();
    let kept = own_files(&scene)[0].clone();
    assert!(kept > first, "{kept}");

    // The list of log files includes the archived files, since clients can read them.
    let address = scene.ring.binlog_server(WITNESS);
    let tree = MysqlTree::require();
    let people = MysqlClient::over_tcp(&tree, address, BINLOG_USER, BINLOG_PASSWORD);
    assert_eq!(people.value("SELECT @@gtid_purged").unwrap(), "");
    let listed = people.sql("SHOW BINARY LOGS").unwrap().0;
    assert_eq!(listed[0][0], first);
    assert!(listed.iter().any(|row| row[0] == kept));

    // The replica is empty. It receives the whole log, and then the writes that were made in the meantime.
    let replica = StockReplica::attach(77, address, BY_GTIDS).unwrap();
    let primary = scene.server.client();
    let equal = replica.equals(&primary, &["acked"], A_WHILE);
    equal.unwrap_or_else(|error| panic!("{error:#}"));
    let insert = "INSERT INTO acked.rows SELECT MAX(id) + 1, 0, 'live' FROM acked.rows";
    primary.sql(insert).unwrap();
    replica.equals(&primary, &["acked"], SOON).unwrap();
    let served = status(&scene, WITNESS);
    assert!(
        served["served_files_total"].as_u64().unwrap() >= 1,
        "{served}"
    );
    let metrics = scene.ring.get(WITNESS, "/metrics").unwrap().body;
    assert!(
        metrics.contains("witness_archive_served_files_total"),
        "{metrics}"
    );

    // A copy by file and position equals the member's file byte by byte.
    let copies = tempfile::tempdir().unwrap();
    let result = format!("--result-file={}/", copies.path().display());
    let raw = ["--read-from-remote-server", "--raw", &result];
    let done = remote(&scene, &raw, &first);
    assert!(done.status.success(), "{done:?}");
    let fetched = tempfile::tempdir().unwrap();
    let directory = fetched.path().join("log");
    let config = scene.ring.config(WITNESS).display().to_string();
    let fetch = ["archive", "fetch", "--config", &config, "--directory"];
    let fetch = [&fetch[..], &[directory.to_str().unwrap()]].concat();
    assert!(scene.ring.cli(&fetch).unwrap().status.success());
    assert!(
        fs::read(copies.path().join(&first)).unwrap() == fs::read(directory.join(&first)).unwrap()
    );

    damage_is_named(&scene, home.path(), &first);
}

/// Uses the other witness, which has fetched nothing from the archive yet.
fn damage_is_named(scene: &Scene, archive: &Path, first: &str) {
    // The third file is damaged. The first file has no transactions, and the second one creates the table.
    let damaged = first.replace("000001", "000003");
    let there = || whole_file(archive, &damaged);
    let object = scene
        .ring
        .eventually("it is archived as a whole", A_WHILE, there);
    let object = object.unwrap();
    // Each member purges its log at its own time.
    scene
        .ring
        .eventually("it is in the archive alone", A_WHILE, || {
            status(scene, OTHER_WITNESS)["serves_from"] == *first
        })
        .unwrap();
    let sound = fs::read(&object).unwrap();
    let mut wrong = sound.clone();
    wrong[sound.len() / 2] ^= 1;
    fs::write(&object, &wrong).unwrap();

    let tree = MysqlTree::require();
    let source = scene.ring.binlog_server(OTHER_WITNESS);
    let replica = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(78)).unwrap();
    let client = replica.client();
    client
        .sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, SOURCE_USER = '{BINLOG_USER}', \
             SOURCE_PASSWORD = '{BINLOG_PASSWORD}', {BY_GTIDS}; START REPLICA",
            source.ip(),
            source.port()
        ))
        .unwrap();
    let query = "SELECT last_error_message FROM performance_schema.replication_connection_status";
    let told = scene
        .ring
        .eventually("the replica receives the reason", SOON, || {
            let told = client.value(query).unwrap();
            (!told.is_empty()).then_some(told)
        });
    let told = told.unwrap();
    assert!(
        told.contains("1236") && told.contains("damaged") && told.contains(&damaged),
        "{told}"
    );
    // The transactions before the damage have arrived.
    let primary = scene.server.client();
    scene
        .ring
        .eventually("the files before it are applied", SOON, || {
            client.value("SELECT COUNT(*) FROM acked.rows").is_ok()
        })
        .unwrap();
    let insert = "INSERT INTO acked.rows SELECT MAX(id) + 1, 0, 'live' FROM acked.rows";
    primary.sql(insert).unwrap();

    fs::write(&object, &sound).unwrap();
    client.sql("START REPLICA").unwrap();
    let executed = primary.gtid_executed().unwrap();
    client.wait_for_gtids(&executed, A_WHILE).unwrap();
    let rows = |client: &MysqlClient| client.table_checksums("acked").unwrap();
    assert_eq!(rows(&client), rows(&primary));
}
