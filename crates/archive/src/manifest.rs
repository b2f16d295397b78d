//! Manifests: what a piece says of itself, as JSON that people read, too. Each names the one before it with its hash, so that
//! nobody takes a piece for another one, or a part of the log for all of it.

use std::time::SystemTime;

use binlog_format::events::CommitTimestamp;
use binlog_format::gtid::GtidSet;
use raft_types::{MemberId, OpId, RingId};
use serde::{Deserialize, Serialize};

use crate::contents::{Contents, Hash};
use crate::encryption::Encryption;
use crate::name::PieceName;

/// The form of manifests that this program writes, and the newest that it reads. Since the second one, [`Before::sha256`] is another
/// one, and the bytes may be encrypted.
pub const MANIFEST_VERSION: u32 = 2;

/// What is said of a piece beside its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_VERSION`] of who wrote it.
    pub version: u32,
    /// The ring whose log it is.
    pub ring: RingId,
    /// Which bytes of the log.
    #[serde(flatten)]
    pub piece: PieceName,
    /// SHA-256 of these bytes. None where they are encrypted: whoever may not read them could try with it what they are, so it is
    /// encrypted with them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<Hash>,
    /// The first entry in it; none where it is a file's header alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first: Option<OpId>,
    /// The last entry in it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last: Option<OpId>,
    /// The first entry of each term in it; nothing in manifests from before this was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub terms: Vec<OpId>,
    /// The entry before it, where it is the beginning of a file; none before the log's first entry.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub follows: Option<OpId>,
    /// How many transactions it has.
    pub transactions: u64,
    /// Their GTIDs.
    #[serde(with = "gtid_text")]
    pub gtids: GtidSet,
    /// The GTIDs of the whole log before it.
    #[serde(with = "gtid_text")]
    pub gtids_before: GtidSet,
    /// When the first of its transactions was committed, in microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub committed_from_us: Option<u64>,
    /// When the last one was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub committed_to_us: Option<u64>,
    /// The object with the bytes.
    pub object: Object,
    /// The manifest of the piece before it; none for the first one of an archive, and behind a gap.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<Before>,
    /// The member that archived it.
    pub archived_by: MemberId,
    /// When, in seconds since 1970 by that member's clock.
    pub archived_at: u64,
}

/// How the bytes of a piece are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its name below the folder of the ring.
    pub name: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: Hash,
    /// How they are encrypted, if they are.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub encryption: Option<Encryption>,
}

/// The manifest before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Its name.
    pub manifest: String,
    /// SHA-256 of what it says of the log ([`Manifest::sha256_of_the_log`]); in manifests of version 1, of its bytes.
    pub sha256: Hash,
}

/// Why a manifest is not one that can be relied on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It is not JSON of a manifest.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A later version of this program has written it.
    #[error("it has version {0}, and this program reads up to {MANIFEST_VERSION}; upgrade it")]
    Later(u32),
    /// It does not say with what its bytes are to be compared.
    #[error("it has no SHA-256 of its bytes, and does not say that they are encrypted")]
    NoHash,
    /// It is about another piece than its name says.
    #[error("it is about {0}, not about the piece of its name")]
    Other(PieceName),
    /// It belongs to another ring.
    #[error("it belongs to ring {0}")]
    OtherRing(RingId),
}

/// Who archives a piece, and behind what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archiving {
    /// The ring.
    pub ring: RingId,
    /// The member.
    pub member: MemberId,
    /// When.
    pub now: SystemTime,
    /// The GTIDs of the whole log before the piece.
    pub gtids_before: GtidSet,
    /// The manifest before.
    pub before: Option<Before>,
}

impl Manifest {
    /// The manifest of a piece that was read and stored.
    #[must_use]
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

    /// Its bytes as they are stored.
    ///
    /// # Panics
    /// Never: everything in it has a form in JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes =
            serde_json::to_vec_pretty(self).expect("everything in it has a form in JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Reads the manifest of this piece, of this ring.
    ///
    /// # Errors
    /// When the bytes are not that.
    pub fn read(bytes: &[u8], piece: PieceName, ring: RingId) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let unreadable = |error: serde_json::Error| ManifestError::Unreadable(error.to_string());
        let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version > MANIFEST_VERSION {
            return Err(ManifestError::Later(version));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        if manifest.piece != piece {
            return Err(ManifestError::Other(manifest.piece));
        }
        if manifest.ring != ring {
            return Err(ManifestError::OtherRing(manifest.ring));
        }
        if manifest.sha256.is_none() && manifest.object.encryption.is_none() {
            return Err(ManifestError::NoHash);
        }
        Ok(manifest)
    }

    /// Entries that the log has for certain, in its order: those that it names, and the last one of each term.
    pub fn known_entries(&self) -> impl Iterator<Item = OpId> + '_ {
        let terms = self.terms.windows(2).flat_map(|pair| {
            let last = OpId {
                term: pair[0].term,
                index: pair[1].index - 1,
            };
            [last, pair[1]]
        });
        let before = self.follows.into_iter().chain(self.first);
        before.chain(terms).chain(self.last)
    }

    /// The GTIDs of the whole log up to its end.
    #[must_use]
    pub fn gtids_behind(&self) -> GtidSet {
        self.gtids_before.union(&self.gtids)
    }

    /// How the manifest behind it, which begins where it ends, names it.
    #[must_use]
    pub fn as_before(&self) -> Before {
        Before {
            manifest: self.piece.manifest(),
            sha256: self.sha256_of_the_log(),
        }
    }

    /// Whether it names this manifest, and that was another one then. Where it names the manifest of another piece, it does not say.
    #[must_use]
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

    /// SHA-256 of what it says of the log: the same from whichever member archived the piece, and however it is stored. Of two that
    /// archive the same piece at once, the manifest of the later one stays, and somebody may have gone on behind the other.
    ///
    /// # Panics
    /// Never: everything in it has a form in JSON.
    #[must_use]
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
