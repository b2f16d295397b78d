//! The writer's thread: many concurrent appends, one sync for all that wait, callbacks in order, a bounded queue. Also the crash tests of
//! the writer without a thread.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::workload::{
    open, open_with, options, read_all, save_committed, save_vote, summary, vote,
};
use binlog_store::{BinlogStore, Durability, FlushSample, StoreObserver, StoreOptions, WriterMode};
use futures::executor::block_on;
use openraft::RaftLogReader;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{Entry, LogId, LogIntake, OpId, TypeConfig};
use testkit::disk::{CallFault, FaultyDisk, Survival};
use testkit::log_entries::{blank, rotate, transaction};

fn threaded() -> StoreOptions {
    StoreOptions {
        writer: WriterMode::Thread,
        ..options()
    }
}

fn id(index: u64) -> OpId {
    OpId::new(0, index)
}

type Flushed = std::pin::Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>;

async fn begin(store: &mut BinlogStore, entries: Vec<Entry>) -> std::io::Result<Flushed> {
    let (done, flushed) = TypeConfig::oneshot();
    store.append(entries, IOFlushed::signal(done)).await?;
    Ok(Box::pin(async move {
        flushed.await.map_err(std::io::Error::other)?
    }))
}

#[derive(Default)]
struct Samples {
    flushes: AtomicU64,
    entries: AtomicU64,
}

impl StoreObserver for Samples {
    fn flushed(&self, sample: &FlushSample) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.entries.fetch_add(sample.entries, Ordering::Relaxed);
    }
}

struct Panics;

impl StoreObserver for Panics {
    fn flushed(&self, _: &FlushSample) {
        panic!("on purpose");
    }
}

/// Otherwise all callers would wait indefinitely, without an error.
#[test]
fn a_panic_of_the_writer_fails_the_log_and_all_waiting_callers() {
    let observer: Arc<dyn StoreObserver> = Arc::new(Panics);
    let options = StoreOptions {
        observer: Some(observer),
        ..threaded()
    };
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, options).unwrap();
    let flushed = block_on(begin(&mut store, vec![transaction(id(0), 50)])).unwrap();
    assert!(block_on(flushed).is_err());
    let failure = store.failure().unwrap().to_string();
    assert!(failure.contains("its writer has panicked"), "{failure}");
    let next = block_on(begin(&mut store, vec![transaction(id(1), 50)]));
    assert!(next.is_err() || block_on(next.unwrap()).is_err());
    assert!(store.close().is_err());
    let (store, _) = open(&disk).unwrap();
    assert!(read_all(&store).unwrap().len() <= 1);
}

#[test]
fn queued_requests_share_one_sync() {
    let disk = FaultyDisk::new();
    let samples = Arc::new(Samples::default());
    let observer: Arc<dyn StoreObserver> = samples.clone();
    let (mut store, _) = open_with(
        &disk,
        StoreOptions {
            observer: Some(observer),
            ..threaded()
        },
    )
    .unwrap();
    // The first sync is slow; all other requests arrive during it.
    disk.fail_call(
        disk.calls() + 2,
        CallFault::Slow(Duration::from_millis(300)),
    );
    let flushed: Vec<_> = (0..100)
        .map(|index| block_on(begin(&mut store, vec![transaction(id(index), 50)])).unwrap())
        .collect();
    // The entries are readable immediately, and durable later.
    assert_eq!(read_all(&store).unwrap().len(), 100);
    assert!(
        store.durable().is_none(),
        "nothing is durable yet: {:?}",
        store.durable()
    );
    for flushed in flushed {
        block_on(flushed).unwrap();
    }
    assert_eq!(store.durable(), Some(id(99)));
    let (flushes, entries) = (
        samples.flushes.load(Ordering::Relaxed),
        samples.entries.load(Ordering::Relaxed),
    );
    assert_eq!(entries, 100);
    assert!(flushes <= 4, "{flushes} syncs for 100 entries");
    let syncs = disk
        .record()
        .iter()
        .filter(|call| call.what == "sync binlog.000001")
        .count();
    assert_eq!(
        syncs as u64,
        flushes + 2,
        "in addition to those there is one when the file is made, one at the start"
    );
    assert_eq!(store.stats().flushes, flushes);
}

#[test]
fn callbacks_come_in_order() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, threaded()).unwrap();
    let mut waiting: Vec<Flushed> = Vec::new();
    for index in 0..200 {
        let entry = if index % 20 == 7 {
            rotate(id(index))
        } else {
            transaction(id(index), 10)
        };
        waiting.push(block_on(begin(&mut store, vec![entry])).unwrap());
    }
    // When one append is done, all earlier ones are done.
    for done in (0..200).rev().step_by(9) {
        block_on(&mut waiting[done]).unwrap();
        let durable = store.durable().unwrap();
        assert!(durable.index >= done as u64);
    }
}

