//! [`MetaStore`] over sled: a handful of keys, so the cache is small, and nothing is flushed but
//! when the store asks for it.
//!
//! On Linux, sled 0.34 makes a flush with `sync_file_range`, which neither empties the disk's own
//! cache nor stores the file's length: a vote could be lost with the power. So each flush here is
//! followed by an `fdatasync` of sled's file.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::meta_store::MetaStore;

/// sled's page cache, in bytes; all our keys together take a few kilobytes.
const CACHE_BYTES: u64 = 1 << 20;

/// The file below its directory in which sled keeps everything.
const SLED_FILE: &str = "db";

/// The hard state in a sled database. sled locks its directory, so a second process that opens the
/// same data directory is refused here.
pub struct SledMeta {
    db: sled::Db,
    file: File,
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
        let file = File::open(dir.join(SLED_FILE))?;
        file.sync_all()?;
        // The names of what sled has just made.
        for dir in [Some(dir), dir.parent()].into_iter().flatten() {
            let named = !dir.as_os_str().is_empty();
            File::open(if named { dir } else { Path::new(".") })?.sync_all()?;
        }
        Ok(Self { db, file })
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
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_a_new_start_and_a_second_process_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta");
        {
            let meta = SledMeta::open(&path).unwrap();
            meta.put("vote", b"one").unwrap();
            meta.put("vote", b"two").unwrap();
            meta.put("floor", b"gone").unwrap();
            meta.remove("floor").unwrap();
            meta.flush().unwrap();
            assert!(SledMeta::open(&path).is_err(), "it is locked");
        }
        let meta = SledMeta::open(&path).unwrap();
        assert_eq!(meta.get("vote").unwrap(), Some(b"two".to_vec()));
        assert_eq!(meta.get("floor").unwrap(), None);
    }
}
