//! A follower's data are archived while clients write. A mysqld that is started with the restored data continues with the log
//! after the backup.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use archive::base_backup::{BaseForm, BaseManifest, download, survey};
use archive::encryption::Identities;
use archive::storage::{Storage, StorageSettings};
use serde_json::Value;
use testkit::bounded_run::Finished;
use testkit::cluster::Cluster;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use tokio::runtime::Runtime;
use witness_tests::{Writers, difference, replicaset_with, server_contents};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// Time limit for a copy on a busy machine.
const COPIED: Duration = Duration::from_secs(180);
const PRIMARY: usize = 0;
const FOLLOWER: usize = 3;

fn archive_of(set: &Cluster, member: usize, arguments: &[&str]) -> Finished {
    let config = set.config(member).display().to_string();
    let all = ["archive", arguments[0], "--config", &config];
    set.cli_within(&[&all[..], &arguments[1..]].concat(), COPIED)
        .unwrap()
}

fn json(done: &Finished) -> Value {
    assert!(done.status.success(), "{done:?}");
    serde_json::from_slice(&done.stdout).unwrap()
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

/// True if the GTID set `other` contains `one`.
fn is_subset(client: &MysqlClient, one: &str, other: &str) -> bool {
    let question = format!("SELECT GTID_SUBSET('{one}', '{other}')");
    client.value(&question).unwrap() == "1"
}

#[test]
fn a_follower_is_backed_up_under_load_and_its_restore_continues_with_the_log() {
    let _turn = SCENES.take();
    let (archive, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", archive.path().display());
    let set = replicaset_with(2, |options| {
        options
            .with("archive", format!("url = {url:?}"))
            .with("archive", "interval = \"200ms\"")
            .with("archive", format!("copy_directory = {:?}", copies.path()))
    })
    .unwrap();
    set.follows(FOLLOWER, SOON).unwrap();
    let clients = Writers::of(&set, 4, 0);
    clients.wait_for_more(200, SOON).unwrap();

    let refused = archive_of(&set, PRIMARY, &["backup"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let witness = archive_of(&set, 1, &["backup"]);
    assert_eq!(witness.status.code(), Some(4), "{witness:?}");

    // What a killed backup leaves: a copy, and objects without a manifest.
    let killed = format!("20200101T000000Z-{}", set.id(FOLLOWER));
    let left = copies.path().join(format!("witness-base-{killed}"));
    fs::create_dir_all(left.join("shop")).unwrap();
    let objects = archive.path().join("base").join(&killed);
    fs::create_dir_all(&objects).unwrap();
    fs::write(objects.join("data-000001.zst"), "half").unwrap();

    let done = archive_of(&set, FOLLOWER, &["backup", "--output", "json"]);
    let taken = json(&done);
    println!("taken: {taken}");
    assert_eq!(taken["taken"], true);
    assert!(is_empty(copies.path()), "the copy is removed");
    assert!(!objects.join("data-000001.zst").exists());
    let due = archive_of(
        &set,
        FOLLOWER,
        &["backup", "--if-older-than", "1d", "--output", "json"],
    );
    let due = json(&due);
    assert_eq!(
        (&due["taken"], &due["name"]),
        (&Value::Bool(false), &taken["name"])
    );

    clients.wait_for_more(200, SOON).unwrap();
    let written = clients.finish().unwrap();
    let failed = written
        .commits
        .iter()
        .filter(|commit| commit.error.is_some());
    assert_eq!(failed.count(), 0, "no client was interrupted");
    assert!(archive_of(&set, FOLLOWER, &["verify"]).status.success());
    let listing = json(&archive_of(&set, FOLLOWER, &["list", "--output", "json"]));
    assert_eq!(listing["base_backups"][0]["name"], taken["name"]);
    assert_eq!(listing["unfinished_base_backups"], serde_json::json!([]));

    // All transactions up to the end of the log.
    let expected = set.client(PRIMARY).gtid_executed().unwrap();
    set.client(FOLLOWER)
        .wait_for_gtids(&expected, SOON)
        .unwrap();
    let log = tempfile::tempdir().unwrap();
    let directory = log.path().join("log").display().to_string();
    set.eventually("the archive has the whole log", SOON, || {
        let _ = fs::remove_dir_all(&directory);
        let fetched = archive_of(&set, FOLLOWER, &["fetch", "--directory", &directory]);
        assert!(fetched.status.success(), "{fetched:?}");
        let own = set.directory(PRIMARY).join("log");
        log_files(&own).iter().all(|name| {
            let fetched = fs::read(Path::new(&directory).join(name));
            fetched.is_ok_and(|fetched| fetched == fs::read(own.join(name)).unwrap())
        })
    })
    .unwrap();
    restored_and_caught_up(&set, &url, &directory, &expected);
}

fn log_files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("binlog.0")).collect();
    names.sort();
    names
}

fn restored_and_caught_up(set: &Cluster, url: &str, log: &str, expected: &str) {
    let (base, restored) = restored(url);
    assert_eq!(base.form, BaseForm::DataDirectory);
    assert_eq!(base.keyring_needed, Some(false));
    let has = |name: &str| restored.path().join("data").join(name).exists();
    assert!(has("ibdata1") && has("mysql.ibd") && has("acked"));
    for absent in [
        "auto.cnf",
        "#clone/#view_status",
        "mysqld-auto.cnf",
        "binlog.index",
    ] {
        assert!(!has(absent), "{absent}");
    }
    let options = MysqldOptions {
        copy_of: Some(restored.path().join("data")),
        ..MysqldOptions::with_server_id(77)
    };
    let tree = set.server(FOLLOWER).tree();
    let server = Mysqld::launch_with(tree, options.with_arguments(["--skip-networking"])).unwrap();
    let client = server.client();
    let executed = client.gtid_executed().unwrap();
    let row = "SELECT IFNULL(MAX(gtids), '') FROM witness_applier.checkpoint";
    let applied = client.value(row).unwrap();
    let at_least = base.gtids_at_least.to_string();
    let at_most = base.gtids_at_most.to_string();
    println!("{at_least} <= {executed} (and {applied}) <= {at_most}");
    assert!(!base.gtids_at_least.is_empty());
    assert!(is_subset(&client, &at_least, &executed));
    assert!(is_subset(&client, &executed, &at_most));
    assert!(is_subset(&client, &applied, &at_most));
    let uuids = [&client, &set.client(FOLLOWER)].map(|client| client.variable("server_uuid"));
    let [own, other] = uuids.map(Result::unwrap);
    assert_ne!(own, other, "two servers have one identity");

    // Apply the log after the backup, and compare every row.
    let socket = server.socket().display().to_string();
    let files: Vec<String> = log_files(Path::new(log))
        .iter()
        .map(|name| format!("{log}/{name}"))
        .collect();
    let mut apply = vec!["apply", "--to", &socket, "--to-user", "root"];
    apply.extend(files.iter().map(String::as_str));
    let applied = set.cli_within(&apply, COPIED).unwrap();
    assert!(applied.status.success(), "{applied:?}");
    assert!(is_subset(
        &client,
        expected,
        &client.gtid_executed().unwrap()
    ));
    let [restored, primary] =
        [client, set.client(PRIMARY)].map(|one| server_contents(&one).unwrap());
    assert_eq!(difference(&restored, &primary), None);
}

/// Restores the newest base backup, using only the archive.
fn restored(url: &str) -> (BaseManifest, tempfile::TempDir) {
    let settings = StorageSettings {
        url: url.parse().unwrap(),
        options: Default::default(),
        call_limit: SOON,
    };
    let into = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let base = runtime.block_on(async {
        let storage = Storage::open(&settings).unwrap();
        let mut survey = survey(&storage, None).await.unwrap();
        assert!(survey.damaged.is_empty(), "{:?}", survey.damaged);
        let base = survey.bases.pop().unwrap();
        let place = into.path().join("data");
        let go_on = |_| ControlFlow::Continue(());
        download(&storage, &base, &Identities::default(), &place, go_on)
            .await
            .unwrap();
        base
    });
    (base, into)
}