#[test]
fn a_vote_is_stored_in_order_with_entries() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, threaded()).unwrap();
    disk.fail_call(disk.calls() + 2, CallFault::Slow(Duration::from_millis(50)));
    let before = block_on(begin(&mut store, vec![transaction(id(0), 10)])).unwrap();
    save_vote(&mut store, 3).unwrap();
    assert_eq!(
        store.durable(),
        Some(id(0)),
        "the entry was durable before the vote"
    );
    block_on(before).unwrap();
    assert_eq!(block_on(store.reader().read_vote()).unwrap(), Some(vote(3)));
    let calls: Vec<String> = disk.record().into_iter().map(|call| call.what).collect();
    let sync = calls
        .iter()
        .rposition(|call| call == "sync binlog.000001")
        .unwrap();
    let put = calls
        .iter()
        .rposition(|call| call == "meta put vote")
        .unwrap();
    assert!(sync < put && calls[put + 1] == "meta flush", "{calls:?}");
}

/// Appends run in the engine's loop: if an append waited, the member would answer no heartbeat and no vote request. So the callers wait for
/// room before they pass entries to the engine.
#[test]
fn room_in_the_queue_is_waited_for_in_front_of_the_engine_and_never_in_an_append() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(
        &disk,
        StoreOptions {
            queue_bytes: 20_000,
            ..threaded()
        },
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let handle = store.handle();
    let slow = disk.calls() + 2;
    disk.fail_call(slow, CallFault::Slow(SLOW));
    let most = runtime.block_on(async move {
        let (mut most, mut waiting) = (0, Vec::new());
        let begun = Instant::now();
        for index in 0..200 {
            handle.queue_room(1_300).await;
            let appending = Instant::now();
            let entry = transaction(id(index), 1_000);
            waiting.push(begin(&mut store, vec![entry]).await.unwrap());
            assert!(
                appending.elapsed() < SLOW / 2,
                "an append waited for the disk"
            );
            most = most.max(handle.stats().queued_bytes);
        }
        assert!(begun.elapsed() >= SLOW / 2, "no caller waited for room");
        for flushed in waiting {
            flushed.await.unwrap();
        }

        // While an entry is being written, requests are accepted even if the queue has no room.
        disk.fail_call(disk.calls() + 2, CallFault::Slow(SLOW));
        let appending = Instant::now();
        let large = begin(&mut store, vec![transaction(id(200), 30_000)])
            .await
            .unwrap();
        let small = begin(&mut store, vec![blank(id(201))]).await.unwrap();
        assert!(
            appending.elapsed() < SLOW / 2,
            "an append waited for the disk"
        );
        assert!(handle.stats().queued_bytes > 30_000);
        large.await.unwrap();
        small.await.unwrap();
        most
    });
    assert!(most > 10_000 && most <= 20_000, "{most} bytes waited");
}

/// A leader purges while its own log lags.
#[test]
fn a_purge_does_not_wait_for_a_large_entry() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, threaded()).unwrap();
    let entries = vec![
        transaction(id(0), 10),
        rotate(id(1)),
        transaction(id(2), 10),
    ];
    block_on(async { begin(&mut store, entries).await?.await }).unwrap();
    save_committed(&mut store, id(2)).unwrap();
    disk.fail_call(disk.calls() + 3, CallFault::Slow(SLOW));
    let large = block_on(begin(&mut store, vec![transaction(id(3), 2 << 20)])).unwrap();
    let begun = Instant::now();
    block_on(store.purge(LogId::from(id(1)))).unwrap();
    assert!(begun.elapsed() < SLOW / 2, "{:?}", begun.elapsed());
    block_on(large).unwrap();
    // The purge is done before the vote is stored.
    save_vote(&mut store, 1).unwrap();
    assert_eq!(store.bounds().map(|(first, _)| first), Some(id(2)));
}

/// Much longer than an append takes on a busy machine.
const SLOW: Duration = Duration::from_millis(1_500);

#[test]
fn one_entry_larger_than_the_queue_is_taken() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(
        &disk,
        StoreOptions {
            queue_bytes: 10,
            cache_bytes: 10,
            ..threaded()
        },
    )
    .unwrap();
    for index in 0..5 {
        block_on(async {
            begin(&mut store, vec![transaction(id(index), 100_000)])
                .await?
                .await
        })
        .unwrap();
    }
    assert_eq!(read_in_runtime(&store).len(), 5);
    assert_eq!(store.stats().cache_hits, 0);
}

