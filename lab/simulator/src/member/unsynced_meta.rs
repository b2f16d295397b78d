//! The hard state of [`Mutation::SkipTheMetadataSync`], which ignores flushes.
//!
//! [`Mutation::SkipTheMetadataSync`]: crate::mutation::Mutation::SkipTheMetadataSync

use std::io;
use std::sync::Arc;

use binlog_store::MetaStore;

/// A store for the hard state that does not flush.
pub(super) struct UnsyncedMeta(pub(super) Arc<dyn MetaStore>);

impl MetaStore for UnsyncedMeta {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn reserve(&self) -> io::Result<()> {
        self.0.reserve()
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.0.put(key, value)
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.0.remove(key)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
