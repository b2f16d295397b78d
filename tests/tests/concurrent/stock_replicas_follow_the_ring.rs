//! Stock replicas of members' binlog servers, over plain TCP, over TLS, and by file and position. They are equal to the primary, even
//! after their members were killed and restarted.

use std::fs;
use std::thread;
use std::time::Duration;

use witness_tests::{Scene, StockReplica, assert_nothing_lost_or_doubled};

use crate::SCENES;

const CAUGHT_UP: Duration = Duration::from_secs(60);

#[test]
fn replicas_of_every_kind_equal_the_primary_after_their_sources_were_killed() {
    let _turn = SCENES.take();
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut scene = Scene::launch(|options| {
        options
            .with_binlog_servers()
            .with(
                "binlog_server",
                format!("tls_certificate_file = {certificate:?}"),
            )
            .with("binlog_server", format!("tls_key_file = {key:?}"))
            // Some replicas connect without TLS.
            .with("binlog_server", "require_tls = false")
            .with("log", "max_file_bytes = \"256KiB\"")
    })
    .unwrap();
    let attach = |server_id, member, how| {
        let source = scene.ring.binlog_server(member);
        StockReplica::attach(server_id, source, how).unwrap()
    };
    let replicas = [
        attach(
            11,
            1,
            "SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 0, GET_SOURCE_PUBLIC_KEY = 1",
        ),
        attach(12, 2, "SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1"),
        attach(
            13,
            0,
            "SOURCE_AUTO_POSITION = 0, SOURCE_SSL = 0, SOURCE_LOG_FILE = 'binlog.000001', SOURCE_LOG_POS = 4",
        ),
    ];
    let [_, tls, placed] = &replicas;

    let writers = scene.start_writers(4).unwrap();
    scene
        .server
        .client()
        .sql(
            "CREATE DATABASE odd; USE odd; CREATE TABLE t (id INT PRIMARY KEY, j JSON, b LONGBLOB); \
             INSERT INTO t VALUES (1, '{\"a\": [1, 2, 3]}', REPEAT('b', 100000)); \
             SET binlog_transaction_compression = ON; INSERT INTO t VALUES (2, '[]', REPEAT('z', 300000)); \
             SET binlog_transaction_compression = OFF; \
             SET gtid_next = 'AUTOMATIC:monthly'; INSERT INTO t VALUES (3, 'null', NULL); SET gtid_next = 'AUTOMATIC'; \
             XA START 'x'; INSERT INTO t VALUES (4, 'null', NULL); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; \
             INSERT INTO t SELECT id + 10, j, b FROM t; INSERT INTO t VALUES (99, 'null', REPEAT('L', 20000000))",
        )
        .unwrap();
    for round in 0..4 {
        let witness = 1 + round % 2;
        scene.ring.kill(witness).unwrap();
        writers.wait_for_more(50, Duration::from_secs(20)).unwrap();
        // A replica must be able to continue from a position that it has stored.
        placed
            .client()
            .sql("STOP REPLICA IO_THREAD; START REPLICA IO_THREAD")
            .unwrap();
        scene.ring.start(witness).unwrap();
        thread::sleep(Duration::from_millis(1500));
    }
    let written = writers.finish().unwrap();
    assert_eq!(written.errors(), [], "no commit may fail");
    let files = scene
        .ring
        .wait_until_equal(Duration::from_secs(60))
        .unwrap();
    assert!(
        files.paths().len() > 3,
        "the log must have rotated: {files:?}"
    );
    assert_nothing_lost_or_doubled(&scene.server, &files, &written).unwrap();

    let primary = scene.server.client();
    for (replica, kind) in replicas.iter().zip(["plain", "tls", "placed"]) {
        let equal = replica.equals(&primary, &["acked", "odd"], CAUGHT_UP);
        equal.unwrap_or_else(|error| panic!("{kind}: {error:#}"));
    }
    let ssl = "SELECT ssl_allowed FROM performance_schema.replication_connection_configuration";
    assert_eq!(tls.client().value(ssl).unwrap(), "YES");

    // Connected replicas are listed with name and position.
    let status = scene.ring.get(1, "/status").unwrap().body;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let consumers = status["consumers"].as_array().unwrap();
    assert_eq!(consumers.len(), 1, "{status}");
    assert_eq!(consumers[0]["server_id"], 11);
    assert_eq!(consumers[0]["behind_bytes"], 0);
    let metrics = scene.ring.get(1, "/metrics").unwrap().body;
    assert!(
        metrics.contains("witness_consumers{")
            && metrics.contains("witness_consumer_behind_bytes{"),
        "{metrics}"
    );
}
