//! Cache of fetched files on this host's disk. A file stays while it is read, and some time longer. The total size is bounded: a file in
//! use stays, and further requests wait a limited time for room.
//!
//! The files have no names, so that none remains after the process ends in any way. They are never synced, because the archive has them.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use binlog_store::FileNumber;
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::error::ServingError;
use super::older_files::ArchivedFile;
use crate::name::Timeline;

/// Maximum number of concurrent fetches; each needs some ten megabytes of memory.
const AT_ONCE: usize = 2;

/// Directory and limits of fetched files.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// The directory of the files only; it is created.
    pub directory: PathBuf,
    /// Maximum total bytes of the files.
    pub most_bytes: u64,
    /// Bytes on the disk that must stay free.
    pub stays_free: u64,
    /// Returns the free bytes on a directory's disk.
    pub free: fn(&Path) -> io::Result<u64>,
    /// How long a file stays after it was last read.
    pub idle: Duration,
    /// How long a request waits for room.
    pub patience: Duration,
}

/// Statistics since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingFigures {
    /// Files fetched.
    pub files_total: u64,
    /// Bytes of the fetched files on disk.
    pub bytes_total: u64,
    /// Failed listings and fetches.
    pub failures_total: u64,
    /// The last failure's cause, cleared by a success.
    pub error: Option<String>,
    /// Bytes that the fetched files take on disk now.
    pub disk_bytes: u64,
    /// The first file that can be served, if known; `None` if the archive has no file before the log.
    pub first: Option<FileNumber>,
}

impl ServingFigures {
    fn failed(&mut self, error: &ServingError) {
        self.failures_total += 1;
        if self.error.replace(error.to_string()) != self.error {
            tracing::warn!(%error, "files of the archive are not served");
        }
    }
}

pub(super) struct FileCache {
    options: CacheOptions,
    state: Mutex<State>,
    /// Notified when a reader releases a file, and when a file is removed.
    left: Notify,
    turns: Semaphore,
}

#[derive(Default)]
struct State {
    /// Bytes of all files, including those being fetched.
    used: u64,
    /// The part of `used` in files that are being written.
    written: u64,
    slots: BTreeMap<FileNumber, Slot>,
    figures: ServingFigures,
}

type Outcome = Result<Arc<CachedFile>, ServingError>;

/// Writes a file of the archive, and returns it.
pub(super) type Fetch =
    Box<dyn FnOnce(File) -> BoxFuture<'static, Result<File, ServingError>> + Send>;

enum Slot {
    Comes(Timeline, watch::Receiver<Option<Outcome>>),
    Here(Timeline, Arc<CachedFile>, Instant),
}

impl State {
    /// True if the pending file belongs to this fetch.
    fn comes_by(&self, number: FileNumber, told: &watch::Sender<Option<Outcome>>) -> bool {
        match self.slots.get(&number) {
            Some(Slot::Comes(_, comes)) => told.subscribe().same_channel(comes),
            _ => false,
        }
    }
}

/// A file on disk. It is freed when its last owner drops it.
struct CachedFile {
    /// Dropped, and so closed, before `room` is released.
    file: File,
    room: Room,
}

/// Bytes reserved under the size limit.
struct Room {
    cache: Arc<FileCache>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.cache.lock().used -= self.bytes;
        self.cache.left.notify_waiters();
    }
}

/// Keeps a fetched file in the cache until it is dropped.
pub struct Held {
    cache: Arc<FileCache>,
    number: FileNumber,
    file: Option<Arc<CachedFile>>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({})", self.number)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.cache.lock();
        let own = self.file.take();
        if let Some(Slot::Here(_, file, left)) = state.slots.get_mut(&self.number)
            && own.as_ref().is_some_and(|own| Arc::ptr_eq(own, file))
        {
            *left = Instant::now();
        }
        drop(state);
        // This may be the last owner of a replaced file, and releasing the file's room takes the lock.
        drop(own);
        self.cache.left.notify_waiters();
    }
}

