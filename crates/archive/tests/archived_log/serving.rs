//! Purged files are served from the archive, whole and verified, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use archive::encryption::{Identities, Recipients};
use archive::name::{Begin, LOG_FOLDER, PieceName, Timeline};
use archive::serving::{CacheOptions, Held, ServedArchive, ServingError};
use archive::storage::Storage;
use binlog_format::gtid::GtidSet;
use binlog_store::{FileNumber, LogBegin};
use object_store::memory::InMemory;
use tempfile::TempDir;

use crate::archiver::{archive_all, archiver, storage};
use crate::encrypted::new_keys;
use crate::faulty_storage::{Fault, FaultyStorage};
use crate::ring::{Ring, entries, id, ring};

fn number(number: u64) -> FileNumber {
    FileNumber::new(number).unwrap()
}

/// A log whose first three files are only in the archive.
struct Purged {
    storage: Storage,
    /// The bytes of all files, from before the purge.
    files: BTreeMap<FileNumber, Vec<u8>>,
    /// The begin of the log before each purge, and its current begin.
    begins: Vec<LogBegin>,
}

impl Purged {
    async fn with(storage: Storage, recipients: Option<Recipients>) -> Self {
        let mut of = Ring::new();
        of.append(entries(0..29));
        let mut archiver = archiver(&of, &storage, 1);
        archiver.recipients = recipients;
        // The first file is also archived in pieces.
        for committed in [4, 6, 28] {
            archive_all(&mut archiver, id(committed)).await;
        }
        let handle = of.store.handle();
        let files = handle.files().into_iter();
        let files = files.map(|file| (file.number, of.bytes(file.number)));
        let files = files.collect();
        let mut begins = vec![handle.begin().unwrap()];
        for last in [7, 15, 23] {
            of.purge(id(last));
            begins.push(handle.begin().unwrap());
        }
        assert_eq!(begins[3].file, number(4));
        Self {
            storage,
            files,
            begins,
        }
    }

    async fn new() -> Self {
        Self::with(storage(Arc::new(InMemory::new())), None).await
    }

    fn begin(&self) -> &LogBegin {
        self.begins.last().unwrap()
    }

    /// The GTIDs of everything before a file.
    fn before(&self, file: u64) -> &GtidSet {
        &self.begins[file as usize - 1].gtids
    }

    fn served(&self) -> Served {
        self.served_with(|_| ())
    }

    fn served_with(&self, change: impl FnOnce(&mut CacheOptions)) -> Served {
        Served::of(&self.storage, Identities::default(), change)
    }

    async fn is_read(&self, served: &Served, file: u64) {
        let expected = &self.files[&number(file)];
        let mut read = Vec::new();
        loop {
            let part = served
                .archive
                .read(number(file), read.len() as u64, 1000)
                .await;
            let part = part.unwrap().unwrap();
            if part.is_empty() {
                break;
            }
            read.extend_from_slice(&part);
        }
        assert!(read == *expected, "file {file}");
    }

    /// The objects of a file.
    async fn objects(&self, file: u64) -> Vec<String> {
        let listing = self.storage.list(LOG_FOLDER).await.unwrap();
        let of_file = |name: &String| {
            PieceName::of_object(name).is_some_and(|piece| piece.file == number(file))
        };
        listing.into_keys().filter(of_file).collect()
    }
}

struct Served {
    archive: ServedArchive,
    directory: TempDir,
}

impl Served {
    fn of(
        storage: &Storage,
        identities: Identities,
        change: impl FnOnce(&mut CacheOptions),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut options = CacheOptions {
            directory: directory.path().join("fetched"),
            most_bytes: 1 << 30,
            stays_free: 0,
            free: |_| Ok(u64::MAX),
            idle: Duration::from_secs(600),
            patience: Duration::from_secs(60),
        };
        change(&mut options);
        let storage = storage.clone();
        let opens = Box::new(move || Ok((storage.clone(), identities.clone())));
        Self {
            archive: ServedArchive::new(ring(), opens, options),
            directory,
        }
    }

    async fn fetch(&self, of: &Purged, file: u64) -> Result<Held, ServingError> {
        self.archive.fetch(of.begin(), number(file)).await
    }

