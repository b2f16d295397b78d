//! All members have purged the next entries that two members need: one that was down too long, and a new one. Their logs begin with a
//! later file, and have the same bytes from there on. The stock mysqlbinlog and `witness log verify` accept them.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use testkit::cluster::{Cluster, Profile, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::client::verified_sql;
use testkit::ports::free_addresses;
use testkit::wait::eventually;
use witness_tests::Scene;

use crate::SCENES;

const LOAD: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the binlog files below a data directory, without the index.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(directory.join("log")) else {
        return BTreeMap::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let numbered = paths.filter(|path| path.extension().is_some_and(|end| end != "index"));
    let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    let read = numbered.filter_map(|path| Some((name(&path)?, fs::read(&path).ok()?)));
    read.collect()
}

fn first(directory: &Path) -> Option<String> {
    files(directory).keys().next().cloned()
}

/// Waits until a member's files are equal to those of another member, from the first file on. Returns their number.
fn has_the_same_files(member: &Path, other: &Path) -> usize {
    let same = eventually("the files are the same", PATIENCE, || {
        let (mine, theirs) = (files(member), files(other));
        let same = mine
            .iter()
            .filter(|(name, bytes)| theirs.get(*name) == Some(*bytes));
        let whole = !mine.is_empty() && same.count() == mine.len();
        let level = whole && mine.keys().last() == theirs.keys().last();
        let (mine, theirs) = (mine.into_keys(), theirs.into_keys());
        ensure!(
            level,
            "{} has {mine:?}, {} has {theirs:?}",
            member.display(),
            other.display()
        );
        Ok(mine.len())
    });
    same.unwrap()
}

/// Checks a member's files with two independent tools.
fn is_well(ring: &Cluster, directory: &Path) {
    let names = files(directory).into_keys();
    let paths: Vec<PathBuf> = names.map(|name| directory.join("log").join(name)).collect();
    let sql = verified_sql(&MysqlTree::require(), &paths).unwrap();
    assert!(
        sql.contains("INSERT") || sql.contains("BINLOG"),
        "{}",
        sql.len()
    );
    let log = directory.to_str().unwrap();
    let verified = ring.cli(&["log", "verify", log]).unwrap();
    let said = String::from_utf8_lossy(&verified.stdout).into_owned();
    println!("{said}");
    assert!(verified.status.success(), "{said}");
}

/// The process of the new member, which ends with the test.
struct Newcomer {
    process: Child,
    directory: PathBuf,
    address: String,
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Newcomer {
    /// Starts member 4 with the configuration of witness 2, except for its own settings.
    fn start(ring: &Cluster) -> Self {
        let directory = ring.directory(1).with_file_name("witness-3");
        fs::create_dir_all(&directory).unwrap();
        let addresses = free_addresses(2).unwrap();
        let model = fs::read_to_string(ring.config(1)).unwrap();
        let lines = model.lines().map(|line| match line {
            line if line.starts_with("data_dir") => format!("data_dir = {directory:?}"),
            line if line.starts_with("listen") => format!("listen = \"{}\"", addresses[0]),
            line => line.to_owned(),
        });
        let text: Vec<String> = lines.collect();
        let text = text
            .join("\n")
            .replacen("[member]\nid = 2", "[member]\nid = 4", 1);
        let own = format!(
            "{text}\n[[members]]\nid = 4\nname = \"witness-3\"\nregion = \"here\"\nkind = \"witness\"\naddress = \"{}\"\n",
            addresses[1]
        );
        let config = directory.join("witness.toml");
        fs::write(&config, own).unwrap();
        let process = Command::new(witness_binary(Profile::Dev).unwrap())
            .args(["run", "--config"])
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(File::create(directory.join("output")).unwrap())
            .spawn()
            .unwrap();
        Self {
            process,
            directory,
            address: addresses[1].to_string(),
        }
    }

    /// Adds the member to the ring, as an operator does.
    fn join(&self, ring: &Cluster) {
        let config = ring.config(1).to_str().unwrap();
        let patience = PATIENCE;
        let added = eventually("the ring takes it in", patience, || {
            let added = ring.cli(&[
                "members",
                "add",
                "--config",
                config,
                "--id",
                "4",
                "--name",
                "witness-3",
                "--region",
                "here",
                "--kind",
                "witness",
                "--address",
                &self.address,
            ])?;
            added.into_text("members add")
        });
        let output = || fs::read_to_string(self.directory.join("output")).unwrap_or_default();
        added.with_context(output).unwrap();
    }
}

#[test]
fn after_a_purge_an_absent_and_a_new_member_have_the_same_bytes() {
    let _turn = SCENES.take();
    let mut scene = Scene::launch(|options| {
        options
            .with("log", "max_file_bytes = \"64KiB\"")
            .with("log", "keep_bytes = \"256KiB\"")
            .with("log", "absent_after = \"1s\"")
    })
    .unwrap();
    let absent = 2;
    scene.ring.kill(absent).unwrap();
    let left = files(scene.ring.directory(absent));
    let newest = left.keys().last().unwrap().clone();
    scene.start_load(4, LOAD).unwrap().finish().unwrap();
    for member in [0, 1] {
        let directory = scene.ring.directory(member).to_owned();
        scene
            .ring
            .wait_until("the absent member's files are purged", PATIENCE, |_| {
                Ok(first(&directory).is_some_and(|name| name > newest))
            })
            .unwrap();
    }
    let other = scene.ring.directory(1).to_owned();
    let purged_to = first(&other).unwrap();

    scene.ring.start(absent).unwrap();
    let returned = scene.ring.directory(absent).to_owned();
    let count = has_the_same_files(&returned, &other);
    println!(
        "the absent member begins with {:?}, {count} files",
        first(&returned)
    );
    assert!(first(&returned) >= Some(purged_to.clone()));

    let newcomer = Newcomer::start(&scene.ring);
    newcomer.join(&scene.ring);
    let writers = scene.start_writers(2).unwrap();
    let written = writers.finish().unwrap();
    assert!(!written.acknowledged().is_empty());
    has_the_same_files(&newcomer.directory, &other);
    has_the_same_files(&returned, &other);
    println!(
        "the new member begins with {:?}",
        first(&newcomer.directory)
    );
    assert!(first(&newcomer.directory) >= Some(purged_to));
    is_well(&scene.ring, &returned);
    is_well(&scene.ring, &newcomer.directory);
}
