//! Every host of a ring is lost. The archive restores the data of a given second, with everything acknowledged by then. A new ring is
//! bootstrapped from the restored data.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use testkit::cluster::{Cluster, ClusterOptions, Profile, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};
use witness_tests::{Writers, replicaset_with};

use crate::SCENES;
use crate::the_log_is_archived::{Reader, wait_until_archived};

const SOON: Duration = Duration::from_secs(60);
const A_WHILE: Duration = Duration::from_secs(180);

/// Folders that outlive the hosts, with an archive in a directory.
struct Place {
    url: String,
    home: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        let home = tempfile::tempdir()?;
        let archive = home.path().join("archive");
        fs::create_dir(&archive)?;
        let url = format!("file://{}", archive.display());
        Ok(Self { url, home })
    }

    fn adjust(&self, options: ClusterOptions) -> ClusterOptions {
        options
            .with("archive", format!("url = {:?}", self.url))
            .with("archive", "interval = \"500ms\"")
    }

    /// Runs a subcommand of `witness archive`, which needs no ring.
    fn archive(&self, set: &Cluster, verb: &str, arguments: &[&str]) -> Result<String> {
        let words = [&["archive", verb, "--url", &self.url], arguments].concat();
        let done = set.cli_within(&words, A_WHILE)?;
        done.into_text(verb)
    }
}

/// Returns the ids of the rows that a server has.
pub(crate) fn ids(client: &MysqlClient) -> Result<BTreeSet<u64>> {
    let rows = client.sql("SELECT id FROM acked.rows")?.0;
    let ids = rows.iter().map(|row| {
        let id = row.first().context("a column")?;
        id.parse().context("a number")
    });
    ids.collect()
}

/// Returns the options with which a command starts the tests' mysqld.
fn mysqld_options(tree: &MysqlTree) -> Vec<String> {
    let mut options: Vec<String> = tree.server_options();
    if rustix::process::geteuid().is_root() {
        options.push("--user=root".to_owned());
    }
    let options = options.iter();
    options
        .map(|option| format!("--mysqld-option={option}"))
        .collect()
}

fn restore(
    place: &Place,
    set: &Cluster,
    tree: &MysqlTree,
    directory: &Path,
    target: &[&str],
) -> Result<serde_json::Value> {
    let program = tree.as_one_program(&tree.mysqld, place.home.path())?;
    let program = program.display().to_string();
    let directory = directory.display().to_string();
    let options = mysqld_options(tree);
    let mut arguments = vec!["--directory", &directory, "--mysqld", &program];
    arguments.extend(options.iter().map(String::as_str));
    arguments.extend(["--check-tables", "--output", "json"]);
    arguments.extend(target);
    Ok(serde_json::from_str(
        &place.archive(set, "restore", &arguments)?,
    )?)
}

/// Starts a server on a restored directory, as its operator does.
pub(crate) fn launch(tree: &MysqlTree, directory: &Path) -> Result<Mysqld> {
    let options = MysqldOptions {
        copy_of: Some(directory.to_owned()),
        ..MysqldOptions::with_server_id(7)
    };
    let mut server = Mysqld::prepare(tree, options)?;
    server.start()?;
    Ok(server)
}

/// Uses an archive in a directory. The test of the documentation page does the same with an S3 server.
#[test]
fn transactions_acknowledged_up_to_a_second_are_in_a_new_ring() {
    let _turn = SCENES.take();
    let place = Place::new().unwrap();
    through_the_loss_of_all_hosts(&place).unwrap_or_else(|error| panic!("{error:#}"));
}

