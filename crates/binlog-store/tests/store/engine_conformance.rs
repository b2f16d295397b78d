//! openraft's own test suite for log stores, with the real file system and with one in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::io;
use std::sync::{Arc, Mutex};

use binlog_store::{BinlogStore, DiskFileSystem, SledMeta, StoreOptions, WriterMode};
use futures::{Stream, TryStreamExt};
use openraft::storage::{ApplyResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{OptionalSend, RaftSnapshotBuilder, StorageError};
use raft_types::{Entry, LogId, RingId, StoredMembership, TypeConfig};
use tempfile::TempDir;
use testkit::disk::FaultyDisk;

/// The part of a state machine that the suite needs in addition to the log.
#[derive(Clone, Default)]
struct Watermark(Arc<Mutex<WatermarkState>>);

#[derive(Default)]
struct WatermarkState {
    applied: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<(SnapshotMetaOf<TypeConfig>, ())>,
}

impl RaftSnapshotBuilder<TypeConfig> for Watermark {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, ()>, io::Error> {
        let mut state = self.0.lock().unwrap();
        let meta = SnapshotMetaOf::<TypeConfig> {
            last_log_id: state.applied,
            last_membership: state.membership.clone(),
        };
        state.snapshot = Some((meta.clone(), ()));
        Ok(SnapshotOf::<TypeConfig, ()> { meta, snapshot: () })
    }
}

impl RaftStateMachine<TypeConfig> for Watermark {
    type SnapshotData = ();
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let state = self.0.lock().unwrap();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<(Entry, Option<ApplyResponder<TypeConfig>>), io::Error>>
            + Unpin
            + OptionalSend,
    {
        let entries: Vec<_> = entries.try_collect().await?;
        let mut state = self.0.lock().unwrap();
        for (entry, responder) in entries {
            state.applied = Some(entry.log_id);
            if let Some(membership) = entry.payload.as_membership() {
                state.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        _: (),
    ) -> Result<(), io::Error> {
        let mut state = self.0.lock().unwrap();
        state.applied = meta.last_log_id;
        state.membership = meta.last_membership.clone();
        state.snapshot = Some((meta.clone(), ()));
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, ()>>, io::Error> {
        let state = self.0.lock().unwrap();
        Ok(state
            .snapshot
            .clone()
            .map(|(meta, snapshot)| SnapshotOf::<TypeConfig, ()> { meta, snapshot }))
    }
}

struct OnDisk;

impl StoreBuilder<TypeConfig, BinlogStore, Watermark, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, BinlogStore, Watermark), StorageError<TypeConfig>> {
        let dir = TempDir::new().unwrap();
        let options = StoreOptions {
            cache_bytes: 1,
            ..StoreOptions::new(dir.path(), RingId::random())
        };
        let meta = SledMeta::open(&dir.path().join("meta")).unwrap();
        let (store, _) =
            BinlogStore::open(options, Arc::new(DiskFileSystem), Arc::new(meta)).unwrap();
        Ok((dir, store, Watermark::default()))
    }
}

struct InMemory {
    writer: WriterMode,
    cache_bytes: u64,
}

impl StoreBuilder<TypeConfig, BinlogStore, Watermark, FaultyDisk> for InMemory {
    async fn build(
        &self,
    ) -> Result<(FaultyDisk, BinlogStore, Watermark), StorageError<TypeConfig>> {
        let disk = FaultyDisk::new();
        let options = StoreOptions {
            writer: self.writer,
            cache_bytes: self.cache_bytes,
            read_batch_bytes: 1,
            ..StoreOptions::new("/data", RingId::random())
        };
        let (store, _) = BinlogStore::open(options, disk.file_system(), disk.meta()).unwrap();
        Ok((disk, store, Watermark::default()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suite_passes_on_the_real_file_system() {
    Suite::test_all(OnDisk).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suite_passes_in_memory_with_a_cache() {
    Suite::test_all(InMemory {
        writer: WriterMode::Thread,
        cache_bytes: 1 << 20,
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn suite_passes_in_memory_in_one_thread_and_without_a_cache() {
    Suite::test_all(InMemory {
        writer: WriterMode::Inline,
        cache_bytes: 1,
    })
    .await
    .unwrap();
}
