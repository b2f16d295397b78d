//! Archives a member's log, piece by piece.
//!
//! An archiver may be killed at any moment, and several may run. The names in the archive determine where to continue
//! ([`crate::next_piece`]). A piece counts once its manifest exists, which is written after its bytes. The archiver does not wait for
//! commits, and no commit waits for it.

use std::io::{self, Read};
use std::time::SystemTime;

use binlog_format::gtid::GtidSet;
use binlog_store::{FileNumber, LogHandle, LogPlace, PurgeHold};
use bytes::{Buf, Bytes};
use raft_types::{MemberId, OpId, RingId};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::chain::{Pieces, Run};
use crate::contents::Contents;
use crate::encryption::{EncryptionError, Recipients};
use crate::manifest::{Archiving, Manifest, ManifestError, Object};
use crate::name::{LOG_FOLDER, PieceName, Timeline};
use crate::next_piece::{Log, Next, next, piece_from};
use crate::sealed::{NewObject, SealError, seal};
use crate::storage::{Storage, StorageError};

/// Largest manifest that is read: its GTID set may have millions of intervals.
pub const MAX_MANIFEST_BYTES: u64 = 64 << 20;
const READ_BYTES: usize = 1 << 20;

/// Why a step archived nothing. The next step reads the archive's position again.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A storage request failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The log's bytes are invalid, or cannot be read or stored.
    #[error("{0}: {1}")]
    Seal(PieceName, SealError),
    /// A manifest in the archive is unusable.
    #[error("the archive's manifest {0}: {1}")]
    Manifest(String, ManifestError),
    /// The archive and this log have different entries at one index.
    #[error(
        "the archive has entry {archived} where this log has {here}: this member has missed a repair of the quorum, or the file in which they part is purged, or it is the archive of another log"
    )]
    OtherHistory {
        /// Last entry of the archive.
        archived: OpId,
        /// This log's entry at that index.
        here: OpId,
    },
    /// The log no longer has the file to be read.
    #[error("{0} was purged before it was archived")]
    Purged(PieceName),
    /// Encryption is required, but not possible.
    #[error("nothing is archived, since it cannot be encrypted: {0}")]
    Encryption(#[from] EncryptionError),
}

impl ArchiveError {
    /// True if an object with the name of a manifest is not a manifest.
    fn is_of_no_manifest(&self) -> bool {
        matches!(
            self,
            Self::Manifest(_, ManifestError::Unreadable(_) | ManifestError::NoHash)
                | Self::Storage(StorageError::NotFound(_))
        )
    }
}

/// Outcome of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Everything committed is archived.
    Nothing,
    /// One more piece was archived.
    Archived {
        /// Manifest of the archived piece.
        manifest: Box<Manifest>,
        /// The previous end of the archive, if the log after it was purged before it was archived.
        gap_from: Option<LogPlace>,
    },
}

/// Archives one member's log.
pub struct Archiver {
    storage: Storage,
    log: LogHandle,
    ring: RingId,
    member: MemberId,
    /// Rate limit of one upload, in bytes per second.
    pub bytes_per_second: Option<u64>,
    /// Recipients of pieces archived from now on; with `None`, pieces are not encrypted.
    pub recipients: Option<Recipients>,
    /// The archive's last known state.
    known: Option<Known>,
}

struct Known {
    pieces: Pieces,
    timeline: Timeline,
    /// The last manifest that was read or written.
    last: Option<Manifest>,
    /// The last entry of the archive.
    ends_with: Option<OpId>,
    /// The first file of this history, until the archive has a piece of the history.
    begins_with: Option<FileNumber>,
}

impl Archiver {
    /// Creates an archiver; makes no storage request.
    pub fn new(storage: Storage, log: LogHandle, ring: RingId, member: MemberId) -> Self {
        Self {
            storage,
            log,
            ring,
            member,
            bytes_per_second: None,
            recipients: None,
            known: None,
        }
    }