    fn listed(&self, of: &Purged) -> Vec<u64> {
        let files = self.archive.older_files(of.begin()).into_iter();
        files.map(|file| file.number.get()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_files_are_served_unchanged() {
    let of = Purged::new().await;
    let served = of.served();
    assert!(served.listed(&of).is_empty(), "not listed yet");
    let begins = async |have: &GtidSet| {
        let begin = served.archive.begin_for(of.begin(), have).await;
        begin.unwrap().map(FileNumber::get)
    };
    assert_eq!(begins(&GtidSet::new()).await, Some(1));
    for file in [2, 3] {
        assert_eq!(begins(of.before(file)).await, Some(file));
    }
    assert_eq!(served.listed(&of), [1, 2, 3]);
    let purged = served.archive.gtids_before(of.begin());
    assert_eq!(purged, Some(GtidSet::new()));
    assert!(served.archive.read(number(1), 0, 10).await.is_none());
    for file in [1, 2, 3] {
        let held = served.fetch(&of, file).await.unwrap();
        of.is_read(&served, file).await;
        drop(held);
    }
    let gone = served.fetch(&of, 4).await.unwrap_err();
    assert_eq!(gone, ServingError::Gone(number(4)));
    let figures = served.archive.figures(Some(of.begin()));
    let bytes: usize = (1..=3).map(|file| of.files[&number(file)].len()).sum();
    assert_eq!(
        (figures.files_total, figures.bytes_total),
        (3, bytes as u64)
    );
    assert_eq!(
        (figures.disk_bytes, figures.first),
        (bytes as u64, Some(number(1)))
    );
    // The files have no names, so that none remains after the process ends in any way.
    let left = std::fs::read_dir(served.directory.path().join("fetched"));
    assert_eq!(left.unwrap().count(), 0);

    // If the log begins earlier or is not purged, fewer files are served.
    let earlier = &of.begins[1];
    served.archive.look(earlier, Duration::ZERO).await.unwrap();
    assert_eq!(served.archive.older_files(earlier).len(), 1);
    assert!(
        served.listed(&of).is_empty(),
        "they were in front of another begin"
    );
    served
        .archive
        .look(&of.begins[0], Duration::ZERO)
        .await
        .unwrap();
    assert!(served.archive.older_files(&of.begins[0]).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn file_in_pieces_is_served_like_a_whole_one() {
    let of = Purged::new().await;
    let whole = of.objects(1).await;
    let mut whole = whole.iter().filter_map(|name| PieceName::of_object(name));
    let whole = whole.find(PieceName::is_whole_file).unwrap();
    for name in [whole.manifest(), whole.object()] {
        of.storage.delete(&name).await.unwrap();
    }
    assert!(of.objects(1).await.len() > 1);
    let served = of.served();
    let _held = served.fetch(&of, 1).await.unwrap();
    of.is_read(&served, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_before_a_gap_are_not_served() {
    let of = Purged::new().await;
    for name in of.objects(2).await {
        of.storage.delete(&name).await.unwrap();
    }
    let served = of.served();
    let begin = served.archive.begin_for(of.begin(), of.before(2)).await;
    assert_eq!(begin.unwrap(), None);
    let begin = served.archive.begin_for(of.begin(), of.before(3)).await;
    assert_eq!(begin.unwrap(), Some(number(3)));
    assert_eq!(served.listed(&of), [3]);
    let purged = served.archive.gtids_before(of.begin());
    assert_eq!(purged.as_ref(), Some(of.before(3)));
    for file in [1, 2] {
        let gone = served.fetch(&of, file).await.unwrap_err();
        assert_eq!(gone, ServingError::Gone(number(file)));
    }
    served.fetch(&of, 3).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_of_another_history_is_not_served() {
    let of = Purged::new().await;
    let served = of.served();
    let mut other = of.begin().clone();
    other.gtids = of.before(3).clone();
    served.archive.look(&other, Duration::ZERO).await.unwrap();
    assert!(served.archive.older_files(&other).is_empty());
    let mut other = of.begin().clone();
    other.before = Some(id(22));
    served.archive.look(&other, Duration::ZERO).await.unwrap();
    assert!(served.archive.older_files(&other).is_empty());
    assert_eq!(served.archive.gtids_before(&other), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn pruned_files_are_gone_and_lost_ones_named() {
    let of = Purged::new().await;
    let served = of.served();
    served
        .archive
        .look(of.begin(), Duration::ZERO)
        .await
        .unwrap();
    let mut lost = of.objects(3).await;
    lost.retain(|name| PieceName::of_object(name).is_some_and(|piece| piece.is_whole_file()));
    let kept = of.storage.read(&lost[0], 1 << 20).await.unwrap();
    of.storage.delete(&lost[0]).await.unwrap();
    let error = served.fetch(&of, 3).await.unwrap_err();
    assert!(matches!(error, ServingError::Missing { .. }), "{error}");
    assert!(!error.may_pass() && error.to_string().contains("binlog.000003"));
    of.storage.write(&lost[0], kept.to_vec()).await.unwrap();

    served
        .archive
        .look(of.begin(), Duration::ZERO)
        .await
        .unwrap();
    let begin = Begin {
        timeline: Timeline::FIRST,
        file: number(2),
    };
    of.storage
        .write(&begin.name(), b"{}\n".to_vec())
        .await
        .unwrap();
    let listing = of.storage.list(LOG_FOLDER).await.unwrap();
    for name in listing
        .keys()
        .filter(|name| name.contains("binlog.000001/"))
    {
        of.storage.delete(name).await.unwrap();
    }
    let error = served.fetch(&of, 1).await.unwrap_err();
    assert_eq!(error, ServingError::Gone(number(1)));
    assert_eq!(served.listed(&of), [2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_truncated_objects_are_named_and_not_served() {
    let of = Purged::new().await;
    let mut objects = of.objects(2).await;
    objects.retain(|name| PieceName::of_object(name).is_some_and(|piece| piece.is_whole_file()));
    let sound = of.storage.read(&objects[0], 1 << 20).await.unwrap();
    let mut flipped = sound.to_vec();
    flipped[sound.len() / 2] ^= 1;
    let other = of.objects(3).await.pop().unwrap();
    let exchanged = of.storage.read(&other, 1 << 20).await.unwrap();
    for damaged in [
        flipped,
        sound[..sound.len() / 2].to_vec(),
        exchanged.to_vec(),
    ] {
        of.storage.write(&objects[0], damaged).await.unwrap();
        let served = of.served();
        let error = served.fetch(&of, 2).await.unwrap_err();
        assert!(matches!(error, ServingError::Damaged { .. }), "{error}");
        assert!(
            !error.may_pass() && error.to_string().contains("/binlog.000002/"),
            "{error}"
        );
        assert!(served.archive.read(number(2), 0, 10).await.is_none());
        // Other files are still served. This file is served after its object is restored.
        served.fetch(&of, 3).await.unwrap();
        let figures = served.archive.figures(None);
        assert_eq!((figures.failures_total, figures.error), (1, None));
        of.storage.write(&objects[0], sound.to_vec()).await.unwrap();
        let _held = served.fetch(&of, 2).await.unwrap();
        of.is_read(&served, 2).await;
    }
}

/// Every storage call fails once: it is refused, or unanswered until its timeout.
#[tokio::test(flavor = "multi_thread")]
async fn failed_storage_is_reported_and_retried() {
    let faulty = FaultyStorage::with(Fault::Refused, u64::MAX);
    let of = Purged::with(storage(faulty.clone()), None).await;
    for fault in [Fault::Refused, Fault::Denied, Fault::Silent] {
        for at in 0.. {
            let served = of.served();
            faulty.plan(fault, at);
            let tried = async {
                let begin = served.archive.begin_for(of.begin(), of.before(2)).await?;
                assert_eq!(begin, Some(number(2)));
                served.fetch(&of, 2).await
            };
            let tried = tried.await;
            let happened = faulty.repair();
            match tried {
                Ok(_) => assert!(!happened, "{fault:?} at {at}"),
                Err(error) => {
                    assert!(matches!(error, ServingError::Storage(_)), "{error}");
                    assert!(error.may_pass());
                    assert!(served.archive.figures(None).error.is_some());
                }
            }
            let _held = served.fetch(&of, 2).await.unwrap();
            of.is_read(&served, 2).await;
            assert_eq!(served.archive.figures(None).error, None);
            if !happened {
                assert!(at >= 5, "{at}");
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_reader_does_not_cancel_a_shared_fetch() {
    let of = Arc::new(Purged::new().await);
    let served = Arc::new(of.served());
    let both = (served.fetch(&of, 1), served.fetch(&of, 1));
    let (first, second) = tokio::join!(both.0, both.1);
    assert_eq!(served.archive.figures(None).files_total, 1);
    drop(first.unwrap());
    served.archive.tidy();
    of.is_read(&served, 1).await;
    drop(second);

    // A request is cancelled during the fetch, and the next one gets the file.
    let leaving = tokio::time::timeout(Duration::from_micros(300), served.fetch(&of, 2)).await;
    drop(leaving);
    let _held = served.fetch(&of, 2).await.unwrap();
    of.is_read(&served, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cache_is_bounded_and_keeps_files_in_use() {
    let of = Purged::new().await;
    let bytes = |file| of.files[&number(file)].len() as u64;
    let most = bytes(1) + bytes(2) + bytes(3) / 2;
    let served = of.served_with(|options| {
        options.most_bytes = most;
        options.patience = Duration::from_millis(200);
    });
    let first = served.fetch(&of, 1).await.unwrap();
    let second = served.fetch(&of, 2).await.unwrap();
    let error = served.fetch(&of, 3).await.unwrap_err();
    assert_eq!(error, ServingError::Full(number(3), most));
    assert!(error.may_pass());
    of.is_read(&served, 1).await;
    drop(second);
    let third = served.fetch(&of, 3).await.unwrap();
    of.is_read(&served, 3).await;
    of.is_read(&served, 1).await;
    assert!(
        served.archive.read(number(2), 0, 10).await.is_none(),
        "it went for the third"
    );
    assert!(served.archive.figures(None).disk_bytes <= most);
    // A waiting request continues when another request releases its file.
    let waits = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(first);
    };
    let (second, ()) = tokio::join!(served.fetch(&of, 2), waits);
    second.unwrap();
    drop(third);

    let tight = of.served_with(|options| options.most_bytes = 100);
    let error = tight.fetch(&of, 1).await.unwrap_err();
    assert!(matches!(error, ServingError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("archive.serve_bytes"));
    let full = of.served_with(|options| {
        options.stays_free = 1_000;
        options.free = |_| Ok(1_001);
    });
    let error = full.fetch(&of, 1).await.unwrap_err();
    assert!(matches!(error, ServingError::DiskFull { .. }), "{error}");
    assert_eq!(full.archive.figures(None).disk_bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_files_expire_and_no_name_is_left() {
    let of = Purged::new().await;
    let served = of.served_with(|options| options.idle = Duration::from_secs(1));
    let held = served.fetch(&of, 1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    served.archive.tidy();
    of.is_read(&served, 1).await;
    drop(held);
    served.archive.tidy();
    of.is_read(&served, 1).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    served.archive.tidy();
    assert!(served.archive.read(number(1), 0, 10).await.is_none());
    assert_eq!(served.archive.figures(None).disk_bytes, 0);
    let mut names = std::fs::read_dir(served.directory.path().join("fetched")).unwrap();
    assert!(names.next().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_files_are_served_with_an_identity_only() {
    let (recipients, identities) = new_keys();
    let (_, strangers) = new_keys();
    let of = Purged::with(storage(Arc::new(InMemory::new())), Some(recipients)).await;
    let without_identity = of.served();
    let none = GtidSet::new();
    let error = without_identity
        .archive
        .begin_for(of.begin(), &none)
        .await
        .unwrap_err();
    assert!(matches!(error, ServingError::Encrypted { .. }), "{error}");
    assert!(!error.may_pass() && error.to_string().contains("archive.identity_file"));
    assert!(
        without_identity.listed(&of).is_empty(),
        "nothing is promised that cannot be kept"
    );
    assert_eq!(without_identity.archive.gtids_before(of.begin()), None);

    let stranger = Served::of(&of.storage, strangers, |_| ());
    let error = stranger.fetch(&of, 1).await.unwrap_err();
    assert!(matches!(error, ServingError::Encrypted { .. }), "{error}");

    let served = Served::of(&of.storage, identities, |_| ());
    let begin = served.archive.begin_for(of.begin(), &none).await;
    assert_eq!(begin.unwrap(), Some(number(1)));
    let _held = served.fetch(&of, 1).await.unwrap();
    of.is_read(&served, 1).await;
}
