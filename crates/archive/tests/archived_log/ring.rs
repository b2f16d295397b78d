//! A member's log on a disk.

use std::path::Path;

use archive::next_piece::Log;
use binlog_store::{BinlogStore, FileNumber, StoreOptions, WriterMode};
use futures::executor::block_on;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{Entry, LogId, MemberId, OpId, RingId, TypeConfig, Vote};
use testkit::disk::FaultyDisk;
use testkit::log_entries::{blank, membership, rotate, transaction};

const DATA_DIR: &str = "/data";

pub(crate) fn ring() -> RingId {
    RingId("11111111-2222-3333-4444-555555555555".parse().unwrap())
}

pub(crate) fn id(index: u64) -> OpId {
    OpId::new(1, index)
}

/// Eight entries per file: six of them are transactions.
pub(crate) fn entries(range: std::ops::Range<u64>) -> Vec<Entry> {
    let kinds = range.map(|index| match index % 8 {
        0 => blank(id(index)),
        6 => membership(id(index), &[1, 2, 3]),
        7 => rotate(id(index)),
        _ => transaction(id(index), 3_000),
    });
    kinds.collect()
}

/// A member's log, to which entries can be appended.
pub(crate) struct Ring {
    disk: FaultyDisk,
    pub(crate) store: BinlogStore,
}

impl Ring {
    pub(crate) fn new() -> Self {
        let disk = FaultyDisk::new();
        let options = StoreOptions {
            writer: WriterMode::Inline,
            disk_reserve_bytes: 0,
            ..StoreOptions::new(DATA_DIR, ring())
        };
        let (mut store, _) = BinlogStore::open(options, disk.file_system(), disk.meta()).unwrap();
        block_on(store.save_vote(&Vote::new(1, MemberId(1)))).unwrap();
        Self { disk, store }
    }

    pub(crate) fn append(&mut self, entries: Vec<Entry>) {
        let (done, flushed) = TypeConfig::oneshot();
        block_on(self.store.append(entries, IOFlushed::signal(done))).unwrap();
        block_on(flushed).unwrap().unwrap();
    }

    pub(crate) fn purge(&mut self, upto: OpId) {
        block_on(self.store.save_committed(Some(LogId::from(upto)))).unwrap();
        block_on(self.store.purge(LogId::from(upto))).unwrap();
    }

    /// The log, with everything up to an entry committed.
    pub(crate) fn log(&self, committed: OpId) -> Log {
        let handle = self.store.handle();
        let files = handle.files().into_iter();
        Log {
            files: files.map(|file| (file.number, file.bytes)).collect(),
            committed: handle.committed_end(Some(committed)),
        }
    }

    pub(crate) fn bytes(&self, file: FileNumber) -> Vec<u8> {
        let path = Path::new(DATA_DIR).join("log").join(file.name());
        self.disk.contents(&path).unwrap()
    }
}
