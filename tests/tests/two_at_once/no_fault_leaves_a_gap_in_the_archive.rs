//! Under load, whatever becomes of the storage, of the member that archives, of the disk and of the leader: no commit waits for the
//! archive, and in the end it has the whole log in one chain, byte for byte.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use testkit::bounded_run::Finished;
use testkit::cluster::{Beside, Cluster, ClusterOptions, MemberOptions};
use testkit::object_storage::{Conduct, ObjectStorage};
use testkit::real_disks::LoopDisk;
use witness_tests::{Commit, Writers, WrittenRows, replicaset_with};

use crate::SCENES;
use crate::the_log_is_archived::{GOES_ON, Reader, archivers, wait_until_archived};

const SOON: Duration = Duration::from_secs(60);
/// What a call of the storage is waited for.
const CALL: Duration = Duration::from_secs(1);
/// Commits that show that nobody waits: those that wait for something would be as many as there are writers.
const SOME: usize = 100;
const WRITERS: u64 = 4;

/// Two regions of one database member and two witnesses each, so that whose turn it is to archive moves with the leader. Members 0 and
/// 3 are the database members, and 1 and 4 those that archive while the leader is in their region.
fn in_two_regions(mut options: ClusterOptions) -> ClusterOptions {
    options.members[3].region = "there".to_owned();
    let witness = |name| MemberOptions::new(name, "there", Beside::Nothing);
    options
        .members
        .extend(["witness-3", "witness-4"].map(witness));
    options
}

struct Scene {
    set: Cluster,
    storage: ObjectStorage,
    writers: Writers,
    /// The flags by which a command finds the archive.
    place: Vec<String>,
}

impl Scene {
    /// A number or text of what a member says of its archiving.
    fn says(&self, member: usize, what: &str) -> serde_json::Value {
        self.set.status(member).unwrap()["archive"][what].clone()
    }

    /// Has the storage conduct itself so until the member that archives has failed so often; what that told. Clients write on meanwhile.
    fn fails(&self, member: usize, conduct: Conduct, times: u64) -> String {
        let failures = || self.says(member, "failures_total").as_u64().unwrap();
        let before = failures();
        self.storage.conduct(conduct);
        let wanted = before + times;
        let patience = GOES_ON;
        self.set
            .eventually("archiving fails", patience, || failures() >= wanted)
            .unwrap();
        // Before it is mended: nobody waits for that.
        self.writers.wait_for_more(SOME, SOON).unwrap();
        let told = self.says(member, "error").as_str().unwrap().to_owned();
        println!("{conduct:?}: {told}");
        self.goes_on(member);
        told
    }

    /// Mends the storage, and waits until the member archives again.
    fn goes_on(&self, member: usize) {
        self.storage.conduct(Conduct::Serves);
        self.set
            .eventually("it is archived again", GOES_ON, || {
                self.says(member, "error").is_null()
            })
            .unwrap();
    }

    /// Waits until the member has archived so many further pieces.
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

/// What one chain without a gap says of itself, and its files, which are those of a member.
fn is_one_chain_of(set: &Cluster, place: &[String], member: usize) {
    let verified = archive(set, place, "verify", &[]);
    assert!(verified.status.success(), "{verified:?}");
    let out = tempfile::tempdir().unwrap();
    let directory = out.path().display().to_string();
    let fetched = archive(set, place, "fetch", &["--directory", &directory]);
    assert!(fetched.status.success(), "{fetched:?}");
    for path in set.log_files(member).unwrap().paths() {
        let name = path.file_name().unwrap();
        let archived = fs::read(out.path().join(name)).unwrap();
        assert!(archived == fs::read(&path).unwrap(), "{name:?} is another");
    }
}

/// The commits that were tried between two moments.
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

    // One that says nothing is waited for twice.
    let told = scene.fails(first, Conduct::IsSilent, 2);
    assert!(told.contains("timed out"), "{told}");
    scene.fails(first, Conduct::AnswersLate, 1);
    scene.fails(first, Conduct::HangsUp, 1);
    // What it says that it has taken is looked at.
    let told = scene.fails(first, Conduct::Forgets, 1);
    assert!(told.contains("and has None"), "{told}");
    it_lies_where_nobody_looks(&scene, first);
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

/// The storage says of other bytes that they are those which it was given, and how many. Nobody sees that who does not read them, as
/// `verify` does. The file is archived once more as a whole when it has ended, from the log.
fn it_lies_where_nobody_looks(scene: &Scene, member: usize) {
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

/// The member that archives is killed, and finds other bytes than the archive's when it is back. It takes what it cannot read for what
/// is not there, and archives it once more.
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
    scene.goes_on(member);
    assert!(scene.archive("verify", &[]).status.success());
}

/// To the other region by an order, and back by a kill; the storage says nothing the first time, and forgets the second time.
fn the_leader_moves(scene: &mut Scene, first: usize) {
    let (there, second) = (3, 4);
    scene.storage.conduct(Conduct::IsSilent);
    scene.set.follows(there, SOON).unwrap();
    let name = scene.set.name(there).to_owned();
    scene.set.promote(&name, SOON).unwrap();
    scene.writers.wait_for_more(SOME, SOON).unwrap();
    scene.goes_on(second);
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
    scene.goes_on(first);
    scene.archives(first, 1);
    scene.set.start(there).unwrap();
}

/// While the storage did wrong, commits took what they had taken before: a wait for it would be a second at least, and as long as it
/// says nothing.
fn no_commit_waited(before: &WrittenRows, meanwhile: &WrittenRows) {
    let [calm, bad] = [before, meanwhile].map(|rows| (median(rows), rows.longest()));
    println!(
        "{} commits before: {calm:?} in the middle and at most, {} with a bad storage: {bad:?}",
        before.commits.len(),
        meanwhile.commits.len()
    );
    assert_eq!(before.errors(), []);
    assert_eq!(meanwhile.errors(), []);
    assert!(bad.0 < calm.0 * 5 + CALL / 20, "{bad:?} after {calm:?}");
    assert!(bad.1 < calm.1 * 4 + 2 * CALL, "{bad:?} after {calm:?}");
}

/// The disk of an archive that is a directory is full for a while. What is not archived is not purged, whoever orders it.
#[test]
fn while_the_disk_of_the_archive_is_full_members_keep_their_files_and_go_on_without_a_gap() {
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
    let told = set.eventually("the full disk is told", GOES_ON, || {
        let status = set.status(archiver).unwrap();
        let error = status["archive"]["error"].as_str().map(str::to_owned);
        error.filter(|error| error.contains("No space left"))
    });
    println!("{}", told.unwrap());
    let bytes = || set.log_files(archiver).unwrap().bytes();
    let more = bytes() + (256 << 10);
    // Several files, and nobody waits.
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

/// Orders a member to keep nothing of its log but what is needed: the files that went, and why the others did not.
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

/// The oldest file of a log.
fn first_file(log: &Path) -> String {
    let entries = fs::read_dir(log).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files = names.filter(|name| name.starts_with("binlog.0"));
    files.min().unwrap()
}
