//! Puts a member's log into the archive, one piece after the other.
//!
//! Whoever archives may be killed at any moment and may be one of several: the names in the archive say where to go on
//! ([`crate::next_piece`]), and a piece counts when its manifest is there, which is written behind its bytes. Nothing here waits for
//! a commit, and no commit waits for it.

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
use crate::next_piece::{Log, Next, first_of_history, next};
use crate::sealed::{NewObject, SealError, seal};
use crate::storage::{Storage, StorageError};

/// The largest manifest that is read: its GTIDs may have millions of intervals.
pub const MAX_MANIFEST_BYTES: u64 = 64 << 20;
const READ_BYTES: usize = 1 << 20;

/// Why nothing more was archived. It is tried again: where the archive goes on is looked up anew then.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The storage does not do what it is asked.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The bytes of the log are not what they should be, or cannot be read, or not be stored.
    #[error("{piece}: {error}")]
    Seal {
        /// Which piece.
        piece: PieceName,
        /// What is wrong with it.
        error: SealError,
    },
    /// A manifest of the archive cannot be relied on.
    #[error("the archive's manifest {name}: {error}")]
    Manifest {
        /// Its name.
        name: String,
        /// What is wrong with it.
        error: ManifestError,
    },
    /// The storage said that it has an object, and does not have it as it is.
    #[error("the storage took {name} with {expected} bytes, and has {found:?}")]
    Lost {
        /// The object.
        name: String,
        /// How many bytes it was given.
        expected: u64,
        /// How many it has; none where it has no such object.
        found: Option<u64>,
    },
    /// The archive has another entry where this log has one.
    #[error(
        "the archive has entry {archived} where this log has {here}: this member has missed a repair of the quorum, or the file in which they part is purged, or it is the archive of another log"
    )]
    OtherHistory {
        /// The last one of the archive.
        archived: OpId,
        /// The one of the log at its index.
        here: OpId,
    },
    /// The log has no file any more that was to be read.
    #[error("{0} was purged before it was archived")]
    Purged(PieceName),
    /// It should be encrypted, and cannot be.
    #[error("nothing is archived, since it cannot be encrypted: {0}")]
    Encryption(#[from] EncryptionError),
}

impl ArchiveError {
    /// Whether what has the name of a manifest is none.
    fn is_of_no_manifest(&self) -> bool {
        matches!(
            self,
            Self::Manifest {
                error: ManifestError::Unreadable(_) | ManifestError::NoHash,
                ..
            } | Self::Storage(StorageError::NotFound(_))
        )
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The archive has everything that is committed.
    Nothing,
    /// A piece more.
    Archived {
        /// What it is.
        manifest: Box<Manifest>,
        /// Where the archive would have gone on, if what lies between was purged before it was archived.
        gap_from: Option<LogPlace>,
    },
}

/// Archives the log of one member.
pub struct Archiver {
    storage: Storage,
    log: LogHandle,
    ring: RingId,
    member: MemberId,
    /// What one upload takes of the network at most.
    bytes_per_second: Option<u64>,
    /// Whom everything is encrypted for; nobody where it is not encrypted.
    recipients: Option<Recipients>,
    /// What the archive has, as far as it is known here.
    known: Option<Known>,
}

struct Known {
    pieces: Pieces,
    timeline: Timeline,
    /// The manifest that was read or written last.
    last: Option<Manifest>,
    /// The last entry in it.
    ends_with: Option<OpId>,
    /// The file with which the history begins, of which the archive has nothing yet.
    begins_with: Option<FileNumber>,
}

impl Archiver {
    /// Nothing is looked up yet.
    #[must_use]
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

    /// With a limit to what it takes of the network.
    #[must_use]
    pub fn with_bytes_per_second(mut self, limit: Option<u64>) -> Self {
        self.bytes_per_second = limit;
        self
    }

    /// Encrypts what is archived from now on for these, or not at all.
    pub fn encrypt_for(&mut self, recipients: Option<Recipients>) {
        self.recipients = recipients;
    }

    /// Looks anew what the archive has at the next step: another member may have gone on with it.
    pub fn forget(&mut self) {
        self.known = None;
    }

    /// Looks what the archive has, `mark` being the last entry that the caller knows to be committed.
    ///
    /// # Errors
    /// When the storage does not say, or the archive is of another log.
    pub async fn look_anew(&mut self, mark: Option<OpId>) -> Result<(), ArchiveError> {
        self.forget();
        self.known = Some(self.look(mark).await?);
        Ok(())
    }

