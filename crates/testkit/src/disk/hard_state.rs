//! The disk's hard state, as it is until the next restart.

use std::io;

use binlog_store::MetaStore;

use super::state::{CallFault, DiskState, SharedState};

pub(super) struct FaultyMeta {
    disk: SharedState,
    boot: u64,
}

impl FaultyMeta {
    pub(super) fn new(disk: SharedState) -> Self {
        let boot = disk.lock().boot;
        Self { disk, boot }
    }

    fn call<T>(
        &self,
        what: impl FnOnce() -> String,
        effect: impl FnOnce(&mut DiskState) -> T,
    ) -> io::Result<T> {
        let mut state = self.disk.lock();
        match state.admit(self.boot, what)? {
            Some(fault) => Err(fault.error()),
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

    /// No call of its own: what is counted is what a power cut may come behind.
    fn reserve(&self) -> io::Result<()> {
        let state = self.disk.lock();
        match state.refuses_hard_state {
            true => Err(CallFault::NoSpace.error()),
            false => Ok(()),
        }
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
