//! Reads an archive's pieces and log files, and verifies everything.

use std::io::Write;

use binlog_store::LogPlace;
use raft_types::RingId;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::archiver::MAX_MANIFEST_BYTES;
use crate::chain::{Pieces, Run};
use crate::encryption::{EncryptionError, Identities};
use crate::manifest::{Manifest, ManifestError};
use crate::name::{LOG_FOLDER, PieceName, Timeline};
use crate::sealed::{SealError, unseal};
use crate::storage::{Listing, Storage, StorageError};

/// Why a piece cannot be read, or what is damaged in it.
#[derive(Debug, thiserror::Error)]
pub enum PieceFault {
    /// A storage request failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The piece's manifest is unusable.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// The piece's bytes do not match its manifest, or the caller cannot write them.
    #[error("{0}")]
    Seal(#[from] SealError),
    /// The piece does not continue the previous one.
    #[error("it does not follow {0}: {1}")]
    Chain(PieceName, &'static str),
}

impl PieceFault {
    /// The storage's error, if a request failed or the object is missing.
    pub fn of_storage(&self) -> Option<&StorageError> {
        match self {
            Self::Storage(error) => Some(error),
            Self::Seal(SealError::Io(error)) => error.get_ref()?.downcast_ref(),
            _ => None,
        }
    }

    /// True if an object of the piece is missing.
    pub fn is_missing(&self) -> bool {
        matches!(self.of_storage(), Some(StorageError::NotFound(_)))
    }

    /// True if no given identity decrypts the piece, so that its contents are unknown.
    pub fn lacks_an_identity(&self) -> bool {
        use EncryptionError::{NoIdentity, OtherRecipients};
        matches!(
            self,
            Self::Seal(SealError::Encryption(NoIdentity | OtherRecipients))
        )
    }
}

/// The log in an archive, listed by object names.
#[derive(Clone)]
pub struct ArchivedLog {
    storage: Storage,
    ring: Option<RingId>,
    identities: Identities,
    /// The history that is read.
    pub timeline: Timeline,
    /// The runs of the history in order, separated by gaps.
    pub runs: Vec<Run>,
    /// The begin of a pruned archive; `None` if it was never pruned.
    pub begins: Option<LogPlace>,
}

impl ArchivedLog {
    /// Lists the newest history of an archive; `None` if the archive is empty. If `ring` is not given, the first manifest that is read
    /// determines it.
    ///
    /// # Errors
    /// When the storage cannot be listed.
    pub async fn look(
        storage: Storage,
        ring: Option<RingId>,
    ) -> Result<Option<Self>, StorageError> {
        let listing = storage.list(LOG_FOLDER).await?;
        Ok(Self::of_listing(storage, ring, &listing))
    }

    /// The pieces of the history, in order.
    pub fn pieces(&self) -> impl Iterator<Item = PieceName> + '_ {
        self.runs.iter().flat_map(|run| &run.pieces).copied()
    }

    /// As [`Self::look`], from a listing.
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

    /// Uses these identities to decrypt pieces.
    #[must_use]
    pub fn with_identities(mut self, identities: Identities) -> Self {
        self.identities = identities;
        self
    }

    /// The log's ring, once a manifest was read.
    pub fn ring(&self) -> Option<RingId> {
        self.ring
    }

    /// The range that is missing before the first piece, given that piece's manifest. `None` if the archive was pruned up to there, or
    /// begins there.
    pub fn missing_before(&self, first: &Manifest) -> Option<(LogPlace, LogPlace)> {
        let begun = first.piece.begins();
        let from = match self.begins {
            Some(begins) => begins,
            None => PieceName::of_manifest(&first.before.as_ref()?.manifest)?.begins(),
        };
        (from < begun).then_some((from, begun))
    }

    /// True if a piece was deleted intentionally since the listing: a whole file replaces it, or it was pruned.
    ///
    /// # Errors
    /// When the storage cannot be read.
    pub async fn was_pruned(&self, piece: PieceName) -> Result<bool, StorageError> {
        let now = Self::look(self.storage.clone(), self.ring).await?;
        let Some(now) = now else { return Ok(false) };
        let replaces =
            |other: PieceName| other.file == piece.file && other.is_whole_file() && other != piece;
        Ok(now.begins > Some(piece.begins()) || now.pieces().any(replaces))
    }

    /// Reads the manifest of a piece.
    ///
    /// # Errors
    /// When it is missing, or not of this ring.
    pub async fn manifest(&mut self, piece: PieceName) -> Result<Manifest, PieceFault> {
        let bytes = (self.storage)
            .read(&piece.manifest(), MAX_MANIFEST_BYTES)
            .await?;
        let manifest = Manifest::read(&bytes, piece, self.ring)?;
        self.ring = Some(manifest.ring);
        Ok(manifest)
    }

    /// Reads the bytes of a piece into `to`, which is returned. Verifies the bytes. If the previous piece was read, also verifies that this
    /// one follows it.
    ///
    /// # Errors
    /// [`PieceFault`]; the written bytes are then unusable.
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

/// Checks that a manifest continues the manifest of the piece that ends where its own piece begins.
fn follows(manifest: &Manifest, before: &Manifest) -> Result<(), PieceFault> {
    let differs = |what| Err(PieceFault::Chain(before.piece, what));
    if manifest.gtids_before != before.gtids_after() {
        return differs("the GTIDs of the log before it are others");
    }
    if let (Some(last), Some(first)) = (before.last, manifest.first)
        && (first.index != last.index + 1 || first.term < last.term)
    {
        return differs("its first entry is not the next one");
    }
    // A piece may refer to another piece with the same end, which a whole file has replaced.
    if manifest.contradicts(before) {
        return differs("it names a manifest with another SHA-256");
    }
    Ok(())
}