impl FileCache {
    pub(super) fn new(options: CacheOptions) -> Arc<Self> {
        Arc::new(Self {
            options,
            state: Mutex::default(),
            left: Notify::new(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn figures(&self) -> ServingFigures {
        let state = self.lock();
        ServingFigures {
            disk_bytes: state.used,
            ..state.figures.clone()
        }
    }

    pub(super) fn failed(&self, error: &ServingError) {
        self.lock().figures.failed(error);
    }

    /// Returns a cached file, waits for a pending one, or starts `fetch`, which writes it into an empty file. A waiter may be cancelled; a
    /// started fetch continues for the next request.
    pub(super) async fn get(
        self: &Arc<Self>,
        wanted: &ArchivedFile,
        timeline: Timeline,
        fetch: Fetch,
    ) -> Result<Held, ServingError> {
        let number = wanted.number;
        let mut comes = {
            let mut state = self.lock();
            match state.slots.get(&number) {
                Some(Slot::Here(of, file, _)) if *of == timeline => {
                    return Ok(self.held(number, file.clone()));
                }
                // If the fetch was cancelled, it never reports an outcome.
                Some(Slot::Comes(of, comes)) if *of == timeline && comes.has_changed().is_ok() => {
                    comes.clone()
                }
                _ => {
                    let (told, comes) = watch::channel(None);
                    let slot = Slot::Comes(timeline, comes.clone());
                    let replaced = state.slots.insert(number, slot);
                    drop(state);
                    drop(replaced);
                    let fetching = self
                        .clone()
                        .fetch(number, wanted.bytes, timeline, told, fetch);
                    tokio::spawn(fetching);
                    comes
                }
            }
        };
        let outcome = match comes.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        let file = outcome.unwrap_or(Err(ServingError::BrokenOff(number)))?;
        Ok(self.held(number, file))
    }

    fn held(self: &Arc<Self>, number: FileNumber, file: Arc<CachedFile>) -> Held {
        Held {
            cache: self.clone(),
            number,
            file: Some(file),
        }
    }

    /// Fetches a file and notifies the waiters.
    async fn fetch(
        self: Arc<Self>,
        number: FileNumber,
        bytes: u64,
        timeline: Timeline,
        told: watch::Sender<Option<Outcome>>,
        fetch: Fetch,
    ) {
        let fetched = async {
            let room = self.room(number, bytes).await?;
            let turn = self.turns.acquire().await;
            let _turn = turn.map_err(|_| ServingError::BrokenOff(number))?;
            if self.give_up(number, &told) {
                return Err(ServingError::BrokenOff(number));
            }
            let _writing = Writing::begin(&self, number, bytes)?;
            let file = self.new_file().map_err(disk_of(number))?;
            let file = fetch(file).await?;
            Ok(Arc::new(CachedFile { file, room }))
        };
        let outcome = fetched.await;
        let mut state = self.lock();
        let mut own = None;
        if state.comes_by(number, &told) {
            own = match &outcome {
                Ok(file) => {
                    let here = Slot::Here(timeline, file.clone(), Instant::now());
                    state.slots.insert(number, here)
                }
                Err(_) => state.slots.remove(&number),
            };
        }
        match &outcome {
            Ok(_) => {
                state.figures.files_total += 1;
                state.figures.bytes_total += bytes;
                state.figures.error = None;
            }
            Err(ServingError::BrokenOff(_)) => {}
            Err(error) => state.figures.failed(error),
        }
        drop(state);
        told.send_replace(Some(outcome));
        drop(own);
    }

    /// Cancels the fetch of a file without waiters; returns whether it did. The file is then no longer pending, and the next request starts
    /// a new fetch.
    fn give_up(&self, number: FileNumber, told: &watch::Sender<Option<Outcome>>) -> bool {
        let mut state = self.lock();
        let own = state.comes_by(number, told);
        // One receiver is the slot's own.
        let waits = told.receiver_count() > usize::from(own);
        if own && !waits {
            state.slots.remove(&number);
        }
        !waits
    }

    /// Waits for room for a file.
    async fn room(self: &Arc<Self>, file: FileNumber, bytes: u64) -> Result<Room, ServingError> {
        let most = self.options.most_bytes;
        if bytes > most {
            return Err(ServingError::TooLarge { file, bytes, most });
        }
        let deadline = Instant::now() + self.options.patience;
        loop {
            // Registered before the check, so that no release is missed.
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if let Some(room) = self.try_room(bytes) {
                return Ok(room);
            }
            let waited = timeout_at(deadline, left).await;
            waited.map_err(|_| ServingError::Full(file, most))?;
        }
    }

    /// Reserves room and removes unread files for it, least recently used first.
    fn try_room(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        let mut gone = Vec::new();
        let room = {
            let mut state = self.lock();
            // A removed file releases its room only after the lock is released.
            let mut used = state.used;
            while used.saturating_add(bytes) > self.options.most_bytes {
                let unread = state.slots.iter().filter_map(|(number, slot)| match slot {
                    Slot::Here(_, file, left) if Arc::strong_count(file) == 1 => {
                        Some((*left, *number))
                    }
                    _ => None,
                });
                let Some((_, first)) = unread.min() else {
                    break;
                };
                if let Some(slot) = state.slots.remove(&first) {
                    if let Slot::Here(_, file, _) = &slot {
                        used = used.saturating_sub(file.room.bytes);
                    }
                    gone.push(slot);
                }
            }
            (used.saturating_add(bytes) <= self.options.most_bytes).then(|| {
                state.used += bytes;
                Room {
                    cache: self.clone(),
                    bytes,
                }
            })
        };
        drop(gone);
        room
    }

    /// Removes files that were not read for the time `idle`; if the disk is full, removes all files that are not in use.
    pub(super) fn tidy(&self) {
        let free = (self.options.free)(&self.options.directory);
        let full = free.is_ok_and(|free| free < self.options.stays_free);
        self.remove_unread(if full {
            Duration::ZERO
        } else {
            self.options.idle
        });
    }

    fn remove_unread(&self, since: Duration) {
        let mut state = self.lock();
        let slots = std::mem::take(&mut state.slots);
        let (gone, stay): (BTreeMap<_, _>, _) =
            slots.into_iter().partition(|(_, slot)| match slot {
                Slot::Here(_, file, left) => {
                    Arc::strong_count(file) == 1 && left.elapsed() >= since
                }
                Slot::Comes(..) => false,
            });
        state.slots = stay;
        drop(state);
        drop(gone);
    }

    fn new_file(&self) -> io::Result<File> {
        let directory = &self.options.directory;
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        tempfile::tempfile_in(directory)
    }

    /// Reads at most `at_most` bytes of a cached file; `None` if the file is not cached. The async threads do not block.
    pub(super) async fn read(
        &self,
        number: FileNumber,
        offset: u64,
        at_most: usize,
    ) -> Option<io::Result<Bytes>> {
        let file = match self.lock().slots.get(&number)? {
            Slot::Here(_, file, _) => file.clone(),
            Slot::Comes(..) => return None,
        };
        let read = spawn_blocking(move || {
            let mut bytes = vec![0; at_most];
            let mut filled = 0;
            while filled < at_most {
                match file
                    .file
                    .read_at(&mut bytes[filled..], offset + filled as u64)?
                {
                    0 => break,
                    read => filled += read,
                }
            }
            bytes.truncate(filled);
            Ok(Bytes::from(bytes))
        });
        Some(
            read.await
                .unwrap_or_else(|error| Err(io::Error::other(error))),
        )
    }
}

fn disk_of(file: FileNumber) -> impl FnOnce(io::Error) -> ServingError {
    move |error| ServingError::Disk(file, error.to_string())
}

/// A file that is being written, for which the disk has room.
struct Writing<'a> {
    cache: &'a FileCache,
    bytes: u64,
}

impl<'a> Writing<'a> {
    fn begin(cache: &'a FileCache, file: FileNumber, bytes: u64) -> Result<Self, ServingError> {
        let (stays_free, directory) = (cache.options.stays_free, &cache.options.directory);
        // If the directory does not exist yet, it will be on the disk of its parent.
        let there = directory.ancestors().find(|above| above.exists());
        let look = || (cache.options.free)(there.unwrap_or(directory));
        let needed = {
            let mut state = cache.lock();
            state.written += bytes;
            state.written.saturating_add(stays_free)
        };
        let writing = Self { cache, bytes };
        let mut free = look().map_err(disk_of(file))?;
        if free < needed {
            cache.remove_unread(Duration::ZERO);
            free = look().map_err(disk_of(file))?;
        }
        match free < needed {
            false => Ok(writing),
            true => Err(ServingError::DiskFull {
                file,
                bytes,
                free,
                stays_free,
            }),
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.cache.lock().written -= self.bytes;
    }
}
