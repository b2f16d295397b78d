//! Under load, the storage, the archiving member, the disk and the leader have faults. No commit waits for the archive. In the end the
//! archive has the whole log in one chain, equal byte by byte.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use testkit::bounded_run::Finished;
use testkit::cluster::{Cluster, ClusterOptions, MemberDatabase, MemberOptions};
use testkit::object_storage::{Conduct, ObjectStorage};
use testkit::real_disks::LoopDisk;
use witness_tests::{Commit, Writers, WrittenRows, replicaset_with};

use crate::SCENES;
use crate::the_log_is_archived::{GOES_ON, Reader, archivers, wait_until_archived};

const SOON: Duration = Duration::from_secs(60);
/// The timeout of one call to the storage.
const CALL: Duration = Duration::from_secs(1);
/// The number of commits that proves that commits do not wait for the archive: at most one commit of each writer can wait.
const SOME: usize = 100;
const WRITERS: u64 = 4;

/// Creates two regions with one database member and two witnesses each, so that archiving moves with the leader. Members 0 and 3 are the
/// database members. Member 1 or 4 archives while the leader is in its region.
fn in_two_regions(mut options: ClusterOptions) -> ClusterOptions {
    options.members[3].region = "there".to_owned();
    let witness = |name| MemberOptions::new(name, "there", MemberDatabase::Nothing);
    options
        .members
        .extend(["witness-3", "witness-4"].map(witness));
    options
}

struct Scene {
    set: Cluster,
    storage: ObjectStorage,
    writers: Writers,
    /// The command line options with the archive's location.
    place: Vec<String>,
}

impl Scene {
    /// Returns a value of a member's archiving status.
    fn says(&self, member: usize, what: &str) -> serde_json::Value {
        self.set.status(member).unwrap()["archive"][what].clone()
    }

    /// Sets how the storage misbehaves, until the archiving member has failed this often. Returns the member's error message. Clients
    /// continue to write.
    fn fails(&self, member: usize, conduct: Conduct, times: u64) -> String {
        let failures = || self.says(member, "failures_total").as_u64().unwrap();
        let before = failures();
        self.storage.conduct(conduct);
        let wanted = before + times;
        let patience = GOES_ON;
        self.set
            .eventually("archiving fails", patience, || failures() >= wanted)
            .unwrap();
        // Checked before the storage is repaired: no writer waits for the repair.
        self.writers.wait_for_more(SOME, SOON).unwrap();
        let told = self.says(member, "error").as_str().unwrap().to_owned();
        println!("{conduct:?}: {told}");
        self.continues_at(member);
        told
    }

    /// Repairs the storage, and waits until the member archives again.
    fn continues_at(&self, member: usize) {
        self.storage.conduct(Conduct::Serves);
        self.set
            .eventually("it is archived again", GOES_ON, || {
                self.says(member, "error").is_null()
            })
            .unwrap();
    }

    /// Waits until the member has archived this many further pieces.
    fn archives(&self, member: usize, pieces: u64) {
        let archived = || self.says(member, "pieces_total").as_u64().unwrap();
        let wanted = archived() + pieces;
        self.set
            .eventually("more is archived", GOES_ON, || archived() >= wanted)
            .unwrap();
    }

    fn archive(&self, verb: &str, arguments: &[&str]) -> Finished {
        archive(&self.set, &self.place, verb, arguments)
    }
}

fn archive(set: &Cluster, place: &[String], verb: &str, arguments: &[&str]) -> Finished {
    let place = place.iter().map(String::as_str);
    let mut words = vec!["archive", verb];
    words.extend(place);
    words.extend(arguments);
    set.cli(&words).unwrap()
}

/// Checks that the archive is one chain without a gap, and that its files are equal to a member's. The ring may append an entry in the
/// meantime, such as about a restarted member; the archive then has it a little later.
fn is_one_chain_of(set: &Cluster, place: &[String], member: usize) {
    set.eventually("the archive has the member's files", GOES_ON, || {
        let verified = archive(set, place, "verify", &[]);
        ensure!(verified.status.success(), "{verified:?}");
        let out = tempfile::tempdir()?;
        let directory = out.path().display().to_string();
        let fetched = archive(set, place, "fetch", &["--directory", &directory]);
        ensure!(fetched.status.success(), "{fetched:?}");
        for path in set.log_files(member)?.paths() {
            let name = path.file_name().context("a file has a name")?;
            let archived = fs::read(out.path().join(name))?;
            ensure!(archived == fs::read(&path)?, "{name:?} is another");
        }
        Ok(())
    })
    .unwrap();
}

/// Returns the commits that were attempted between two times.
fn between(written: &WrittenRows, from: Instant, to: Instant) -> WrittenRows {
    let within = |commit: &&Commit| (from..to).contains(&commit.started);
    WrittenRows {
        commits: written.commits.iter().filter(within).cloned().collect(),
    }
}

