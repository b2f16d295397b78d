//! Data directories are archived and restored unchanged, or the caller gets an error.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use archive::base_backup::{
    BASE_VERSION, BaseError, BaseForm, BaseManifest, BaseName, OBJECT_BYTES, Packed, Tar,
    UploadOptions, data_object, download, finish, free_name, remove_unfinished, survey, upload,
    verify,
};
use archive::contents::Hash;
use archive::encryption::{EncryptionError, Identities, Recipients, new_identity};
use archive::manifest::Object;
use archive::pruning::Pruner;
use archive::retention::Keep;
use archive::storage::{Storage, StorageError};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path as Folder;
use raft_types::{MemberId, RingId};
use tempfile::TempDir;
use testkit::object_storage::{Conduct, ObjectStorage, SECRET_KEY};

use crate::archiver::{CALL_LIMIT, archive_all, archiver};
use crate::faulty_storage::{Fault, FaultyStorage};
use crate::ring::{Ring, entries, id, ring};

/// Objects so small that every test has several of them.
const SMALL: UploadOptions = UploadOptions {
    recipients: None,
    bytes_per_second: None,
    object_bytes: 100_000,
};

fn storage(objects: Arc<dyn ObjectStore>) -> Storage {
    Storage::over(objects, Folder::from("backups/one"), CALL_LIMIT)
}

fn in_memory() -> Storage {
    storage(Arc::new(InMemory::new()))
}

fn name(began_at: u64) -> BaseName {
    BaseName::new(began_at, MemberId(3)).unwrap()
}

/// Names and bytes of a data directory; `None` for a directory.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

fn tree(directory: &Path) -> Tree {
    fn below(top: &Path, directory: &Path, tree: &mut Tree) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let place = path.strip_prefix(top).unwrap().to_owned();
            if path.is_dir() {
                tree.insert(place, None);
                below(top, &path, tree);
            } else {
                tree.insert(place, Some(fs::read(&path).unwrap()));
            }
        }
    }
    let mut all = Tree::new();
    below(directory, directory, &mut all);
    all
}

/// A data directory of some files; backups exclude the last one.
fn data_dir(seed: u64) -> TempDir {
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let long = format!("shop/{}.ibd", "@0416".repeat(40));
    for (file, bytes) in [
        ("ibdata1", 150_000),
        ("mysql.ibd", 80_000),
        ("#innodb_redo/#ib_redo1", 70_000),
        ("shop/orders.ibd", 120_001),
        ("shop/empty.ibd", 0),
        (&long, 511),
        ("undo_001", 512),
    ] {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(bytes)
            .collect();
        fs::write(path, content).unwrap();
    }
    fs::create_dir(folder.path().join("empty_schema")).unwrap();
    fs::write(folder.path().join("auto.cnf"), "[auto]").unwrap();
    folder
}

