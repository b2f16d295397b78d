//! The files that were fetched, on this host's disk for as long as somebody reads them, and a while longer. Together they have a
//! bound; one that is read does not go, and whoever wants one more waits a little.
//!
//! The files have no name, so that nothing of them is left when the process ends, however it does; none is ever synced, since the
//! archive has them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use binlog_store::FileNumber;
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::error::ServingError;
use super::older_files::ArchivedFile;
use crate::name::Timeline;

/// So many files are fetched at the same time, each with some ten megabytes of memory.
const AT_ONCE: usize = 2;
/// What begins the name of a file, for the moment in which it has one.
const NAME: &str = "fetched-";

/// Where fetched files are, and what they may take.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// A directory of their own; it is made.
    pub directory: PathBuf,
    /// Bytes of all files together at most.
    pub most_bytes: u64,
    /// Bytes of its disk that are left free.
    pub stays_free: u64,
    /// Says how many bytes are free on the disk of a directory.
    pub free: fn(&Path) -> io::Result<u64>,
    /// How long a file stays that nobody reads.
    pub idle: Duration,
    /// How long somebody waits for others to go on, so that there is room.
    pub patience: Duration,
}

impl CacheOptions {
    /// With the usual times.
    #[must_use]
    pub fn new(
        directory: impl Into<PathBuf>,
        most_bytes: u64,
        stays_free: u64,
        free: fn(&Path) -> io::Result<u64>,
    ) -> Self {
        Self {
            directory: directory.into(),
            most_bytes,
            stays_free,
            free,
            idle: Duration::from_secs(600),
            patience: Duration::from_secs(60),
        }
    }
}

/// What was done for consumers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) failures: u64,
    pub(super) error: Option<String>,
}

impl Figures {
    pub(super) fn failed(&mut self, error: &ServingError) {
        self.failures += 1;
        let words = error.to_string();
        if self.error.as_ref() != Some(&words) {
            tracing::warn!(error = words, "files of the archive are not served");
        }
        self.error = Some(words);
    }
}

pub(super) struct FileCache {
    options: CacheOptions,
    state: Mutex<State>,
    /// Somebody has left a file, or a file has gone.
    left: Notify,
    turns: Semaphore,
}

#[derive(Default)]
struct State {
    /// Bytes of all files, those that are being fetched among them.
    used: u64,
    /// Of these, the bytes of those that are being written.
    written: u64,
    names: u64,
    slots: BTreeMap<FileNumber, Slot>,
    figures: Figures,
}

type Outcome = Result<Arc<CachedFile>, ServingError>;

enum Slot {
    Comes(Timeline, watch::Receiver<Option<Outcome>>),
    Here(Timeline, Arc<CachedFile>, Instant),
}

impl State {
    /// Whether it is this one who says when a file has come.
    fn comes_by(&self, number: FileNumber, told: &watch::Sender<Option<Outcome>>) -> bool {
        match self.slots.get(&number) {
            Some(Slot::Comes(_, comes)) => told.subscribe().same_channel(comes),
            _ => false,
        }
    }
}

/// A file on disk. It goes with the last one who has it.
struct CachedFile {
    /// Closed before its room is given back.
    file: File,
    room: Room,
}

/// Bytes of the bound that are taken.
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

/// Keeps a fetched file for as long as it lives.
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
        // Perhaps the last one of a file that another one has replaced: its room takes the lock.
        drop(own);
        self.cache.left.notify_waiters();
    }
}

