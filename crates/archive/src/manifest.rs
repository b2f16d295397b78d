//! Manifests: a piece's metadata as human-readable JSON. Each contains the hash of the previous one, which exposes replaced pieces and a
//! partial log.

use std::time::SystemTime;

use binlog_format::events::CommitTimestamp;
use binlog_format::gtid::GtidSet;
use raft_types::{MemberId, OpId, RingId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::contents::{Contents, Hash};
use crate::encryption::Encryption;
use crate::name::PieceName;

/// The manifest version that this program writes, and the newest that it reads. Version 2 changed [`Before::sha256`] and allows encryption.
pub const MANIFEST_VERSION: u32 = 2;

/// A piece's metadata in addition to its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`] of the writer.
    pub version: u32,
    /// The ring of the log.
    pub ring: RingId,
    /// The piece's range of the log.
    #[serde(flatten)]
    pub piece: PieceName,
    /// SHA-256 of the piece's bytes. `None` if the bytes are encrypted: the hash would allow guesses of the plaintext to be tested, so it
    /// is encrypted, too.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<Hash>,
    /// The first entry of the piece; `None` if the piece is only a file header.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first: Option<OpId>,
    /// The last entry of the piece.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last: Option<OpId>,
    /// The first entry of each term in the piece; empty in manifests of versions that did not record it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub terms: Vec<OpId>,
    /// The entry before the piece, if the piece begins a file; `None` before the log's first entry.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follows: Option<OpId>,
    /// Number of transactions.
    pub transactions: u64,
    /// GTIDs of the transactions.
    #[serde(with = "gtid_text")]
    pub gtids: GtidSet,
    /// The GTIDs of the log before the piece.
    #[serde(with = "gtid_text")]
    pub gtids_before: GtidSet,
    /// Commit time of the piece's first transaction, in microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub committed_from_us: Option<u64>,
    /// Commit time of the piece's last transaction, in microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub committed_to_us: Option<u64>,
    /// The object with the bytes.
    pub object: Object,
    /// Reference to the previous piece's manifest; `None` for the first piece of an archive, and after a gap.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<Before>,
    /// The member that archived the piece.
    pub archived_by: MemberId,
    /// Time of archiving, in seconds since 1970 by that member's clock.
    pub archived_at: u64,
}

/// How the bytes of a piece are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// The object's name below the ring's folder.
    pub name: String,
    /// The object's size in bytes.
    pub bytes: u64,
    /// SHA-256 of the object.
    pub sha256: Hash,
    /// The object's encryption, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub encryption: Option<Encryption>,
}

/// A reference to the previous manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Name of the previous manifest.
    pub manifest: String,
    /// SHA-256 of the previous manifest's data on the log ([`Manifest::sha256_of_the_log`]); in version 1, of the manifest's bytes.
    pub sha256: Hash,
}

/// Why a manifest of a piece or of a base backup is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are not the JSON of a manifest.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A later version of this program wrote it.
    #[error("it has version {found}, and this program reads up to {newest}; upgrade it")]
    Later {
        /// The manifest's version.
        found: u32,
        /// The newest readable one.
        newest: u32,
    },
    /// The manifest has neither a hash of the piece's bytes nor an encryption.
    #[error("it has no SHA-256 of its bytes, and does not say that they are encrypted")]
    NoHash,
    /// The manifest is of another piece or base backup than its object name.
    #[error("it is about {0}, not about that of its name")]
    Other(String),
    /// The manifest belongs to another ring.
    #[error("it belongs to ring {0}")]
    OtherRing(RingId),
    /// The manifest's fields contradict each other.
    #[error("it does not fit together: {0}")]
    Unfit(&'static str),
}

/// Encodes an object in human-readable form.
///
/// # Panics
/// Never: all objects of the archive can be encoded in JSON.
pub(crate) fn json(object: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(object).expect("everything has a form in JSON");
    bytes.push(b'\n');
    bytes
}

/// Parses a manifest of version `newest` or older.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], newest: u32) -> Result<T, ManifestError> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let unreadable = |error: serde_json::Error| ManifestError::Unreadable(error.to_string());
    let Version { version: found } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if found > newest {
        return Err(ManifestError::Later { found, newest });
    }
    serde_json::from_slice(bytes).map_err(unreadable)
}

/// The context of an archived piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archiving {
    /// The ring.
    pub ring: RingId,
    /// The member.
    pub member: MemberId,
    /// Time of archiving.
    pub now: SystemTime,
    /// The GTIDs of the log before the piece.
    pub gtids_before: GtidSet,
    /// The previous manifest.
    pub before: Option<Before>,
}

