//! The interface below the hard state: a small ordered key-value store. Production uses sled ([`crate::SledMeta`]); tests use one that
//! loses and tears unflushed data.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// A store of small values. A `put` or `remove` is durable after the next [`MetaStore::flush`]. Calls become durable in order: after a
/// crash, the content is the result of a prefix of them.
pub trait MetaStore: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// Store errors, damage included.
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// Ensures that the disk has room for the next few calls. It may be retried if there is none, unlike a call that fails for lack of
    /// room.
    ///
    /// # Errors
    /// `StorageFull` or `QuotaExceeded` without room; the store is unchanged then. Store errors.
    fn reserve(&self) -> io::Result<()>;

    /// Sets a key's value.
    ///
    /// # Errors
    /// Store errors.
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()>;

    /// Removes a key; no effect if it has no value.
    ///
    /// # Errors
    /// Store errors.
    fn remove(&self, key: &str) -> io::Result<()>;

    /// Makes every earlier call durable.
    ///
    /// # Errors
    /// Store errors; whether the earlier calls are durable is then unknown.
    fn flush(&self) -> io::Result<()>;
}

// [`MetaStore`] over sled: a handful of keys, so the cache is small, and data is flushed only on the store's request.
//
// On Linux, sled 0.34 flushes with `sync_file_range`, which neither flushes the disk's own cache nor stores the file's length. A power cut
// could lose a vote. So each flush here is followed by an `fdatasync` of sled's file.
//
// After the first write error, sled accepts no writes until it is reopened. To prevent such an error on a full disk, blocks are reserved
// after the file's end (`fallocate`), enough for sled's next calls. Before each call, their presence is checked. If the file system cannot
// reserve blocks, or is copy-on-write, a full disk is an error of sled.
//
// On open, sled writes a snapshot under a temporary name and renames it when complete. A full disk, a kill or a power cut can leave the
// temporary file. sled 0.34 then takes it for its newest snapshot at the next start, and rejects it as damaged. So it is removed first.

/// sled's page cache, in bytes; all keys together take a few kilobytes.
const CACHE_BYTES: u64 = 1 << 20;

/// Bytes reserved after the file's end: sled grows by one segment of 512 KiB at a time, and each holds hundreds of our records.
const RESERVED_BYTES: u64 = 2 << 20;

/// The file in its directory in which sled keeps everything.
const SLED_FILE: &str = "db";

/// Prefix of a snapshot's name, and its suffix while incomplete.
const SNAPSHOT: (&str, &str) = ("snap.", ".generating");

/// The hard state in a sled database. sled locks its directory, so a second process that opens the same data directory is refused here.
pub struct SledMeta {
    db: sled::Db,
    file: File,
}

impl SledMeta {
    /// Opens the database in `dir`, or creates it.
    ///
    /// # Errors
    /// `ResourceBusy` if another process has it open, `InvalidData` if sled finds damage. `StorageFull` or `QuotaExceeded` without room for
    /// a start's writes: it can be opened once there is room.
    pub fn open(dir: &Path) -> io::Result<Self> {
        remove_unfinished_snapshots(dir)?;
        let db = sled::Config::new()
            .path(dir)
            .cache_capacity(CACHE_BYTES)
            .mode(sled::Mode::LowSpace)
            .flush_every_ms(None)
            .open()
            .map_err(plain)?;
        let file = File::options()
            .read(true)
            .write(true)
            .open(dir.join(SLED_FILE))?;
        file.sync_all()?;
        // Make the names that sled has just created durable.
        for dir in [Some(dir), dir.parent()].into_iter().flatten() {
            let named = !dir.as_os_str().is_empty();
            File::open(if named { dir } else { Path::new(".") })?.sync_all()?;
        }
        Ok(Self { db, file })
    }
}

/// See above. Durable with the directory, which [`SledMeta::open`] syncs: a crash before that only causes another removal.
fn remove_unfinished_snapshots(dir: &Path) -> io::Result<()> {
    let file = match File::options().write(true).open(dir.join(SLED_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    // sled's own lock: its holder may be writing a snapshot.
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another process has it open")
        }
        TryLockError::Error(error) => error,
    })?;
    let (begin, end) = SNAPSHOT;
    for entry in dir.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(begin) && name.ends_with(end) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The original error: for disk errors, sled returns copies with the text of `Debug`.
