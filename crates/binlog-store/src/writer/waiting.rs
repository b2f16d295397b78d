//! Waits for room on a full disk. Wrappers around the writer's file system and hard state retry calls that were refused for lack of room
//! (`ENOSPC`, `EDQUOT`). They stop when the call succeeds or the log is closing. To the engine such a disk is slow; proposers and senders
//! of entries get the error that there is no room.
//!
//! # Why this is safe
//!
//! Only calls that report their own result and are idempotent are retried. These are: a write of the same bytes at the same place, over the
//! remains of a refused write; creation of an empty file; a rename; a truncation. A partial write is after the end that readers use, and a
//! start treats it as a torn tail. No caller is notified in between, and later commands wait as well.
//!
//! *A sync is never retried.* A file system with delayed allocation reserves blocks at the write, and refuses the write. If a sync still
//! reports a full disk (network file systems do), pages may be irrecoverably lost. Such an error stops the member like any other.
//!
//! *A write to the hard state is not retried either*: sled accepts no writes after an error. So its room is checked first
//! ([`MetaStore::reserve`]), and only that check is retried.
//!
//! Purges continue during the wait, because they free room. They do not affect the pending write: the entries that a purge drops are
//! durable, and the files that it drops are closed ([`super::purging`]).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::is_full;
use crate::file_system::{FileSystem, StorageFile};
use crate::hard_state::MetaStore;
use crate::log::OpenLog;

use super::purging::Purger;
use super::queue::CommandQueue;

/// The first pause between two attempts; each is twice as long as the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Waits, in the writer's thread, until the disk has room again.
pub(crate) struct Waiting {
    pub(crate) log: Arc<OpenLog>,
    pub(crate) queue: Arc<CommandQueue>,
    pub(crate) purger: Arc<Purger>,
    /// Whether the writer's current operation permits concurrent purges.
    pub(crate) purges: AtomicBool,
}

impl Waiting {
    /// Wraps a file so that its calls wait for room.
    pub(super) fn wrap(
        self: &Arc<Self>,
        name: String,
        file: Arc<dyn StorageFile>,
    ) -> Arc<dyn StorageFile> {
        Arc::new(WaitingFile {
            file,
            waiting: self.clone(),
            name,
        })
    }

    /// Sets whether purges may be served during a wait.
    pub(super) fn allow_purges(&self, allowed: bool) {
        self.purges.store(allowed, Ordering::Relaxed);
    }

    /// Repeats a call until it is not refused for lack of room. Returns the refusal if the log is closing.
    fn until_done<T>(
        &self,
        doing: impl Fn() -> String,
        mut call: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let mut pause = FIRST_PAUSE;
        let mut waits = false;
        let done = loop {
            let refusal = match call() {
                Err(error) if is_full(&error) => error,
                done => break done,
            };
            if !waits {
                waits = true;
                self.log.space.refused(&doing(), &refusal);
            }
            if self.purges.load(Ordering::Relaxed)
                && let Err(error) = self.purger.make_room(&self.queue)
            {
                break Err(error.into());
            }
            if !self.queue.pause(pause) {
                break Err(refusal);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        };
        if waits {
            self.log.space.accepted(done.is_ok());
        }
        done
    }
}

struct WaitingFile {
    file: Arc<dyn StorageFile>,
    waiting: Arc<Waiting>,
    name: String,
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A file system that waits for room.
pub(super) struct WaitingFileSystem(pub(super) Arc<dyn FileSystem>, pub(super) Arc<Waiting>);

impl FileSystem for WaitingFileSystem {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let doing = || format!("making {}", dir.display());
        self.1.until_done(doing, || self.0.create_dir(dir))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        let doing = || format!("making {}", name(path));
        let file = self.1.until_done(doing, || self.0.create(path))?;
        Ok(self.1.wrap(name(path), file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(self.1.wrap(name(path), self.0.open(path)?))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.0.open_read_only(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let doing = || format!("replacing {}", name(to));
        self.1.until_done(doing, || self.0.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let doing = || format!("removing {}", name(path));
        self.1.until_done(doing, || self.0.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.0.free_space(dir)
    }

    fn free_inodes(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.0.free_inodes(dir)
    }
}

impl StorageFile for WaitingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let doing = || format!("writing {}", self.name);
        self.waiting
            .until_done(doing, || self.file.write_at(bytes, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let doing = || format!("cutting {}", self.name);
        self.waiting.until_done(doing, || self.file.truncate(len))
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
}

/// A hard state with writes that wait for room.
pub(super) struct WaitingMeta(pub(super) Arc<dyn MetaStore>, pub(super) Arc<Waiting>);

impl MetaStore for WaitingMeta {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.get(key)
    }

    fn reserve(&self) -> io::Result<()> {
        let doing = || "keeping room for the hard state".to_owned();
        self.1.until_done(doing, || self.0.reserve())
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.0.put(key, value)
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.0.remove(key)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}
