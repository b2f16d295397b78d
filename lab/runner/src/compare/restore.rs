//! `cargo lab compare restore`: compares `witness archive restore` with `mysqlbinlog | mysql`. Both apply the same log to the same base
//! backup.
//!
//! A ring archives its log into a directory. A base backup of its empty tables is taken, and then clients write. Both ways apply the log
//! after that backup to servers with the same settings: without a binlog and without syncs, as in a restore. `mysqlbinlog | mysql` reads
//! unpacked files. Afterwards the tables must equal those of the primary.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;
use testkit::bounded_run;
use testkit::cluster::{Cluster, ClusterOptions};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::workload::{Load, Workload};
use testkit::mysqld::{Mysqld, MysqldOptions, TableChecksums};

use crate::compare::apply::workload;
use crate::compare::servers::{SETTINGS, count, executed_since};
use crate::compare::{begin, chosen, finish, spread};

const FIGURES: &str = "restore";
/// Time limit for each step, far above the expected time.
const LIMIT: Duration = Duration::from_secs(1800);
/// The member of the primary.
const PRIMARY: usize = 0;
/// The options that affect speed in a restore's mysqld.
const AS_IN_A_RESTORE: [&str; 3] = [
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=0",
    "--event-scheduler=OFF",
];

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds; every round restores once in each way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Transactions of each workload
    #[arg(long, default_value_t = 20_000)]
    transactions: u64,
    /// Concurrent clients that write
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Workloads (default: all)
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    workloads: Vec<Workload>,
}

/// The part of the output of `witness archive restore` that is read.
#[derive(Debug, Deserialize)]
struct Report {
    restored: Restored,
}

#[derive(Debug, Deserialize)]
struct Restored {
    stages: Vec<Took>,
    seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Took {
    stage: String,
    seconds: f64,
}

impl Restored {
    fn seconds_of(&self, stage: &str) -> Result<f64> {
        let took = self.stages.iter().find(|took| took.stage == stage);
        Ok(took.with_context(|| format!("no {stage}"))?.seconds)
    }
}

/// The times of one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    /// The time of the whole `witness archive restore`.
    restore_seconds: f64,
    /// The part of that time in which the log is applied.
    apply_seconds: f64,
    /// The time of `mysqlbinlog | mysql`.
    pipe_seconds: f64,
}

impl Sample {
    fn ratio(self) -> f64 {
        self.pipe_seconds / self.apply_seconds
    }

    /// Returns the ratio of the whole restores. The other steps of a restore count for both ways.
    fn ratio_of_the_whole(self) -> f64 {
        (self.restore_seconds - self.apply_seconds + self.pipe_seconds) / self.restore_seconds
    }
}

/// Runs the comparison, prints the table and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    let tree = MysqlTree::locate()?;
    let (witness, mut figures) = begin(FIGURES)?;
    let workloads = chosen(&options.workloads, &Workload::ALL);
    println!(
        "{:<20} {:>12} {:>10} {:>16} {:>14} {:>8} {:>14} {:>10}",
        "workload",
        "transactions",
        "log MiB",
        "mysqlbinlog|mysql",
        "restore's part",
        "ratio",
        "[min max]",
        "of whole"
    );
    let mut by_workload = json!({});
    for workload in workloads {
        let load = Load {
            transactions: options.transactions,
            clients: options.clients,
            seed: 1,
        };
        let bed = Bed::make(&tree, &witness, workload, load)
            .with_context(|| format!("{}: the archive", workload.key()))?;
        let mut samples = Vec::new();
        for round in 0..options.rounds {
            let sample = bed.measure(round % 2 == 0);
            let sample = sample.with_context(|| workload.key())?;
            eprintln!("compare: {}: {sample:.2?}", workload.key());
            samples.push(sample);
        }
        let of = |of: fn(Sample) -> f64| spread(samples.iter().copied().map(of)).context("a round");
        let (pipe, own) = (of(|one| one.pipe_seconds)?, of(|one| one.apply_seconds)?);
        let (ratio, whole) = (of(Sample::ratio)?, of(Sample::ratio_of_the_whole)?);
        println!(
            "{:<20} {:>12} {:>10.1} {:>15.1} s {:>12.1} s {:>8.1} {:>14} {:>10.1}",
            workload.key(),
            bed.transactions,
            bed.log_bytes as f64 / f64::from(1 << 20),
            pipe.median,
            own.median,
            ratio.median,
            format!("[{:.1} {:.1}]", ratio.min, ratio.max),
            whole.median,
        );
        by_workload[workload.key()] = json!({
            "transactions": bed.transactions, "log_bytes": bed.log_bytes, "samples": samples,
            "ratio": ratio, "ratio_of_the_whole": whole,
        });
    }
    figures.set("clients", options.clients)?;
    figures.set("workloads", by_workload)?;
    finish(&figures)
}

