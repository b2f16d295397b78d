//! One member archives the ring's log. After it is killed, another member continues where it stopped. The archive equals the log byte by
//! byte and has no gap.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use archive::reading::ArchivedLog;
use archive::storage::{Storage, StorageSettings};
use raft_types::RingId;
use testkit::cluster::Cluster;
use testkit::object_storage::{Conduct, ObjectStorage, SECRET_KEY};
use tokio::runtime::Runtime;
use witness_tests::replicaset_with;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// Time limit until another member archives: it waits twice for the member that has precedence, and the machine may be busy.
pub(crate) const GOES_ON: Duration = Duration::from_secs(120);

/// Reads an archive without any member.
pub(crate) struct Reader {
    storage: Storage,
    ring: RingId,
    runtime: Runtime,
}

impl Reader {
    pub(crate) fn of(folder: &Path, set: &Cluster) -> Self {
        let url = format!("file://{}", folder.display());
        Self::with(&url, [], set)
    }

    pub(crate) fn with<const N: usize>(
        url: &str,
        options: [(&str, String); N],
        set: &Cluster,
    ) -> Self {
        let options = options.map(|(name, value)| (name.to_owned(), value));
        let settings = StorageSettings {
            url: url.parse().unwrap(),
            options: options.into(),
            call_limit: SOON,
        };
        let ring = set.status(0).unwrap()["ring"]["id"].clone();
        Self {
            storage: Storage::open(&settings).unwrap(),
            ring: serde_json::from_value(ring).unwrap(),
            runtime: Runtime::new().unwrap(),
        }
    }

    /// Returns the log's files, each as far as it is archived.
    pub(crate) fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.runtime.block_on(async {
            let log = ArchivedLog::look(self.storage.clone(), Some(self.ring)).await;
            let Some(mut log) = log.unwrap() else {
                return BTreeMap::new();
            };
            let [run] = log.runs.as_slice() else {
                panic!("the archive has a gap: {:?}", log.runs);
            };
            let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
            let mut before = None;
            for piece in run.pieces.clone() {
                let manifest = log.manifest(piece).await.unwrap();
                let name = piece.file.name();
                let begun = files.remove(&name).unwrap_or_default();
                let read = log.read(&manifest, before.as_ref(), begun).await;
                files.insert(name, read.unwrap());
                before = Some(manifest);
            }
            files
        })
    }
}

fn insert(set: &Cluster, ids: std::ops::Range<u32>) {
    let primary = set.primary(SOON).unwrap();
    for id in ids {
        let insert = format!("INSERT INTO acked.rows VALUES ({id}, 0, 'archived')");
        set.client(primary).sql(&insert).unwrap();
    }
}

/// Waits until the archive has the whole log of a member.
pub(crate) fn wait_until_archived(set: &Cluster, member: usize, reader: &Reader) {
    set.eventually("everything is archived", GOES_ON, || {
        let log = set.directory(member).join("log");
        let archived = reader.files();
        let names: Vec<_> = std::fs::read_dir(&log).unwrap().collect();
        let mut files = names
            .iter()
            .map(|entry| entry.as_ref().unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("binlog.0"));
        // If a file is purged at this time, this check fails and is repeated.
        files.all(|name| {
            std::fs::read(log.join(&name)).is_ok_and(|bytes| archived.get(&name) == Some(&bytes))
        })
    })
    .unwrap();
}

/// Returns the members that report that they archive.
pub(crate) fn archivers(set: &Cluster) -> Vec<usize> {
    let archives = |member: &usize| {
        let status = set.status(*member);
        status.is_ok_and(|status| status["archive"]["archives"] == true)
    };
    (0..set.size()).filter(archives).collect()
}

