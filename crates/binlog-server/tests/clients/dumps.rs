//! Dumps as a replica receives them: whole, committed transactions that it lacks, live and across files. Also dumps that are refused, with
//! MySQL's error numbers.

use std::time::{Duration, Instant};

use crate::memory_log::{MemoryLog, Served, options, set};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::EventType;
use binlog_format::events::{GtidEvent, Heartbeat, Rotate};
use binlog_format::gtid::GtidSet;
use mysql_link::{DumpError, DumpOptions, ReplicationStream};
use uuid::Uuid;

fn dump_options(have: &GtidSet, replica: u128) -> DumpOptions {
    DumpOptions {
        semi_sync: false,
        heartbeat: Duration::from_millis(200),
        ..DumpOptions::new(9, Uuid::from_u128(replica), have.clone())
    }
}

pub(crate) async fn dump(served: &Served, have: &GtidSet) -> Result<ReplicationStream, DumpError> {
    let connection = served.connect().await.unwrap();
    ReplicationStream::start(connection, &dump_options(have, 99)).await
}

/// The error of a dump that is refused, at its start or later.
pub(crate) async fn refusal(served: &Served, have: &GtidSet) -> (u16, String) {
    let mut stream = match dump(served, have).await {
        Ok(stream) => stream,
        Err(DumpError::Refused { error, .. }) => return (error.code, error.message),
        Err(other) => panic!("{other}"),
    };
    loop {
        match stream.next().await {
            Ok(_) => {}
            Err(DumpError::Refused { error, .. }) => return (error.code, error.message),
            Err(other) => panic!("{other}"),
        }
    }
}

