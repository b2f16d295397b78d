//! An archive in front of a member's log: looks what it has, finds where somebody begins, and fetches files one at a time.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use binlog_store::{FileNumber, LogBegin};
use bytes::Bytes;
use raft_types::RingId;
use tokio::time::Instant;

use super::cache::{CacheOptions, FileCache, Held};
use super::error::{OwnDisk, ServingError};
use super::older_files::{ArchivedFile, OlderFiles, Stops};
use crate::encryption::Identities;
use crate::manifest::Manifest;
use crate::name::{LOG_FOLDER, PieceName};
use crate::reading::{ArchivedLog, PieceFault};
use crate::storage::{Storage, StorageError};

/// What was seen of the archive a moment ago is as good as what would be seen now.
const FRESH: Duration = Duration::from_secs(5);
/// So many files at the archive's begin may be damaged before it is given up to look for a first one that is not.
const MOST_DAMAGED: usize = 16;

/// Opens the storage, and reads the identities with which it is decrypted.
pub type Opens = Box<dyn Fn() -> Result<(Storage, Identities), ServingError> + Send + Sync>;

/// An archive that is served in front of a member's log. What it needs of the log is where that begins.
pub struct ServedArchive {
    ring: RingId,
    opens: Opens,
    cache: Arc<FileCache>,
    known: Mutex<Known>,
    /// One at a time looks, and the others take what it has seen.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    seen: Option<Arc<Seen>>,
    failed: Option<(Instant, ServingError)>,
}

/// What an archive had at a moment, in front of a log.
struct Seen {
    since: Instant,
    log_begin: LogBegin,
    /// None where the archive is empty, or nothing is purged.
    archived: Option<ArchivedLog>,
    older: OlderFiles,
    /// The GTIDs of everything before the older files; before the log where there are none.
    gtids_before: GtidSet,
}

/// What was served since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingFigures {
    /// Files that were fetched.
    pub files_total: u64,
    /// Their bytes, as they are on disk.
    pub bytes_total: u64,
    /// How often the archive could not be looked at, or a file not be fetched.
    pub failures_total: u64,
    /// Why that was, until it succeeds again.
    pub error: Option<String>,
    /// Bytes that fetched files take on disk at present.
    pub disk_bytes: u64,
    /// The first file that can be served, as far as that is known; none where the archive adds nothing to the log.
    pub first: Option<FileNumber>,
}

