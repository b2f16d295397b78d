//! `witness archive` on an encrypted archive in a directory, written by a ring of one witness: keys, verification, pruning and damage.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use testkit::cluster::http_get;
use testkit::wait::eventually;

use crate::program::alone::Alone;
use crate::program::{Run, Scratch, witness};

/// Time limit of each wait, long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const FILES: usize = 5;
/// The prefix of the secret keys of age.
const SECRET: &str = "AGE-SECRET-KEY-";

struct Archive {
    scratch: Scratch,
    /// The secret key, which no command may print.
    secret: String,
    /// The files in the member's log, by name.
    log: BTreeMap<String, Vec<u8>>,
}

impl Archive {
    /// Creates an archive of [`FILES`] files. The member that wrote it no longer runs.
    fn made() -> Self {
        let scratch = Scratch::new();
        let run = |line: &str| witness(&scratch).args(line.split(' ')).run();
        fs::create_dir(scratch.join("archive")).expect("a directory");
        let made = run("archive keygen identity.txt");
        assert!(
            made.stdout.starts_with("age1") && !made.stdout.contains(SECRET),
            "{made}"
        );
        scratch.write("recipients.txt", &format!("# ours\n{}", made.stdout));
        let further = format!(
            "archive.url = \"file://{}\"\narchive.interval = \"100ms\"\narchive.recipients_file = {:?}\n",
            scratch.join("archive").display(),
            scratch.join("recipients.txt"),
        );
        let alone = Alone::start(&scratch, &further, &[], &["--bootstrap"]);
        alone.wait_until_ready(&scratch);
        let listing = || run("archive list --config witness.toml --output json");
        let has = |files: usize| {
            let done = eventually("they are archived", PATIENCE, || {
                let listing = listing();
                if listing.code != 0 {
                    return Err(listing.to_string());
                }
                // Before a file is closed, the archive has pieces of it. After that, it also has the whole file, which is listed.
                let listed = listing.json()["files"].as_array().cloned();
                let listed = listed.unwrap_or_default();
                let (last, closed) = listed.split_last().ok_or("none")?;
                let whole = |file: &Value| file["pieces"] == 1 && file["closed"] == true;
                match listed.len() == files && closed.iter().all(whole) && last["closed"] == false {
                    true => Ok(()),
                    false => Err(listing.to_string()),
                }
            });
            done.expect("they are");
        };
        has(1);
        for files in 2..=FILES {
            let flushed = run("log flush --config witness.toml");
            assert_eq!(flushed.code, 0, "{flushed}");
            has(files);
        }
        let status = http_get(alone.http, "/status").expect("an answer").body;
        let status: Value = serde_json::from_str(&status).expect("JSON");
        assert_eq!(status["archive"]["encrypts"], true, "{status}");
        let identity = fs::read_to_string(scratch.join("identity.txt")).expect("a file");
        let secret = identity.lines().find(|line| line.starts_with(SECRET));
        let secret = secret.expect("a secret key").to_owned();
        assert!(!status.to_string().contains(&secret));
        drop(alone);
        let mut log = files_in(&scratch.join("d/log"));
        log.retain(|name, _| name.starts_with("binlog.0"));
        let listed = listing().json();
        let last = listed["files"].as_array().and_then(|files| files.last());
        let last = last.expect("a file").clone();
        let bytes = log.values().next_back().map(Vec::len);
        if last["pieces"] != 1 || last["archived_bytes"] != Value::from(bytes) {
            // On a loaded machine, the member was elected again, and wrote an entry after the last archived piece.
            return Self::made();
        }
        Self {
            log,
            scratch,
            secret,
        }
    }

    fn run(&self, line: &str) -> Run {
        let url = format!("file://{}", self.scratch.join("archive").display());
        let line = line.split(' ').map(str::to_owned);
        let archive = ["archive".to_owned()].into_iter().chain(line);
        let run = witness(&self.scratch)
            .args(archive.chain(["--url".to_owned(), url]))
            .run();
        let said = run.stdout.clone() + &run.stderr;
        assert!(!said.contains(&self.secret), "{run}");
        run
    }

    fn run_keygen(&self, file: &str) -> Run {
        let args = ["archive", "keygen", file];
        witness(&self.scratch).args(args).run()
    }

    fn folder(&self, file: &str) -> PathBuf {
        self.scratch.join("archive/log/00000001").join(file)
    }

