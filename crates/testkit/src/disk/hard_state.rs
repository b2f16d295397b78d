//! The hard state of a [`FaultyDisk`].

use std::io;

use binlog_store::MetaStore;

use crate::disk::{DiskState, FaultyDisk};
use crate::faulty_fs::error_of;

pub(crate) struct FaultyMeta {
    disk: FaultyDisk,
    boot: u64,
}

impl FaultyMeta {
    pub(crate) fn new(disk: FaultyDisk) -> Self {
        let boot = disk.state().boot;
        Self { disk, boot }
    }

    fn call<T>(
        &self,
        what: impl FnOnce() -> String,
        effect: impl FnOnce(&mut DiskState) -> T,
    ) -> io::Result<T> {
        let mut state = self.disk.state();
        match state.admit(self.boot, what)? {
            Some(fault) => Err(error_of(fault)),
            None => Ok(effect(&mut state)),
        }
    }
}

impl MetaStore for FaultyMeta {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.call(
            || format!("meta get {key}"),
            |state| state.meta.get(key).cloned(),
        )
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.call(
            || format!("meta put {key}"),
            |state| {
                state.meta.insert(key.to_owned(), value.to_vec());
                state
                    .pending_meta
                    .push((key.to_owned(), Some(value.to_vec())));
            },
        )
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.call(
            || format!("meta remove {key}"),
            |state| {
                state.meta.remove(key);
                state.pending_meta.push((key.to_owned(), None));
            },
        )
    }

    fn flush(&self) -> io::Result<()> {
        self.call(
            || "meta flush".to_owned(),
            |state| {
                state.pending_meta.clear();
                state.durable_meta = state.meta.clone();
            },
        )
    }
}
