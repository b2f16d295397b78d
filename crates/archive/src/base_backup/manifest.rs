//! Names and manifests of base backups. Names begin with the start time, so that a listing sorts by time. Manifests are human-readable
//! JSON.

use std::fmt;
use std::str::FromStr;

use binlog_format::gtid::GtidSet;
use raft_types::{MemberId, OpId, RingId};
use serde::{Deserialize, Serialize};
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};
use uuid::Uuid;

use crate::contents::Hash;
use crate::encryption::Encryption;
use crate::manifest::{ManifestError, Object, gtid_text, json, parse};
use crate::name::Malformed;

/// The manifest version that this program writes, and the newest that it reads.
pub const BASE_VERSION: u32 = 1;
/// Name prefix of data objects, below the base backup's folder.
const DATA: &str = "data-";
const COMPRESSED: &str = ".zst";
const ENCRYPTED: &str = ".age";
/// Name prefix of all base backup objects.
pub const BASE_FOLDER: &str = "base/";
const MANIFEST: &str = "manifest.json";
const MOMENT: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");
/// The end of the year 9999. Names of later seconds would be longer.
const LAST: u64 = 253_402_300_799;

/// Name of a base backup, as in `20261126T143816Z-3`. Ordered by start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BaseName {
    began_at: u64,
    member: MemberId,
}

impl BaseName {
    /// The name for a start time, in seconds since 1970, and a member. `None` after the year 9999.
    pub const fn new(began_at: u64, member: MemberId) -> Option<Self> {
        match began_at <= LAST {
            true => Some(Self { began_at, member }),
            false => None,
        }
    }

    /// Start time, in seconds since 1970.
    pub const fn began_at(&self) -> u64 {
        self.began_at
    }

    /// The member that took or registered it.
    pub const fn member(&self) -> MemberId {
        self.member
    }

    /// Prefix of the names of all objects of the base backup, below the ring's folder.
    pub fn folder(&self) -> String {
        format!("{BASE_FOLDER}{self}/")
    }

    /// The name of the base backup's manifest, below the ring's folder.
    pub fn manifest(&self) -> String {
        format!("{}{MANIFEST}", self.folder())
    }

    /// The base backup to which an object's name belongs; `None` for other objects.
    pub fn of_object(object: &str) -> Option<Self> {
        let (name, rest) = object.strip_prefix(BASE_FOLDER)?.split_once('/')?;
        (!rest.is_empty()).then(|| name.parse().ok())?
    }
}

impl fmt::Display for BaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.began_at).map_err(|_| fmt::Error)?;
        let moment = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| fmt::Error)?;
        let moment = moment.format(MOMENT).map_err(|_| fmt::Error)?;
        write!(f, "{moment}-{}", self.member)
    }
}

impl FromStr for BaseName {
    type Err = Malformed;

    /// Accepts exactly the output of [`fmt::Display`].
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused =
            || Malformed::new(text, "the name of a base backup, as in 20261126T143816Z-3");
        let (moment, member) = text.split_once('-').ok_or_else(refused)?;
        let moment = PrimitiveDateTime::parse(moment, MOMENT).map_err(|_| refused())?;
        let seconds = moment.assume_utc().unix_timestamp();
        let began_at = u64::try_from(seconds).map_err(|_| refused())?;
        let member = MemberId(member.parse().map_err(|_| refused())?);
        let name = Self::new(began_at, member).ok_or_else(refused)?;
        match name.to_string() == text {
            true => Ok(name),
            false => Err(refused()),
        }
    }
}

impl From<BaseName> for String {
    fn from(name: BaseName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for BaseName {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// One base backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseManifest {
    /// [`BASE_VERSION`] of the writer.
    pub version: u32,
    /// The ring to which the data belongs.
    pub ring: RingId,
    /// Name of the base backup.
    pub name: BaseName,
    /// The location of the data.
    pub form: BaseForm,
    /// GTIDs executed before the copy began. The copy has all of them.
    #[serde(with = "gtid_text")]
    pub gtids_at_least: GtidSet,
    /// GTIDs executed after the copy ended. The copy has no others. A server started on the copy reports the exact set.
    #[serde(with = "gtid_text")]
    pub gtids_at_most: GtidSet,
    /// The last entry that the member had recorded as committed after the copy ended; nothing in the copy is later. `None` if unknown, as
    /// for a stopped server, and in older manifests.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub committed: Option<OpId>,
    /// Start of the copy, in seconds since 1970 by the host's clock.
    pub began_at: u64,
    /// Time when everything was in the storage, by the same clock. The copy has no later commits.
    pub ended_at: u64,
    /// Version of the source mysqld, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mysqld_version: Option<String>,
    /// `server_uuid` of that mysqld, if known. The data does not contain it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub server_uuid: Option<Uuid>,
    /// True if tables are encrypted, if known. mysqld can then read them only with the source server's keyring. The archive contains no
    /// keys.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub keyring_needed: Option<bool>,
    /// The data objects, in the order of the tar stream; empty if the backup is only registered.
    pub objects: Vec<Object>,
    /// The tar stream that the objects unpack to; `None` if the backup is only registered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tar: Option<Tar>,
    /// Total bytes of the files in the backup.
    pub unpacked_bytes: u64,
    /// Number of files.
    pub files: u64,
    /// The member that took or registered it.
    pub taken_by: MemberId,
}

/// The tar stream of a base backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tar {
    /// Size of the stream in bytes.
    pub bytes: u64,
    /// SHA-256 of the stream.
    pub sha256: Hash,
}

/// The location of the data of a base backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BaseForm {
    /// A mysqld data directory in the archive.
    DataDirectory,
    /// An operator's own backup, outside the archive.
    Registered {
        /// The tool that made it and restores it, as in `xtrabackup`.
        tool: String,
        /// The location of the backup, as the operator wrote it.
        place: String,
    },
}

