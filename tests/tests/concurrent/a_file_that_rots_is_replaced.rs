//! A closed log file of a running member is corrupted. The scrub or a consumer detects it, and another member's copy replaces the file
//! without a restart.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use testkit::cluster::{Cluster, ClusterOptions, Profile, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

use crate::SCENES;
use crate::stock_clients_read_a_member::remote;

const SOON: Duration = Duration::from_secs(60);

/// Starts a ring without a scrub, around a server that has written this many rows, each into a separate log file.
fn ring_of_small_files(server: &Mysqld, options: ClusterOptions, rows: u64) -> Cluster {
    let options = options
        .with("log", "max_file_bytes = \"64KiB\"")
        .with("log", "scrub_rate = 0");
    let ring = Cluster::launch(&witness_binary(Profile::Dev).unwrap(), options).unwrap();
    let client = server.client();
    client
        .sql("CREATE DATABASE rot; CREATE TABLE rot.t (id INT PRIMARY KEY, b LONGBLOB)")
        .unwrap();
    for id in 0..rows {
        client
            .sql(&format!(
                "INSERT INTO rot.t VALUES ({id}, REPEAT('a', 100000))"
            ))
            .unwrap();
    }
    ring
}

#[test]
fn the_scrub_finds_what_rots_and_another_members_file_takes_its_place() {
    let _turn = SCENES.take();
    let server = Mysqld::launch(&MysqlTree::require()).expect("the scene of a test");
    let mut ring = ring_of_small_files(&server, ClusterOptions::around(&server), 8);
    let whole = ring.wait_until_equal(SOON).unwrap();
    assert!(ring.stop(1).unwrap().success());
    let path = ring.directory(1).join("log/binlog.000002");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"rot", 50_000).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(
        ring.log_files(1)
            .unwrap()
            .first_difference(&whole)
            .is_some()
    );
    let config = std::fs::read_to_string(ring.config(1)).unwrap();
    let config = config.replace(
        "scrub_rate = 0",
        "scrub_rate = \"8MiB\"\nverify_at_start = \"recent\"",
    );
    std::fs::write(ring.config(1), config).unwrap();
    ring.start(1).unwrap();
    ring.wait_until("the file is replaced", SOON, |ring| {
        let status = ring.get(1, "/status");
        Ok(status.is_ok_and(|status| status.body.contains("\"repaired_total\":1")))
    })
    .unwrap();
    ring.wait_until_equal(SOON).unwrap();
    let output = ring.output(1);
    assert!(output.contains("binlog.000002"), "{output}");
    let metrics = ring.get(1, "/metrics").unwrap().body;
    assert!(
        metrics.contains("witness_scrub_repaired_files_total"),
        "{metrics}"
    );
    let status = ring.get(1, "/status").unwrap().json().unwrap();
    let scrub = &status["log"]["scrub"];
    assert_eq!(scrub["bytes_per_second"], 8 << 20, "{status}");
    let config = ring.config(1).display().to_string();
    let page = ring.cli(&["status", "--config", &config]).unwrap();
    let page = page.into_text("witness status").unwrap();
    assert!(page.contains(": scrub: "), "{page}");

    // A start needs each file's header. If a header is damaged, a message with the remedy suffices.
    assert!(ring.stop(1).unwrap().success());
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"rot", 30).unwrap();
    drop(file);
    ring.start(1).unwrap();
    assert_eq!(ring.wait_for_exit(1, SOON).unwrap().code(), Some(7));
    let output = ring.output(1);
    assert!(
        output.contains("put another member's file of that name in its place"),
        "{output}"
    );
    std::fs::copy(ring.directory(0).join("log/binlog.000002"), &path).unwrap();
    ring.start(1).unwrap();
    ring.wait_until_equal(SOON).unwrap();
}

/// The scrub is off, as if the next one were a month away. The damage is detected when a consumer copies the log.
#[test]
fn damage_found_by_a_consumer_is_replaced_by_another_members_file() {
    let _turn = SCENES.take();
    let server = Mysqld::launch(&MysqlTree::require()).expect("the scene of a test");
    let options = ClusterOptions::around(&server).with_binlog_servers();
    let mut ring = ring_of_small_files(&server, options, 4);
    ring.wait_until_equal(SOON).unwrap();
    let name = "binlog.000002";
    let copies = tempfile::tempdir().unwrap();
    let result = format!("--result-file={}/", copies.path().display());
    let log = |ring: &Cluster| ring.get(1, "/status").unwrap().json().unwrap()["log"].clone();
    let is_mended = |ring: &Cluster, repaired: u64| {
        let log = log(ring);
        let none = serde_json::json!([]);
        Ok(log["scrub"]["repaired_total"] == repaired && log["unreadable"] == none)
    };

    // An offset within an event is the consumer's own mistake.
    let raw = ["--read-from-remote-server", "--raw", &result];
    let asked = remote(
        &ring,
        1,
        &[&raw[..], &["--start-position=50000"]].concat(),
        name,
    );
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(said.contains("cannot be read at 50000"), "{said}");
    assert_eq!(log(&ring)["unreadable"], serde_json::json!([]));

    // A file that cannot be read. The answer is delayed, so that a replica continues as soon as the file is replaced.
    let gone = "binlog.000003";
    std::fs::remove_file(ring.directory(1).join("log").join(gone)).unwrap();
    let asked = Instant::now();
    let refused = remote(&ring, 1, &raw, gone);
    assert!(asked.elapsed() >= Duration::from_secs(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("reading binlog.000003 failed"), "{said}");
    assert!(!said.contains("stops"), "{said}");
    ring.wait_until("the file is there again", SOON, |ring| is_mended(ring, 1))
        .unwrap();

    let path = ring.directory(1).join("log").join(name);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"rot", 50_000).unwrap();
    let refused = remote(&ring, 1, &raw, name);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("CRC32"), "{said}");
    let told = log(&ring)["unreadable"].to_string();
    assert!(told.contains(name) && told.contains("CRC32"), "{told}");
    ring.wait_until("the file is replaced", SOON, |ring| is_mended(ring, 2))
        .unwrap();
    ring.wait_until_equal(SOON).unwrap();
    let done = remote(&ring, 1, &raw, name);
    done.into_text("mysqlbinlog").unwrap();
    let copied = std::fs::read(copies.path().join(name)).unwrap();
    assert!(copied == std::fs::read(&path).unwrap());
}