/// The transactions and file names that a consumer receives, up to transaction `last`. Verifies every checksum, and that every event is at
/// the position in its header, as far as skipped events allow that.
pub(crate) async fn seen_until(
    stream: &mut ReplicationStream,
    last: u64,
) -> (Vec<u64>, Vec<String>) {
    let (mut numbers, mut files) = (Vec::new(), Vec::new());
    let mut position = 0;
    loop {
        let next = tokio::time::timeout(Duration::from_secs(20), stream.next());
        let event = next.await.expect("in time").unwrap().event;
        let verified = event.verified(ChecksumAlgorithm::Crc32).unwrap();
        let header = *event.header();
        match event.event_type() {
            EventType::Rotate if header.log_pos == 0 => {
                let rotate = Rotate::decode(verified).unwrap();
                files.push(String::from_utf8_lossy(&rotate.next_file).into_owned());
                position = rotate.position;
            }
            EventType::Heartbeat => {
                let heartbeat = Heartbeat::decode(verified).unwrap();
                assert!(
                    heartbeat.position >= position,
                    "a heartbeat never goes back"
                );
                position = heartbeat.position;
            }
            EventType::Ignorable => panic!("the log's own events are left out"),
            event_type => {
                let begins = u64::from(header.log_pos - header.event_size);
                assert!(
                    begins >= position,
                    "{event_type} at {begins}, after {position}"
                );
                position = u64::from(header.log_pos);
                if event_type == EventType::Gtid {
                    numbers.push(GtidEvent::decode(verified).unwrap().gtid.gno.get());
                }
                if event_type == EventType::Query && numbers.last() == Some(&last) {
                    return (numbers, files);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_replica_receives_missing_transactions_then_new_commits() {
    let log = MemoryLog::new();
    for number in 1..=10 {
        log.transaction(number, 100);
        if number % 4 == 0 {
            log.rotate();
        }
    }
    log.commit();
    let served = Served::start(log.clone(), options()).await;
    let mut stream = dump(&served, &set("1-2:5:9")).await.unwrap();
    let (numbers, files) = seen_until(&mut stream, 10).await;
    assert_eq!(numbers, [3, 4, 6, 7, 8, 10]);
    assert_eq!(files, ["binlog.000001", "binlog.000002", "binlog.000003"]);

    // Uncommitted transactions are not sent, but heartbeats continue.
    log.transaction(11, 100);
    let quiet = tokio::time::timeout(Duration::from_millis(700), async {
        loop {
            let event = stream.next().await.unwrap().event;
            assert_eq!(event.event_type(), EventType::Heartbeat);
        }
    });
    assert!(quiet.await.is_err());
    log.rotate();
    log.transaction(12, 100);
    log.commit();
    let (numbers, files) = seen_until(&mut stream, 12).await;
    assert_eq!(numbers, [11, 12]);
    assert_eq!(files, ["binlog.000004"]);

    // A consumer that has all transactions of a file begins with the next one.
    let mut stream = dump(&served, &set("1-11")).await.unwrap();
    assert_eq!(seen_until(&mut stream, 12).await.1, ["binlog.000004"]);
}

#[tokio::test]
async fn a_finished_log_ends_complete_dumps_with_its_reason() {
    let log = MemoryLog::new();
    for number in 1..=3 {
        log.transaction(number, 100);
    }
    log.commit();
    let served = Served::start(log.clone(), options()).await;
    let mut stream = dump(&served, &set("1")).await.unwrap();
    assert_eq!(seen_until(&mut stream, 3).await.0, [2, 3]);
    let why = "the ring gets no more transactions";
    log.over.send_replace(Some(why.to_owned()));
    let ends = async |stream: &mut ReplicationStream| loop {
        match stream.next().await {
            Ok(_) => {}
            Err(DumpError::Refused { error, .. }) => break (error.code, error.message),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(ends(&mut stream).await, (1236, why.to_owned()));
    // A consumer that attaches later receives the earlier transactions that it lacks.
    let mut later = dump(&served, &set("1-2")).await.unwrap();
    assert_eq!(seen_until(&mut later, 3).await.0, [3]);
    assert_eq!(ends(&mut later).await, (1236, why.to_owned()));
}

#[tokio::test]
async fn large_events_pass_a_small_queue() {
    let log = MemoryLog::new();
    let sizes = [0, 17, 300_000, 16_777_130, 16_777_250, 40_000_000];
    for (number, size) in (1..).zip(sizes) {
        log.transaction(number, size);
    }
    log.commit();
    let options = binlog_server::ServerOptions {
        queue_bytes: 256 << 10,
        ..options()
    };
    let served = Served::start(log, options).await;
    let mut stream = dump(&served, &GtidSet::new()).await.unwrap();
    assert_eq!(seen_until(&mut stream, 6).await.0, [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn purged_transactions_are_error_1236() {
    let log = MemoryLog::new();
    log.transaction(1, 10);
    log.rotate();
    log.transaction(2, 10);
    log.commit();
    log.purge_one();
    let served = Served::start(log, options()).await;
    let (code, message) = refusal(&served, &GtidSet::new()).await;
    assert_eq!(code, 1236);
    assert!(
        message.contains("purged required") && message.contains(":1'"),
        "{message}"
    );
    let mut stream = dump(&served, &set("1")).await.unwrap();
    assert_eq!(seen_until(&mut stream, 2).await.0, [2]);
}

#[tokio::test]
async fn a_replica_ahead_of_the_ring_is_refused_and_one_ahead_of_this_member_waits() {
    let log = MemoryLog::new();
    log.transaction(1, 10);
    log.commit();
    let short = binlog_server::ServerOptions {
        catch_up_limit: Duration::from_millis(300),
        ..options()
    };
    let served = Served::start(log.clone(), short).await;
    let (code, message) = refusal(&served, &set("1-2")).await;
    assert_eq!(code, 1236);
    assert!(message.contains("more GTIDs"), "{message}");
    // Transactions of a source that is not the ring's are ignored.
    let foreign = "aaaaaaaa-71ca-11e1-9e33-c80aa9429562:1-9".parse().unwrap();
    dump(&served, &foreign).await.unwrap();

    *log.elsewhere.lock().unwrap() = Some(2);
    let (code, message) = refusal(&served, &set("1-2")).await;
    assert_ne!(code, 1236, "a replica shall try again: {message}");
    let late = log.clone();
    let committing = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        late.transaction(2, 10);
        late.transaction(3, 10);
        late.commit();
    });
    let mut stream = dump(&served, &set("1-2")).await.unwrap();
    assert_eq!(seen_until(&mut stream, 3).await.0, [3]);
    committing.await.unwrap();
}

#[tokio::test]
async fn a_second_dump_of_the_same_server_ends_the_first() {
    let served = Served::start(MemoryLog::new(), options()).await;
    let mut first = dump(&served, &GtidSet::new()).await.unwrap();
    let connection = served.connect().await.unwrap();
    let _other = ReplicationStream::start(connection, &dump_options(&GtidSet::new(), 5))
        .await
        .unwrap();
    assert_eq!(served.consumers.views(&*served.log).len(), 2);
    let _second = dump(&served, &GtidSet::new()).await.unwrap();
    let ended = loop {
        if let Err(error) = first.next().await {
            break error;
        }
    };
    assert!(
        matches!(&ended, DumpError::Refused { error, .. } if error.code == 1236 && error.message.contains("same server_uuid")),
        "{ended}"
    );
}

#[tokio::test]
async fn a_damaged_file_ends_the_dump_with_the_offset() {
    let log = MemoryLog::new();
    for number in 1..=3 {
        log.transaction(number, 10);
    }
    log.commit();
    let length = log.bytes_of(1).len();
    // Damages the size of the last event, in its header.
    let last = length - 4 - 19;
    let place = (0..last).rev().find(|at| {
        let end = (length as u32).to_le_bytes();
        log.bytes_of(1)[*at..*at + 4] == end
    });
    log.damage(1, place.unwrap() - 4);
    let served = Served::start(log.clone(), options()).await;
    let (code, message) = refusal(&served, &GtidSet::new()).await;
    assert_eq!(code, 1236);
    assert!(
        message.contains("binlog.000001") && message.contains("ends at"),
        "{message}"
    );
    let damages = log.damages();
    assert_eq!(damages.len(), 1);
    assert!(damages[0].0 == 1 && damages[0].1.contains("ends at"));
}

/// Without this check, a replica would stop with its own error, which the member does not notice.
#[tokio::test]
async fn an_event_with_a_flipped_bit_is_not_sent_and_is_reported() {
    let log = MemoryLog::new();
    for number in 1..=3 {
        log.transaction(number, 1_000);
    }
    log.commit();
    // The flipped bit is in the statement of the last transaction.
    let length = log.bytes_of(1).len();
    log.damage(1, length - 500);
    let served = Served::start(log.clone(), options()).await;
    let (code, message) = refusal(&served, &GtidSet::new()).await;
    assert_eq!(code, 1236);
    assert!(message.contains("CRC32"), "{message}");
    let told = log.damages();
    assert_eq!(told.len(), 1);
    assert!(told[0].0 == 1 && message.ends_with(&told[0].1), "{told:?}");
    // A consumer that has the damaged transaction is not affected.
    dump(&served, &set("1-3")).await.unwrap();
    assert_eq!(log.damages().len(), 1);
}

/// The first part of a large event is sent before its checksum is verified; the rest is not sent.
#[tokio::test]
async fn a_large_event_with_a_flipped_bit_is_never_complete() {
    let log = MemoryLog::new();
    log.transaction(1, 2 << 20);
    log.commit();
    let length = log.bytes_of(1).len();
    log.damage(1, length - 500);
    let options = binlog_server::ServerOptions {
        queue_bytes: 256 << 10,
        ..options()
    };
    let served = Served::start(log.clone(), options).await;
    let begun = Instant::now();
    let mut stream = dump(&served, &GtidSet::new()).await.unwrap();
    let ended = loop {
        match stream.next().await {
            Ok(event) => assert_ne!(event.event.event_type(), EventType::Query),
            Err(error) => break error,
        }
    };
    assert!(!matches!(ended, DumpError::Refused { .. }), "{ended}");
    assert_eq!(log.damages().len(), 1);
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "it reconnects immediately"
    );
}

/// A replica reconnects immediately after it receives an error, so the server delays the error.
#[tokio::test]
async fn errors_of_an_unreadable_log_are_delayed() {
    let log = MemoryLog::new();
    log.transaction(1, 10);
    log.commit();
    log.refuse_reads(1);
    let served = Served::start(log.clone(), options()).await;
    let begun = Instant::now();
    let (code, message) = refusal(&served, &GtidSet::new()).await;
    assert_eq!(
        (code, begun.elapsed() >= Duration::from_secs(1)),
        (1105, true)
    );
    assert!(message.contains("input/output error"), "{message}");
    assert_eq!(
        log.damages(),
        [],
        "what cannot be read is noted where it is read"
    );
    let mut stream = dump(&served, &GtidSet::new()).await.unwrap();
    assert_eq!(seen_until(&mut stream, 1).await.0, [1]);
}

#[tokio::test]
async fn a_stopping_server_disconnects_its_consumers() {
    let served = Served::start(MemoryLog::new(), options()).await;
    let mut stream = dump(&served, &GtidSet::new()).await.unwrap();
    let begun = std::time::Instant::now();
    served.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(2));
    while let Ok(event) = stream.next().await {
        assert_ne!(event.event.event_type(), EventType::Gtid);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_uses_its_queue_and_is_disconnected() {
    let log = MemoryLog::new();
    for number in 1..=40 {
        log.transaction(number, 1 << 20);
    }
    log.commit();
    let tight = binlog_server::ServerOptions {
        stall_limit: Duration::from_millis(500),
        queue_bytes: 1 << 20,
        ..options()
    };
    let served = Served::start(log.clone(), tight).await;
    let stream = dump(&served, &GtidSet::new()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(250)).await;
    let views = served.consumers.views(&*log);
    assert_eq!(views.len(), 1);
    let queued = views[0].queued_bytes;
    assert!(queued > 0 && queued <= (1 << 20) + 300, "{queued}");
    assert!(views[0].behind_bytes > 10 << 20, "{views:?}");
    // Other clients are served at the same time.
    let connection = served.connect().await.unwrap();
    let mut other = ReplicationStream::start(connection, &dump_options(&set("1-39"), 5))
        .await
        .unwrap();
    assert_eq!(seen_until(&mut other, 40).await.0, [40]);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let left = served.consumers.views(&*log);
    assert_eq!(
        left.len(),
        1,
        "the one that does not read is gone: {left:?}"
    );
    assert_eq!(left[0].uuid, Some(Uuid::from_u128(5)));
    drop(stream);
}