    /// Returns the paths of all objects.
    fn objects(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.scratch.join("archive")];
        let mut objects = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a directory") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => objects.push(path),
                }
            }
        }
        objects.sort();
        objects
    }

    /// Adds a base backup from which the archive's end can be planned. Its manifest is valid, but its data are not.
    fn names_a_base_backup(&self) {
        let listed = self.run("list --output json").json();
        let name = "20200101T000000Z-1";
        let manifest = serde_json::json!({
            "version": 1, "ring": listed["ring"], "name": name, "taken_by": 1,
            "form": { "kind": "data_directory" },
            "gtids_at_least": "", "gtids_at_most": "",
            "began_at": 1_577_836_800, "ended_at": 1_577_836_800,
            "objects": [{
                "name": format!("base/{name}/data-000001.zst"), "bytes": 700, "sha256": "0".repeat(64),
            }],
            "tar": { "bytes": 2048, "sha256": "0".repeat(64) },
            "unpacked_bytes": 12, "files": 2,
        });
        let folder = self.scratch.join("archive/base").join(name);
        fs::create_dir_all(&folder).expect("a directory");
        fs::write(folder.join("manifest.json"), manifest.to_string()).expect("a manifest");
        fs::write(folder.join("data-000001.zst"), [0; 700]).expect("an object");
    }

    /// Sets the modification times of all objects back, as if they had been written so long ago.
    fn age(&self, by: Duration) {
        for object in self.objects() {
            let written = SystemTime::now() - by;
            let file = File::options()
                .append(true)
                .open(&object)
                .expect("an object");
            file.set_modified(written).expect("its time is set");
        }
    }
}

fn files_in(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a directory");
    let files = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        (name, fs::read(&path).expect("a file"))
    });
    files.collect()
}

#[test]
fn keys_are_made_once_and_are_the_callers_alone() {
    let scratch = Scratch::new();
    let keygen = |more: &[&str]| {
        let args = [&["archive", "keygen", "key.txt"], more].concat();
        witness(&scratch).args(args).run()
    };
    let made = keygen(&["--output", "json"]).json();
    let text = fs::read_to_string(scratch.join("key.txt")).expect("a file");
    let recipient = made["recipient"].as_str().expect("a key");
    assert!(text.contains(recipient) && text.contains(SECRET), "{made}");
    let mode = fs::metadata(scratch.join("key.txt"))
        .expect("a file")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let again = keygen(&[]);
    assert_eq!(again.code, 4, "{again}");
    let same = fs::read_to_string(scratch.join("key.txt")).expect("a file");
    assert_eq!(same, text);
}

