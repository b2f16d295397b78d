//! `witness archive backup` of a stopped server's directory, `witness archive register`, and the output of `list` and `verify` for base
//! backups. No member runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;

use crate::program::{Run, Scratch, witness};

const GTIDS: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7";
const RING: &str = "11111111-2222-3333-4444-555555555555";

/// Creates the files of a database member's host, with an archive in a directory.
fn host() -> Scratch {
    let scratch = Scratch::new();
    for directory in ["archive", "d", "copies"] {
        fs::create_dir(scratch.join(directory)).unwrap();
    }
    let archive = scratch.join("archive");
    scratch.write(
        "witness.toml",
        &format!(
            r#"
data_dir = "d"
ring.name = "r"
member.id = 1
members = [
  {{ id = 1, name = "a", region = "x", kind = "database", address = "127.0.0.1:1" }},
  {{ id = 2, name = "b", region = "x", kind = "witness", address = "127.0.0.1:2" }},
  {{ id = 3, name = "c", region = "x", kind = "witness", address = "127.0.0.1:3" }},
]
mysql.mode = "attach"
archive.url = "file://{}"
"#,
            archive.display()
        ),
    );
    scratch
}

/// Creates the data directory of a stopped server, with the files that a backup reads.
fn data_directory(host: &Scratch) -> PathBuf {
    let directory = host.join("data");
    fs::create_dir_all(directory.join("#innodb_redo")).unwrap();
    fs::create_dir(directory.join("shop")).unwrap();
    for file in [
        "ibdata1",
        "mysql.ibd",
        "undo_001",
        "#innodb_redo/#ib_redo1",
        "shop/orders.ibd",
    ] {
        fs::write(directory.join(file), file.repeat(100)).unwrap();
    }
    let uuid = "[auto]\nserver-uuid=4e11fa47-71ca-11e1-9e33-c80aa9429562\n";
    fs::write(directory.join("auto.cnf"), uuid).unwrap();
    let history = r#"{"file_format":"1","upgrade_history":[{"version":"9.7.4"}]}"#;
    fs::write(directory.join("mysql_upgrade_history"), history).unwrap();
    directory
}

fn archive(host: &Scratch, arguments: &[&str]) -> Run {
    witness(host).args([&["archive"], arguments].concat()).run()
}

/// Adds the manifest of a base backup, so that the ring of the archive is known.
fn know_the_ring(host: &Scratch) {
    let name = "20200101T000000Z-2";
    let manifest = serde_json::json!({
        "version": 1, "ring": RING, "name": name, "taken_by": 2,
        "form": { "kind": "registered", "tool": "xtrabackup", "place": "nfs://h/b" },
        "gtids_at_least": GTIDS, "gtids_at_most": GTIDS,
        "began_at": 1_577_836_800, "ended_at": 1_577_836_800,
        "objects": [], "unpacked_bytes": 0, "files": 0,
    });
    let folder = host.join("archive").join("base").join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
}

fn backed_up(host: &Scratch, directory: &Path, more: &[&str]) -> Run {
    let directory = directory.display().to_string();
    let arguments = ["backup", "--data-directory", &directory, "--gtids", GTIDS];
    archive(host, &[&arguments[..], more].concat())
}