fn through_the_loss_of_all_hosts(place: &Place) -> Result<()> {
    let tree = MysqlTree::require();
    let set = replicaset_with(2, |options| place.adjust(options))?;
    let primary = set.primary(SOON)?;
    let follower = set
        .databases()
        .into_iter()
        .find(|member| *member != primary);
    let follower = follower.context("a follower")?;
    let write = |first| -> Result<BTreeSet<u64>> {
        let writers = Writers::of(&set, 4, first);
        writers.wait_for_more(200, SOON)?;
        let written = writers.finish()?;
        Ok(written.acknowledged().into_iter().collect())
    };

    // The base backup is taken while clients write. The follower's mysqld is a copy; the copy ends when it restarts.
    let before = write(0)?;
    set.follows(follower, SOON)?;
    let writers = Writers::of(&set, 2, 1_000_000);
    writers.wait_for_more(50, SOON)?;
    let config = set.config(follower).display().to_string();
    let copy = place.home.path().join("copy");
    fs::create_dir(&copy)?;
    let copy = copy.display().to_string();
    let backup = [
        "archive",
        "backup",
        "--config",
        &config,
        "--copy-directory",
        &copy,
    ];
    let done = set.cli_within(&backup, A_WHILE)?;
    println!("{}", done.into_text("backup")?);
    writers.wait_for_more(50, SOON)?;
    let during: BTreeSet<u64> = writers.finish()?.acknowledged().into_iter().collect();

    let up_to_here = write(2_000_000)?;
    std::thread::sleep(Duration::from_millis(1100));
    let second = SystemTime::now();
    std::thread::sleep(Duration::from_millis(1100));
    // A mistake, and later writes.
    let last = write(3_000_000)?;
    set.client(set.primary(SOON)?)
        .sql("DELETE FROM acked.rows WHERE id < 1000000")?;
    let executed = set.client(set.primary(SOON)?).gtid_executed()?;
    wait_until_archived(&set, follower, &Reader::with(&place.url, [], &set));
    place.archive(&set, "verify", &[])?;
    let sources = set;
    let gone: Vec<PathBuf> = (0..sources.size())
        .map(|member| sources.directory(member).to_owned())
        .collect();
    let set = Cluster::prepare(
        &witness_binary(Profile::Dev)?,
        ClusterOptions::around(&Mysqld::prepare(&tree, MysqldOptions::with_server_id(1))?),
    )?;
    drop(sources);
    ensure!(
        gone.iter().all(|directory| !directory.exists()),
        "hosts are gone"
    );

    let time = humantime::format_rfc3339_millis(second).to_string();
    let planned = restore(
        place,
        &set,
        &tree,
        &place.home.path().join("dry"),
        &["--to-time", &time, "--dry-run"],
    )?;
    ensure!(planned["missing"] == serde_json::json!([]), "{planned}");
    ensure!(!place.home.path().join("dry").exists());

    let directory = place.home.path().join("restored");
    let report = restore(place, &set, &tree, &directory, &["--to-time", &time])?;
    println!("{report:#}");
    ensure!(report["ends_early"] == false, "{report}");
    let server = launch(&tree, &directory)?;
    let there = ids(&server.client())?;
    let told: BTreeSet<u64> = [&before, &during, &up_to_here]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    let lost: Vec<_> = told.difference(&there).collect();
    ensure!(
        lost.is_empty(),
        "acknowledged up to {time} and lost: {lost:?}"
    );
    ensure!(there.iter().all(|id| *id < 3_000_000), "later than {time}");
    found_a_ring(&server, &there)?;

    // Restores everything, including the mistake: no archived transaction is missing.
    let all = place.home.path().join("all");
    let report = restore(place, &set, &tree, &all, &[])?;
    ensure!(
        report["gtids"]
            .as_str()
            .is_some_and(|gtids| gtids.parse() == executed.parse::<binlog_format::gtid::GtidSet>()),
        "{report}, not {executed}"
    );
    let server = launch(&tree, &all)?;
    let there = ids(&server.client())?;
    ensure!(last.is_subset(&there) && there.iter().all(|id| *id >= 1_000_000));

    let drill = place.home.path().join("drill");
    let program = tree.as_one_program(&tree.mysqld, place.home.path())?;
    let program = program.display().to_string();
    let options = mysqld_options(&tree);
    let mut words = vec!["--mysqld", &program, "--output", "json"];
    let shown = drill.display().to_string();
    words.extend(["--directory", &shown]);
    words.extend(options.iter().map(String::as_str));
    let drilled: serde_json::Value = serde_json::from_str(&place.archive(&set, "drill", &words)?)?;
    println!("{drilled:#}");
    ensure!(drilled["gtids"] == report["gtids"], "{drilled}");
    ensure!(
        drilled["stages"]
            .as_array()
            .is_some_and(|stages| stages.len() == 6),
        "{drilled}"
    );
    ensure!(!drill.exists(), "a drill leaves nothing");

    // If the restore target is not in the archive, that is reported.
    let early = restore(
        place,
        &set,
        &tree,
        &place.home.path().join("early"),
        &["--to-time", "2020-01-01T00:00:00Z"],
    );
    let refused = format!("{:#}", early.unwrap_err());
    ensure!(refused.contains("no base backup leads there"), "{refused}");
    Ok(())
}

/// Bootstraps a ring with the restored server as its primary.
fn found_a_ring(server: &Mysqld, restored: &BTreeSet<u64>) -> Result<()> {
    let mut ring = Cluster::prepare(
        &witness_binary(Profile::Dev)?,
        ClusterOptions::around(server),
    )?;
    for member in 0..ring.size() {
        ring.start(member)?;
    }
    ring.wait_until("the members answer", SOON, |ring| {
        Ok((0..ring.size()).all(|member| ring.get(member, "/liveness").is_ok()))
    })?;
    let config = ring.config(0).display().to_string();
    let done = ring.cli_within(&["enable-raft", "--config", &config, "--yes"], A_WHILE)?;
    println!("{}", done.into_text("enable-raft")?);
    let writers = Writers::at(server, 2, 9_000_000);
    writers.wait_for_more(50, SOON)?;
    let written: BTreeSet<u64> = writers.finish()?.acknowledged().into_iter().collect();
    let there = ids(&server.client())?;
    ensure!(written.is_subset(&there) && restored.is_subset(&there));
    Ok(())
}