#[test]
fn an_encrypted_archive_is_read_by_whoever_has_an_identity_and_pruned_by_whoever_has_none() {
    let archive = Archive::made();
    let right = "--identity identity.txt";
    let other = archive.run_keygen("other.txt");
    assert_eq!(other.code, 0, "{other}");
    for object in archive.objects() {
        let name = object.to_string_lossy().into_owned();
        assert!(
            name.ends_with(".json") || name.ends_with(".zst.age"),
            "{name}"
        );
    }

    // A wrong identity is a mistake of the caller, not damage to the archive.
    let fetched = archive.scratch.join("fetched");
    for verb in ["verify", "fetch --directory fetched"] {
        let without = archive.run(verb);
        assert_eq!(without.code, 2, "{without}");
        assert!(
            without
                .stderr
                .contains("it is encrypted, and no identity is given"),
            "{without}"
        );
        assert!(without.stderr.contains("--identity FILE"), "{without}");
        let wrong = archive.run(&format!("{verb} --identity other.txt"));
        assert_eq!(wrong.code, 2, "{wrong}");
        assert!(wrong.stderr.contains("for other recipients"), "{wrong}");
        let none = archive.run(&format!("{verb} --identity recipients.txt"));
        assert_eq!(none.code, 2, "{none}");
        assert!(none.stderr.contains("line 2"), "{none}");
        let missing = archive.run(&format!("{verb} --identity nowhere.txt"));
        assert_eq!(missing.code, 2, "{missing}");
    }
    assert!(
        files_in(&fetched).is_empty(),
        "nothing was written that could not be read"
    );
    let verified = archive.run(&format!(
        "verify --identity other.txt {right} --output json"
    ));
    assert_eq!(verified.code, 0, "{verified}");
    assert_eq!(verified.json()["intact"].as_array().map(Vec::len), Some(1));
    let done = archive.run(&format!("fetch --directory fetched {right}"));
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(files_in(&fetched), archive.log);
    let mode = |path: &Path| {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(&fetched), 0o700);
    for name in archive.log.keys() {
        assert_eq!(mode(&fetched.join(name)), 0o600, "{name:?}");
    }

    // If the archive has a whole file, pruning deletes the pieces of that file after a day.
    let soon = archive.run("prune --output json").json();
    assert_eq!(
        (&soon["replaced"]["objects"], &soon["begins"]),
        (&0.into(), &Value::Null)
    );
    // By less than two days: the command takes the time as at most two days after the newest object.
    archive.age(Duration::from_secs(25 * 3600));
    let all = archive.objects();
    let dry = archive.run("prune --dry-run --output json").json();
    let replaced = dry["replaced"]["objects"].as_u64().expect("a number");
    assert!(replaced >= 4 * (FILES as u64 - 1), "{dry}");
    assert_eq!(archive.objects(), all, "a dry run deletes nothing");
    let done = archive.run("prune");
    assert_eq!(done.code, 0, "{done}");
    assert!(
        done.stdout.contains(&format!("{replaced} objects, ")),
        "{done}"
    );
    assert_eq!(archive.objects().len() as u64, all.len() as u64 - replaced);
    assert_eq!(archive.run(&format!("verify {right}")).code, 0);

    // With `--keep`, pruning deletes older files, but never the last two.
    let young = archive.run("prune --keep 1h --output json").json();
    assert_eq!(young["expired"]["objects"], 0, "{young}");
    std::thread::sleep(Duration::from_millis(4_100));
    let dry = archive.run("prune --keep 1s --dry-run");
    assert!(
        dry.stdout
            .contains("the archive would begin with binlog.000004\n"),
        "{dry}"
    );
    let done = archive.run("prune --keep 1s --output json");
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(done.json()["begins"], "binlog.000004");
    assert!(!archive.folder("binlog.000003").exists());
    let verified = archive.run(&format!("verify {right}"));
    assert_eq!(verified.code, 0, "{verified}");
    assert!(
        verified
            .stdout
            .contains("what stood before binlog.000004 was pruned"),
        "{verified}"
    );
    let listed = archive.run("list --output json");
    assert_eq!(listed.code, 0, "{listed}");
    assert_eq!(listed.json()["pruned_before"], "binlog.000004");
    assert_eq!(listed.json()["begins"], "binlog.000004:0");
    let again = archive.run("prune --keep 1s --output json").json();
    assert_eq!(again["expired"]["objects"], 0, "{again}");

    // Without the object that records the pruning, the pruned files count as missing.
    let note = archive.folder("binlog.000004").join("begins.json");
    fs::remove_file(&note).expect("the note");
    for verb in ["list".to_owned(), format!("verify {right}")] {
        let missing = archive.run(&verb);
        assert_eq!(missing.code, 7, "{missing}");
        assert!(
            missing.stdout.contains("MISSING: from binlog.000003:"),
            "{missing}"
        );
    }
    for wrong in ["prune --keep 1", "prune --keep -1s", "prune --keep 200y"] {
        let refused = archive.run(wrong);
        assert_eq!(refused.code, 2, "{refused}");
    }
}

