//! Manifests of base backups, as human-readable JSON.

use binlog_format::gtid::GtidSet;
use raft_types::{MemberId, OpId, RingId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::name::BaseName;
use crate::contents::Hash;
use crate::encryption::Encryption;
use crate::manifest::{Object, gtid_text};

/// The manifest version that this program writes, and the newest that it reads.
pub const BASE_VERSION: u32 = 1;
/// Name prefix of data objects, below the base backup's folder.
const DATA: &str = "data-";
const COMPRESSED: &str = ".zst";
const ENCRYPTED: &str = ".age";

/// One base backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseManifest {
    /// [`BASE_VERSION`] of the writer.
    pub version: u32,
    /// The ring whose data they are.
    pub ring: RingId,
    /// Its name.
    pub name: BaseName,
    /// Where the data are.
    pub form: BaseForm,
    /// GTIDs executed before the copy began, all of which the copy has.
    #[serde(with = "gtid_text")]
    pub gtids_at_least: GtidSet,
    /// GTIDs executed after the copy ended: the copy has no others. A server started on the copy reports its exact set.
    #[serde(with = "gtid_text")]
    pub gtids_at_most: GtidSet,
    /// The last entry that the member had recorded as committed after the copy ended; nothing in the copy comes after it. `None` where
    /// unknown, as for a stopped server, and in older manifests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub committed: Option<OpId>,
    /// Start of the copy, in seconds since 1970 by the host's clock.
    pub began_at: u64,
    /// When everything was in the storage, by the same clock. Later commits are not included.
    pub ended_at: u64,
    /// Version of the source mysqld, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mysqld_version: Option<String>,
    /// `server_uuid` of that mysqld, if known. The data do not contain it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_uuid: Option<Uuid>,
    /// Whether tables are encrypted, if known: mysqld can then read them only with the source server's keyring. No archive has a key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub keyring_needed: Option<bool>,
    /// The data objects, in the order of the tar stream; empty if only registered.
    pub objects: Vec<Object>,
    /// The tar stream that the objects unpack to; `None` if only registered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tar: Option<Tar>,
    /// Bytes of all its files.
    pub unpacked_bytes: u64,
    /// Number of files.
    pub files: u64,
    /// The member that took or registered it.
    pub taken_by: MemberId,
}

/// The tar stream of a base backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tar {
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: Hash,
}

/// Where the data of a base backup are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BaseForm {
    /// A mysqld data directory, in the archive.
    DataDirectory,
    /// An operator's own backup, elsewhere.
    Registered {
        /// The tool that made it and restores it, as in `xtrabackup`.
        tool: String,
        /// Its place, as text of the operator.
        place: String,
    },
}

/// Why a base backup's manifest is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseManifestError {
    /// It is not JSON of a manifest.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A later version of this program wrote it.
    #[error("it has version {0}, and this program reads up to {BASE_VERSION}; upgrade it")]
    Later(u32),
    /// It names another base backup than its object name.
    #[error("it is about {0}, not about the base backup of its name")]
    Other(BaseName),
    /// It belongs to another ring.
    #[error("it belongs to ring {0}")]
    OtherRing(RingId),
    /// Its fields contradict each other.
    #[error("it does not fit together: {0}")]
    Unfit(&'static str),
}

/// The name of a data object, counted from 1, below the ring's folder.
#[must_use]
pub fn data_object(name: &BaseName, number: usize, encryption: Option<Encryption>) -> String {
    let encrypted = encryption.map_or("", |Encryption::Age| ENCRYPTED);
    format!("{}{DATA}{number:06}{COMPRESSED}{encrypted}", name.folder())
}

impl BaseManifest {
    /// The bytes to store.
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

