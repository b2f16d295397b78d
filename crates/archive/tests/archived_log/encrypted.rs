//! The archive is encrypted for recipients, and the archiver cannot read it.

use std::sync::Arc;

use archive::archiver::{Archiver, Step};
use archive::encryption::{EncryptionError, Identities, Recipients, new_identity};
use archive::manifest::Manifest;
use archive::name::{LOG_FOLDER, PieceName};
use archive::reading::{ArchivedLog, PieceFault};
use archive::sealed::SealError;
use archive::storage::Storage;
use object_store::memory::InMemory;

use crate::archiver::{archive_all, archiver, storage};
use crate::faulty_storage::{Fault, FaultyStorage};
use crate::ring::{Ring, entries, id, ring};

/// A recipient and its identity, parsed from their file formats.
pub(crate) fn new_keys() -> (Recipients, Identities) {
    let (identity, recipient) = new_identity().unwrap();
    let files = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    std::fs::write(files[0].path(), identity).unwrap();
    std::fs::write(files[1].path(), recipient).unwrap();
    let identities = Identities::of_files([&files[0].path().to_owned()]);
    let recipients = Recipients::of_file(files[1].path());
    (recipients.unwrap(), identities.unwrap())
}

fn of_both(first: &Identities, second: &Identities) -> [Identities; 2] {
    [first.clone(), second.clone()]
}

/// The archived bytes of the log, or the first fault. Each piece is decrypted with the first identities that match.
async fn read_with(storage: &Storage, identities: &[Identities]) -> Result<Vec<u8>, PieceFault> {
    let log = ArchivedLog::look(storage.clone(), Some(ring())).await;
    let mut log = log.unwrap().unwrap();
    assert_eq!(log.runs.len(), 1);
    let (mut all, mut before) = (Vec::new(), None::<Manifest>);
    for piece in log.runs[0].pieces.clone() {
        let manifest = log.manifest(piece).await?;
        let mut read = log.read(&manifest, before.as_ref(), Vec::new()).await;
        for identities in identities {
            if read.as_ref().is_err_and(PieceFault::lacks_an_identity) {
                let log = log.clone().with_identities(identities.clone());
                read = log.read(&manifest, before.as_ref(), Vec::new()).await;
            }
        }
        all.extend(read?);
        before = Some(manifest);
    }
    Ok(all)
}

/// The bytes of the log up to an entry.
fn expected(of: &Ring, committed: u64) -> Vec<u8> {
    let log = of.log(id(committed));
    let files = log
        .files
        .iter()
        .filter(|(file, _)| *file <= log.committed.file);
    let bytes = files.map(|(file, _)| {
        let mut bytes = of.bytes(*file);
        if *file == log.committed.file {
            bytes.truncate(log.committed.offset as usize);
        }
        bytes
    });
    bytes.collect::<Vec<_>>().concat()
}

async fn manifests(storage: &Storage) -> Vec<Manifest> {
    let listing = storage.list(LOG_FOLDER).await.unwrap();
    let mut manifests = Vec::new();
    for piece in listing
        .keys()
        .filter_map(|name| PieceName::of_manifest(name))
    {
        let bytes = storage.read(&piece.manifest(), 1 << 20).await.unwrap();
        manifests.push(Manifest::read(&bytes, piece, Some(ring())).unwrap());
    }
    manifests
}

fn encrypting(of: &Ring, storage: &Storage, member: u64, for_whom: &Recipients) -> Archiver {
    let mut archiver = archiver(of, storage, member);
    archiver.recipients = Some(for_whom.clone());
    archiver
}

