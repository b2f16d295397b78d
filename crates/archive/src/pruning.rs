//! Prunes an archive: selects deletable objects ([`crate::retention`]) and deletes them step by step. Pruning may be stopped at any moment,
//! may run on several members, and does not disturb concurrent archivers or readers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use binlog_store::FileNumber;
use raft_types::{MemberId, RingId};
use serde::Serialize;

use crate::base_backup::survey;
use crate::manifest::{Manifest, ManifestError, json};
use crate::name::{Begin, LOG_FOLDER, PieceName};
use crate::reading::{ArchivedLog, PieceFault};
use crate::retention::{
    Act, FileAge, Keep, Plan, committed_by, may_begin_with, may_go, plan, that_replace,
};
use crate::storage::{Listing, Storage, StorageError};

/// Maximum number of manifests read per kind of deletable object. The other objects wait for the next pruning.
const MOST_MANIFESTS: usize = 256;

/// Maximum time by which the clock may be ahead of the archive's newest object. It is longer than the retention of replaced pieces. Without
/// this limit, a clock that jumps ahead would delete everything.
const LATEST: Duration = Duration::from_secs(2 * 24 * 3600);

/// Why an archive is not pruned. Nothing was lost.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// A storage request failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The archive belongs to another ring.
    #[error("nothing is deleted: {0} belongs to ring {1}")]
    OtherRing(PieceName, RingId),
}

/// Prunes one archive.
#[derive(Clone)]
pub struct Pruner {
    storage: Storage,
    ring: Option<RingId>,
    by: Option<MemberId>,
}

impl Pruner {
    /// Creates a pruner: `by` is the ring and the pruning member, or `None` for a caller that does not know the ring.
    pub fn new(storage: Storage, by: Option<(RingId, MemberId)>) -> Self {
        Self {
            storage,
            ring: by.map(|(ring, _)| ring),
            by: by.map(|(_, member)| member),
        }
    }

    /// Selects deletable objects, without deleting any. If `now` is more than two days later than the newest object by the storage's clock,
    /// that object's time plus two days is used instead.
    ///
    /// # Errors
    /// When the storage cannot be read, or the archive belongs to another ring.
    pub async fn look(&self, keep: &Keep, mut now: SystemTime) -> Result<Pruning, PruneError> {
        let listing = self.storage.list(LOG_FOLDER).await?;
        let mut keep = keep.clone();
        let newest = listing.values().map(|listed| listed.written).max();
        if let Some(latest) = newest.map(|newest| newest + LATEST)
            && let Ok(ahead) = now.duration_since(latest)
        {
            // The time limit moves back by the same amount.
            let ahead = u64::try_from(ahead.as_micros()).unwrap_or(u64::MAX);
            keep.since_us = keep.since_us.map(|since| since.saturating_sub(ahead));
            now = latest;
        }
        let log = ArchivedLog::of_listing(self.storage.clone(), self.ring, &listing);
        let nothing = Pruning {
            pruner: self.clone(),
            plan: Plan::default(),
            done: 0,
            now,
        };
        let Some(mut log) = log else {
            return Ok(nothing);
        };
        let known = survey(&self.storage, self.ring).await?;
        let expired = may_go(&known.bases, keep.since_us, keep.base_backups);
        let kept = known.bases.iter().filter(|base| !expired.contains(base));
        keep.after
            .extend(kept.map(|base| base.gtids_at_least.clone()));
        let ages = ages(&mut log, &listing, &keep).await?;
        let begin = may_begin_with(&ages, &keep);
        let mut wholes = BTreeMap::new();
        for whole in that_replace(&listing, now).into_iter().take(MOST_MANIFESTS) {
            if let Some(manifest) = manifest(&mut log, whole).await? {
                wholes.insert(whole, manifest.object);
            }
        }
        let plan = plan(&listing, &wholes, begin, now).without(&expired);
        let mut pruning = Pruning { plan, ..nothing };
        pruning.pruner.ring = log.ring();
        Ok(pruning)
    }
}

