//! Serves log files that only the archive still has. Lists these files, and stores each one, whole and verified, on disk while it is read.
//!
//! The served files precede a member's log without a gap. They are whole files of the archive's newest history. The last of them ends with
//! the entry and the GTIDs that the member's first file names as its predecessors. Files before a gap are not served.

mod cache;
mod error;
mod older_files;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use binlog_store::{FileNumber, LogBegin};
use bytes::Bytes;
use futures::FutureExt;
use raft_types::RingId;
use tokio::time::Instant;

use self::cache::FileCache;
pub use self::cache::{CacheOptions, Held, ServingFigures};
pub use self::error::ServingError;
pub use self::older_files::ArchivedFile;
use self::older_files::{OlderFiles, Stops};
use crate::encryption::Identities;
use crate::manifest::Manifest;
use crate::name::{LOG_FOLDER, PieceName};
use crate::reading::{ArchivedLog, PieceFault};
use crate::storage::Storage;

/// How long a listing of the archive may be used.
const FRESH: Duration = Duration::from_secs(5);
/// Maximum number of damaged files at the archive's begin that are skipped in the search for an intact first file.
const MOST_DAMAGED: usize = 16;

/// Opens the storage and reads the identities for decryption.
pub type Opens = Box<dyn Fn() -> Result<(Storage, Identities), ServingError> + Send + Sync>;

/// An archive whose files are served before a member's log. It needs to know only where the log begins.
pub struct ServedArchive {
    ring: RingId,
    opens: Opens,
    cache: Arc<FileCache>,
    known: Mutex<Known>,
    /// One task lists the archive at a time; the others use its result.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    seen: Option<Arc<Seen>>,
    failed: Option<(Instant, ServingError)>,
}

/// The state of an archive before a log, at one moment.
struct Seen {
    since: Instant,
    log_begin: LogBegin,
    /// `None` if the archive is empty, or if the log has not purged anything.
    archived: Option<ArchivedLog>,
    older: OlderFiles,
    /// The GTIDs before the older files. If there are no older files, the GTIDs before the log.
    gtids_before: GtidSet,
}

impl ServedArchive {
    /// Creates the state; makes no storage request.
    pub fn new(ring: RingId, opens: Opens, cache: CacheOptions) -> Self {
        Self {
            ring,
            opens,
            cache: FileCache::new(cache),
            known: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
        }
    }

    /// Files before a log with this begin, oldest first, from the last listing. Empty if the last listing was for another begin.
    pub fn older_files(&self, log_begin: &LogBegin) -> Vec<ArchivedFile> {
        let seen = self.last(log_begin);
        seen.map_or_else(Vec::new, |seen| {
            seen.older.files.values().cloned().collect()
        })
    }

    /// The GTIDs before the files of [`Self::older_files`]; `None` if there are no such files.
    pub fn gtids_before(&self, log_begin: &LogBegin) -> Option<GtidSet> {
        let seen = self.last(log_begin)?;
        (!seen.older.files.is_empty()).then(|| seen.gtids_before.clone())
    }

    /// Statistics for a log with this begin.
    pub fn figures(&self, log_begin: Option<&LogBegin>) -> ServingFigures {
        let seen = log_begin.and_then(|log_begin| self.last(log_begin));
        ServingFigures {
            first: seen.and_then(|seen| Some(seen.older.files.values().next()?.number)),
            ..self.cache.figures()
        }
    }

    /// Lists the archive before a log with this begin, unless a listing is not older than `at_most`.
    ///
    /// # Errors
    /// When the storage cannot be read, or its contents are unusable.
    pub async fn look(&self, log_begin: &LogBegin, at_most: Duration) -> Result<(), ServingError> {
        self.seen(log_begin, at_most).await.map(|_| ())
    }

    /// As [`Self::older_files`], but from a current listing.
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