    /// Reads the archive's state. `mark` is the last entry that the caller has recorded as committed.
    ///
    /// # Errors
    /// When the storage cannot be read, or the archive belongs to another log.
    pub async fn refresh(&mut self, mark: Option<OpId>) -> Result<(), ArchiveError> {
        self.known = None;
        self.known = Some(self.look(mark).await?);
        Ok(())
    }

    /// The member that archived the last piece, as last read.
    pub fn last_archived_by(&self) -> Option<MemberId> {
        Some(self.known.as_ref()?.last.as_ref()?.archived_by)
    }

    /// The end of the archive's gapless part in this log, at the last read: the log before it may be purged. `None` if nothing is archived,
    /// or if a committed entry shows that the archive belongs to another log.
    pub fn archived(&self, mark: Option<OpId>) -> Option<LogPlace> {
        let known = self.known.as_ref();
        let known = known.filter(|known| self.assert_same(known.ends_with, mark).is_ok())?;
        match known.begins_with {
            // Both histories have the same bytes before this file.
            Some(file) => Some(LogPlace { file, offset: 0 }),
            None => known.pieces.continues_at(),
        }
    }

    /// Archives the next committed piece, as [`Self::step_to`].
    ///
    /// # Errors
    /// As [`Self::step_to`].
    pub async fn step(&mut self, mark: Option<OpId>) -> Result<Step, ArchiveError> {
        let committed = self.log.committed_end(mark);
        self.step_to(committed, mark).await
    }

    /// Archives the next piece up to `committed`, a position that [`LogHandle::committed_end`] returned earlier. With a constantly growing
    /// log, a fixed end allows whole files to be archived. `mark` is the last entry that the caller has recorded as committed. If the call
    /// is cancelled, it leaves nothing that counts.
    ///
    /// # Errors
    /// If any request fails; the next step reads the archive's state again.
    pub async fn step_to(
        &mut self,
        committed: LogPlace,
        mark: Option<OpId>,
    ) -> Result<Step, ArchiveError> {
        // Since the check, the log may have been truncated and may have grown again.
        let known = self.known.take();
        let known = known.filter(|known| self.assert_same(known.ends_with, mark).is_ok());
        let mut known = match known {
            Some(known) => known,
            None => self.look(mark).await?,
        };
        // If the log ends before the archive, it may have another history, in which the archive's end is not an entry boundary.
        if (known.ends_with)
            .is_some_and(|archived| mark.is_none_or(|mark| mark.index < archived.index))
        {
            self.known = Some(known);
            return Ok(Step::Nothing);
        }
        // Listed after the committed end was read, so the list includes the file of the committed end.
        let files = self.log.files().into_iter();
        let log = Log {
            files: files.map(|file| (file.number, file.bytes)).collect(),
            committed,
        };
        let next = match known.begins_with {
            Some(file) => {
                // The new history diverges from the previous one in this file.
                let first = piece_from(known.timeline, LogPlace::new(file, 0), &log);
                first.map_or(Next::Nothing, Next::Continue)
            }
            None => next(&known.pieces, known.timeline, &log),
        };
        let (piece, gap_from) = match next {
            Next::Continue(piece) | Next::Whole(piece) => (piece, None),
            Next::Fill(piece) => {
                tracing::warn!(%piece, "the archive has lost this, and the log still has it");
                (piece, None)
            }
            Next::AfterGap { from, piece } => (piece, Some(from)),
            Next::Nothing => {
                self.known = Some(known);
                return Ok(Step::Nothing);
            }
        };
        let before = self.manifest_before(&mut known, piece, mark).await?;
        let Some(hold) = self.log.hold_file(piece.file) else {
            return Err(ArchiveError::Purged(piece));
        };
        let (contents, object) = self.store_bytes(piece, hold).await?;
        let stored = self.storage.assert_stored(&object.name, object.bytes);
        stored.await?;
        let gtids_before = match (&contents.beginning, &before) {
            (Some(beginning), _) => beginning.previous_gtids.clone(),
            (None, Some(before)) => before.gtids_after(),
            (None, None) => GtidSet::new(),
        };
        let archiving = Archiving {
            ring: self.ring,
            member: self.member,
            now: SystemTime::now(),
            gtids_before,
            before: before.map(|before| before.as_before()),
        };
        let manifest = Manifest::of(piece, &contents, object, archiving);
        let name = piece.manifest();
        let written = self.storage.write_checked(&name, manifest.to_bytes());
        written.await?;
        known.pieces.add(piece);
        known.ends_with = manifest.last.max(known.ends_with);
        known.last = Some(manifest.clone());
        known.begins_with = None;
        self.known = Some(known);
        Ok(Step::Archived {
            manifest: Box::new(manifest),
            gap_from,
        })
    }