#[test]
fn another_member_continues_a_killed_members_archiving() {
    let _turn = SCENES.take();
    let home = tempfile::tempdir().unwrap();
    let url = format!("url = \"file://{}\"", home.path().display());
    let mut set = replicaset_with(1, |options| {
        options
            .with("archive", url)
            .with("archive", "interval = \"200ms\"")
    })
    .unwrap();
    let reader = Reader::of(home.path(), &set);
    insert(&set, 1..20);
    wait_until_archived(&set, 0, &reader);
    // A witness in the primary's region archives, so the primary has no cost.
    let [first] = archivers(&set)[..] else {
        panic!("{:?} archive", archivers(&set));
    };
    assert_ne!(first, 0);

    set.kill(first).unwrap();
    insert(&set, 20..40);
    let config = set.config(0).display().to_string();
    let done = set.cli(&["log", "flush", "--config", &config]).unwrap();
    assert!(done.status.success());
    insert(&set, 40..60);
    wait_until_archived(&set, 0, &reader);
    let [second] = archivers(&set)[..] else {
        panic!("{:?} archive", archivers(&set));
    };
    assert_ne!(second, first);
    let metrics = set.get(second, "/metrics").unwrap().body;
    for name in [
        "witness_archive_lag_seconds",
        "witness_archived_bytes_total",
        "witness_archived_pieces_total",
        "witness_archive_failures_total",
    ] {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }

    // After its restart, the first member archives again.
    set.start(first).unwrap();
    insert(&set, 60..80);
    wait_until_archived(&set, 0, &reader);
    set.eventually("the other one leaves it to the first", GOES_ON, || {
        insert_one_more(&set);
        archivers(&set) == [first]
    })
    .unwrap();
    wait_until_archived(&set, first, &reader);
    files_are_fetched_and_damage_is_found(&mut set, home.path(), &reader);
}

/// Fetches files and checks for damage while no member is running.
fn files_are_fetched_and_damage_is_found(set: &mut Cluster, archive: &Path, reader: &Reader) {
    for member in 0..set.size() {
        set.kill(member).unwrap();
    }
    let files = reader.files();
    let url = format!("file://{}", archive.display());
    let out = tempfile::tempdir().unwrap();
    let directory = out.path().display().to_string();
    let fetch = ["archive", "fetch", "--url", &url, "--directory", &directory];
    let done = set.cli(&fetch).unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(files.len() >= 2);
    for (name, bytes) in &files {
        let fetched = std::fs::read(out.path().join(name)).unwrap();
        assert!(fetched == *bytes, "{name} is another one");
    }
    let again = set.cli(&fetch).unwrap();
    assert_eq!(again.status.code(), Some(4), "it is not empty: {again:?}");

    let list = |set: &Cluster| {
        let list = ["archive", "list", "--url", &url, "--output", "json"];
        let done = set.cli(&list).unwrap();
        let listing: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
        (done.status.code(), listing)
    };
    let (code, listing) = list(set);
    assert_eq!(code, Some(0));
    let of_files = listing["files"].as_array().unwrap();
    assert_eq!(of_files.len(), files.len());
    for (listed, (name, bytes)) in of_files.iter().zip(&files) {
        assert_eq!(listed["log_name"], **name);
        assert_eq!(listed["archived_bytes"], bytes.len());
    }

    let verify = ["archive", "verify", "--url", &url];
    assert!(set.cli(&verify).unwrap().status.success());
    let first = std::fs::read_dir(archive.join("log/00000001/binlog.000001")).unwrap();
    let mut objects: Vec<_> = first
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with("-closed.zst"))
        .collect();
    // The first object contains the whole file.
    objects.sort();
    let whole = std::fs::read(&objects[0]).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(&objects[0], &damaged).unwrap();
    let done = set.cli(&verify).unwrap();
    let told = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(7), "{told}");
    assert!(
        told.contains("DAMAGED: log/00000001/binlog.000001/"),
        "{told}"
    );
    std::fs::write(&objects[0], &whole).unwrap();

    // If a file is missing in the archive, later files cannot be reached.
    std::fs::remove_dir_all(archive.join("log/00000001/binlog.000001")).unwrap();
    assert_eq!(list(set).0, Some(7), "the first generation is not pruned");
    let last = files.keys().next_back().unwrap();
    let missing = ["archive", "fetch", "--from-file", "binlog.999999"];
    let missing = [&missing[..], &["--url", &url, "--directory", "/tmp"]].concat();
    assert_eq!(set.cli(&missing).unwrap().status.code(), Some(1));
    let out = tempfile::tempdir().unwrap();
    let directory = out.path().display().to_string();
    let from = ["archive", "fetch", "--url", &url, "--from-file", last];
    let done = set
        .cli(&[&from[..], &["--directory", &directory]].concat())
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1);
}