    /// Parses the manifest of a base backup, and checks the ring, if one is given.
    ///
    /// # Errors
    /// When the bytes are not that manifest.
    pub fn read(
        bytes: &[u8],
        name: BaseName,
        ring: Option<RingId>,
    ) -> Result<Self, BaseManifestError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let unreadable =
            |error: serde_json::Error| BaseManifestError::Unreadable(error.to_string());
        let Version { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version > BASE_VERSION {
            return Err(BaseManifestError::Later(version));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        if manifest.name != name {
            return Err(BaseManifestError::Other(manifest.name));
        }
        if ring.is_some_and(|ring| ring != manifest.ring) {
            return Err(BaseManifestError::OtherRing(manifest.ring));
        }
        manifest.fits().map_err(BaseManifestError::Unfit)?;
        Ok(manifest)
    }

    /// Whether its fields are consistent.
    fn fits(&self) -> Result<(), &'static str> {
        if !self.gtids_at_most.contains_set(&self.gtids_at_least) {
            return Err("the copy would have more GTIDs at its beginning than at its end");
        }
        if self.began_at > self.ended_at {
            return Err("it would have ended before it was begun");
        }
        match &self.form {
            BaseForm::DataDirectory => {
                if self.tar.is_none() || self.objects.is_empty() {
                    return Err("it names no data");
                }
                // Only its own objects are read, whatever names it lists.
                let mut numbered = (1..).zip(&self.objects);
                let is_own = |(number, object): (usize, &Object)| {
                    object.name == data_object(&self.name, number, object.encryption)
                };
                match numbered.all(is_own) {
                    true => Ok(()),
                    false => Err("its objects have other names than those of such a backup"),
                }
            }
            BaseForm::Registered { .. } => match self.objects.is_empty() && self.tar.is_none() {
                true => Ok(()),
                false => Err("what is only registered has no objects"),
            },
        }
    }

    /// Whether its data are in the archive, so that a restore can start from it.
    #[must_use]
    pub fn has_data(&self) -> bool {
        matches!(self.form, BaseForm::DataDirectory)
    }

    /// Stored bytes of all its objects.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        let bytes = self.objects.iter().map(|object| object.bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn gtids(upto: u64) -> GtidSet {
        format!("{UUID}:1-{upto}").parse().unwrap()
    }

    fn manifest() -> BaseManifest {
        let name = BaseName::new(1_795_703_896, MemberId(3)).unwrap();
        BaseManifest {
            version: BASE_VERSION,
            ring: RingId("11111111-2222-3333-4444-555555555555".parse().unwrap()),
            name,
            form: BaseForm::DataDirectory,
            gtids_at_least: gtids(7),
            gtids_at_most: gtids(9),
            committed: None,
            began_at: name.began_at(),
            ended_at: name.began_at() + 5,
            mysqld_version: Some("9.7.4".to_owned()),
            server_uuid: Some(UUID.parse().unwrap()),
            keyring_needed: Some(false),
            objects: vec![Object {
                name: data_object(&name, 1, None),
                bytes: 700,
                sha256: Hash::of(b"x"),
                encryption: None,
            }],
            tar: Some(Tar {
                bytes: 2048,
                sha256: Hash::of(b"y"),
            }),
            unpacked_bytes: 12,
            files: 2,
            taken_by: MemberId(3),
        }
    }

    fn registered() -> BaseManifest {
        BaseManifest {
            form: BaseForm::Registered {
                tool: "xtrabackup".to_owned(),
                place: "s3://elsewhere/backup".to_owned(),
            },
            objects: Vec::new(),
            tar: None,
            ..manifest()
        }
    }

    fn read(written: &BaseManifest) -> Result<BaseManifest, BaseManifestError> {
        BaseManifest::read(&written.to_bytes(), manifest().name, Some(manifest().ring))
    }

    #[test]
    fn what_is_written_is_read() {
        for written in [manifest(), registered()] {
            assert_eq!(read(&written), Ok(written));
        }
    }

    #[test]
    fn a_manifest_that_is_of_another_or_does_not_fit_is_refused() {
        let other = BaseName::new(7, MemberId(3)).unwrap();
        let ring = RingId("99999999-2222-3333-4444-555555555555".parse().unwrap());
        let changed = |change: fn(&mut BaseManifest)| {
            let mut one = manifest();
            change(&mut one);
            read(&one).unwrap_err()
        };
        let written = manifest().to_bytes();
        assert_eq!(
            BaseManifest::read(&written, other, None),
            Err(BaseManifestError::Other(manifest().name))
        );
        assert_eq!(
            BaseManifest::read(&written, manifest().name, Some(ring)),
            Err(BaseManifestError::OtherRing(manifest().ring))
        );
        assert_eq!(changed(|one| one.version = 2), BaseManifestError::Later(2));
        assert!(matches!(
            BaseManifest::read(b"{}", other, None),
            Err(BaseManifestError::Unreadable(_))
        ));
        for change in [
            (|one| one.gtids_at_least = gtids(10)) as fn(&mut BaseManifest),
            |one| one.ended_at = one.began_at - 1,
            |one| one.tar = None,
            |one| one.objects.clear(),
            |one| one.objects[0].name = "log/00000001/binlog.000001/x.zst".to_owned(),
            |one| one.objects.push(one.objects[0].clone()),
            |one| one.form = registered().form,
        ] {
            let refused = changed(change);
            assert!(matches!(refused, BaseManifestError::Unfit(_)), "{refused}");
        }
    }
}