/// The files of an archive's log up to the first file that stays, with the ages of the oldest ones.
async fn ages(
    log: &mut ArchivedLog,
    listing: &Listing,
    keep: &Keep,
) -> Result<Vec<FileAge>, PruneError> {
    let mut files: BTreeMap<FileNumber, (PieceName, PieceName)> = BTreeMap::new();
    for piece in log.pieces() {
        let ends = files.entry(piece.file).or_insert((piece, piece));
        ends.1 = piece;
    }
    let mut ages = Vec::new();
    let until = keep.until_us();
    let mut left = until.map_or(0, |_| MOST_MANIFESTS);
    for (file, (first, last)) in files {
        let mut age = FileAge {
            file,
            last_us: None,
            gtids_before: None,
        };
        if left > 0 {
            left -= 1;
            let written = listing.get(&last.manifest()).map(|listed| listed.written);
            let of_last = manifest(log, last).await?;
            age.last_us = (of_last.as_ref().zip(written))
                .map(|(manifest, written)| committed_by(manifest, written));
            let of_first = match first == last || keep.after.is_empty() {
                true => of_last,
                false => manifest(log, first).await?,
            };
            age.gtids_before = of_first.map(|manifest| manifest.gtids_before);
            if age.last_us >= until && age.last_us.is_some() {
                left = 0;
            }
        }
        ages.push(age);
    }
    Ok(ages)
}

/// Reads a manifest; `None` if it is missing or unusable.
async fn manifest(log: &mut ArchivedLog, piece: PieceName) -> Result<Option<Manifest>, PruneError> {
    match log.manifest(piece).await {
        Ok(manifest) => Ok(Some(manifest)),
        Err(PieceFault::Manifest(ManifestError::OtherRing(ring))) => {
            Err(PruneError::OtherRing(piece, ring))
        }
        Err(PieceFault::Storage(error)) if !matches!(error, StorageError::NotFound(_)) => {
            Err(error.into())
        }
        Err(fault) => {
            tracing::warn!(%piece, %fault, "what this piece has is not known, and it is kept");
            Ok(None)
        }
    }
}

/// Deletable objects, deleted step by step.
pub struct Pruning {
    /// Contains the ring's id, if there is a log.
    pruner: Pruner,
    /// The whole plan, including completed steps.
    pub plan: Plan,
    /// The number of completed steps.
    done: usize,
    now: SystemTime,
}

impl Pruning {
    /// True if all steps are done.
    pub fn is_done(&self) -> bool {
        self.done == self.plan.acts.len()
    }

    /// Performs at most `at_most` further steps; returns the number of deleted objects.
    ///
    /// # Errors
    /// When a step fails or its outcome is unknown. The next call retries it.
    pub async fn proceed(&mut self, at_most: usize) -> Result<u64, PruneError> {
        let mut deleted = 0;
        for _ in 0..at_most {
            match self.plan.acts.get(self.done) {
                None => break,
                Some(Act::Begin(begin)) => self.write(*begin).await?,
                Some(Act::Delete(name)) => {
                    self.pruner.storage.delete(name).await?;
                    deleted += 1;
                }
            }
            self.done += 1;
        }
        Ok(deleted)
    }

    /// Stores the archive's new begin. This must precede the deletions: the objects deleted afterwards are then no longer part of the
    /// archive.
    async fn write(&self, begin: Begin) -> Result<(), PruneError> {
        #[derive(Serialize)]
        struct Pruned {
            version: u32,
            ring: Option<RingId>,
            history: u32,
            begins: String,
            pruned_by: Option<MemberId>,
            /// Time of the pruning in seconds since 1970.
            pruned_at: u64,
        }
        let since = self.now.duration_since(SystemTime::UNIX_EPOCH);
        let pruned = Pruned {
            version: 1,
            ring: self.pruner.ring,
            history: begin.timeline.0,
            begins: begin.file.name(),
            pruned_by: self.pruner.by,
            pruned_at: since.unwrap_or_default().as_secs(),
        };
        let storage = &self.pruner.storage;
        Ok(storage.write_checked(&begin.name(), json(&pruned)).await?)
    }
}
