//! Reads an archive: what it has of the log, and the files of the log, all of which is verified.

use std::io::Write;

use binlog_store::LogPlace;
use bytes::Bytes;
use raft_types::RingId;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::archiver::MAX_MANIFEST_BYTES;
use crate::chain::{Pieces, Run};
use crate::encryption::{EncryptionError, Identities};
use crate::manifest::{Manifest, ManifestError};
use crate::name::{LOG_FOLDER, PieceName, Timeline};
use crate::sealed::{SealError, unseal};
use crate::storage::{Listing, Storage, StorageError};

/// Why a piece of the archive is not what it should be, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PieceFault {
    /// The storage does not give it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Its manifest cannot be relied on.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// Its bytes are not those of its manifest, or cannot be written here.
    #[error("{0}")]
    Seal(#[from] SealError),
    /// It does not go on where the piece before it ends.
    #[error("it does not follow {before}: {what}")]
    Chain {
        /// The piece before it.
        before: PieceName,
        /// What differs.
        what: &'static str,
    },
}

impl PieceFault {
    /// What the storage says, where it failed or has no such object.
    #[must_use]
    pub fn of_storage(&self) -> Option<&StorageError> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Seal(SealError::Io(error)) => error.get_ref()?.downcast_ref(),
            _ => None,
        }
    }

    /// Whether an object of it is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self.of_storage(), Some(StorageError::NotFound(_)))
    }

    /// Whether it cannot be decrypted with the identities that are given, which says nothing of what it is.
    #[must_use]
    pub fn lacks_an_identity(&self) -> bool {
        use EncryptionError::{NoIdentity, OtherRecipients};
        matches!(
            self,
            Self::Seal(SealError::Encryption(NoIdentity | OtherRecipients))
        )
    }
}

/// An archive, as its names say it.
#[derive(Clone)]
pub struct ArchivedLog {
    storage: Storage,
    ring: Option<RingId>,
    identities: Identities,
    timeline: Timeline,
    runs: Vec<Run>,
    begins: Option<LogPlace>,
}

impl ArchivedLog {
    /// Looks what an archive has, in its newest history; `None` where it is empty. Without `ring`, it is that of whichever manifest is
    /// read first.
    ///
    /// # Errors
    /// When the storage does not say.
    pub async fn look(
        storage: Storage,
        ring: Option<RingId>,
    ) -> Result<Option<Self>, StorageError> {
        let listing = storage.list(LOG_FOLDER).await?;
        Ok(Self::of_listing(storage, ring, &listing))
    }

    /// As [`Self::look`], by a listing.
    #[must_use]
    pub fn of_listing(storage: Storage, ring: Option<RingId>, listing: &Listing) -> Option<Self> {
        let pieces = Pieces::of_names(listing.keys());
        let timeline = pieces.newest()?;
        let begin = pieces.begin(timeline);
        Some(Self {
            storage,
            ring,
            identities: Identities::default(),
            timeline,
            runs: pieces.history(timeline),
            begins: begin.map(|file| LogPlace { file, offset: 0 }),
        })
    }

    /// Decrypts what it reads with these.
    #[must_use]
    pub fn with_identities(mut self, identities: Identities) -> Self {
        self.identities = identities;
        self
    }

    /// Which history it is.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// The ring whose log it is, once a manifest was read.
    #[must_use]
    pub fn ring(&self) -> Option<RingId> {
        self.ring
    }

    /// Where it begins since it was pruned; `None` if it never was.
    #[must_use]
    pub fn begins(&self) -> Option<LogPlace> {
        self.begins
    }

    /// What is missing before its first piece, whose manifest this is: from where, and up to where. Nothing is where it was pruned up
    /// to there, and where nothing was ever archived before it.
    #[must_use]
    pub fn missing_before(&self, first: &Manifest) -> Option<(LogPlace, LogPlace)> {
        let begun = first.piece.begins();
        let from = match self.begins {
            Some(begins) => begins,
            None => PieceName::of_manifest(&first.before.as_ref()?.manifest)?.begins(),
        };
        (from < begun).then_some((from, begun))
    }