#[test]
fn a_hole_in_the_middle_is_named_with_what_can_still_be_restored() {
    let archive = Archive::made();
    let verify = || archive.run("verify --identity identity.txt");
    assert_eq!(verify().code, 0);
    let objects = archive.objects();
    let second = archive.folder("binlog.000002");
    let of_second: Vec<_> = objects
        .iter()
        .filter(|path| path.starts_with(&second))
        .collect();
    let whole = of_second.iter().find(|path| {
        let name = path.to_string_lossy();
        name.contains("/0000000000000000-") && name.contains("-closed-")
    });
    let whole = whole.expect("the whole file");
    let bytes = fs::read(whole).expect("an object");

    // Three kinds of damage: a changed byte in the recipients' header, a changed byte in the middle, and a missing last byte.
    let mut altered = [bytes.clone(), bytes.clone()];
    altered[0][40] ^= 1;
    altered[1][bytes.len() / 2] ^= 1;
    let cut = bytes[..bytes.len() - 1].to_vec();
    for damaged in altered.iter().chain([&cut]) {
        fs::write(whole, damaged).expect("an object");
        let told = verify();
        assert_eq!(told.code, 7, "{told}");
        let said = "DAMAGED: log/00000001/binlog.000002/";
        assert!(told.stdout.contains(said), "{told}");
        assert!(
            told.stdout
                .contains("INTACT: from binlog.000001:0 to binlog.000002:0\n"),
            "{told}"
        );
        assert!(
            told.stdout
                .contains("INTACT: from binlog.000003:0 to binlog.000005:"),
            "{told}"
        );
    }
    fs::write(whole, &bytes).expect("an object");
    assert_eq!(verify().code, 0);

    fs::remove_dir_all(&second).expect("the folder");
    let told = verify();
    assert_eq!(told.code, 7, "{told}");
    for line in [
        "MISSING: from binlog.000002:0 to binlog.000003:0\n",
        "INTACT: from binlog.000001:0 to binlog.000002:0\n",
        "INTACT: from binlog.000003:0 to binlog.000005:",
    ] {
        assert!(told.stdout.contains(line), "{line} in {told}");
    }
}

/// Two cases: the operator has forgotten that the directory has data, and two drills run in it at the same time.
#[test]
fn a_drill_removes_nothing_that_it_has_not_made() {
    let archive = Archive::made();
    archive.names_a_base_backup();
    let directory = archive.scratch.join("drills");
    let drill = || archive.run("drill --identity identity.txt --directory drills");
    for (there, not) in [("data", "work"), ("work", "data")] {
        let folder = directory.join(there);
        fs::create_dir_all(&folder).expect("a directory");
        fs::write(folder.join("ibdata1"), "live").expect("a file");
        let refused = drill();
        assert_eq!(refused.code, 4, "{refused}");
        assert!(refused.stderr.contains("drills/"), "{refused}");
        assert_eq!(files_in(&folder)["ibdata1"], b"live");
        assert!(!directory.join(not).exists(), "{refused}");
        fs::remove_dir_all(&folder).expect("it goes");
        // Another drill has just created the directory.
        fs::create_dir(&folder).expect("a directory");
        let refused = drill();
        assert_eq!(refused.code, 4, "{refused}");
        assert!(folder.exists());
        fs::remove_dir(&folder).expect("it goes");
    }
    // A drill removes the files that it created, even if it fails. It removes the directory only if it created it.
    let failed = drill();
    assert_eq!(failed.code, 7, "there are no data: {failed}");
    let left = fs::read_dir(&directory).expect("it was there before");
    assert_eq!(left.count(), 0);
    fs::remove_dir(&directory).expect("it goes");
    let failed = drill();
    assert_eq!(failed.code, 7, "{failed}");
    assert!(!directory.exists());
}

/// If a manifest in the log is damaged, a restore that does not need that manifest still works.
#[test]
fn a_manifest_that_cannot_be_read_is_in_nobodys_way_who_does_not_need_it() {
    let archive = Archive::made();
    archive.names_a_base_backup();
    let planned = || archive.run("restore --dry-run --directory restored --identity identity.txt");
    assert_eq!(planned().code, 0, "{}", planned());
    let manifest_of = |file: &str| {
        let objects = archive.objects();
        let whole = |path: &&PathBuf| {
            let name = path.to_string_lossy();
            path.starts_with(archive.folder(file))
                && name.contains("/0000000000000000-")
                && name.ends_with(".json")
        };
        // If several pieces begin at the file's start, the last path is the longest piece.
        objects.iter().rfind(whole).expect("a manifest").clone()
    };
    for damaged in ["binlog.000001", "binlog.000003"] {
        fs::write(manifest_of(damaged), "{").expect("a manifest");
        let run = planned();
        assert_eq!(run.code, 0, "{run}");
        assert!(
            run.stderr.contains(damaged),
            "the damage is reported: {run}"
        );
        assert_eq!(archive.run("verify --identity identity.txt").code, 7);
    }
    // By default, the end of the archive is restored, so the manifest of the last piece is needed.
    let last = manifest_of("binlog.000005");
    fs::write(&last, "{").expect("a manifest");
    for run in [planned(), archive.run("drill --directory drilled")] {
        assert_eq!(run.code, 7, "{run}");
        assert!(run.stderr.contains("binlog.000005"), "{run}");
        assert!(run.stderr.contains("is needed"), "{run}");
    }
}