/// An archive, with the log and the base backup that it contains.
struct Bed {
    tree: MysqlTree,
    witness: PathBuf,
    home: TempDir,
    workload: Workload,
    url: String,
    /// A program that runs the MySQL tree's mysqld without further settings.
    mysqld: PathBuf,
    /// Number of transactions after the base backup.
    transactions: u64,
    log_files: Vec<PathBuf>,
    log_bytes: u64,
    checksums: TableChecksums,
}

impl Bed {
    fn make(tree: &MysqlTree, witness: &Path, workload: Workload, load: Load) -> Result<Self> {
        let home = TempDir::new()?;
        let archive = home.path().join("archive");
        let copies = home.path().join("copies");
        fs::create_dir(&archive)?;
        fs::create_dir(&copies)?;
        let url = format!("file://{}", archive.display());
        let server = Mysqld::launch_with(tree, settings(1, &[]))?;
        let options = ClusterOptions::around(&server)
            .with("archive", format!("url = {url:?}"))
            .with("archive", "interval = \"1s\"");
        let ring = Cluster::launch(witness, options)?;
        workload.prepare(&server)?;
        let mut bed = Self {
            tree: tree.clone(),
            witness: witness.to_owned(),
            mysqld: tree.as_one_program(&tree.mysqld, home.path())?,
            home,
            workload,
            url,
            transactions: 0,
            log_files: Vec::new(),
            log_bytes: 0,
            checksums: TableChecksums::default(),
        };
        // The member's configuration contains the archive's URL.
        let mut backup = Command::new(witness);
        backup.args(["archive", "backup", "--on-primary", "--copy-directory"]);
        backup.arg(&copies).arg("--config");
        backup.arg(ring.config(PRIMARY));
        bounded_run::text("witness archive backup", backup, LIMIT)?;
        let client = server.client();
        let before = client.gtid_executed()?;
        workload.run(&server, load)?;
        bed.transactions = count(&executed_since(&client, &before)?)?;
        bed.checksums = client.table_checksums(workload.schema())?;
        ring.eventually("everything is archived", LIMIT, || {
            let lag =
                |member| Some(ring.status(member).ok()?["archive"]["lag_seconds"].as_f64()? == 0.0);
            (0..ring.size()).all(|member| lag(member) == Some(true))
        })?;
        drop(ring);
        let log = bed.home.path().join("log");
        let mut fetch = bed.archive_verb("fetch");
        fetch.arg("--directory").arg(&log);
        bounded_run::text("witness archive fetch", fetch, LIMIT)?;
        let mut files: Vec<PathBuf> = fs::read_dir(&log)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<_>>()?;
        files.retain(|file| file.extension() != Some(OsStr::new("index")));
        files.sort();
        for file in &files {
            bed.log_bytes += file.metadata()?.len();
        }
        bed.log_files = files;
        // Restores only the base backup, without the log after it.
        bed.restore(&bed.base(), &["--to-gtid", &before])?;
        Ok(bed)
    }