fn median(written: &WrittenRows) -> Duration {
    let mut took: Vec<Duration> = written.commits.iter().map(|commit| commit.took).collect();
    took.sort_unstable();
    took[took.len() / 2]
}

#[test]
fn a_storage_that_does_all_wrong_and_members_that_die_leave_one_chain_and_no_commit_waits() {
    let _turn = SCENES.take();
    let storage = ObjectStorage::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let options_file = storage.write_options(home.path()).unwrap();
    let url = storage.url("orders");
    let set = replicaset_with(2, |options| {
        in_two_regions(options)
            .with("archive", format!("url = {url:?}"))
            .with("archive", format!("options_file = {options_file:?}"))
            .with("archive", "interval = \"200ms\"")
            .with(
                "archive",
                format!("call_limit = \"{}ms\"", CALL.as_millis()),
            )
    })
    .unwrap();
    set.begins_at_the_first(SOON).unwrap();
    let reader = Reader::with(&url, storage.options(), &set);
    let options_file = options_file.display().to_string();
    let place = ["--url", &url, "--options-file", &options_file].map(str::to_owned);
    let mut scene = Scene {
        writers: Writers::of(&set, WRITERS, 0),
        place: place.into(),
        storage,
        set,
    };
    let first = 1;
    scene.archives(first, 1);
    let begun = Instant::now();
    scene.writers.wait_for_more(3 * SOME, SOON).unwrap();
    let goes_wrong = Instant::now();

    // The storage does not answer, twice.
    let told = scene.fails(first, Conduct::IsSilent, 2);
    assert!(told.contains("timed out"), "{told}");
    scene.fails(first, Conduct::AnswersLate, 1);
    scene.fails(first, Conduct::HangsUp, 1);
    // The member verifies uploads that were acknowledged.
    let told = scene.fails(first, Conduct::Forgets, 1);
    assert!(told.contains("and has None"), "{told}");
    the_archive_is_elsewhere(&scene, first);
    let ends = Instant::now();

    dies_and_is_told_lies(&mut scene, first);
    the_leader_moves(&mut scene, first);

    let Scene {
        set,
        storage,
        writers,
        place,
    } = scene;
    let written = writers.finish().unwrap();
    let primary = set.primary(SOON).unwrap();
    written.ensure_all_are_in(&set.client(primary)).unwrap();
    set.wait_until_equal(GOES_ON).unwrap();
    wait_until_archived(&set, primary, &reader);
    is_one_chain_of(&set, &place, primary);
    for member in 0..set.size() {
        let status = set.status(member).unwrap();
        assert_eq!(status["archive"]["gaps_total"], 0, "{status}");
    }
    drop(storage);
    no_commit_waited(
        &between(&written, begun, goes_wrong),
        &between(&written, goes_wrong, ends),
    );
}

/// The storage acknowledges uploads, but stores other bytes of the same length. Only a reader such as `verify` detects that. When a file is
/// complete, it is archived again as a whole, from the log.
fn the_archive_is_elsewhere(scene: &Scene, member: usize) {
    scene.storage.conduct(Conduct::KeepsOthers);
    scene.archives(member, 2);
    scene.storage.conduct(Conduct::Serves);
    scene.archives(member, 1);
    assert!(scene.says(member, "error").is_null());
    let verified = scene.archive("verify", &[]);
    let told = String::from_utf8_lossy(&verified.stdout);
    assert_eq!(verified.status.code(), Some(7), "{verified:?}");
    assert!(told.contains("DAMAGED: log/00000001/binlog.0"), "{told}");
    let flushed = scene.set.cli_of(0, &["log", "flush"]).unwrap();
    assert!(flushed.status.success(), "{flushed:?}");
    scene
        .set
        .eventually("the whole file takes its place", SOON / 3, || {
            let verified = scene.archive("verify", &[]);
            ensure!(verified.status.success(), "{verified:?}");
            Ok(())
        })
        .unwrap();
}

/// The archiving member is killed, and after its restart reads wrong bytes from the archive. It treats unreadable objects as missing, and
/// archives them again.
fn dies_and_is_told_lies(scene: &mut Scene, member: usize) {
    scene.set.kill(member).unwrap();
    scene.storage.conduct(Conduct::GivesOthers);
    scene.set.start(member).unwrap();
    scene
        .set
        .eventually("it archives once more what it cannot read", GOES_ON, || {
            let output = scene.set.output(member);
            output.contains("this piece is archived once more")
        })
        .unwrap();
    scene.writers.wait_for_more(SOME, SOON).unwrap();
    scene.archives(member, 1);
    scene.continues_at(member);
    assert!(scene.archive("verify", &[]).status.success());
}