    async fn look(&self, mark: Option<OpId>) -> Result<Known, ArchiveError> {
        let names = self.storage.list(LOG_FOLDER).await?;
        let mut pieces = Pieces::of_names(names.keys());
        let timeline = pieces.newest().unwrap_or(Timeline::FIRST);
        loop {
            let history = pieces.history(timeline);
            match self.end_of(&history, mark).await {
                Ok((last, ends_with)) => {
                    return Ok(Known {
                        pieces,
                        timeline,
                        last,
                        ends_with,
                        begins_with: None,
                    });
                }
                // Only a repair can put a later term at an earlier index. The log then continues without the archived entries.
                Err((_, ArchiveError::OtherHistory { archived, here }))
                    if here.term > archived.term =>
                {
                    let parted = self.parted_in(&history, mark).await?;
                    let file = parted.filter(|file| {
                        let own = self.log.files();
                        own.iter().any(|own| own.number == *file)
                    });
                    let file = file.ok_or(ArchiveError::OtherHistory { archived, here })?;
                    let name = file.name();
                    tracing::warn!(
                        file = name,
                        "a repair has given up what the archive has: another history begins with this file"
                    );
                    return Ok(Known {
                        pieces,
                        timeline: timeline.next(),
                        last: None,
                        ends_with: None,
                        begins_with: Some(file),
                    });
                }
                // A piece without a manifest does not count, even if an object has its name. Either the log still has the bytes, or there
                // is a gap.
                Err((piece, error)) if error.is_of_no_manifest() => {
                    tracing::warn!(%error, "this piece is archived once more");
                    pieces.remove(&piece);
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Returns the last manifest and the archive's last entry, which may be in an earlier piece: the last piece may contain only a file
    /// header. An error names the piece with the unusable manifest.
    async fn end_of(
        &self,
        history: &[Run],
        mark: Option<OpId>,
    ) -> Result<(Option<Manifest>, Option<OpId>), (PieceName, ArchiveError)> {
        let mut last = None;
        for piece in history.iter().flat_map(|run| &run.pieces).rev() {
            let manifest = self.read_manifest(*piece, mark).await;
            let manifest = manifest.map_err(|error| (*piece, error))?;
            let ends_with = manifest.last;
            let last = last.get_or_insert(manifest);
            if ends_with.is_some() {
                return Ok((Some(last.clone()), ends_with));
            }
        }
        Ok((last, None))
    }

    /// Returns the first file of the log's new history. It is the file of the first piece whose last entry differs from the log's entry at
    /// that index. If the histories diverge before the archive's first entry, it is the log's first file. `None` if the log has too few
    /// entries to decide.
    async fn parted_in(
        &self,
        history: &[Run],
        mark: Option<OpId>,
    ) -> Result<Option<FileNumber>, ArchiveError> {
        let mut parted: Option<Manifest> = None;
        for piece in history.iter().flat_map(|run| &run.pieces).rev() {
            let manifest = self.manifest_of(*piece).await?;
            if self.assert_same(manifest.last, mark).is_err() {
                parted = Some(manifest);
                continue;
            }
            match manifest.last.map(|last| self.log.op_id_at(last.index)) {
                // A piece with only a header does not identify a history.
                None => {}
                Some(Some(_)) => return Ok(parted.map(|parted| parted.piece.file)),
                // The log has purged this entry, so a difference cannot be excluded.
                Some(None) => return Ok(None),
            }
        }
        Ok(parted.and_then(|earliest| {
            let first = earliest.first?;
            match self.log.op_id_at(first.index)? == first {
                true => Some(earliest.piece.file),
                false => self.log.files().first().map(|file| file.number),
            }
        }))
    }

    /// The manifest of the preceding piece.
    async fn manifest_before(
        &self,
        known: &mut Known,
        piece: PieceName,
        mark: Option<OpId>,
    ) -> Result<Option<Manifest>, ArchiveError> {
        let history = known.pieces.history(known.timeline);
        let mut all = history.iter().flat_map(|run| &run.pieces);
        let Some(before) = all.find(|before| before.continues_at() == piece.begins()) else {
            return Ok(None);
        };
        Ok(Some(
            match known.last.take_if(|last| last.piece == *before) {
                Some(last) => last,
                None => self.read_manifest(*before, mark).await?,
            },
        ))
    }

    /// Checks that the log has no different entry at the index of an archived entry.
    fn assert_same(&self, archived: Option<OpId>, mark: Option<OpId>) -> Result<(), ArchiveError> {
        let (Some(archived), Some(mark)) = (archived, mark) else {
            return Ok(());
        };
        // If the log ends before that index with a later term, its later entries cannot be the archived one.
        let here = match mark.index < archived.index {
            true => (mark.term > archived.term).then_some(mark),
            false => self.log.op_id_at(archived.index),
        };
        match here.filter(|here| *here != archived) {
            Some(here) => Err(ArchiveError::OtherHistory { archived, here }),
            None => Ok(()),
        }
    }

    /// Reads a manifest, which must belong to this log.
    async fn read_manifest(
        &self,
        piece: PieceName,
        mark: Option<OpId>,
    ) -> Result<Manifest, ArchiveError> {
        let manifest = self.manifest_of(piece).await?;
        self.assert_same(manifest.last, mark)?;
        Ok(manifest)
    }

    async fn manifest_of(&self, piece: PieceName) -> Result<Manifest, ArchiveError> {
        let name = piece.manifest();
        let bytes = self.storage.read(&name, MAX_MANIFEST_BYTES).await?;
        Manifest::read(&bytes, piece, Some(self.ring))
            .map_err(|error| ArchiveError::Manifest(name, error))
    }

    async fn store_bytes(
        &self,
        piece: PieceName,
        hold: PurgeHold,
    ) -> Result<(Contents, Object), ArchiveError> {
        let runtime = Handle::current();
        let from = LogRange {
            log: self.log.clone(),
            place: piece.begins(),
            end: piece.end,
            runtime: runtime.clone(),
            chunk: Bytes::new(),
            _hold: hold,
        };
        let new = NewObject::of(piece, self.recipients.clone());
        let upload = (self.storage).upload(&new.name, runtime, self.bytes_per_second);
        let sealed = spawn_blocking(move || {
            let mut upload = upload;
            let sealed = seal(new, from, &mut upload)?;
            upload.finish()?;
            Ok(sealed)
        });
        let sealed = sealed.await.unwrap_or_else(|panic| {
            let stopped = io::Error::other(format!("it was stopped: {panic}"));
            Err(SealError::Io(stopped))
        });
        sealed.map_err(|error| ArchiveError::Seal(piece, error))
    }
}

/// A byte range of a log file, which cannot be purged while this exists.
struct LogRange {
    log: LogHandle,
    place: LogPlace,
    end: u64,
    runtime: Handle,
    chunk: Bytes,
    _hold: PurgeHold,
}

impl Read for LogRange {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            let left = usize::try_from(self.end - self.place.offset).unwrap_or(usize::MAX);
            let read = self.log.read_file(self.place, left.min(READ_BYTES));
            self.chunk = self.runtime.block_on(read)?;
            self.place.offset += self.chunk.len() as u64;
        }
        let taken = bytes.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut bytes[..taken]);
        Ok(taken)
    }
}