fn plain(error: sled::Error) -> io::Error {
    let error = io::Error::from(error);
    let words = error.to_string();
    let code = words.split_once("Os { code: ");
    let code = code.and_then(|(_, rest)| rest.split_once(',')?.0.parse().ok());
    code.map_or(error, io::Error::from_raw_os_error)
}

impl MetaStore for SledMeta {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let value = self.db.get(key).map_err(plain)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn reserve(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        // In blocks of 512 bytes, whatever the file system's block size is. sled truncates its file when its last segments are free, and
        // the reserved blocks with it.
        if now.blocks() * 512 >= now.len() + RESERVED_BYTES {
            return Ok(());
        }
        let wanted = now.len() + 2 * RESERVED_BYTES;
        loop {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, wanted) {
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => return Err(error.into()),
                // A file system without reservation.
                Ok(()) | Err(_) => return Ok(()),
            }
        }
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.db.insert(key, value).map_err(plain)?;
        Ok(())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.db.remove(key).map_err(plain)?;
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.db.flush().map_err(plain)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use testkit::wait::eventually;

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
            let refused = SledMeta::open(&path).err().map(|error| error.kind());
            assert_eq!(refused, Some(io::ErrorKind::ResourceBusy));
        }
        // A process that another test is starting holds the lock's file until its exec.
        let open = || SledMeta::open(&path);
        let meta = eventually("the lock is free", Duration::from_secs(5), open).unwrap();
        assert_eq!(meta.get("vote").unwrap(), Some(b"two".to_vec()));
        assert_eq!(meta.get("floor").unwrap(), None);
    }

    #[test]
    fn what_the_disk_refused_is_told_in_its_own_words() {
        let refused = || io::Error::from_raw_os_error(5);
        let words = refused().to_string();
        let error = sled::Error::Io(refused());
        let copied = error.clone();
        for error in [copied.clone(), copied, error] {
            let told = plain(error);
            assert_eq!(
                (told.kind(), told.to_string()),
                (refused().kind(), words.clone())
            );
        }
        let other = plain(sled::Error::Io(io::Error::other("no")));
        assert_eq!(other.to_string(), "no");
    }

    /// The file's content as read by another process, without the first one's memory. Only a power cut shows whether it is on the disk.
    #[test]
    fn what_was_flushed_stands_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let meta = SledMeta::open(&dir.path().join("meta")).unwrap();
        meta.put("vote", b"one").unwrap();
        meta.flush().unwrap();
        let copy = dir.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for entry in dir.path().join("meta").read_dir().unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
            }
        }
        let copied = SledMeta::open(&copy).unwrap();
        assert_eq!(copied.get("vote").unwrap(), Some(b"one".to_vec()));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_not_one_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        remove_unfinished_snapshots(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join(SLED_FILE)).unwrap();
        assert!(remove_unfinished_snapshots(dir.path()).is_err());
    }

    #[test]
    fn what_is_left_of_an_unfinished_snapshot_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta");
        let open = || SledMeta::open(&path);
        let opened = || eventually("the lock is free", Duration::from_secs(5), open).unwrap();
        let meta = opened();
        meta.put("vote", b"one").unwrap();
        meta.flush().unwrap();
        drop(meta);
        for left in [&b""[..], b"half of it", &[7; 10_000]] {
            let unfinished = path.join("snap.FFFFFFFFFFFFFFFF.generating");
            std::fs::write(&unfinished, left).unwrap();
            let meta = opened();
            assert_eq!(meta.get("vote").unwrap(), Some(b"one".to_vec()));
            assert!(!unfinished.exists());
        }
        // A finished snapshot counts.
        std::fs::write(path.join("snap.FFFFFFFFFFFFFFFF"), b"half of it").unwrap();
        let damaged = open().err().map(|error| error.kind());
        assert_eq!(damaged, Some(io::ErrorKind::InvalidData));
    }
}