#[test]
fn a_stopped_server_is_backed_up_listed_and_verified() {
    let host = host();
    let directory = data_directory(&host);
    let run = backed_up(&host, &directory, &[]);
    assert_eq!(run.code, 4, "{run}");
    assert!(run.stderr.contains("which ring it is"), "{run}");
    assert_eq!(archive(&host, &["list"]).code, 1, "there is nothing yet");
    know_the_ring(&host);

    let run = backed_up(&host, &directory, &["--output", "json"]);
    assert_eq!(run.code, 0, "{run}");
    let taken = run.json();
    assert_eq!(taken["taken"], true);
    assert_eq!(taken["kind"], "data_directory");
    assert_eq!(taken["files"], 6);
    assert_eq!(taken["mysqld_version"], "9.7.4");
    assert_eq!(taken["server_uuid"], "4e11fa47-71ca-11e1-9e33-c80aa9429562");
    assert_eq!(
        (&taken["gtids_at_least"], &taken["gtids_at_most"]),
        (&GTIDS.into(), &GTIDS.into())
    );
    let name = taken["name"].as_str().unwrap();
    assert!(name.ends_with("Z-1"), "{name}");

    // With `--if-older-than`, as a timer runs the command, no backup is due.
    let run = backed_up(
        &host,
        &directory,
        &["--if-older-than", "1d", "--output", "json"],
    );
    assert_eq!(
        (run.code, &run.json()["taken"]),
        (0, &Value::Bool(false)),
        "{run}"
    );
    let run = archive(&host, &["list", "--output", "json"]);
    assert_eq!(run.code, 0, "{run}");
    let listing = run.json();
    assert_eq!(
        (&listing["ring"], &listing["history"]),
        (&RING.into(), &Value::Null)
    );
    assert_eq!(listing["base_backups"][0]["tool"], "xtrabackup");
    assert_eq!(listing["base_backups"][1]["name"], name);
    let run = archive(&host, &["list"]);
    assert!(run.stdout.contains("data directory"), "{run}");
    let run = archive(&host, &["verify"]);
    assert_eq!(run.code, 0, "{run}");
    let bytes = taken["unpacked_bytes"].as_u64().unwrap();
    let said = format!("1 base backups, {bytes} bytes read and verified; 1 are only registered");
    assert!(run.stdout.contains(&said), "{run}");

    // `verify` reports damaged data with exit code 7.
    let folder = host.join("archive").join("base").join(name);
    let object = folder.join("data-000001.zst");
    let mut bytes = fs::read(&object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&object, bytes).unwrap();
    let run = archive(&host, &["verify"]);
    assert_eq!(run.code, 7, "{run}");
    assert!(
        run.stdout.contains(&format!("DAMAGED: base/{name}/")),
        "{run}"
    );
    assert_eq!(archive(&host, &["list"]).code, 0, "no manifest is damaged");
    fs::write(folder.join("manifest.json"), "{").unwrap();
    let run = archive(&host, &["list", "--output", "json"]);
    assert_eq!(run.code, 7, "{run}");
    assert_eq!(
        run.json()["damaged_base_backups"][0]["piece"],
        format!("base/{name}/")
    );
    // A base backup without a manifest counts as unfinished.
    fs::remove_file(folder.join("manifest.json")).unwrap();
    let run = archive(&host, &["list"]);
    assert_eq!(run.code, 0, "{run}");
    assert!(run.stdout.contains(&format!("UNFINISHED: {name}")), "{run}");
}

#[test]
fn a_directory_that_is_used_or_is_not_whole_is_refused() {
    let host = host();
    know_the_ring(&host);
    let directory = data_directory(&host);
    let data = File::options()
        .write(true)
        .open(directory.join("ibdata1"))
        .unwrap();
    fcntl_lock(&data, FlockOperation::NonBlockingLockExclusive).unwrap();
    let run = backed_up(&host, &directory, &[]);
    assert_eq!(run.code, 4, "{run}");
    assert!(run.stderr.contains("a mysqld runs on it"), "{run}");
    drop(data);
    fs::remove_file(directory.join("undo_001")).unwrap();
    let run = backed_up(&host, &directory, &[]);
    assert_eq!(run.code, 4, "{run}");
    assert!(run.stderr.contains("undo_001"), "{run}");
    // The lock simulates another backup of this member that is being taken.
    let lock = File::create(host.join("d").join("base-backup.lock")).unwrap();
    lock.lock().unwrap();
    let run = backed_up(&host, &directory, &[]);
    assert_eq!(run.code, 4, "{run}");
    assert!(run.stderr.contains("is being taken"), "{run}");
    let bases = fs::read_dir(host.join("archive").join("base")).unwrap();
    assert_eq!(bases.count(), 1, "nothing was put into the archive");
}

#[test]
fn a_running_server_is_not_copied_while_its_member_does_not_say_what_it_is() {
    let host = host();
    know_the_ring(&host);
    for (arguments, code, said) in [
        (&[][..], 2, "neither --copy-directory nor"),
        (&["--copy-directory", "copies"], 2, "is a relative path"),
        (
            &["--copy-directory", "/nowhere/at/all"],
            4,
            "there is no directory",
        ),
    ] {
        let run = archive(&host, &[&["backup"], arguments].concat());
        assert_eq!(run.code, code, "{run}");
        assert!(run.stderr.contains(said), "{run}");
    }
    let copies = host.join("copies").display().to_string();
    let run = archive(&host, &["backup", "--copy-directory", &copies]);
    assert_eq!(run.code, 4, "{run}");
    assert!(
        run.stderr.contains("does not say what its mysqld is"),
        "{run}"
    );
    let both = [
        "backup",
        "--data-directory",
        "/d",
        "--gtids",
        GTIDS,
        "--on-primary",
    ];
    assert_eq!(archive(&host, &both).code, 2);
    assert_eq!(
        archive(&host, &["backup", "--data-directory", "/d"]).code,
        2
    );
}

