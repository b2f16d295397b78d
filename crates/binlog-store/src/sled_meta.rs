//! [`MetaStore`] over sled: a handful of keys, so the cache is small, and nothing is flushed but
//! when the store asks for it.

use std::io;
use std::path::Path;

use crate::meta_store::MetaStore;

/// sled's page cache, in bytes; all our keys together take a few kilobytes.
const CACHE_BYTES: u64 = 1 << 20;

/// The hard state in a sled database. sled locks its directory, so a second process that opens the
/// same data directory is refused here.
pub struct SledMeta {
    db: sled::Db,
}

impl SledMeta {
    /// Opens the database in `dir`, or creates it.
    ///
    /// # Errors
    /// When another process has it open, or sled finds it damaged.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let db = sled::Config::new()
            .path(dir)
            .cache_capacity(CACHE_BYTES)
            .mode(sled::Mode::LowSpace)
            .flush_every_ms(None)
            .open()?;
        Ok(Self { db })
    }
}

impl MetaStore for SledMeta {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.db.get(key)?.map(|value| value.to_vec()))
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.db.insert(key, value)?;
        Ok(())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.db.remove(key)?;
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.db.flush()?;
        Ok(())
    }
}