#[tokio::test(flavor = "multi_thread")]
async fn members_archive_for_recipients_without_identities() {
    let mut of = Ring::new();
    of.append(entries(0..30));
    let storage = storage(Arc::new(InMemory::new()));
    let (recipients, identities) = new_keys();
    // Members continue in turn, and none has an identity.
    for (member, committed) in [(1, 5), (2, 13), (3, 21), (1, 29)] {
        let mut member = encrypting(&of, &storage, member, &recipients);
        assert_eq!(archive_all(&mut member, id(committed)).await, 0);
        let read = read_with(&storage, std::slice::from_ref(&identities))
            .await
            .unwrap();
        assert!(read == expected(&of, committed));
    }
    let listing = storage.list(LOG_FOLDER).await.unwrap();
    for name in listing.keys().filter(|name| !name.ends_with(".json")) {
        let bytes = storage.read(name, 1 << 20).await.unwrap();
        assert!(name.ends_with(".zst.age"), "{name}");
        assert!(bytes.starts_with(b"age-encryption.org/v1\n"), "{name}");
    }
    for manifest in manifests(&storage).await {
        assert_eq!(manifest.sha256, None, "it would reveal the bytes");
    }

    let fault = read_with(&storage, &[]).await.unwrap_err();
    let none = EncryptionError::NoIdentity;
    assert!(
        matches!(&fault, PieceFault::Seal(SealError::Encryption(error)) if *error == none),
        "{fault}"
    );
    let (_, strangers) = new_keys();
    let fault = read_with(&storage, &[strangers]).await.unwrap_err();
    let others = EncryptionError::OtherRecipients;
    assert!(
        matches!(&fault, PieceFault::Seal(SealError::Encryption(error)) if *error == others),
        "{fault}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn recipients_change_between_pieces() {
    let mut of = Ring::new();
    of.append(entries(0..45));
    let storage = storage(Arc::new(InMemory::new()));
    let (first, of_first) = new_keys();
    let (second, of_second) = new_keys();
    let mut member = archiver(&of, &storage, 1);
    // Encryption is switched on and off within a file and at its end.
    for (committed, recipients) in [
        (4, None),
        (12, Some(&first)),
        (23, Some(&first)),
        (35, Some(&second)),
        (44, None),
    ] {
        member.recipients = recipients.cloned();
        archive_all(&mut member, id(committed)).await;
    }
    let kinds: Vec<_> = manifests(&storage).await;
    let encrypted = kinds.iter().filter(|one| one.object.encryption.is_some());
    let encrypted = encrypted.count();
    assert!(encrypted > 2 && encrypted < kinds.len() - 1);
    let read = read_with(&storage, &of_both(&of_first, &of_second)).await;
    assert!(read.unwrap() == expected(&of, 44));
    for one in [of_first, of_second] {
        let fault = read_with(&storage, &[one]).await.unwrap_err();
        assert!(fault.lacks_an_identity(), "{fault}");
    }
}

/// A second encryption of a piece yields other bytes, so each manifest must name its own object.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_encrypting_archivers_replace_no_object() {
    let mut of = Ring::new();
    of.append(entries(0..20));
    let storage = storage(Arc::new(InMemory::new()));
    let (recipients, identities) = new_keys();
    let mut members = [1, 2].map(|member| encrypting(&of, &storage, member, &recipients));
    for committed in [3, 6, 9, 19] {
        for member in &mut members {
            member.refresh(Some(id(committed))).await.unwrap();
        }
        for member in &mut members {
            let step = member.step(Some(id(committed))).await.unwrap();
            assert!(matches!(step, Step::Archived { .. }));
        }
    }
    archive_all(&mut members[0], id(19)).await;
    let read = read_with(&storage, &[identities]).await.unwrap();
    assert!(read == expected(&of, 19));
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_faults_leave_readable_encrypted_pieces() {
    let mut of = Ring::new();
    of.append(entries(0..20));
    let (recipients, identities) = new_keys();
    for fault in [Fault::Refused, Fault::Denied, Fault::Lost, Fault::Cut] {
        for at in 0.. {
            let faulty = FaultyStorage::with(fault, at);
            let storage = storage(faulty.clone());
            for (member, committed) in [(1, 4), (1, 9), (2, 19)] {
                let mut member = encrypting(&of, &storage, member, &recipients);
                archive_all(&mut member, id(committed)).await;
            }
            let happened = faulty.repair();
            let read = read_with(&storage, std::slice::from_ref(&identities))
                .await
                .unwrap();
            assert!(read == expected(&of, 19), "{fault:?} at {at}");
            if !happened {
                assert!(at >= 15, "{at}");
                break;
            }
        }
    }
}