/// The name of a data object, counted from 1, below the ring's folder.
pub fn data_object(name: &BaseName, number: usize, encryption: Option<Encryption>) -> String {
    let encrypted = encryption.map_or("", |Encryption::Age| ENCRYPTED);
    format!("{}{DATA}{number:06}{COMPRESSED}{encrypted}", name.folder())
}

impl BaseManifest {
    /// The bytes to store.
    pub fn to_bytes(&self) -> Vec<u8> {
        json(self)
    }

    /// Parses the manifest of a base backup, and checks the ring, if one is given.
    ///
    /// # Errors
    /// When the bytes are not that manifest.
    pub fn read(bytes: &[u8], name: BaseName, ring: Option<RingId>) -> Result<Self, ManifestError> {
        let manifest: Self = parse(bytes, BASE_VERSION)?;
        if manifest.name != name {
            return Err(ManifestError::Other(manifest.name.to_string()));
        }
        if ring.is_some_and(|ring| ring != manifest.ring) {
            return Err(ManifestError::OtherRing(manifest.ring));
        }
        manifest.assert_fits()?;
        Ok(manifest)
    }

    /// Checks that the fields are consistent.
    fn assert_fits(&self) -> Result<(), ManifestError> {
        let has_objects = self.tar.is_some() && !self.objects.is_empty();
        // The objects must have the backup's own names, so that no other object is read.
        let is_own = |(number, object): (usize, &Object)| {
            object.name == data_object(&self.name, number, object.encryption)
        };
        let registered = !self.has_data();
        let fault = if !self.gtids_at_most.contains_set(&self.gtids_at_least) {
            "the copy would have more GTIDs at its beginning than at its end"
        } else if self.began_at > self.ended_at {
            "it would have ended before it was begun"
        } else if !registered && !has_objects {
            "it names no data"
        } else if !registered && !(1..).zip(&self.objects).all(is_own) {
            "its objects have other names than those of such a backup"
        } else if registered && (self.tar.is_some() || !self.objects.is_empty()) {
            "what is only registered has no objects"
        } else {
            return Ok(());
        };
        Err(ManifestError::Unfit(fault))
    }

    /// True if the data is in the archive, so that a restore can start from this backup.
    pub fn has_data(&self) -> bool {
        matches!(self.form, BaseForm::DataDirectory)
    }

    /// Stored bytes of all its objects.
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

    fn read(written: &BaseManifest) -> Result<BaseManifest, ManifestError> {
        BaseManifest::read(&written.to_bytes(), manifest().name, Some(manifest().ring))
    }

    #[test]
    fn base_manifest_round_trips() {
        for written in [manifest(), registered()] {
            assert_eq!(read(&written), Ok(written));
        }
    }

    #[test]
    fn manifest_of_another_backup_or_inconsistent_is_refused() {
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
            Err(ManifestError::Other(manifest().name.to_string()))
        );
        assert_eq!(
            BaseManifest::read(&written, manifest().name, Some(ring)),
            Err(ManifestError::OtherRing(manifest().ring))
        );
        assert_eq!(
            changed(|one| one.version = 2),
            ManifestError::Later {
                found: 2,
                newest: 1
            }
        );
        assert!(matches!(
            BaseManifest::read(b"{}", other, None),
            Err(ManifestError::Unreadable(_))
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
            assert!(matches!(refused, ManifestError::Unfit(_)), "{refused}");
        }
    }

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn object_name_identifies_its_base_backup(began_at in 0..=LAST, member: u64) {
            let name = BaseName::new(began_at, MemberId(member)).unwrap();
            prop_assert_eq!(name.to_string().parse(), Ok(name));
            prop_assert_eq!(BaseName::of_object(&name.manifest()), Some(name));
        }

        #[test]
        fn foreign_names_are_ignored(text in ".*") {
            if let Ok(name) = text.parse::<BaseName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn names_sort_by_time(first in 0..=LAST, second in 0..=LAST) {
            let [one, other] = [first, second].map(|at| BaseName::new(at, MemberId(1)).unwrap());
            prop_assert_eq!(one.to_string().cmp(&other.to_string()), first.cmp(&second));
        }
    }

    #[test]
    fn base_name_is_start_time_and_member() {
        let name = BaseName::new(1_795_703_896, MemberId(3)).unwrap();
        assert_eq!(name.to_string(), "20261126T143816Z-3");
        assert_eq!(name.manifest(), "base/20261126T143816Z-3/manifest.json");
        assert_eq!(BaseName::new(LAST + 1, MemberId(3)), None);
        for other in [
            "20261126T143816Z",
            "20261126T143816Z-03",
            "20261126T143816-3",
            "20261326T143816Z-3",
            "19691231T235959Z-3",
            "20261126T143816Z-3/",
        ] {
            assert!(other.parse::<BaseName>().is_err(), "{other}");
        }
        assert_eq!(BaseName::of_object("base/20261126T143816Z-3"), None);
        assert_eq!(BaseName::of_object("log/20261126T143816Z-3/x"), None);
    }
}