#[test]
fn an_operators_own_backup_is_registered() {
    let host = host();
    know_the_ring(&host);
    let register = |more: &[&str]| {
        let arguments = ["register", "--tool", "mysqldump", "--gtids", GTIDS];
        archive(&host, &[&arguments[..], more].concat())
    };
    for wrong in [
        &["--place", "https://me:secret@host/b"][..],
        &["--place", "nfs://h/b", "--taken-at", "9998-01-01T00:00:00Z"],
        &["--place", "nfs://h/b", "--taken-at", "yesterday"],
        &["--place", " "],
        &[],
    ] {
        let run = register(wrong);
        assert_eq!(run.code, 2, "{run}");
        assert!(!run.stderr.contains("secret"), "{run}");
    }
    let taken = [
        "--place",
        "nfs://h/dump.sql",
        "--taken-at",
        "2026-11-26T04:00:00Z",
    ];
    for second in ["00", "01"] {
        let run = register(&[&taken[..], &["--output", "json"]].concat());
        assert_eq!(run.code, 0, "{run}");
        let base = run.json();
        // Two backups of the same second get different names.
        assert_eq!(base["name"], format!("20261126T0400{second}Z-1"));
        assert_eq!(base["began"], "2026-11-26T04:00:00Z");
        assert_eq!(base["place"], "nfs://h/dump.sql");
    }
    let run = archive(&host, &["list"]);
    assert!(run.stdout.contains("registered (mysqldump)"), "{run}");
    assert_eq!(archive(&host, &["verify"]).code, 0);
}

/// The operator registers a dump each night, and a timer takes the base backups for `restore`. A registered dump must not delay the timer.
#[test]
fn a_registered_backup_is_none_that_a_timer_waits_for() {
    let host = host();
    know_the_ring(&host);
    let directory = data_directory(&host);
    let register = || {
        let place = ["--place", "nfs://h/dump.sql"];
        let arguments = ["register", "--tool", "mysqldump", "--gtids", GTIDS];
        let run = archive(&host, &[&arguments[..], &place].concat());
        assert_eq!(run.code, 0, "{run}");
    };
    let due = || {
        let more = ["--if-older-than", "23h", "--output", "json"];
        let run = backed_up(&host, &directory, &more);
        assert_eq!(run.code, 0, "{run}");
        run.json()
    };
    register();
    let taken = due();
    assert_eq!(taken["taken"], true);
    register();
    let not_due = due();
    assert_eq!(not_due["taken"], false);
    assert_eq!(not_due["name"], taken["name"]);
}

/// SIGTERM, as from a service manager, ends a backup, and the backup leaves nothing in the archive.
#[test]
fn a_backup_that_is_asked_to_end_leaves_nothing() {
    let host = host();
    know_the_ring(&host);
    let directory = data_directory(&host);
    // Random data, which cannot be compressed, so that the backup takes long at the limited rate.
    let mut state: u64 = 7;
    let random = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_le_bytes()[7]
    });
    let bytes: Vec<u8> = random.take(64 << 20).collect();
    fs::write(directory.join("shop/large.ibd"), bytes).unwrap();
    let config = fs::read_to_string(host.join("witness.toml")).unwrap();
    host.write(
        "witness.toml",
        &format!("{config}archive.bytes_per_second = \"8MiB\"\n"),
    );
    let directory = directory.display().to_string();
    let arguments = [
        "archive",
        "backup",
        "--data-directory",
        &directory,
        "--gtids",
        GTIDS,
    ];
    let mut running = witness(&host).args(arguments).spawn();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("storing ")));
    let began = Instant::now();
    let id = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(running.wait().unwrap().code(), Some(1), "{said:?}");
    // The whole backup would take at least 8 seconds, and one part of it takes about one second.
    assert!(began.elapsed() < Duration::from_secs(6), "{said:?}");
    assert!(
        said.iter().any(|line| line.contains("left nothing")),
        "{said:?}"
    );
    let bases = fs::read_dir(host.join("archive").join("base")).unwrap();
    let mut left = bases.map(|entry| entry.unwrap().path());
    let is_known = |path: &PathBuf| path.ends_with("20200101T000000Z-2");
    assert!(left.all(|path| is_known(&path) || fs::read_dir(path).unwrap().next().is_none()));
    let run = archive(&host, &["list", "--output", "json"]);
    assert_eq!(
        run.json()["unfinished_base_backups"],
        serde_json::json!([]),
        "{run}"
    );
}

#[test]
fn a_relative_directory_for_copies_is_a_mistake_of_the_configuration() {
    let host = host();
    let config = fs::read_to_string(host.join("witness.toml")).unwrap();
    host.write(
        "witness.toml",
        &format!("{config}archive.copy_directory = \"copies\"\n"),
    );
    let run = witness(&host).args(["config", "check"]).run();
    assert_eq!(run.code, 2, "{run}");
    let said = "`archive.copy_directory` is a relative path";
    assert!(run.to_string().contains(said), "{run}");
}