/// Without this, a file that takes months to fill would be archived as months of pieces: one for each interval with a commit.
#[test]
fn an_old_file_ends_with_the_next_commit_and_is_archived_as_a_whole() {
    let _turn = SCENES.take();
    let age = Duration::from_secs(3);
    let home = tempfile::tempdir().unwrap();
    let url = format!("url = \"file://{}\"", home.path().display());
    let set = replicaset_with(1, |options| {
        options
            .with("archive", url)
            .with("archive", "interval = \"200ms\"")
            .with("archive", format!("max_file_age = \"{}s\"", age.as_secs()))
    })
    .unwrap();
    let reader = Reader::of(home.path(), &set);
    insert(&set, 1..2);
    wait_until_archived(&set, 0, &reader);
    let before = reader.files().len();
    std::thread::sleep(age);
    insert(&set, 2..3);
    wait_until_archived(&set, 0, &reader);
    assert_eq!(reader.files().len(), before + 1);
    let log = home.path().join("log/00000001");
    let ended = reader.files().into_keys().rev().nth(1).unwrap();
    let whole = format!("{:016}-", 0);
    set.eventually("the file is archived as a whole", GOES_ON, || {
        let objects = std::fs::read_dir(log.join(&ended)).unwrap();
        let mut names = objects.map(|object| object.unwrap().file_name().into_string().unwrap());
        names.any(|name| name.starts_with(&whole) && name.contains("-closed"))
    })
    .unwrap();
}

/// Archives into a real S3 server, which first hangs, then closes connections, then answers after the timeout.
#[test]
fn no_commit_waits_for_a_storage_that_fails() {
    let _turn = SCENES.take();
    let storage = ObjectStorage::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let options_file = storage.write_options(home.path()).unwrap();
    let set = replicaset_with(1, |options| {
        let url = storage.url("orders");
        options
            .with("archive", format!("url = {url:?}"))
            .with("archive", format!("options_file = {options_file:?}"))
            .with("archive", "interval = \"200ms\"")
            .with("archive", "call_limit = \"2s\"")
    })
    .unwrap();
    let reader = Reader::with(&storage.url("orders"), storage.options(), &set);
    insert(&set, 1..20);
    wait_until_archived(&set, 0, &reader);
    let mut ids = 20..;
    for conduct in [Conduct::IsSilent, Conduct::HangsUp, Conduct::AnswersLate] {
        storage.conduct(conduct);
        // The archiving member fails, and so does every member that takes over.
        let failing = set.eventually("archiving fails", GOES_ON, || {
            insert(&set, ids.next().map(|id| id..id + 1).unwrap());
            let fails = |member: &usize| {
                let status = set.status(*member).unwrap();
                status["archive"]["error"].is_string() && status["archive"]["archives"] == true
            };
            (0..set.size()).find(fails)
        });
        let status = set.status(failing.unwrap()).unwrap();
        assert!(
            status["archive"]["lag_seconds"].as_f64().unwrap() > 0.0,
            "{status}"
        );
        // If the command waited for the storage, it would not end before the storage serves again.
        let began = std::time::Instant::now();
        for _ in 0..50 {
            insert(&set, ids.next().map(|id| id..id + 1).unwrap());
        }
        let took = began.elapsed();
        assert!(took < SOON, "50 commits took {took:?}");
        storage.conduct(Conduct::Serves);
        wait_until_archived(&set, 0, &reader);
    }
    for member in 0..set.size() {
        let said = set.output(member) + &set.status(member).unwrap().to_string();
        assert!(
            !said.contains(SECRET_KEY),
            "member {member} tells the secret"
        );
    }
    set.eventually("the failures have ended", GOES_ON, || {
        (0..set.size()).all(|member| set.status(member).unwrap()["archive"]["error"].is_null())
    })
    .unwrap();
}

fn insert_one_more(set: &Cluster) {
    let next = "INSERT INTO acked.rows SELECT MAX(id) + 1, 0, 'archived' FROM acked.rows";
    set.client(0).sql(next).unwrap();
}