    /// The last file before the log that is preceded only by transactions in `have`; `None` if the archive has no such file.
    ///
    /// # Errors
    /// When the storage cannot be read, or that file is encrypted.
    pub async fn begin_for(
        &self,
        log_begin: &LogBegin,
        have: &GtidSet,
    ) -> Result<Option<FileNumber>, ServingError> {
        let seen = self.seen(log_begin, FRESH).await?;
        if !have.contains_set(&seen.gtids_before) {
            return match seen.older.stops {
                Stops::Encrypted(file) => Err(ServingError::Encrypted(
                    file,
                    "it is encrypted, and archive.identity_file names nothing to decrypt it with"
                        .to_owned(),
                )),
                _ => Ok(None),
            };
        }
        let Some(archived) = &seen.archived else {
            return Ok(None);
        };
        // The GTIDs before a file include those before the previous file, so the matching files are the first ones.
        let files: Vec<&ArchivedFile> = seen.older.files.values().collect();
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

    /// Fetches a file before the log, unless it is cached, and keeps it. The call may be cancelled; a started fetch continues for the next
    /// request.
    ///
    /// # Errors
    /// [`ServingError`]; other consumers are not affected.
    pub async fn fetch(
        &self,
        log_begin: &LogBegin,
        number: FileNumber,
    ) -> Result<Held, ServingError> {
        let seen = match self.last(log_begin) {
            Some(seen) => seen,
            None => self.seen(log_begin, Duration::ZERO).await?,
        };
        let failed = match self.fetch_as_seen(&seen, number).await {
            Err(error @ (ServingError::Missing { .. } | ServingError::Gone(_))) => error,
            done => return done,
        };
        // A piece disappears if a whole file replaces it or the archive is pruned. The log may also have purged more files.
        let again = self.seen(log_begin, Duration::ZERO).await?;
        match again.older.files.get(&number) {
            Some(file) if seen.older.files.get(&number) == Some(file) => Err(failed),
            // The file was not pruned, so a part of it is lost.
            None if again.older.stops != Stops::Begins => Err(failed),
            _ => self.fetch_as_seen(&again, number).await,
        }
    }

    /// Returns at most `at_most` bytes of a held file, fewer at its end; `None` if the file is not cached.
    pub async fn read(
        &self,
        number: FileNumber,
        offset: u64,
        at_most: usize,
    ) -> Option<io::Result<Bytes>> {
        self.cache.read(number, offset, at_most).await
    }

    /// Removes unused fetched files. Must be called periodically.
    pub fn tidy(&self) {
        self.cache.tidy();
    }

    async fn fetch_as_seen(&self, seen: &Seen, number: FileNumber) -> Result<Held, ServingError> {
        let (file, archived) = match (seen.older.files.get(&number), &seen.archived) {
            (Some(file), Some(archived)) => (file.clone(), archived.clone()),
            _ => return Err(ServingError::Gone(number)),
        };
        let timeline = file.pieces.last().map(|piece| piece.timeline);
        let timeline = timeline.ok_or(ServingError::Gone(number))?;
        let before = seen.older.piece_before(number);
        let fetching = file.clone();
        let fetch = move |to| fetch_file(archived, before, fetching, to).boxed();
        self.cache.get(&file, timeline, Box::new(fetch)).await
    }

    fn last(&self, log_begin: &LogBegin) -> Option<Arc<Seen>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = known.seen.as_ref()?;
        (seen.log_begin == *log_begin).then(|| seen.clone())
    }

    /// The state of the archive, at most `age` old.
    async fn seen(&self, log_begin: &LogBegin, age: Duration) -> Result<Arc<Seen>, ServingError> {
        let now = Instant::now();
        let since = now.checked_sub(age).unwrap_or(now);
        let _looking = self.looking.lock().await;
        if let Some(seen) = self.last(log_begin)
            && seen.since >= since
        {
            return Ok(seen);
        }
        let began = Instant::now();
        {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            // A request that waited while another task's listing failed does not start another listing.
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
        let listing = storage.list(LOG_FOLDER).await?;
        let archived = ArchivedLog::of_listing(storage, Some(self.ring), &listing);
        let Some(archived) = archived.map(|archived| archived.with_identities(identities)) else {
            return Ok(nothing(Stops::Begins));
        };
        let mut older = OlderFiles::before(log_begin.file, &archived.runs, &listing, decrypts);
        let last = older.files.values().next_back();
        let last = last.and_then(|last| last.pieces.last().copied());
        let Some(last) = last else {
            return Ok(nothing(older.stops));
        };
        // The header of the log's first file names the entry and the GTIDs before it.
        let ends = manifest(&archived, last).await?;
        if ends.last != log_begin.before || ends.gtids_after() != log_begin.gtids {
            return Ok(nothing(Stops::OtherHistory(last.file)));
        }
        for _ in 0..MOST_DAMAGED {
            let first = older.files.values().next();
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
                    older.begin_after_the_first();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(nothing(older.stops))
    }
}

async fn manifest(archived: &ArchivedLog, piece: PieceName) -> Result<Manifest, ServingError> {
    let read = archived.clone().manifest(piece).await;
    read.map_err(|fault| ServingError::of(piece, &fault))
}

/// Fetches the pieces of a file. Verifies each piece and that it follows the previous one; this includes the last piece of the previous
/// file.
async fn fetch_file(
    archived: ArchivedLog,
    before: Option<PieceName>,
    file: ArchivedFile,
    mut to: std::fs::File,
) -> Result<std::fs::File, ServingError> {
    let mut before = match before {
        Some(piece) => Some(manifest(&archived, piece).await?),
        None => None,
    };
    for piece in file.pieces {
        let next = manifest(&archived, piece).await?;
        let read = archived.read(&next, before.as_ref(), to).await;
        to = read.map_err(|fault: PieceFault| ServingError::of(piece, &fault))?;
        before = Some(next);
    }
    Ok(to)
}
