//! The log in a real S3 server.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use archive::archiver::Archiver;
use archive::encryption::Identities;
use archive::pruning::Pruner;
use archive::reading::ArchivedLog;
use archive::retention::{GRACE, Keep};
use archive::storage::{Storage, StorageSettings};
use object_store::memory::InMemory;
use object_store::path::Path;
use raft_types::MemberId;
use testkit::object_storage::{Conduct, LATE, ObjectStorage, SECRET_KEY};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::archiver::archive_all;
use crate::encrypted::new_keys;
use crate::ring::{Ring, entries, id, ring};

/// Longer than a call takes, shorter than the simulated silence.
const CALL_LIMIT: Duration = Duration::from_millis(1_500);

pub(crate) fn storage(server: &ObjectStorage, secret: &str) -> Storage {
    patient_storage(server, secret, CALL_LIMIT)
}

fn patient_storage(server: &ObjectStorage, secret: &str, call_limit: Duration) -> Storage {
    let options = server
        .options()
        .map(|(name, value)| (name.to_owned(), value));
    let mut settings = StorageSettings {
        url: server.url("rings/orders").parse().unwrap(),
        options: options.into(),
        call_limit,
    };
    let key = "aws_secret_access_key".to_owned();
    settings.options.insert(key, secret.to_owned());
    Storage::open(&settings).unwrap()
}

/// The bytes of an archive, piece by piece.
async fn bytes(storage: &Storage) -> Vec<u8> {
    let log = ArchivedLog::look(storage.clone(), Some(ring())).await;
    let mut log = log.unwrap().unwrap();
    assert_eq!(log.runs.len(), 1);
    let mut all = Vec::new();
    for piece in log.runs[0].pieces.clone() {
        let manifest = log.manifest(piece).await.unwrap();
        all = log.read(&manifest, None, all).await.unwrap();
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn archiving_survives_s3_disconnects_and_silence() {
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
    // The bytes are the same as in any other storage.
    let other = Storage::over(Arc::new(InMemory::new()), Path::from("x"), CALL_LIMIT);
    let mut second = Archiver::new(other.clone(), log.store.handle(), ring(), MemberId(1));
    archive_all(&mut second, id(19)).await;
    assert_eq!(bytes(&store).await, bytes(&other).await);
    assert!(server.requests() > 20);
}

/// The server answers after the timeout. A stored object then counts as not stored, and is stored again.
#[tokio::test(flavor = "multi_thread")]
async fn late_answers_leave_no_gap_and_no_unreadable_piece() {
    let server = ObjectStorage::start().unwrap();
    let impatient = storage(&server, SECRET_KEY);
    let patient = patient_storage(&server, SECRET_KEY, LATE * 4);
    let (recipients, identities) = new_keys();
    let mut log = Ring::new();
    log.append(entries(0..20));
    let archiver = |storage: &Storage, member| {
        let handle = log.store.handle();
        Archiver::new(storage.clone(), handle, ring(), MemberId(member))
    };
    let mut first = archiver(&impatient, 1);
    first.recipients = Some(recipients.clone());
    archive_all(&mut first, id(3)).await;
    server.conduct(Conduct::AnswersLate);
    // The answer to the object's upload is late; in the second step, even the listing fails.
    for _ in 0..2 {
        let failed = first.step(Some(id(10))).await.unwrap_err().to_string();
        assert!(!failed.contains(SECRET_KEY), "{failed}");
    }
    // An attempt with a longer timeout succeeds, although its answers are late.
    let mut second = archiver(&patient, 2);
    second.recipients = Some(recipients);
    let began = std::time::Instant::now();
    second.step(Some(id(5))).await.unwrap();
    assert!(began.elapsed() > LATE * 4);
    server.conduct(Conduct::Serves);
    archive_all(&mut first, id(19)).await;
    let read = async |storage: &Storage, identities: Identities| {
        let log = ArchivedLog::look(storage.clone(), Some(ring())).await;
        let mut log = log.unwrap().unwrap().with_identities(identities);
        assert_eq!(log.runs.len(), 1);
        let mut all = Vec::new();
        for piece in log.runs[0].pieces.clone() {
            let manifest = log.manifest(piece).await.unwrap();
            all = log.read(&manifest, None, all).await.unwrap();
        }
        all
    };
    let other = Storage::over(Arc::new(InMemory::new()), Path::from("x"), CALL_LIMIT);
    archive_all(&mut archiver(&other, 1), id(19)).await;
    let expected = read(&other, Identities::default()).await;
    assert!(read(&impatient, identities).await == expected);
}

/// During pruning, the server closes connections and answers late.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_pruned_by_s3() {
    let server = ObjectStorage::start().unwrap();
    let store = storage(&server, SECRET_KEY);
    let mut log = Ring::new();
    log.append(entries(0..44));
    let mut archiver = Archiver::new(store.clone(), log.store.handle(), ring(), MemberId(1));
    for committed in (3..44).step_by(4) {
        archive_all(&mut archiver, id(committed)).await;
    }
    let before = bytes(&store).await;
    let now = SystemTime::now() + GRACE + Duration::from_secs(60);
    // By the archiving member's and the storage's clocks, everything was archived just now.
    let keep = Keep::for_the_last(Some(Duration::from_secs(30)), None, now);
    let pruner = Pruner::new(store.clone(), Some((ring(), MemberId(1))));
    let mut pruning = pruner.look(&keep, now).await.unwrap();
    let all = pruning.plan.acts.len();
    for (done, conduct) in [(5, Conduct::HangsUp), (20, Conduct::AnswersLate)] {
        pruning.proceed(done).await.unwrap();
        server.conduct(conduct);
        let failed = pruning.proceed(1).await.unwrap_err().to_string();
        assert!(!failed.contains(SECRET_KEY), "{failed}");
        server.conduct(Conduct::Serves);
    }
    pruning.proceed(all).await.unwrap();
    let after = bytes(&store).await;
    assert!(after.len() < before.len() && before.ends_with(&after));
    assert!(pruner.look(&keep, now).await.unwrap().is_done());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_secret_is_refused_and_not_shown() {
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

/// Larger than one part of an upload; reading it may take longer than one call.
#[tokio::test(flavor = "multi_thread")]
async fn large_object_is_stored_in_parts() {
    let server = ObjectStorage::start().unwrap();
    let store = storage(&server, SECRET_KEY);
    let mut random = fastrand::Rng::with_seed(7);
    let written: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(20 << 20)
        .collect();
    // On a busy machine, the last call of an upload takes more than a second.
    let patient = patient_storage(&server, SECRET_KEY, LATE * 4);
    let mut upload = patient.upload("log/large", Handle::current(), None);
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