impl ServedArchive {
    /// Asks the storage nothing yet.
    #[must_use]
    pub fn new(ring: RingId, opens: Opens, cache: CacheOptions) -> Self {
        Self {
            ring,
            opens,
            cache: FileCache::new(cache),
            known: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// Files in front of a log that begins there, oldest first, by the last look; none where that was in front of another one.
    #[must_use]
    pub fn older_files(&self, log_begin: &LogBegin) -> Vec<ArchivedFile> {
        let seen = self.last(log_begin);
        seen.map_or_else(Vec::new, |seen| seen.older.iter().cloned().collect())
    }

    /// The GTIDs before these files, in the same way; none where there are no such files.
    #[must_use]
    pub fn gtids_before(&self, log_begin: &LogBegin) -> Option<GtidSet> {
        let seen = self.last(log_begin)?;
        (!seen.older.is_empty()).then(|| seen.gtids_before.clone())
    }

    /// What was served, in front of a log that begins there.
    #[must_use]
    pub fn figures(&self, log_begin: Option<&LogBegin>) -> ServingFigures {
        let (figures, disk_bytes) = self.cache.figures();
        let seen = log_begin.and_then(|log_begin| self.last(log_begin));
        ServingFigures {
            files_total: figures.files,
            bytes_total: figures.bytes,
            failures_total: figures.failures,
            error: figures.error,
            disk_bytes,
            first: seen.and_then(|seen| Some(seen.older.iter().next()?.number)),
        }
    }

    /// Looks what the archive has in front of a log that begins there, unless that was done within `at_most`.
    ///
    /// # Errors
    /// When the storage does not say, or what it says cannot be relied on.
    pub async fn look(&self, log_begin: &LogBegin, at_most: Duration) -> Result<(), ServingError> {
        let now = Instant::now();
        let since = now.checked_sub(at_most).unwrap_or(now);
        self.seen(log_begin, since).await.map(|_| ())
    }

    /// As [`Self::older_files`], as they are now.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub async fn look_for_files(
        &self,
        log_begin: &LogBegin,
    ) -> Result<Vec<ArchivedFile>, ServingError> {
        self.look(log_begin, FRESH).await?;
        Ok(self.older_files(log_begin))
    }

    /// The last file before the log that follows nothing but transactions of `have`; none where the archive has no such file either.
    ///
    /// # Errors
    /// When the storage does not say, and where it would be one that is encrypted.
    pub async fn begin_for(
        &self,
        log_begin: &LogBegin,
        have: &GtidSet,
    ) -> Result<Option<FileNumber>, ServingError> {
        let now = Instant::now();
        let seen = self.seen(log_begin, now.checked_sub(FRESH).unwrap_or(now));
        let seen = seen.await?;
        if !have.contains_set(&seen.gtids_before) {
            return match seen.older.stops() {
                Stops::Encrypted(file) => Err(ServingError::Encrypted {
                    file,
                    why: "it is encrypted, and archive.identity_file names nothing to decrypt it with"
                        .to_owned(),
                }),
                _ => Ok(None),
            };
        }
        let Some(archived) = &seen.archived else {
            return Ok(None);
        };
        // Each file follows all that the one before it follows: those that fit are the first ones.
        let files: Vec<&ArchivedFile> = seen.older.iter().collect();
        let (mut fits, mut not) = (0, files.len());
        while not.saturating_sub(fits) > 1 {
            let middle = fits + (not - fits) / 2;
            let first = files.get(middle).and_then(|file| file.pieces.first());
            let Some(first) = first.copied() else { break };
            let manifest = manifest(archived, first).await;
            let manifest = manifest.inspect_err(|error| self.cache.failed(error))?;
            match have.contains_set(&manifest.gtids_before) {
                true => fits = middle,
                false => not = middle,
            }
        }
        Ok(files.get(fits).map(|file| file.number))
    }

    /// Fetches a file before the log, unless it is there, and keeps it. Safe to cancel; it comes then for the next one who wants it.
    ///
    /// # Errors
    /// [`ServingError`]; nobody else is affected.
    pub async fn fetch(
        &self,
        log_begin: &LogBegin,
        number: FileNumber,
    ) -> Result<Held, ServingError> {
        let seen = match self.last(log_begin) {
            Some(seen) => seen,
            None => self.seen(log_begin, Instant::now()).await?,
        };
        let failed = match self.fetch_as_seen(&seen, number).await {
            Err(error @ (ServingError::Missing { .. } | ServingError::Gone(_))) => error,
            done => return done,
        };
        // Pieces go when a whole file has replaced them, and files when the archive is pruned; and the log purges more.
        let anew = self.seen(log_begin, Instant::now()).await?;
        match anew.older.get(number) {
            Some(file) if seen.older.get(number) == Some(file) => Err(failed),
            // It was not pruned: something of it is lost.
            None if anew.older.stops() != Stops::Begins => Err(failed),
            _ => self.fetch_as_seen(&anew, number).await,
        }
    }

    /// At most `at_most` bytes of a file that somebody keeps, fewer where it ends; `None` of one that is not here.
    pub async fn read(
        &self,
        number: FileNumber,
        offset: u64,
        at_most: usize,
    ) -> Option<io::Result<Bytes>> {
        self.cache.read(number, offset, at_most).await
    }

    /// Removes fetched files that nobody reads any more. To be called now and then.
    pub fn tidy(&self) {
        self.cache.tidy();
    }

    async fn fetch_as_seen(&self, seen: &Seen, number: FileNumber) -> Result<Held, ServingError> {
        let (file, archived) = match (seen.older.get(number), &seen.archived) {
            (Some(file), Some(archived)) => (file.clone(), archived.clone()),
            _ => return Err(ServingError::Gone(number)),
        };
        let timeline = file.pieces.last().map(|piece| piece.timeline);
        let timeline = timeline.ok_or(ServingError::Gone(number))?;
        let before = seen.older.piece_before(number);
        let fetching = file.clone();
        let fetch = move |to| fetch_file(archived, before, fetching, to);
        self.cache.get(&file, timeline, fetch).await
    }

    fn last(&self, log_begin: &LogBegin) -> Option<Arc<Seen>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = known.seen.as_ref()?;
        (seen.log_begin == *log_begin).then(|| seen.clone())
    }