    /// The member that archived what the archive has last, as it was seen last.
    #[must_use]
    pub fn last_archived_by(&self) -> Option<MemberId> {
        Some(self.known.as_ref()?.last.as_ref()?.archived_by)
    }

    /// How far the archive reaches in this log without a gap behind it, as it was seen last: what the log has before it may be purged.
    /// `None` also where what was seen is not this log's, as an entry shows that is committed by now.
    #[must_use]
    pub fn archived(&self, mark: Option<OpId>) -> Option<LogPlace> {
        let known = self.known.as_ref();
        let known = known.filter(|known| self.has_the_end_of(known, mark))?;
        match known.begins_with {
            // Whatever stands before this file, both histories have.
            Some(file) => Some(LogPlace { file, offset: 0 }),
            None => known.pieces.goes_on(),
        }
    }

    /// Archives the next piece of what is committed, `mark` being the last entry that the caller knows to be. Stopped in between, it
    /// has left nothing that counts.
    ///
    /// # Errors
    /// When a part of it fails; what the archive has is looked up anew at the next step.
    pub async fn step(&mut self, mark: Option<OpId>) -> Result<Step, ArchiveError> {
        let committed = self.log.committed_end(mark);
        self.step_to(committed, mark).await
    }

    /// The same of what was committed at a moment, which [`LogHandle::committed_end`] has told. Where the log grows all the time, there
    /// is an end of that, and whole files get their turn.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub async fn step_to(
        &mut self,
        committed: LogPlace,
        mark: Option<OpId>,
    ) -> Result<Step, ArchiveError> {
        let done = self.try_step(committed, mark).await;
        if done.is_err() {
            self.forget();
        }
        done
    }