    fn base(&self) -> PathBuf {
        self.home.path().join("base")
    }

    fn archive_verb(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.witness);
        command.args(["--output", "json", "archive", verb, "--url", &self.url]);
        command
    }

    fn restore(&self, directory: &Path, to: &[&str]) -> Result<Restored> {
        let mut command = self.archive_verb("restore");
        command.arg("--directory").arg(directory);
        command.arg("--mysqld").arg(&self.mysqld).args(to);
        let as_root = rustix::process::geteuid().is_root();
        let options = self.tree.server_options().into_iter();
        let options = options.chain(SETTINGS.map(str::to_owned));
        let options = options.chain(as_root.then(|| "--user=root".to_owned()));
        command.args(options.map(|option| format!("--mysqld-option={option}")));
        let text = bounded_run::text("witness archive restore", command, LIMIT)?;
        let report: Report =
            serde_json::from_str(&text).with_context(|| format!("unexpected report: {text}"))?;
        Ok(report.restored)
    }

    /// Measures both ways once.
    fn measure(&self, own_first: bool) -> Result<Sample> {
        let (restored, pipe_seconds) = if own_first {
            let restored = self.restored()?;
            (restored, self.piped()?)
        } else {
            let piped = self.piped()?;
            (self.restored()?, piped)
        };
        Ok(Sample {
            restore_seconds: restored.seconds,
            apply_seconds: restored.seconds_of("apply")?,
            pipe_seconds,
        })
    }

    fn restored(&self) -> Result<Restored> {
        let directory = self.home.path().join("restored");
        let restored = self.restore(&directory, &[])?;
        let server = self.server(&directory)?;
        self.assert_equal(&server)?;
        drop(server);
        fs::remove_dir_all(&directory)?;
        Ok(restored)
    }

    /// Returns the seconds in which MySQL's own programs apply the log.
    fn piped(&self) -> Result<f64> {
        let server = self.server(&self.base())?;
        let tree = &self.tree;
        let reader = tree
            .mysqlbinlog
            .as_ref()
            .context("there is no mysqlbinlog")?;
        let client = tree.mysql.as_ref().context("there is no mysql")?;
        let reader = tree.as_one_program(reader, self.home.path())?;
        let client = tree.as_one_program(client, self.home.path())?;
        let mut pipe = Command::new("sh");
        pipe.arg("-c").arg(
            "reader=$1; client=$2; socket=$3; shift 3; \
             \"$reader\" --no-defaults \"$@\" | \"$client\" --no-defaults --user=root --socket=\"$socket\"",
        );
        pipe.args([OsStr::new("sh"), reader.as_os_str(), client.as_os_str()]);
        pipe.arg(server.socket()).args(&self.log_files);
        let began = Instant::now();
        bounded_run::text("mysqlbinlog | mysql", pipe, LIMIT)?;
        let seconds = began.elapsed().as_secs_f64();
        self.assert_equal(&server)?;
        Ok(seconds)
    }

    /// Starts a server on a copy of the directory `of`, with the options of a restore.
    fn server(&self, of: &Path) -> Result<Mysqld> {
        let options = MysqldOptions {
            copy_of: Some(of.to_owned()),
            ..settings(2, &AS_IN_A_RESTORE)
        };
        Mysqld::launch_with(&self.tree, options)
    }

    fn assert_equal(&self, server: &Mysqld) -> Result<()> {
        let checksums = server.client().table_checksums(self.workload.schema())?;
        ensure!(
            checksums == self.checksums,
            "the tables differ from the primary's"
        );
        Ok(())
    }
}

fn settings(server_id: u32, further: &[&str]) -> MysqldOptions {
    let arguments = SETTINGS.iter().chain(further).copied();
    MysqldOptions::with_server_id(server_id).with_arguments(arguments)
}