fn manifest(name: BaseName, packed: Packed) -> BaseManifest {
    let gtids = |upto: u64| {
        let text = format!("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-{upto}");
        text.parse().unwrap()
    };
    BaseManifest {
        version: BASE_VERSION,
        ring: ring(),
        name,
        form: BaseForm::DataDirectory,
        gtids_at_least: gtids(7),
        gtids_at_most: gtids(9),
        committed: None,
        began_at: name.began_at(),
        ended_at: name.began_at() + 1,
        mysqld_version: None,
        server_uuid: None,
        keyring_needed: None,
        objects: packed.objects,
        tar: Some(packed.tar),
        unpacked_bytes: packed.unpacked_bytes,
        files: packed.files,
        taken_by: name.member(),
    }
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

async fn take(storage: &Storage, at: u64, from: &Path) -> Result<BaseManifest, BaseError> {
    take_in(storage, at, from, SMALL).await
}

async fn take_in(
    storage: &Storage,
    at: u64,
    from: &Path,
    options: UploadOptions,
) -> Result<BaseManifest, BaseError> {
    let packed = upload(storage, name(at), from, options, go_on).await?;
    let manifest = manifest(name(at), packed);
    finish(storage, &manifest).await?;
    Ok(manifest)
}

async fn assert_whole(storage: &Storage, base: &BaseManifest, from: &Path) {
    assert_whole_for(storage, base, &no_identities(), from).await;
}

/// The base backups of an archive in which none is damaged.
async fn look(storage: &Storage) -> Result<Vec<BaseManifest>, BaseError> {
    let survey = survey(storage, Some(ring())).await?;
    match survey.damaged.into_iter().next() {
        Some(damaged) => Err(damaged.error),
        None => Ok(survey.bases),
    }
}

fn no_identities() -> Identities {
    Identities::default()
}

async fn assert_whole_for(
    storage: &Storage,
    base: &BaseManifest,
    identities: &Identities,
    from: &Path,
) {
    verify(storage, base, identities, go_on).await.unwrap();
    let into = tempfile::tempdir().unwrap();
    let got = download(storage, base, identities, into.path(), go_on).await;
    got.unwrap();
    let mut expected = tree(from);
    expected.remove(Path::new("auto.cnf"));
    assert!(tree(into.path()) == expected);
}

/// Stores a tar stream that this program would not produce, with its manifest.
async fn store(storage: &Storage, at: u64, stream: &[u8], files: u64, bytes: u64) -> BaseManifest {
    let object = zstd::encode_all(stream, 3).unwrap();
    store_object(storage, at, object, stream, files, bytes).await
}

async fn store_object(
    storage: &Storage,
    at: u64,
    object: Vec<u8>,
    stream: &[u8],
    files: u64,
    bytes: u64,
) -> BaseManifest {
    let packed = Packed {
        objects: vec![Object {
            name: data_object(&name(at), 1, None),
            bytes: object.len() as u64,
            sha256: Hash::of(&object),
            encryption: None,
        }],
        tar: Tar {
            bytes: stream.len() as u64,
            sha256: Hash::of(stream),
        },
        unpacked_bytes: bytes,
        files,
    };
    let place = packed.objects[0].name.clone();
    storage.write(&place, object).await.unwrap();
    let manifest = manifest(name(at), packed);
    finish(storage, &manifest).await.unwrap();
    manifest
}

#[tokio::test(flavor = "multi_thread")]
async fn data_directory_is_restored_unchanged() {
    let from = data_dir(1);
    let storage = in_memory();
    let told = Arc::new(AtomicU64::new(0));
    let tells = told.clone();
    let progress = move |bytes| {
        assert!(bytes > tells.swap(bytes, Ordering::Relaxed));
        ControlFlow::Continue(())
    };
    let packed = upload(&storage, name(100), from.path(), SMALL, progress);
    let packed = packed.await.unwrap();
    assert!(packed.objects.len() >= 4, "{packed:?}");
    assert_eq!(packed.unpacked_bytes, told.load(Ordering::Relaxed));
    assert_eq!(packed.files, 7);
    // The backup does not count yet, so no reader uses it.
    assert_eq!(look(&storage).await.unwrap(), []);
    let first = manifest(name(100), packed);
    finish(&storage, &first).await.unwrap();
    assert_whole(&storage, &first, from.path()).await;

    let other = data_dir(2);
    let second = take(&storage, 90, other.path()).await.unwrap();
    let known = look(&storage).await.unwrap();
    assert_eq!(known, [second.clone(), first.clone()]);
    assert_whole(&storage, &second, other.path()).await;
    // A complete backup never changes, and its name is not used again.
    let again = finish(&storage, &first).await;
    assert!(matches!(again, Err(BaseError::Taken(_))), "{again:?}");
    let free = free_name(&storage, 90, MemberId(3)).await.unwrap();
    assert_eq!(free, name(91));
    let of_another = free_name(&storage, 90, MemberId(4)).await.unwrap();
    assert_eq!(of_another.began_at(), 90);
}

/// The objects form one tar stream, for manual unpacking with `zstd` and `tar`.
#[tokio::test(flavor = "multi_thread")]
async fn the_objects_are_unpacked_without_this_program() {
    let from = data_dir(3);
    let storage = in_memory();
    let base = take(&storage, 1, from.path()).await.unwrap();
    let mut stream = Vec::new();
    for object in &base.objects {
        let bytes = storage.read(&object.name, 1 << 20).await.unwrap();
        stream.extend(zstd::decode_all(bytes.as_ref()).unwrap());
    }
    let into = tempfile::tempdir().unwrap();
    tar::Archive::new(stream.as_slice())
        .unpack(into.path())
        .unwrap();
    let mut expected = tree(from.path());
    expected.remove(Path::new("auto.cnf"));
    assert!(tree(into.path()) == expected);
}

/// Every storage call fails once. The base backup is complete or does not count, and the next one is not affected.
#[tokio::test(flavor = "multi_thread")]
async fn storage_faults_leave_complete_base_backups() {
    let from = data_dir(4);
    // Only two objects, because each unanswered call takes a whole timeout.
    let options = UploadOptions {
        object_bytes: 300_000,
        ..SMALL
    };
    for fault in Fault::ALL {
        for at in 0.. {
            let faulty = FaultyStorage::with(fault, at);
            let storage = storage(faulty.clone());
            let taken = take_in(&storage, 100, from.path(), options.clone()).await;
            let happened = faulty.repair();
            if !happened {
                taken.unwrap();
                assert!(at >= 9, "{at}");
                break;
            }
            if let Err(error) = &taken {
                assert!(!error.is_damage(), "{fault:?} {at}: {error}");
            }
            let survey = survey(&storage, Some(ring())).await.unwrap();
            for base in &survey.bases {
                assert_whole(&storage, base, from.path()).await;
            }
            if taken.is_ok() {
                assert_eq!(survey.bases.len(), 1);
            }
            let next = take(&storage, 200, from.path()).await.unwrap();
            assert_whole(&storage, &next, from.path()).await;
            remove_unfinished(&storage, MemberId(3)).await.unwrap();
            let left = self::survey(&storage, Some(ring())).await.unwrap();
            assert!(left.unfinished.is_empty());
            assert!(left.bases.contains(&next));
        }
    }
}

/// The storage loses or truncates an acknowledged object or manifest.
#[tokio::test(flavor = "multi_thread")]
async fn lost_acknowledged_object_is_an_error() {
    let from = data_dir(13);
    let objects = take(&in_memory(), 1, from.path())
        .await
        .unwrap()
        .objects
        .len() as u64;
    // Each object is stored and then checked. After that, all objects and the manifest are checked.
    let of_manifest = objects * 2 + 1 + objects;
    for fault in [Fault::Lost, Fault::Cut] {
        for at in [0, of_manifest] {
            let storage = storage(FaultyStorage::with(fault, at));
            let taken = take(&storage, 1, from.path()).await;
            assert!(
                matches!(taken, Err(BaseError::Storage(StorageError::Lost { .. }))),
                "{fault:?} {at}: {taken:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_backups_do_not_count_and_are_removed() {
    let from = data_dir(5);
    let storage = in_memory();
    let whole = take(&storage, 100, from.path()).await.unwrap();
    // The process is killed before it writes the manifest.
    let left = upload(&storage, name(200), from.path(), SMALL, go_on).await;
    let left = left.unwrap();
    let known = survey(&storage, Some(ring())).await.unwrap();
    assert_eq!(known.bases, slice::from_ref(&whole));
    assert_eq!(Vec::from_iter(known.unfinished), [name(200)]);
    // Another member may be taking a backup at this moment.
    let of_another = remove_unfinished(&storage, MemberId(4)).await.unwrap();
    assert!(of_another.is_empty());
    let removed = remove_unfinished(&storage, MemberId(3)).await.unwrap();
    assert_eq!(Vec::from_iter(removed), [name(200)]);
    for object in &left.objects {
        assert_eq!(storage.size(&object.name).await.unwrap(), None);
    }
    // If the member continues with the removed backup, no manifest is written.
    let finished = finish(&storage, &manifest(name(200), left)).await;
    assert!(
        matches!(finished, Err(BaseError::Storage(StorageError::Lost { .. }))),
        "{finished:?}"
    );
    assert_whole(&storage, &whole, from.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_upload_leaves_nothing() {
    let from = data_dir(6);
    let storage = in_memory();
    let stop = |bytes| match bytes > 200_000 {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    let stopped = upload(&storage, name(1), from.path(), SMALL, stop).await;
    assert!(matches!(stopped, Err(BaseError::Stopped)), "{stopped:?}");
    assert!(storage.list("base/").await.unwrap().is_empty());
    let base = take(&storage, 1, from.path()).await.unwrap();
    let stopped = verify(&storage, &base, &no_identities(), stop).await;
    assert!(matches!(stopped, Err(BaseError::Stopped)), "{stopped:?}");
}

/// A server runs on the directory during the upload, so the bytes read are from several moments.
#[tokio::test(flavor = "multi_thread")]
async fn directory_changed_during_backup_is_refused() {
    type Change = fn(&Path);
    let changes: [Change; 3] = [
        |directory| {
            let mut file = File::options()
                .append(true)
                .open(directory.join("undo_001"))
                .unwrap();
            file.write_all(b"more").unwrap();
        },
        |directory| fs::write(directory.join("shop/new.ibd"), "new").unwrap(),
        |directory| {
            let file = File::options().write(true).open(directory.join("undo_001"));
            file.unwrap().set_len(10).unwrap();
        },
    ];
    for change in changes {
        let from = data_dir(7);
        let storage = in_memory();
        let once = Mutex::new(Some(from.path().to_owned()));
        let progress = move |_| {
            if let Some(directory) = once.lock().unwrap().take() {
                change(&directory);
            }
            ControlFlow::Continue(())
        };
        let refused = upload(&storage, name(1), from.path(), SMALL, progress).await;
        assert!(
            matches!(refused, Err(BaseError::Unfit { .. })),
            "{refused:?}"
        );
        assert!(storage.list("base/").await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_and_changed_objects_are_named() {
    let from = data_dir(8);
    let storage = in_memory();
    let base = take(&storage, 100, from.path()).await.unwrap();
    let other = take(&storage, 200, data_dir(9).path()).await.unwrap();
    let second = &base.objects[1].name;
    let bytes = storage.read(second, 1 << 20).await.unwrap().to_vec();
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    let mut longer = bytes.clone();
    longer.push(0);
    let others = storage.read(&other.objects[1].name, 1 << 20).await.unwrap();
    for wrong in [
        None,
        Some(changed),
        Some(bytes[..bytes.len() - 1].to_vec()),
        Some(Vec::new()),
        Some(longer),
        // Another base backup's objects, which are intact.
        Some(others.to_vec()),
    ] {
        match wrong {
            None => storage.delete(second).await.unwrap(),
            Some(wrong) => storage.write(second, wrong).await.unwrap(),
        }
        let into = tempfile::tempdir().unwrap();
        let downloaded = download(&storage, &base, &no_identities(), into.path(), go_on).await;
        for refused in [
            downloaded,
            verify(&storage, &base, &no_identities(), go_on).await,
        ] {
            let Err(BaseError::Damaged(object, _)) = &refused else {
                panic!("{refused:?}");
            };
            assert!(
                object.ends_with(second) || base.name.folder() == *object,
                "{object}"
            );
        }
        storage.write(second, bytes.clone()).await.unwrap();
    }
    // Objects in another order.
    let mut exchanged = base.clone();
    exchanged.objects.swap(0, 1);
    let refused = verify(&storage, &exchanged, &no_identities(), go_on).await;
    assert!(refused.is_err_and(|error| error.is_damage()));
    assert_whole(&storage, &base, from.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_manifests_are_reported_and_others_count() {
    let from = data_dir(10);
    let storage = in_memory();
    let base = take(&storage, 100, from.path()).await.unwrap();
    let damaged = name(200);
    storage
        .write(&damaged.manifest(), b"{".to_vec())
        .await
        .unwrap();
    let refused = look(&storage).await;
    assert!(
        matches!(refused, Err(BaseError::Manifest(name, _)) if name == damaged),
        "{refused:?}"
    );
    let known = survey(&storage, Some(ring())).await.unwrap();
    assert_eq!(known.bases, [base]);
    assert_eq!(known.damaged[0].name, damaged);
    // A backup of another ring does not count.
    let other = RingId("99999999-2222-3333-4444-555555555555".parse().unwrap());
    let known = survey(&storage, Some(other)).await.unwrap();
    assert_eq!((known.bases.len(), known.damaged.len()), (0, 2));
}

/// The storage lost or truncated an object of the newest base backup, so a restore needs an older one.
#[tokio::test(flavor = "multi_thread")]
async fn older_backup_is_kept_if_the_newest_lost_an_object() {
    let from = data_dir(11);
    let storage = in_memory();
    let mut log = Ring::new();
    log.append(entries(0..44));
    archive_all(&mut archiver(&log, &storage, 1), id(43)).await;
    let older = take(&storage, 100, from.path()).await.unwrap();
    let newest = take(&storage, 200, from.path()).await.unwrap();
    let pruner = Pruner::new(storage.clone(), Some((ring(), MemberId(1))));
    let keep = Keep {
        base_backups: Some(1),
        ..Keep::default()
    };
    let expired = async || {
        let pruning = pruner.look(&keep, SystemTime::now()).await.unwrap();
        pruning.plan.base_backups.objects
    };
    let all_of_older = older.objects.len() as u64 + 1;
    assert_eq!(expired().await, all_of_older);
    let lost = &newest.objects[1].name;
    let bytes = storage.read(lost, 1 << 20).await.unwrap().to_vec();
    for left in [None, Some(&bytes[1..])] {
        storage.delete(lost).await.unwrap();
        if let Some(left) = left {
            storage.write(lost, left.to_vec()).await.unwrap();
        }
        assert_eq!(expired().await, 0);
        let known = survey(&storage, Some(ring())).await.unwrap();
        assert_eq!(known.bases, slice::from_ref(&older));
        assert!(known.damaged[0].error.to_string().contains(lost));
    }
    storage.write(lost, bytes).await.unwrap();
    assert_eq!(expired().await, all_of_older);
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_backup_is_not_downloaded() {
    let storage = in_memory();
    let mut base = manifest(
        name(1),
        Packed {
            objects: Vec::new(),
            tar: Tar {
                bytes: 0,
                sha256: Hash::of(b""),
            },
            unpacked_bytes: 0,
            files: 0,
        },
    );
    base.tar = None;
    base.form = BaseForm::Registered {
        tool: "xtrabackup".to_owned(),
        place: "nfs://host/backup".to_owned(),
    };
    finish(&storage, &base).await.unwrap();
    let known = look(&storage).await.unwrap();
    assert_eq!(known, slice::from_ref(&base));
    let into = tempfile::tempdir().unwrap();
    let absent = into.path().join("absent");
    let refused = download(&storage, &base, &no_identities(), &absent, go_on)
        .await
        .unwrap_err();
    assert!(!absent.exists());
    let words = refused.to_string();
    assert!(
        words.contains("nfs://host/backup with xtrabackup"),
        "{words}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn download_needs_an_empty_directory() {
    let from = data_dir(11);
    let storage = in_memory();
    let base = take(&storage, 1, from.path()).await.unwrap();
    let into = tempfile::tempdir().unwrap();
    fs::write(into.path().join("mine"), "mine").unwrap();
    let refused = download(&storage, &base, &no_identities(), into.path(), go_on).await;
    assert!(
        matches!(refused, Err(BaseError::Unfit { .. })),
        "{refused:?}"
    );
    assert_eq!(tree(into.path()).len(), 1);
    // A missing directory is created.
    let absent = into.path().join("a/b");
    download(&storage, &base, &no_identities(), &absent, go_on)
        .await
        .unwrap();
    assert!(absent.join("ibdata1").is_file());
}

/// Someone with write access to the archive cannot make a restore write outside its directory.
#[tokio::test(flavor = "multi_thread")]
async fn unpacking_stays_in_its_directory() {
    let home = tempfile::tempdir().unwrap();
    let storage = in_memory();
    let outside = home.path().join("outside");
    for (at, hostile) in [
        "../outside".to_owned(),
        outside.display().to_string(),
        "shop/../../outside".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..hostile.len()].copy_from_slice(hostile.as_bytes());
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(4);
        header.set_cksum();
        let mut stream = header.as_bytes().to_vec();
        stream.extend(b"evil");
        stream.resize(4 * 512, 0);
        let base = store(&storage, at as u64, &stream, 1, 4).await;
        let into = home.path().join(format!("into-{at}"));
        let refused = download(&storage, &base, &no_identities(), &into, go_on).await;
        assert!(
            matches!(refused, Err(BaseError::Damaged { .. })),
            "{refused:?}"
        );
        assert!(!outside.exists());
        assert!(tree(&into).is_empty());
    }
    // A link through which a file would be written elsewhere.
    let mut builder = tar::Builder::new(Vec::new());
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "shop", home.path()).unwrap();
    let mut file = tar::Header::new_gnu();
    file.set_size(4);
    builder
        .append_data(&mut file, "shop/outside", &b"evil"[..])
        .unwrap();
    let stream = builder.into_inner().unwrap();
    let base = store(&storage, 50, &stream, 1, 4).await;
    let into = home.path().join("into-link");
    let refused = download(&storage, &base, &no_identities(), &into, go_on).await;
    assert!(
        matches!(refused, Err(BaseError::Damaged { .. })),
        "{refused:?}"
    );
    assert!(!outside.exists());
}

/// A few bytes unpack to more than the disk or the memory can hold.
#[tokio::test(flavor = "multi_thread")]
async fn download_is_bounded_by_the_manifest() {
    let storage = in_memory();
    let mut header = tar::Header::new_gnu();
    header.set_path("ibdata1").unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(1 << 40);
    header.set_cksum();
    let mut stream = header.as_bytes().to_vec();
    stream.resize(32 << 20, 0);
    let mut base = store(&storage, 1, &stream, 1, 100).await;
    let into = tempfile::tempdir().unwrap();
    let refused = download(&storage, &base, &no_identities(), into.path(), go_on).await;
    assert!(
        matches!(refused, Err(BaseError::Damaged { .. })),
        "{refused:?}"
    );
    assert!(tree(into.path()).is_empty());
    // A stream whose end differs from its manifest.
    let mut whole = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    whole
        .append_data(&mut header, "ibdata1", &b"abc"[..])
        .unwrap();
    let mut stream = whole.into_inner().unwrap();
    let good = store(&storage, 2, &stream, 1, 3).await;
    verify(&storage, &good, &no_identities(), go_on)
        .await
        .unwrap();
    stream.resize(32 << 20, 0);
    base = store(&storage, 3, &stream, 1, 3).await;
    base.tar = good.tar;
    let refused = verify(&storage, &base, &no_identities(), go_on).await;
    assert!(
        matches!(refused, Err(BaseError::Damaged { .. })),
        "{refused:?}"
    );
    // A frame that requires 128 MiB of memory.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(&stream).unwrap();
    let object = encoder.finish().unwrap();
    let base = store_object(&storage, 4, object, &stream, 1, 3).await;
    let refused = verify(&storage, &base, &no_identities(), go_on)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("memory"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_stores_a_base_backup_and_errors_contain_no_secret() {
    let server = ObjectStorage::start().unwrap();
    let storage = crate::s3::storage(&server, SECRET_KEY);
    let from = data_dir(12);
    // Larger than one part of an upload.
    let mut random = fastrand::Rng::with_seed(12);
    let large: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(9 << 20)
        .collect();
    fs::write(from.path().join("shop/large.ibd"), large).unwrap();
    let options = UploadOptions {
        object_bytes: OBJECT_BYTES,
        ..SMALL
    };
    let packed = upload(&storage, name(1), from.path(), options, go_on).await;
    let packed = packed.unwrap();
    assert_eq!(packed.objects.len(), 1);
    let base = manifest(name(1), packed);
    finish(&storage, &base).await.unwrap();
    assert_whole(&storage, &base, from.path()).await;
    for conduct in [Conduct::HangsUp, Conduct::IsSilent] {
        server.conduct(conduct);
        let failed = upload(&storage, name(2), from.path(), SMALL, go_on).await;
        let failed = failed.unwrap_err();
        assert!(matches!(failed, BaseError::Storage(_)), "{failed}");
        assert!(!failed.to_string().contains(SECRET_KEY), "{failed}");
        let failed = verify(&storage, &base, &no_identities(), go_on)
            .await
            .unwrap_err();
        assert!(!failed.is_damage(), "{failed}");
        server.conduct(Conduct::Serves);
    }
    let known = look(&storage).await.unwrap();
    assert_eq!(known, slice::from_ref(&base));
    assert_whole(&storage, &base, from.path()).await;
}

/// The member that takes the backup cannot read it; each recipient can.
#[tokio::test]
async fn encrypted_base_backup_needs_a_matching_identity() {
    let storage = in_memory();
    let from = data_dir(1);
    let keys = tempfile::tempdir().unwrap();
    let pair = |name: &str| {
        let (identity, recipient) = new_identity().unwrap();
        let files =
            ["identity", "recipient"].map(|kind| keys.path().join(format!("{name}.{kind}")));
        fs::write(&files[0], identity).unwrap();
        fs::write(&files[1], recipient).unwrap();
        let identities = Identities::of_files([&files[0]]).unwrap();
        (identities, Recipients::of_file(&files[1]).unwrap())
    };
    let ((ours, recipients), (others, _)) = (pair("ours"), pair("others"));
    let options = UploadOptions {
        recipients: Some(recipients),
        ..SMALL
    };
    let base = take_in(&storage, 1, from.path(), options).await.unwrap();
    assert!(base.objects.len() >= 2, "{base:?}");
    for object in &base.objects {
        assert!(object.name.ends_with(".zst.age"), "{object:?}");
    }
    assert_whole_for(&storage, &base, &ours, from.path()).await;
    for (identities, expected) in [
        (no_identities(), EncryptionError::NoIdentity),
        (others, EncryptionError::OtherRecipients),
    ] {
        let refused = verify(&storage, &base, &identities, go_on).await;
        let refused = refused.unwrap_err();
        let found = match &refused {
            BaseError::Encryption(_, error) => error,
            _ => panic!("{refused}"),
        };
        assert_eq!(*found, expected);
        assert!(!refused.is_damage());
    }
    // One byte is altered.
    let name = &base.objects[0].name;
    let mut bytes = storage.read(name, 1 << 30).await.unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    storage.write(name, bytes).await.unwrap();
    let refused = verify(&storage, &base, &ours, go_on).await.unwrap_err();
    assert!(refused.is_damage(), "{refused}");
    // An unencrypted backup next to an encrypted one is readable with and without identities.
    let plain = take(&storage, 2, from.path()).await.unwrap();
    assert_whole(&storage, &plain, from.path()).await;
    assert_whole_for(&storage, &plain, &ours, from.path()).await;
}