    /// What is seen of the archive at `since` or later.
    async fn seen(&self, log_begin: &LogBegin, since: Instant) -> Result<Arc<Seen>, ServingError> {
        let _looking = self.looking.lock().await;
        if let Some(seen) = self.last(log_begin)
            && seen.since >= since
        {
            return Ok(seen);
        }
        let began = Instant::now();
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever has waited for another one's look that failed does not wait as long once more.
            if let Some((failed, error)) = &known.failed
                && *failed >= since
            {
                return Err(error.clone());
            }
        }
        let looked = self.look_now(log_begin, began).await;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match looked {
            Ok(seen) => {
                let seen = Arc::new(seen);
                known.failed = None;
                known.seen = Some(seen.clone());
                Ok(seen)
            }
            Err(error) => {
                known.failed = Some((Instant::now(), error.clone()));
                drop(known);
                self.cache.failed(&error);
                Err(error)
            }
        }
    }

    async fn look_now(&self, log_begin: &LogBegin, since: Instant) -> Result<Seen, ServingError> {
        let nothing = |stops| Seen {
            since,
            log_begin: log_begin.clone(),
            archived: None,
            older: OlderFiles::none(stops),
            gtids_before: log_begin.gtids.clone(),
        };
        if log_begin.before.is_none() {
            return Ok(nothing(Stops::Begins));
        }
        let (storage, identities) = (self.opens)()?;
        let decrypts = !identities.is_empty();
        let listing = storage.list(LOG_FOLDER).await;
        let listing = listing.map_err(ServingError::Storage)?;
        let archived = ArchivedLog::of_listing(storage, Some(self.ring), &listing);
        let Some(archived) = archived.map(|archived| archived.with_identities(identities)) else {
            return Ok(nothing(Stops::Begins));
        };
        let mut older = OlderFiles::before(log_begin.file, archived.runs(), &listing, decrypts);
        let last = older.iter().next_back();
        let last = last.and_then(|last| last.pieces.last().copied());
        let Some(last) = last else {
            return Ok(nothing(older.stops()));
        };
        // The log names the entry and the GTIDs that it goes on behind.
        let ends = manifest(&archived, last).await?;
        if ends.last != log_begin.before || ends.gtids_behind() != log_begin.gtids {
            return Ok(nothing(Stops::OtherHistory(last.file)));
        }
        for _ in 0..MOST_DAMAGED {
            let first = older.iter().next();
            let Some(first) = first.and_then(|first| first.pieces.first().copied()) else {
                break;
            };
            match manifest(&archived, first).await {
                Ok(manifest) => {
                    return Ok(Seen {
                        archived: Some(archived),
                        gtids_before: manifest.gtids_before,
                        older,
                        ..nothing(Stops::Begins)
                    });
                }
                Err(ServingError::Missing { .. } | ServingError::Damaged { .. }) => {
                    older.begin_behind_the_first();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(nothing(older.stops()))
    }
}

async fn manifest(archived: &ArchivedLog, piece: PieceName) -> Result<Manifest, ServingError> {
    let read = archived.clone().manifest(piece).await;
    read.map_err(|fault| ServingError::of(piece, &fault))
}

/// Fetches the pieces of a file, each of which is verified and follows the one before it, the first one that of the file before.
async fn fetch_file(
    archived: ArchivedLog,
    before: Option<PieceName>,
    file: ArchivedFile,
    to: std::fs::File,
) -> Result<std::fs::File, ServingError> {
    let mut before = match before {
        Some(piece) => Some(manifest(&archived, piece).await?),
        None => None,
    };
    let mut to = OwnFile(to);
    for piece in file.pieces {
        let next = manifest(&archived, piece).await?;
        let read = archived.read(&next, before.as_ref(), to).await;
        to = read.map_err(|fault: PieceFault| ServingError::of(piece, &fault))?;
        before = Some(next);
    }
    Ok(to.0)
}

/// A file of our own, whose failures are told from those of the archive.
struct OwnFile(std::fs::File);

impl Write for OwnFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .write(bytes)
            .map_err(|error| io::Error::new(error.kind(), OwnDisk(error)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// So that a storage's refusal is one sentence wherever it was met.
impl From<StorageError> for ServingError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}