    /// Whether a piece was deleted on purpose since this was looked at: a whole file has replaced it, or the archive was pruned.
    ///
    /// # Errors
    /// When the storage does not say.
    pub async fn was_pruned(&self, piece: PieceName) -> Result<bool, StorageError> {
        let now = Self::look(self.storage.clone(), self.ring).await?;
        let Some(now) = now else { return Ok(false) };
        let mut pieces = now.runs.iter().flat_map(|run| &run.pieces);
        let replaces = |other: &PieceName| {
            other.file == piece.file && other.is_whole_file() && *other != piece
        };
        Ok(now.begins > Some(piece.begins()) || pieces.any(replaces))
    }

    /// What it has, in order; more than one run has a gap between them.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The manifest of a piece.
    ///
    /// # Errors
    /// When it is not there, or not one of this ring.
    pub async fn manifest(&mut self, piece: PieceName) -> Result<Manifest, PieceFault> {
        let bytes = (self.storage)
            .read(&piece.manifest(), MAX_MANIFEST_BYTES)
            .await?;
        let ring = match self.ring {
            Some(ring) => ring,
            None => ring_of(&bytes)?,
        };
        let manifest = Manifest::read(&bytes, piece, ring)?;
        self.ring = Some(ring);
        Ok(manifest)
    }

    /// Reads the bytes of a piece into `to`, which is handed back, and verifies them, and that they follow the piece before it, if that
    /// was read.
    ///
    /// # Errors
    /// [`PieceFault`]; what was written is of no use then.
    pub async fn read<W: Write + Send + 'static>(
        &self,
        manifest: &Manifest,
        before: Option<&Manifest>,
        to: W,
    ) -> Result<W, PieceFault> {
        if let Some(before) = before {
            follows(manifest, before)?;
        }
        if manifest.object.encryption.is_some() && self.identities.is_empty() {
            return Err(SealError::from(EncryptionError::NoIdentity).into());
        }
        let name = &manifest.object.name;
        let from = self.storage.download(name, Handle::current()).await?;
        let (manifest, identities) = (manifest.clone(), self.identities.clone());
        let read = spawn_blocking(move || {
            let mut to = to;
            let contents = unseal(&manifest, &identities, from, &mut to)?;
            let begins = contents.beginning.as_ref();
            if begins.is_some_and(|begins| begins.previous_gtids != manifest.gtids_before) {
                return Err(SealError::Manifest("the GTIDs before it"));
            }
            Ok::<W, SealError>(to)
        });
        match read.await {
            Ok(read) => Ok(read?),
            Err(panic) => Err(SealError::Io(std::io::Error::other(panic)).into()),
        }
    }
}

fn ring_of(bytes: &Bytes) -> Result<RingId, ManifestError> {
    #[derive(Deserialize)]
    struct OfRing {
        ring: RingId,
    }
    let read: Result<OfRing, _> = serde_json::from_slice(bytes);
    let read = read.map_err(|error| ManifestError::Unreadable(error.to_string()))?;
    Ok(read.ring)
}

/// Whether one manifest goes on behind another one whose piece ends where its own begins.
fn follows(manifest: &Manifest, before: &Manifest) -> Result<(), PieceFault> {
    let differs = |what| {
        Err(PieceFault::Chain {
            before: before.piece,
            what,
        })
    };
    if manifest.gtids_before != before.gtids_behind() {
        return differs("the GTIDs of the log before it are others");
    }
    if let (Some(last), Some(first)) = (before.last, manifest.first)
        && (first.index != last.index + 1 || first.term < last.term)
    {
        return differs("its first entry is not the next one");
    }
    // A piece may name another one that ends at the same place, which the whole file has replaced.
    if manifest.contradicts(before) {
        return differs("it names another manifest, whose SHA-256 is another one");
    }
    Ok(())
}
