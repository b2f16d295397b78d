//! Readers of an archive detect changed objects.

use std::sync::Arc;

use archive::archiver::Archiver;
use archive::contents::Hash;
use archive::manifest::Manifest;
use archive::name::{Begin, PieceName, Timeline};
use archive::reading::{ArchivedLog, PieceFault};
use archive::storage::{Storage, StorageError};
use binlog_store::{FileNumber, LogPlace};
use object_store::memory::InMemory;
use object_store::path::Path;
use raft_types::{MemberId, RingId};

use crate::archiver::{CALL_LIMIT, archive_all};
use crate::ring::{Ring, entries, id, ring};

/// An archive of some files, and of the beginning of the current one.
async fn archive() -> Storage {
    let storage = Storage::over(
        Arc::new(InMemory::new()),
        Path::from("backups/one"),
        CALL_LIMIT,
    );
    let mut log = Ring::new();
    log.append(entries(0..20));
    let mut archiver = Archiver::new(storage.clone(), log.store.handle(), ring(), MemberId(1));
    assert_eq!(archive_all(&mut archiver, id(19)).await, 0);
    storage
}

/// Reads all pieces in order; returns the first fault.
pub(crate) async fn read_all(
    storage: &Storage,
    of: Option<RingId>,
) -> Result<Vec<Manifest>, PieceFault> {
    let log = ArchivedLog::look(storage.clone(), of).await.unwrap();
    let mut log = log.unwrap();
    let pieces: Vec<PieceName> = log.runs.iter().flat_map(|run| run.pieces.clone()).collect();
    let mut read: Vec<Manifest> = Vec::new();
    for piece in pieces {
        let manifest = log.manifest(piece).await?;
        let bytes = log.read(&manifest, read.last(), Vec::new()).await?;
        assert_eq!(bytes.len() as u64, piece.end - piece.start);
        read.push(manifest);
    }
    assert_eq!(log.ring(), Some(ring()));
    Ok(read)
}

