//! The log in a real S3 server.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use archive::archiver::Archiver;
use archive::reading::ArchivedLog;
use archive::storage::{Storage, StorageSettings};
use object_store::memory::InMemory;
use object_store::path::Path;
use raft_types::MemberId;
use testkit::object_storage::{Conduct, ObjectStorage, SECRET_KEY};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::archiver::archive_all;
use crate::ring::{Ring, entries, id, ring};

/// Longer than a call takes, shorter than the silence.
const CALL_LIMIT: Duration = Duration::from_millis(1_500);

pub(crate) fn storage(server: &ObjectStorage, secret: &str) -> Storage {
    let options = server
        .options()
        .map(|(name, value)| (name.to_owned(), value));
    let mut settings = StorageSettings {
        url: server.url("rings/orders").parse().unwrap(),
        options: options.into(),
        call_limit: CALL_LIMIT,
    };
    let key = "aws_secret_access_key".to_owned();
    settings.options.insert(key, secret.to_owned());
    Storage::open(&settings).unwrap()
}

/// Every file of an archive, in one piece after the other.
async fn bytes(storage: &Storage) -> Vec<u8> {
    let log = ArchivedLog::look(storage.clone(), Some(ring())).await;
    let mut log = log.unwrap().unwrap();
    assert_eq!(log.runs().len(), 1);
    let mut all = Vec::new();
    for piece in log.runs()[0].pieces.clone() {
        let manifest = log.manifest(piece).await.unwrap();
        all = log.read(&manifest, None, all).await.unwrap();
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_archived_whether_the_server_hangs_up_or_is_silent() {
    let server = ObjectStorage::start().unwrap();
    let store = storage(&server, SECRET_KEY);
    let mut log = Ring::new();
    log.append(entries(0..10));
    let mut archiver = Archiver::new(store.clone(), log.store.handle(), ring(), MemberId(1));
    assert_eq!(archive_all(&mut archiver, id(9)).await, 0);
    log.append(entries(10..20));
    for conduct in [Conduct::HangsUp, Conduct::IsSilent] {
        server.conduct(conduct);
        let failed = archiver.step(Some(id(19))).await.unwrap_err().to_string();
        assert!(!failed.contains(SECRET_KEY), "{failed}");
        server.conduct(Conduct::Serves);
    }
    archive_all(&mut archiver, id(19)).await;
    // The same as in any other storage.
    let other = Storage::over(Arc::new(InMemory::new()), Path::from("x"), CALL_LIMIT);
    let mut beside = Archiver::new(other.clone(), log.store.handle(), ring(), MemberId(1));
    archive_all(&mut beside, id(19)).await;
    assert_eq!(bytes(&store).await, bytes(&other).await);
    assert!(server.requests() > 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_is_refused_and_not_told() {
    let server = ObjectStorage::start().unwrap();
    let wrong = "anothersecretthatnobodyknows";
    let refused = storage(&server, wrong).list("log/").await.unwrap_err();
    let words = refused.to_string();
    assert!(
        !words.contains(wrong) && !words.contains(SECRET_KEY),
        "{words}"
    );
    assert!(
        storage(&server, SECRET_KEY)
            .list("log/")
            .await
            .unwrap()
            .is_empty()
    );
}

/// Larger than one part of an upload; and to read it may take longer than a call.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_is_stored_in_parts() {
    let server = ObjectStorage::start().unwrap();
    let store = storage(&server, SECRET_KEY);
    let mut random = fastrand::Rng::with_seed(7);
    let written: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(20 << 20)
        .collect();
    let mut upload = store.upload("log/large", Handle::current(), None);
    let content = written.clone();
    let stored = spawn_blocking(move || {
        content
            .chunks(300_000)
            .try_for_each(|chunk| upload.write_all(chunk))?;
        upload.finish()
    });
    stored.await.unwrap().unwrap();
    assert_eq!(store.size("log/large").await.unwrap(), Some(20 << 20));
    let mut download = store
        .download("log/large", Handle::current())
        .await
        .unwrap();
    let read = spawn_blocking(move || {
        let (mut read, mut part) = (Vec::new(), vec![0; 1 << 20]);
        for _ in 0..20 {
            download.read_exact(&mut part)?;
            read.extend_from_slice(&part);
            std::thread::sleep(CALL_LIMIT / 10);
        }
        download.read_to_end(&mut read).map(|_| read)
    });
    assert!(read.await.unwrap().unwrap() == written);
}