impl FileCache {
    /// An empty one. What a crash may have left in the directory is removed.
    pub(super) fn new(options: CacheOptions) -> Arc<Self> {
        remove_leftovers(&options.directory);
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

    pub(super) fn figures(&self) -> (Figures, u64) {
        let state = self.lock();
        (state.figures.clone(), state.used)
    }

    pub(super) fn failed(&self, error: &ServingError) {
        self.lock().figures.failed(error);
    }

    /// A file that is there, or is on its way, or is fetched now by `fetch`, which writes it into an empty file. Whoever waits for it
    /// may stop to; the file comes all the same, for the next one, once fetching it was begun.
    pub(super) async fn get<Fetching>(
        self: &Arc<Self>,
        wanted: &ArchivedFile,
        timeline: Timeline,
        fetch: impl FnOnce(File) -> Fetching + Send + 'static,
    ) -> Result<Held, ServingError>
    where
        Fetching: Future<Output = Result<File, ServingError>> + Send + 'static,
    {
        let number = wanted.number;
        let mut comes = {
            let mut state = self.lock();
            match state.slots.get(&number) {
                Some(Slot::Here(of, file, _)) if *of == timeline => {
                    return Ok(self.held(number, file.clone()));
                }
                // Of one that was broken off nobody will say anything any more.
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

    /// Fetches a file and tells those who wait for it.
    async fn fetch<Fetching>(
        self: Arc<Self>,
        number: FileNumber,
        bytes: u64,
        timeline: Timeline,
        told: watch::Sender<Option<Outcome>>,
        fetch: impl FnOnce(File) -> Fetching + Send + 'static,
    ) where
        Fetching: Future<Output = Result<File, ServingError>> + Send + 'static,
    {
        let fetched = async {
            let room = self.room(number, bytes).await?;
            let turn = self.turns.acquire().await;
            let _turn = turn.map_err(|_| ServingError::BrokenOff(number))?;
            if self.give_up(number, &told) {
                return Err(ServingError::BrokenOff(number));
            }
            let _writing = Writing::begin(&self, number, bytes)?;
            let disk = |error: io::Error| ServingError::Disk {
                file: number,
                why: error.to_string(),
            };
            let file = fetch(self.new_file().map_err(disk)?).await?;
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
                state.figures.files += 1;
                state.figures.bytes += bytes;
                state.figures.error = None;
            }
            Err(ServingError::BrokenOff(_)) => {}
            Err(error) => state.figures.failed(error),
        }
        drop(state);
        told.send_replace(Some(outcome));
        drop(own);
    }

    /// Whether nobody waits for a file any more. It is then no longer on its way, so that whoever comes next begins anew.
    fn give_up(&self, number: FileNumber, told: &watch::Sender<Option<Outcome>>) -> bool {
        let mut state = self.lock();
        let own = state.comes_by(number, told);
        // One is the slot's own.
        let waits = told.receiver_count() > usize::from(own);
        if own && !waits {
            state.slots.remove(&number);
        }
        !waits
    }

    /// Waits until there is room for a file.
    async fn room(self: &Arc<Self>, file: FileNumber, bytes: u64) -> Result<Room, ServingError> {
        let most = self.options.most_bytes;
        if bytes > most {
            return Err(ServingError::TooLarge { file, bytes, most });
        }
        let deadline = Instant::now() + self.options.patience;
        loop {
            // Asked for before it is looked, so that nobody leaves in between.
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if let Some(room) = self.try_room(bytes) {
                return Ok(room);
            }
            let waited = timeout_at(deadline, left).await;
            waited.map_err(|_| ServingError::Full { file, most })?;
        }
    }

    /// Takes room, for which files go that nobody reads, those first that were left first.
    fn try_room(self: &Arc<Self>, bytes: u64) -> Option<Room> {
        let mut gone = Vec::new();
        let room = {
            let mut state = self.lock();
            // A file gives its room back once the lock is free again.
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

    /// Removes files that nobody has read for a while; all that nobody reads, where the disk has become full.
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
        let name = {
            let mut state = self.lock();
            state.names += 1;
            format!("{NAME}{}", state.names)
        };
        let path = directory.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    }

    /// At most `at_most` bytes of a file that is there; `None` where it is not. Reads off the async threads.
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

/// A file that is being written, for which the disk has room.
struct Writing<'a> {
    cache: &'a FileCache,
    bytes: u64,
}

impl<'a> Writing<'a> {
    fn begin(cache: &'a FileCache, file: FileNumber, bytes: u64) -> Result<Self, ServingError> {
        let (stays_free, directory) = (cache.options.stays_free, &cache.options.directory);
        // The directory may not be there yet, and is then on the disk of the one above it.
        let there = directory.ancestors().find(|above| above.exists());
        let look = || (cache.options.free)(there.unwrap_or(directory));
        let disk = |error: io::Error| ServingError::Disk {
            file,
            why: error.to_string(),
        };
        let needed = {
            let mut state = cache.lock();
            state.written += bytes;
            state.written.saturating_add(stays_free)
        };
        let writing = Self { cache, bytes };
        let mut free = look().map_err(disk)?;
        if free < needed {
            cache.remove_unread(Duration::ZERO);
            free = look().map_err(disk)?;
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

/// What was made and not yet removed when the process was killed. A directory that cannot be used says so to whoever needs it.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(NAME);
        if ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