/// The leader moves to the other region by a command, and back by a kill. The storage hangs the first time, and loses objects the second
/// time.
fn the_leader_moves(scene: &mut Scene, first: usize) {
    let (there, second) = (3, 4);
    scene.storage.conduct(Conduct::IsSilent);
    scene.set.follows(there, SOON).unwrap();
    let name = scene.set.name(there).to_owned();
    scene.set.promote(&name, SOON).unwrap();
    scene.writers.wait_for_more(SOME, SOON).unwrap();
    scene.continues_at(second);
    scene
        .set
        .eventually("the turn has moved", GOES_ON, || {
            archivers(&scene.set) == [second]
        })
        .unwrap();
    scene.archives(second, 1);

    scene.set.follows(0, SOON).unwrap();
    scene.storage.conduct(Conduct::Forgets);
    scene.set.kill_host(there).unwrap();
    scene
        .set
        .eventually("the other one takes over", SOON, || {
            scene.set.primary_now() == Some(0)
        })
        .unwrap();
    scene.writers.wait_for_more(SOME, SOON).unwrap();
    scene.continues_at(first);
    scene.archives(first, 1);
    scene.set.start(there).unwrap();
}

/// Checks that commits took no longer during the storage's faults than before. A wait for the storage would take at least a second. While
/// the storage hangs, the wait would last as long.
fn no_commit_waited(before: &WrittenRows, during: &WrittenRows) {
    let [calm, bad] = [before, during].map(|rows| (median(rows), rows.longest()));
    println!(
        "{} commits before: {calm:?} in the middle and at most, {} with a bad storage: {bad:?}",
        before.commits.len(),
        during.commits.len()
    );
    assert_eq!(before.errors(), []);
    assert_eq!(during.errors(), []);
    assert!(bad.0 < calm.0 * 5 + CALL / 20, "{bad:?} after {calm:?}");
    assert!(bad.1 < calm.1 * 4 + 2 * CALL, "{bad:?} after {calm:?}");
}

/// The disk of an archive in a directory is full for some time. Files that are not archived are not purged, even with a command.
#[test]
fn members_keep_their_files_while_the_archives_disk_is_full() {
    let _turn = SCENES.take();
    let disk = LoopDisk::of_its_own(64 << 20).unwrap();
    let url = format!("file://{}", disk.folder().display());
    let set = replicaset_with(1, |options| {
        options
            .with("log", "max_file_bytes = \"64KiB\"")
            .with("archive", format!("url = {url:?}"))
            .with("archive", "interval = \"200ms\"")
    })
    .unwrap();
    let place = ["--url".to_owned(), url];
    let archiver = 1;
    let log = set.directory(archiver).join("log");
    let began_with = first_file(&log);
    let writers = Writers::of(&set, WRITERS, 0);
    set.eventually("what is archived may go", GOES_ON, || {
        !purged(&set, archiver).0.is_empty()
    })
    .unwrap();

    disk.fill().unwrap();
    let told = set.eventually("the full disk is reported", GOES_ON, || {
        let status = set.status(archiver).unwrap();
        let error = status["archive"]["error"].as_str().map(str::to_owned);
        error.filter(|error| error.contains("No space left"))
    });
    println!("{}", told.unwrap());
    let bytes = || set.log_files(archiver).unwrap().bytes();
    let more = bytes() + (256 << 10);
    // The log grows to several files, and no commit waits.
    set.eventually("the log grows", SOON, || bytes() > more)
        .unwrap();
    let (_, because) = purged(&set, archiver);
    assert!(because.contains("is not archived yet"), "{because}");
    let kept_from = first_file(&log);
    assert!(bytes() > 256 << 10, "what is not archived stays");

    disk.make_room().unwrap();
    set.eventually("the rest may go, too", GOES_ON, || {
        purged(&set, archiver);
        first_file(&log) > kept_from
    })
    .unwrap();
    let written = writers.finish().unwrap();
    assert_eq!(written.errors(), []);
    written.ensure_all_are_in(&set.client(0)).unwrap();
    let reader = Reader::of(disk.folder(), &set);
    for member in [0, archiver] {
        wait_until_archived(&set, member, &reader);
        is_one_chain_of(&set, &place, member);
    }
    let archived = reader.files();
    assert_eq!(archived.first_key_value().unwrap().0, &began_with);
    let status = set.status(archiver).unwrap();
    assert_eq!(status["archive"]["gaps_total"], 0, "{status}");
    assert!(status["archive"]["error"].is_null(), "{status}");
}

/// Requests that a member keep only the needed part of its log. Returns the removed files, and why the others were kept.
fn purged(set: &Cluster, member: usize) -> (Vec<serde_json::Value>, String) {
    let name = set.name(member);
    let order = ["log", "purge", name, "--keep", "1KiB", "--yes"];
    let order = [&order[..], &["--output", "json"]].concat();
    let done = set.cli_of(0, &order).unwrap().into_text("purge").unwrap();
    let report: serde_json::Value = serde_json::from_str(&done).unwrap();
    let because = report["kept"]["because"].as_str().unwrap_or_default();
    let removed = report["removed"].as_array().unwrap();
    (removed.clone(), because.to_owned())
}

/// Returns the oldest file of a log.
fn first_file(log: &Path) -> String {
    let entries = fs::read_dir(log).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files = names.filter(|name| name.starts_with("binlog.0"));
    files.min().unwrap()
}