    async fn try_step(
        &mut self,
        committed: LogPlace,
        mark: Option<OpId>,
    ) -> Result<Step, ArchiveError> {
        // The log may have been cut back and have grown since the look.
        let known = self.known.take();
        let known = known.filter(|known| self.has_the_end_of(known, mark));
        let mut known = match known {
            Some(known) => known,
            None => self.look(mark).await?,
        };
        // One that is behind the archive may have another history, in which the archive's end is no end of an entry.
        if (known.ends_with)
            .is_some_and(|archived| mark.is_none_or(|mark| mark.index < archived.index))
        {
            self.known = Some(known);
            return Ok(Step::Nothing);
        }
        // Looked at behind what is committed, which is in a file that is there.
        let files = self.log.files().into_iter();
        let log = Log {
            files: files.map(|file| (file.number, file.bytes)).collect(),
            committed,
        };
        let next = match known.begins_with {
            Some(file) => {
                first_of_history(known.timeline, file, &log).map_or(Next::Nothing, Next::GoOn)
            }
            None => next(&known.pieces, known.timeline, &log),
        };
        let (piece, gap_from) = match next {
            Next::GoOn(piece) | Next::Whole(piece) => (piece, None),
            Next::Fill(piece) => {
                tracing::warn!(%piece, "the archive has lost this, and the log still has it");
                (piece, None)
            }
            Next::BehindAGap { from, piece } => (piece, Some(from)),
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
        self.assert_stored(&object.name, object.bytes).await?;
        let gtids_before = match (&contents.beginning, &before) {
            (Some(beginning), _) => beginning.previous_gtids.clone(),
            (None, Some(before)) => before.gtids_behind(),
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
        let (name, bytes) = (piece.manifest(), manifest.to_bytes());
        let size = bytes.len() as u64;
        self.storage.write(&name, bytes).await?;
        self.assert_stored(&name, size).await?;
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
                // Only a repair leaves a later term behind an earlier index: the log has gone on without what the archive has.
                Err((_, ArchiveError::OtherHistory { archived, here }))
                    if here.term > archived.term =>
                {
                    let parted = self.parted_in(&history, mark).await?;
                    let file = parted.filter(|file| self.has_file(*file));
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
                // Without a manifest it is no piece, whatever its name says; the log has it, or it is a gap.
                Err((piece, error)) if error.is_of_no_manifest() => {
                    tracing::warn!(%error, "this piece is archived once more");
                    pieces.remove(&piece);
                }
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// The last manifest, and the last entry: a piece may be a file's header alone. With the piece whose manifest cannot be relied on.
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

    fn has_file(&self, file: FileNumber) -> bool {
        self.log.files().iter().any(|own| own.number == file)
    }

    /// The file with which another history begins: in which the log and this one part, that is of the first piece that ends with another
    /// entry than the log has there. Where they part before the archive's first entry, it is the first file of the log. `None` where the
    /// log has too little of it.
    async fn parted_in(
        &self,
        history: &[Run],
        mark: Option<OpId>,
    ) -> Result<Option<FileNumber>, ArchiveError> {
        let mut parted: Option<Manifest> = None;
        for piece in history.iter().flat_map(|run| &run.pieces).rev() {
            let manifest = self.manifest_of(*piece).await?;
            if self.assert_of_this_log(&manifest, mark).is_err() {
                parted = Some(manifest);
                continue;
            }
            match manifest.last.map(|last| self.log.op_id_at(last.index)) {
                // A header alone says nothing.
                None => {}
                Some(Some(_)) => return Ok(parted.map(|parted| parted.piece.file)),
                // It is purged here, and may be another one.
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

    /// The manifest of the piece in front of one.
    async fn manifest_before(
        &self,
        known: &mut Known,
        piece: PieceName,
        mark: Option<OpId>,
    ) -> Result<Option<Manifest>, ArchiveError> {
        let history = known.pieces.history(known.timeline);
        let mut all = history.iter().flat_map(|run| &run.pieces);
        let Some(before) = all.find(|before| before.goes_on() == piece.begins()) else {
            return Ok(None);
        };
        Ok(Some(
            match known.last.take_if(|last| last.piece == *before) {
                Some(last) => last,
                None => self.read_manifest(*before, mark).await?,
            },
        ))
    }

    /// What is committed in the place of an entry that the archive has, as far as the log says. Where that ends before it, the last one
    /// of a later term is in its place: no entry behind that can be the archived one.
    fn in_the_place_of(&self, archived: OpId, mark: Option<OpId>) -> Option<OpId> {
        let mark = mark?;
        match mark.index < archived.index {
            true => (mark.term > archived.term).then_some(mark),
            false => self.log.op_id_at(archived.index),
        }
    }

    /// Whether the log has no other entry in the place of the last one that is known of the archive.
    fn has_the_end_of(&self, known: &Known, mark: Option<OpId>) -> bool {
        known.ends_with.is_none_or(|archived| {
            let here = self.in_the_place_of(archived, mark);
            here.is_none_or(|here| here == archived)
        })
    }

    /// A manifest, which must be of this log.
    async fn read_manifest(
        &self,
        piece: PieceName,
        mark: Option<OpId>,
    ) -> Result<Manifest, ArchiveError> {
        let manifest = self.manifest_of(piece).await?;
        self.assert_of_this_log(&manifest, mark)?;
        Ok(manifest)
    }

    async fn manifest_of(&self, piece: PieceName) -> Result<Manifest, ArchiveError> {
        let name = piece.manifest();
        let bytes = self.storage.read(&name, MAX_MANIFEST_BYTES).await?;
        Manifest::read(&bytes, piece, self.ring)
            .map_err(|error| ArchiveError::Manifest { name, error })
    }

    /// Whether the log has no other entry in the place of the last one of a piece.
    fn assert_of_this_log(
        &self,
        manifest: &Manifest,
        mark: Option<OpId>,
    ) -> Result<(), ArchiveError> {
        if let Some(archived) = manifest.last
            && let Some(here) = self.in_the_place_of(archived, mark)
            && here != archived
        {
            return Err(ArchiveError::OtherHistory { archived, here });
        }
        Ok(())
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
        let upload = (self.storage).upload(new.name(), runtime, self.bytes_per_second);
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
        sealed.map_err(|error| ArchiveError::Seal { piece, error })
    }

    /// A storage may say that it has taken what it has not.
    async fn assert_stored(&self, name: &str, expected: u64) -> Result<(), ArchiveError> {
        let found = self.storage.size(name).await?;
        if found == Some(expected) {
            return Ok(());
        }
        Err(ArchiveError::Lost {
            name: name.to_owned(),
            expected,
            found,
        })
    }
}

/// A range of bytes of the log's file, which is kept meanwhile.
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