impl Manifest {
    /// The manifest of a stored piece.
    pub fn of(piece: PieceName, contents: &Contents, object: Object, archiving: Archiving) -> Self {
        let micros = |CommitTimestamp(micros): CommitTimestamp| micros;
        let since_1970 = archiving.now.duration_since(SystemTime::UNIX_EPOCH);
        Self {
            version: MANIFEST_VERSION,
            ring: archiving.ring,
            piece,
            sha256: object.encryption.is_none().then_some(contents.sha256),
            first: contents.entries.map(|(first, _)| first),
            last: contents.entries.map(|(_, last)| last),
            terms: contents.terms.clone(),
            follows: contents
                .beginning
                .as_ref()
                .and_then(|beginning| beginning.before),
            transactions: contents.transactions,
            gtids: contents.gtids.clone(),
            gtids_before: archiving.gtids_before,
            committed_from_us: contents.committed.map(|(from, _)| micros(from)),
            committed_to_us: contents.committed.map(|(_, to)| micros(to)),
            object,
            before: archiving.before,
            archived_by: archiving.member,
            archived_at: since_1970.unwrap_or_default().as_secs(),
        }
    }

    /// The bytes to store.
    pub fn to_bytes(&self) -> Vec<u8> {
        json(self)
    }

    /// Parses the manifest of this piece, and checks the ring, if one is given.
    ///
    /// # Errors
    /// When the bytes are not that manifest.
    pub fn read(
        bytes: &[u8],
        piece: PieceName,
        ring: Option<RingId>,
    ) -> Result<Self, ManifestError> {
        let manifest: Self = parse(bytes, MANIFEST_VERSION)?;
        if manifest.piece != piece {
            return Err(ManifestError::Other(manifest.piece.to_string()));
        }
        if ring.is_some_and(|ring| ring != manifest.ring) {
            return Err(ManifestError::OtherRing(manifest.ring));
        }
        if manifest.sha256.is_none() && manifest.object.encryption.is_none() {
            return Err(ManifestError::NoHash);
        }
        Ok(manifest)
    }

    /// Entries that the log certainly has, in log order: the first and last entries in this manifest, and the last one of each term.
    pub fn known_entries(&self) -> impl Iterator<Item = OpId> + '_ {
        let terms = self.terms.windows(2).flat_map(|pair| {
            let last = OpId::new(pair[0].term, pair[1].index - 1);
            [last, pair[1]]
        });
        let before = self.follows.into_iter().chain(self.first);
        before.chain(terms).chain(self.last)
    }

    /// The GTIDs of the log up to the piece's end.
    pub fn gtids_after(&self) -> GtidSet {
        self.gtids_before.union(&self.gtids)
    }

    /// The reference to this manifest in the next one.
    pub fn as_before(&self) -> Before {
        Before {
            manifest: self.piece.manifest(),
            sha256: self.sha256_of_the_log(),
        }
    }

    /// Whether this manifest refers to `before` with another hash. A reference to another piece's manifest is no contradiction.
    pub fn contradicts(&self, before: &Self) -> bool {
        let expected = match self.version {
            ..=1 => Hash::of(&before.to_bytes()),
            _ => before.sha256_of_the_log(),
        };
        let named = self.before.as_ref();
        named.is_some_and(|named| {
            named.manifest == before.piece.manifest() && named.sha256 != expected
        })
    }

    /// SHA-256 of the manifest's data on the log, which depends neither on the archiving member nor on the storage format. If two members
    /// archive one piece concurrently, the later manifest stays, although another archiver may have continued after the first one.
    ///
    /// # Panics
    /// Never: all of the data can be encoded in JSON.
    pub fn sha256_of_the_log(&self) -> Hash {
        #[derive(Serialize)]
        struct OfTheLog {
            ring: RingId,
            piece: PieceName,
            first: Option<OpId>,
            last: Option<OpId>,
            transactions: u64,
            gtids: String,
            gtids_before: String,
            committed_from_us: Option<u64>,
            committed_to_us: Option<u64>,
        }
        let said = serde_json::to_vec(&OfTheLog {
            ring: self.ring,
            piece: self.piece,
            first: self.first,
            last: self.last,
            transactions: self.transactions,
            gtids: self.gtids.to_string(),
            gtids_before: self.gtids_before.to_string(),
            committed_from_us: self.committed_from_us,
            committed_to_us: self.committed_to_us,
        });
        Hash::of(&said.expect("everything in it has a form in JSON"))
    }
}

pub(crate) mod gtid_text {
    use binlog_format::gtid::GtidSet;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(set: &GtidSet, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(set)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<GtidSet, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}
