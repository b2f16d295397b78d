//! Lists an archive's base backups and the remains of unfinished ones.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, RingId};

use super::BaseError;
use super::manifest::{BASE_FOLDER, BaseManifest, BaseName};
use crate::archiver::MAX_MANIFEST_BYTES;
use crate::storage::{Listing, Storage, StorageError};

/// An archive's base backups.
#[derive(Debug, Default)]
pub struct Survey {
    /// Complete base backups, oldest first.
    pub bases: Vec<BaseManifest>,
    /// Base backups with an unusable manifest, or with missing or resized objects, oldest first.
    pub damaged: Vec<DamagedBase>,
    /// Base backups without a manifest: still being taken, or left by a killed process. They do not count.
    pub unfinished: BTreeSet<BaseName>,
}

/// A base backup that cannot be restored.
#[derive(Debug)]
pub struct DamagedBase {
    /// Name of the base backup.
    pub name: BaseName,
    /// The cause.
    pub error: BaseError,
}

/// Surveys an archive's base backups. If `ring` is given, backups of another ring count as damaged.
///
/// # Errors
/// When the storage cannot be listed or read.
pub async fn survey(storage: &Storage, ring: Option<RingId>) -> Result<Survey, StorageError> {
    let mut survey = Survey::default();
    for (name, objects) in by_name(storage).await? {
        if !objects.contains_key(&name.manifest()) {
            survey.unfinished.insert(name);
            continue;
        }
        let read = read(storage, name, ring).await;
        let whole = read.and_then(|manifest| match lost(&manifest, &objects) {
            None => Ok(manifest),
            Some(lost) => Err(lost),
        });
        match whole {
            Ok(manifest) => survey.bases.push(manifest),
            Err(BaseError::Storage(error)) if !matches!(error, StorageError::TooLarge { .. }) => {
                return Err(error);
            }
            Err(error) => survey.damaged.push(DamagedBase { name, error }),
        }
    }
    Ok(survey)
}

async fn read(
    storage: &Storage,
    name: BaseName,
    ring: Option<RingId>,
) -> Result<BaseManifest, BaseError> {
    let bytes = storage.read(&name.manifest(), MAX_MANIFEST_BYTES).await?;
    let read = BaseManifest::read(&bytes, name, ring);
    read.map_err(|error| BaseError::Manifest(name, error))
}

/// The first object of a base backup that is missing or has another size.
fn lost(manifest: &BaseManifest, listed: &Listing) -> Option<BaseError> {
    manifest.objects.iter().find_map(|object| {
        let found = listed.get(&object.name).map(|listed| listed.bytes);
        let what = match found {
            Some(bytes) if bytes == object.bytes => return None,
            Some(bytes) => format!(
                "it has {bytes} bytes, and the manifest says {}",
                object.bytes
            ),
            None => "it is missing".to_owned(),
        };
        let object = object.name.clone();
        Some(BaseError::Damaged(object, what))
    })
}

/// The objects of each base backup.
async fn by_name(storage: &Storage) -> Result<BTreeMap<BaseName, Listing>, StorageError> {
    let mut names: BTreeMap<BaseName, Listing> = BTreeMap::new();
    for (object, listed) in storage.list(BASE_FOLDER).await? {
        if let Some(name) = BaseName::of_object(&object) {
            names.entry(name).or_default().insert(object, listed);
        }
    }
    Ok(names)
}

/// An unused name for a backup with this start time, or with the first later second that has no backup.
///
/// # Errors
/// When the storage cannot be listed, or no second before the year 10000 is free.
pub async fn free_name(
    storage: &Storage,
    began_at: u64,
    member: MemberId,
) -> Result<BaseName, StorageError> {
    let taken = by_name(storage).await?;
    let mut names = (began_at..).map_while(|second| BaseName::new(second, member));
    let free = names.find(|name| !taken.contains_key(name));
    free.ok_or_else(|| StorageError::Settings("the clock of this host is wrong".to_owned()))
}

/// Removes and returns this member's unfinished backups. The caller must ensure that none of them is still being taken.
///
/// # Errors
/// When the storage cannot be listed, or refuses the deletion.
pub async fn remove_unfinished(
    storage: &Storage,
    member: MemberId,
) -> Result<BTreeSet<BaseName>, StorageError> {
    let mut removed = BTreeSet::new();
    for (name, objects) in by_name(storage).await? {
        if name.member() == member && !objects.contains_key(&name.manifest()) {
            for object in objects.keys() {
                storage.delete(object).await?;
            }
            removed.insert(name);
        }
    }
    Ok(removed)
}

/// Removes the objects of a base backup without a manifest.
pub(super) async fn remove_objects(storage: &Storage, name: BaseName) -> Result<(), StorageError> {
    let objects = storage.list(&name.folder()).await?;
    if objects.contains_key(&name.manifest()) {
        return Ok(());
    }
    for object in objects.keys() {
        storage.delete(object).await?;
    }
    Ok(())
}
