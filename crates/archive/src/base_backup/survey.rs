//! Which base backups an archive has, and what is left of those that were not finished.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, RingId};

use super::error::BaseError;
use super::manifest::BaseManifest;
use super::name::{BASE_FOLDER, BaseName};
use crate::archiver::MAX_MANIFEST_BYTES;
use crate::storage::{Listing, Storage, StorageError};

/// What an archive has of base backups.
#[derive(Debug, Default)]
pub struct Survey {
    /// Those that count, oldest first.
    pub bases: Vec<BaseManifest>,
    /// Those whose manifests cannot be relied on, or whose objects are not all there with their sizes, oldest first.
    pub damaged: Vec<DamagedBase>,
    /// Those without a manifest: being taken at this moment, or left by whoever was killed. They do not count.
    pub unfinished: BTreeSet<BaseName>,
}

/// A base backup that cannot be restored.
#[derive(Debug)]
pub struct DamagedBase {
    /// Which one.
    pub name: BaseName,
    /// What is wrong with it.
    pub error: BaseError,
}

/// What an archive has of base backups; of this ring, where one is given: another one's are damage.
///
/// # Errors
/// When the storage does not say.
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

/// The base backups that an archive has, oldest first; of this ring, where one is given.
///
/// # Errors
/// When the storage does not say, or a manifest cannot be relied on. [`survey`] goes on with the others.
pub async fn look(storage: &Storage, ring: Option<RingId>) -> Result<Vec<BaseManifest>, BaseError> {
    let survey = survey(storage, ring).await?;
    match survey.damaged.into_iter().next() {
        Some(damaged) => Err(damaged.error),
        None => Ok(survey.bases),
    }
}

async fn read(
    storage: &Storage,
    name: BaseName,
    ring: Option<RingId>,
) -> Result<BaseManifest, BaseError> {
    let bytes = storage.read(&name.manifest(), MAX_MANIFEST_BYTES).await?;
    let read = BaseManifest::read(&bytes, name, ring);
    read.map_err(|error| BaseError::Manifest { name, error })
}

/// The first object of a base backup that the storage does not have with its size.
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
        Some(BaseError::Damaged { object, what })
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

/// A name that no base backup has, for one that was begun then: of the first second that is free.
///
/// # Errors
/// When the storage does not say, or there is none before the year 10000.
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

/// Removes what killed backups of this member have left in the storage. Only for whoever knows that none of them is being taken.
/// Which ones.
///
/// # Errors
/// When the storage does not let them be removed.
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

/// Removes the objects of a base backup that has no manifest.
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
