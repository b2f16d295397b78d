//! Purged files that can be fetched. Consumers receive them as if they were not purged, receive heartbeats while they wait, and receive an
//! error if a file cannot be fetched.

use std::time::Duration;

use crate::dumps::{dump, refusal, seen_until};
use crate::memory_log::{Fetching, MemoryLog, Served, options, set};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::EventType;
use binlog_format::events::{Heartbeat, Rotate};
use binlog_format::gtid::GtidSet;
use binlog_server::ReadError;

/// Three files with two transactions each. Two of the files are purged and can be fetched.
fn log() -> std::sync::Arc<MemoryLog> {
    let log = MemoryLog::new();
    for number in 1..=6 {
        log.transaction(number, 100);
        if number % 2 == 0 && number < 6 {
            log.rotate();
        }
    }
    log.commit();
    log.archive_one();
    log.archive_one();
    log
}

async fn value(served: &Served, query: &str) -> Option<String> {
    let mut connection = served.connect().await.unwrap();
    let answer = connection.query(query).await.unwrap();
    answer.first().unwrap().text_at(0).map(str::to_owned)
}

#[tokio::test]
async fn a_returning_replica_gets_older_files_and_continues_with_the_log() {
    let log = log();
    let served = Served::start(log.clone(), options()).await;
    let mut stream = dump(&served, &GtidSet::new()).await.unwrap();
    let (numbers, files) = seen_until(&mut stream, 6).await;
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(files, ["binlog.000001", "binlog.000002", "binlog.000003"]);
    log.rotate();
    log.transaction(7, 100);
    log.commit();
    assert_eq!(seen_until(&mut stream, 7).await.0, [7]);
    assert!(
        log.kept().is_empty(),
        "what was fetched may go once it is read"
    );

    // A consumer that has the transactions of an older file does not cause a fetch.
    let mut stream = dump(&served, &set("1-3")).await.unwrap();
    let (numbers, files) = seen_until(&mut stream, 7).await;
    assert_eq!(
        (numbers, &files[0][..]),
        (vec![4, 5, 6, 7], "binlog.000002")
    );
    let mut stream = dump(&served, &set("1-4")).await.unwrap();
    assert_eq!(seen_until(&mut stream, 7).await.1[0], "binlog.000003");
    assert_eq!(log.fetched(), 3);
}

#[tokio::test]
async fn clients_see_all_readable_files() {
    let log = log();
    let served = Served::start(log.clone(), options()).await;
    assert_eq!(value(&served, "SELECT @@gtid_purged").await.unwrap(), "");
    let first = value(&served, "SHOW BINARY LOGS").await;
    assert_eq!(first.unwrap(), "binlog.000001");
    let shown = value(&served, "SHOW BINLOG EVENTS IN 'binlog.000002'").await;
    assert_eq!(shown.unwrap(), "binlog.000002");
    let shown = value(&served, "SHOW BINLOG EVENTS").await;
    assert_eq!(
        shown.unwrap(),
        "binlog.000003",
        "no file is fetched without a name"
    );
    assert!(log.kept().is_empty());

    log.lose_oldest();
    let purged = value(&served, "SELECT @@gtid_purged").await.unwrap();
    assert_eq!(purged.parse::<GtidSet>().unwrap(), set("1-2"));
    let (code, message) = refusal(&served, &set("1")).await;
    assert_eq!(code, 1236);
    assert!(message.contains("purged required"), "{message}");
    let mut stream = dump(&served, &set("1-2")).await.unwrap();
    assert_eq!(seen_until(&mut stream, 6).await.0, [3, 4, 5, 6]);
}

#[tokio::test]
async fn heartbeats_are_sent_while_a_file_is_fetched() {
    let log = log();
    log.fetch_by(Fetching::Takes(Duration::from_millis(700)));
    let served = Served::start(log, options()).await;
    let mut stream = dump(&served, &GtidSet::new()).await.unwrap();
    let mut files = Vec::new();
    let mut heartbeats = Vec::new();
    while files.len() < 3 {
        let next = tokio::time::timeout(Duration::from_secs(20), stream.next());
        let event = next.await.expect("in time").unwrap().event;
        let header = *event.header();
        let verified = event.verified(ChecksumAlgorithm::Crc32).unwrap();
        match event.event_type() {
            EventType::Rotate if header.log_pos == 0 => {
                let rotate = Rotate::decode(verified).unwrap();
                files.push(rotate.next_file.into_owned());
                heartbeats.push(0);
            }
            EventType::Heartbeat => {
                let heartbeat = Heartbeat::decode(verified).unwrap();
                assert_eq!(heartbeat.file[..], files.last().unwrap()[..]);
                assert_eq!(heartbeat.position, 4);
                *heartbeats.last_mut().unwrap() += 1;
            }
            EventType::FormatDescription if files.len() < 3 => {
                assert!(*heartbeats.last().unwrap() >= 2, "{heartbeats:?}");
            }
            _ => {}
        }
    }
    assert_eq!(seen_until(&mut stream, 6).await.0, [5, 6]);
}

#[tokio::test]
async fn an_unavailable_file_is_reported_to_its_consumer_only() {
    let log = log();
    let served = Served::start(log.clone(), options()).await;
    let mut live = dump(&served, &set("1-5")).await.unwrap();
    assert_eq!(seen_until(&mut live, 6).await.0, [6]);
    for (error, expected) in [
        (ReadError::Unavailable("the storage is silent".into()), 1105),
        (ReadError::Unusable("binlog.000001 is damaged".into()), 1236),
    ] {
        log.fetch_by(Fetching::Fails(error.clone()));
        // Another replica than the attached one.
        let (code, message) = refusal(&served, &GtidSet::new()).await;
        assert_eq!((code, message), (expected, error.to_string()));
    }
    log.fetch_by(Fetching::Works);
    assert!(log.kept().is_empty());
}