async fn replaced(storage: &Storage, manifest: &Manifest) {
    let name = manifest.piece.manifest();
    storage.write(&name, manifest.to_bytes()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_read_whole_and_is_of_its_ring() {
    let storage = archive().await;
    let manifests = read_all(&storage, None).await.unwrap();
    assert!(manifests.len() >= 3);
    assert_eq!(read_all(&storage, Some(ring())).await.unwrap(), manifests);
    let other = RingId("99999999-2222-3333-4444-555555555555".parse().unwrap());
    let fault = read_all(&storage, Some(other)).await.unwrap_err();
    assert!(matches!(fault, PieceFault::Manifest(_)), "{fault}");
    let empty = Storage::over(Arc::new(InMemory::new()), Path::from("none"), CALL_LIMIT);
    assert!(ArchivedLog::look(empty, None).await.unwrap().is_none());
}

/// Manifests of version 1 contain the hash of the previous manifest's bytes.
#[tokio::test(flavor = "multi_thread")]
async fn manifests_of_the_first_version_are_read() {
    let storage = archive().await;
    let manifests = read_all(&storage, None).await.unwrap();
    let mut before: Option<Manifest> = None;
    for manifest in &manifests[..2] {
        let mut older = manifest.clone();
        older.version = 1;
        if let (Some(named), Some(before)) = (&mut older.before, &before) {
            named.sha256 = Hash::of(&before.to_bytes());
        }
        replaced(&storage, &older).await;
        before = Some(older);
    }
    let read = read_all(&storage, None).await.unwrap();
    assert_eq!(read.len(), manifests.len());
    // A later version wrote the third manifest, which continues them. A change of the first manifest is detected.
    let mut changed = read[0].clone();
    changed.archived_at += 1;
    replaced(&storage, &changed).await;
    let fault = read_all(&storage, None).await.unwrap_err();
    assert!(matches!(fault, PieceFault::Chain { .. }), "{fault}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_begin_differs_from_a_pruned_one() {
    let storage = archive().await;
    let look = || async {
        let log = ArchivedLog::look(storage.clone(), Some(ring())).await;
        let mut log = log.unwrap().unwrap();
        let first = log.runs[0].pieces[0];
        let manifest = log.manifest(first).await.unwrap();
        (log.begins, log.missing_before(&manifest))
    };
    assert_eq!(look().await, (None, None));
    let manifests = read_all(&storage, None).await.unwrap();
    let all = storage.list("log/").await.unwrap();
    for name in all.keys().filter(|name| name.contains("binlog.000001")) {
        storage.delete(name).await.unwrap();
    }
    let second = LogPlace {
        file: manifests[0].piece.file.next(),
        offset: 0,
    };
    let (begins, missing) = look().await;
    let (from, to) = missing.unwrap();
    assert_eq!(
        (begins, from.file, to),
        (None, manifests[0].piece.file, second)
    );
    let begin = |file| Begin {
        timeline: Timeline::FIRST,
        file,
    };
    let pruned = begin(second.file).name();
    storage.write(&pruned, b"{}\n".to_vec()).await.unwrap();
    assert_eq!(look().await, (Some(second), None));
    // One file more is missing than was pruned.
    storage.delete(&pruned).await.unwrap();
    let pruned = begin(FileNumber::FIRST).name();
    storage.write(&pruned, b"{}\n".to_vec()).await.unwrap();
    let first = LogPlace {
        file: FileNumber::FIRST,
        offset: 0,
    };
    assert_eq!(look().await, (Some(first), Some((first, second))));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_changed_objects_are_named() {
    let storage = archive().await;
    let manifests = read_all(&storage, None).await.unwrap();
    let (first, second) = (&manifests[0], &manifests[1]);

    let object = storage.read(&first.object.name, 1 << 20).await.unwrap();
    storage.delete(&first.object.name).await.unwrap();
    let fault = read_all(&storage, None).await.unwrap_err();
    assert!(
        matches!(fault, PieceFault::Storage(StorageError::NotFound(_))),
        "{fault}"
    );
    let mut changed = object.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    storage.write(&first.object.name, changed).await.unwrap();
    let fault = read_all(&storage, None).await.unwrap_err();
    assert!(matches!(fault, PieceFault::Seal(_)), "{fault}");
    // The object contains another piece's bytes, which are intact.
    let other = storage.read(&second.object.name, 1 << 20).await.unwrap();
    storage
        .write(&first.object.name, other.to_vec())
        .await
        .unwrap();
    let fault = read_all(&storage, None).await.unwrap_err();
    assert!(matches!(fault, PieceFault::Seal(_)), "{fault}");
    storage
        .write(&first.object.name, object.to_vec())
        .await
        .unwrap();
    assert_eq!(read_all(&storage, None).await.unwrap(), manifests);

    storage
        .write(&second.piece.manifest(), b"{".to_vec())
        .await
        .unwrap();
    let fault = read_all(&storage, None).await.unwrap_err();
    assert!(matches!(fault, PieceFault::Manifest(_)), "{fault}");
    replaced(&storage, second).await;

    let mut gtids = second.clone();
    gtids.gtids_before = second.gtids_after();
    let mut entries = second.clone();
    entries.first = entries.last;
    let mut named = second.clone();
    named.before.as_mut().unwrap().sha256 = named.object.sha256;
    for (changed, what) in [
        (gtids, "the GTIDs of the log before it are others"),
        (entries, "its first entry is not the next one"),
        (named, "it names a manifest with another SHA-256"),
    ] {
        replaced(&storage, &changed).await;
        let fault = read_all(&storage, None).await.unwrap_err();
        let words = fault.to_string();
        assert!(
            matches!(fault, PieceFault::Chain { .. }) && words.contains(what),
            "{words}"
        );
    }
}