fn read_in_runtime(store: &BinlogStore) -> Vec<Entry> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap();
    runtime
        .block_on(store.reader().try_get_log_entries(0..))
        .unwrap()
}

/// A committed entry that is not yet durable on this member must not be stored as committed. After a crash, the log would lack the entry
/// that the hard state names.
#[test]
fn the_stored_committed_entry_is_one_that_the_log_has() {
    let disk = FaultyDisk::new();
    let (mut store, _) = open_with(&disk, threaded()).unwrap();
    block_on(async { begin(&mut store, vec![transaction(id(0), 10)]).await?.await }).unwrap();
    let sync = disk.calls() + 2;
    disk.fail_call(sync, CallFault::Io);
    let failing = block_on(begin(&mut store, vec![transaction(id(1), 10)])).unwrap();
    // The other members already have the entry.
    save_committed(&mut store, id(1)).ok();
    assert!(block_on(failing).is_err());
    store.close().unwrap_err();
    drop(store);
    disk.power_cycle(Survival::Nothing);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(read_all(&store).unwrap().len(), 1);

    // The same holds if the log has no failure, but does not reach the committed entry yet.
    drop(store);
    let (mut store, _) = open(&disk).unwrap();
    for _ in 0..20 {
        save_committed(&mut store, id(77)).unwrap();
    }
    drop(store);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(store.applied_at_open().0, Some(id(0)));

    // At a clean stop, the committed entry is stored.
    drop(store);
    let (mut store, _) = open_with(&disk, threaded()).unwrap();
    block_on(async { begin(&mut store, vec![transaction(id(1), 10)]).await?.await }).unwrap();
    save_committed(&mut store, id(1)).unwrap();
    store.close().unwrap();
    drop(store);
    disk.power_cycle(Survival::Nothing);
    let (store, _) = open(&disk).unwrap();
    assert_eq!(store.applied_at_open().0, Some(id(1)));
}

/// With a writer thread, too, no acknowledged entry is lost at any power cut. Up to eight appends are pending at a time.
#[test]
fn grouped_appends_survive_power_cuts() {
    let mut outcomes = 0;
    for durability in [Durability::Fsync, Durability::Os] {
        for cut in (20..400).step_by(3) {
            let disk = FaultyDisk::new();
            let options = StoreOptions {
                durability,
                ..threaded()
            };
            let (mut store, _) = open_with(&disk, options).unwrap();
            disk.cut_power_after(cut);
            let (acknowledged, submitted) = append_until_cut(&mut store);
            store.close().ok();
            drop(store);
            for seed in 0..3 {
                let disk = disk.fork();
                // Data in the operating system survives the end of the process, but not of the machine.
                match durability {
                    Durability::Fsync => disk.power_cycle(Survival::Seeded(cut * 3 + seed)),
                    Durability::Os => disk.restart_process(),
                }
                let (store, report) = open(&disk).unwrap();
                let found = read_all(&store).unwrap();
                let context = format!("cut after call {cut}, {report}");
                assert!(
                    found.len() >= acknowledged,
                    "{acknowledged} acknowledged, {}: {context}",
                    summary(&found)
                );
                assert!(
                    submitted.starts_with(&found),
                    "{}: {context}",
                    summary(&found)
                );
                outcomes += 1;
            }
        }
    }
    println!("{outcomes} outcomes");
}

/// Returns the number of acknowledged entries, and all requested entries.
fn append_until_cut(store: &mut BinlogStore) -> (usize, Vec<Entry>) {
    let (mut acknowledged, mut submitted) = (0, Vec::new());
    'rounds: for round in 0..60_u64 {
        let mut waiting = Vec::new();
        for at in 0..1 + round % 8 {
            let index = submitted.len() as u64;
            let entry = if (round + at) % 11 == 10 {
                rotate(id(index))
            } else {
                transaction(id(index), 20)
            };
            match block_on(begin(store, vec![entry.clone()])) {
                Ok(flushed) => {
                    submitted.push(entry);
                    waiting.push(flushed);
                }
                Err(_) => break 'rounds,
            }
        }
        for flushed in waiting {
            match block_on(flushed) {
                Ok(()) => acknowledged += 1,
                Err(_) => break 'rounds,
            }
        }
        let committed = submitted
            .last()
            .map(|entry| LogId::from(OpId::from(entry.log_id)));
        block_on(store.save_committed(committed)).ok();
    }
    (acknowledged, submitted)
}
