//! A binlog server's consumer receives only committed transactions. If a consumer does not read, its queue fills up, but no commit is
//! delayed.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::thread;
use std::time::Duration;

use binlog_format::event::EventType;
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, DumpOptions, Endpoint, ReplicationStream, TlsMode};
use testkit::cluster::{BINLOG_PASSWORD, BINLOG_USER};
use tokio::runtime::Runtime;
use uuid::Uuid;
use witness_tests::Scene;

use crate::SCENES;

async fn consumer(address: std::net::SocketAddr, have: &str) -> ReplicationStream {
    let endpoint = Endpoint::tcp(address.ip().to_string(), address.port());
    let mut login = ConnectOptions::new(endpoint, BINLOG_USER, BINLOG_PASSWORD);
    login.tls.mode = TlsMode::Disabled;
    let connection = Connection::open(&login).await.unwrap();
    let have: GtidSet = have.parse().unwrap();
    let options = DumpOptions {
        semi_sync: false,
        ..DumpOptions::new(77, Uuid::from_u128(77), have)
    };
    ReplicationStream::start(connection, &options)
        .await
        .unwrap()
}

/// Returns the member's report on itself and the ring.
fn status(scene: &Scene) -> serde_json::Value {
    serde_json::from_str(&scene.ring.get(0, "/status").unwrap().body).unwrap()
}

/// Returns the number of transactions that the member has acknowledged to its mysqld.
fn acknowledged_by_the_member(scene: &Scene) -> usize {
    let total = status(scene)["mysql"]["acknowledged_total"].as_u64();
    usize::try_from(total.unwrap()).unwrap()
}

/// Returns the number of transactions that arrive within a time.
async fn transactions_within(stream: &mut ReplicationStream, time: Duration) -> usize {
    let mut seen = 0;
    let reading = async {
        loop {
            let event = stream.next().await.unwrap().event;
            seen += usize::from(event.event_type() == EventType::Gtid);
        }
    };
    drop(tokio::time::timeout(time, reading).await);
    seen
}

#[test]
fn without_a_quorum_nothing_new_arrives_although_the_log_has_more() {
    let _turn = SCENES.take();
    // The primary has no quorum for longer than the default limit, after which it would be closed for writes.
    let mut scene = Scene::launch(|options| {
        options
            .with_binlog_servers()
            .with("mysql", "fence_after = \"60s\"")
    })
    .unwrap();
    let runtime = Runtime::new().unwrap();
    let executed = scene.server.client().gtid_executed().unwrap();
    let address = scene.ring.binlog_server(0);
    let mut stream = runtime.block_on(consumer(address, &executed));
    let before = acknowledged_by_the_member(&scene);
    let writers = scene.start_writers(8).unwrap();

    scene.ring.kill(1).unwrap();
    scene.ring.kill(2).unwrap();
    // Entries that a witness made durable before it died may still be acknowledged. Later entries must not be.
    thread::sleep(Duration::from_secs(2));
    let seen = runtime.block_on(transactions_within(&mut stream, Duration::from_secs(4)));
    let acknowledged = acknowledged_by_the_member(&scene) - before;
    assert_eq!(
        seen, acknowledged,
        "served and acknowledged must be the same"
    );
    // mysqld waits once for each commit group, for the ACK of its last transaction. If the quorum was lost within a group, no client of
    // that group has an answer.
    let answered = writers.acknowledged();
    assert!(
        answered <= seen && seen < answered + 8,
        "clients have {answered} answers, the consumer {seen} transactions"
    );
    let status = status(&scene);
    let index = |what: &str| status[what]["index"].as_u64().unwrap();
    assert!(
        index("log_end") > index("committed"),
        "the member's log must have more: {status}"
    );
    let quiet = runtime.block_on(transactions_within(&mut stream, Duration::from_secs(3)));
    assert_eq!(quiet, 0, "an uncommitted transaction was served");
    // A consumer that connects now receives as many transactions.
    drop(stream);
    let mut late = runtime.block_on(consumer(address, &executed));
    let late_seen = runtime.block_on(transactions_within(&mut late, Duration::from_secs(4)));
    assert_eq!(late_seen, acknowledged);

    scene.ring.start(1).unwrap();
    writers.wait_for_more(20, Duration::from_secs(30)).unwrap();
    let written = writers.finish().unwrap();
    assert_eq!(written.errors(), [], "no commit may fail");
    let more = runtime.block_on(transactions_within(&mut late, Duration::from_secs(4)));
    assert_eq!(late_seen + more, written.commits.len());
}

/// Returns a process's resident memory in bytes.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes << 10
}

#[test]
fn one_that_does_not_read_costs_its_queue_while_200_megabytes_pass() {
    let _turn = SCENES.take();
    let scene = Scene::launch(|options| {
        options
            .with_binlog_servers()
            .with("binlog_server", "queue_bytes = \"4MiB\"")
            .with("log", "cache_bytes = \"8MiB\"")
            .with("raft", "proposals_bytes = \"16MiB\"")
    })
    .unwrap();
    let runtime = Runtime::new().unwrap();
    let client = scene.server.client();
    client
        .sql("CREATE TABLE acked.large (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
        .unwrap();
    let insert = |count: usize| {
        let statement = "INSERT INTO acked.large (b) VALUES (REPEAT('x', 4000000)); ".repeat(count);
        client
            .sql_within(&statement, Duration::from_secs(240))
            .unwrap();
    };
    // The member has reached its usual size before a consumer connects.
    insert(5);
    let executed = client.gtid_executed().unwrap();
    let address = scene.ring.binlog_server(0);
    let mut slow = runtime.block_on(consumer(address, &executed));
    let process = scene.ring.process_id(0).unwrap();
    let before = resident(process);
    insert(50);
    let status = status(&scene);
    let view = &status["consumers"][0];
    let (unread, queued) = (
        view["behind_bytes"].as_u64().unwrap(),
        view["queued_bytes"].as_u64().unwrap(),
    );
    let grown = resident(process).saturating_sub(before);
    println!(
        "unread {unread}, queued {queued}, {} MiB before, grown by {} MiB",
        before >> 20,
        grown >> 20
    );
    assert!(unread > 100_000_000, "{view}");
    assert!(queued <= (4 << 20) + 4096, "{view}");
    assert!(grown < 64 << 20, "the member grew by {grown} bytes");
    // When the consumer reads at last, it receives everything.
    let seen = runtime.block_on(transactions_within(&mut slow, Duration::from_secs(20)));
    assert_eq!(seen, 50);
}
