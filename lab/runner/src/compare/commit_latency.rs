//! `cargo lab compare commit-latency`: compares the latency of a commit that waits for stock replicas with one that waits for this ring.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::figures::load_average;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;
use testkit::mysqld::sysbench::Sysbench;
use testkit::statistics::Percentiles;

use crate::compare::disk;
use crate::compare::processor_time::ProcessorTime;
use crate::compare::servers::{Template, settings_of};
use crate::compare::setup::{Bed, Setup};
use crate::compare::summary::{Sample, Summary};
use crate::compare::{begin, finish, rounds, set_all, spread, work_folder};

const FIGURES: &str = "commit-latency";
/// Duration of the load before the first measured step of each setup. It warms up buffers and connections.
const WARM_UP: Duration = Duration::from_secs(2);
/// Maximum processor use of other processes on a quiet machine, in cores.
const QUIET_CORES: f64 = 0.1;
/// Settings of the primary that affect the latency of a commit. They are recorded for each setup.
const RECORDED_SETTINGS: [&str; 8] = [
    "sync_binlog",
    "innodb_flush_log_at_trx_commit",
    "innodb_buffer_pool_size",
    "innodb_redo_log_capacity",
    "binlog_group_commit_sync_delay",
    "rpl_semi_sync_source_enabled",
    "rpl_semi_sync_source_wait_point",
    "rpl_semi_sync_source_wait_for_replica_count",
];

#[derive(Args)]
pub(crate) struct Options {
    /// Rounds; every round measures every setup once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each sysbench run
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Numbers of client threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32], value_parser = clap::value_parser!(u32).range(1..))]
    threads: Vec<u32>,
    /// Setups to measure (default: all)
    #[arg(long, value_delimiter = ',', value_enum)]
    setups: Vec<Setup>,
    /// sysbench's tables
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    tables: u32,
    /// Rows of each table
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Folder on the disk to measure (default: the build's target folder)
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Runs the comparison, prints the table and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    let tree = MysqlTree::locate()?;
    let setups = options.setups();
    let (witness, mut figures) = begin(FIGURES)?;
    let work = work_folder(options.folder.as_deref())?;
    eprintln!(
        "compare: loading {} tables of {} rows",
        options.tables, options.rows
    );
    let data = Template::with_tables(&tree, work.path(), options.tables, options.rows)?;

    let mut run = Run {
        options,
        data,
        work,
        witness,
        settings: BTreeMap::new(),
    };
    let (mut samples, mut syncs) = (Vec::new(), Vec::new());
    for (round, order) in rounds(&setups, options.rounds as usize)
        .into_iter()
        .enumerate()
    {
        syncs.push(disk::measure(run.work.path())?);
        for setup in order {
            samples.extend(
                run.measure(round + 1, setup)
                    .with_context(|| format!("while measuring {}", setup.key()))?,
            );
        }
    }

    let summary = Summary::of(&samples);
    let entries = entries(options, &tree, &summary, &syncs, &run.settings);
    set_all(&mut figures, &entries)?;
    println!("{}", summary.table());
    if let Some(sync) = spread(syncs.iter().map(|sync| sync.p50)) {
        println!(
            "fdatasync of a 4 KiB append, p50: {:.0} µs [{:.0} {:.0}]",
            sync.median, sync.min, sync.max
        );
    }
    if let Some(cores) = summary
        .cores_of_others()
        .filter(|cores| *cores > QUIET_CORES)
    {
        println!(
            "others used {cores:.1} cores during the measurement: these figures are not those of an idle machine"
        );
    }
    finish(&figures)
}

/// A comparison in progress.
struct Run<'a> {
    options: &'a Options,
    data: Template,
    work: TempDir,
    witness: PathBuf,
    /// The recorded settings of each setup's primary.
    settings: BTreeMap<Setup, Value>,
}

impl Run<'_> {
    /// Measures one setup in one round. All numbers of threads are measured in turn on one primary.
    fn measure(&mut self, round: usize, setup: Setup) -> Result<Vec<Sample>> {
        let home = tempfile::Builder::new()
            .prefix("setup-")
            .tempdir_in(self.work.path())?;
        let turn = format!("round {round} of {}: {}", self.options.rounds, setup.key());
        eprintln!("compare: {turn}: starting");
        let bed = Bed::make(setup, &self.data, &home.path().join("bed"), &self.witness)?;
        let warmest = self.options.threads.iter().copied().max().unwrap_or(1);
        self.load(bed.primary(), warmest).duration(WARM_UP).run()?;
        let mut samples = Vec::new();
        for &threads in &self.options.threads {
            bed.settle()?;
            eprintln!("compare: {turn}, {threads} threads");
            let acknowledged = bed.acknowledgements()?;
            let before = ProcessorTime::now();
            let report = self.load(bed.primary(), threads).run()?;
            let cores = before.and_then(|before| Some(ProcessorTime::now()?.since(&before)));
            bed.acknowledgements()?.check(acknowledged, setup)?;
            samples.push(Sample {
                setup,
                threads,
                report,
                cores,
            });
        }
        let settings = settings_of(&bed.primary().client(), &RECORDED_SETTINGS)?;
        self.settings.insert(setup, settings);
        Ok(samples)
    }

    fn load(&self, primary: &Mysqld, threads: u32) -> Sysbench {
        Sysbench::on(primary)
            .tables(self.options.tables, self.options.rows)
            .threads(threads)
            .duration(Duration::from_secs(self.options.seconds))
    }
}

impl Options {
    fn setups(&self) -> Vec<Setup> {
        match self.setups.as_slice() {
            [] => Setup::value_variants().to_vec(),
            chosen => chosen.to_vec(),
        }
    }
}

/// Returns the entries of the figures.
fn entries(
    options: &Options,
    tree: &MysqlTree,
    summary: &Summary,
    syncs: &[Percentiles],
    settings: &BTreeMap<Setup, Value>,
) -> Value {
    let of_syncs = |value: fn(&Percentiles) -> f64| spread(syncs.iter().map(value));
    let mut setups = json!({});
    for &setup in Setup::value_variants() {
        if let Some(by_threads) = summary.of_setup(setup) {
            setups[setup.key()] = json!({
                "description": setup.description(), "primary_settings": settings.get(&setup), "by_threads": by_threads,
            });
        }
    }
    let mut entries = json!({
        "mysql_version": tree.version, "rounds": options.rounds, "load_average_1_min_at_end": load_average(),
        "sysbench": {
            "script": "oltp_write_only", "tables": options.tables, "rows_per_table": options.rows, "rand_type": "uniform",
            "run_seconds": options.seconds, "warm_up_seconds": WARM_UP.as_secs(),
        },
        "disk_fdatasync_4_kib_append": {
            "mean_us": of_syncs(|sync| sync.mean), "p50_us": of_syncs(|sync| sync.p50), "p99_us": of_syncs(|sync| sync.p99),
        },
        "setups": setups,
        // These two setups do equal work: two mysqlds apply in each.
        "ratio_mean_of_ring_applies_to_semi_sync": summary.ratios(Setup::RingApplies, Setup::SemiSync),
    });
    // The ratios are those of the ring that syncs before it acknowledges, which is the default. The other ring's ratios are in its cells.
    for other in Setup::OF_OTHERS {
        let name = format!("ratio_mean_to_{}", other.key());
        entries[name] = json!(summary.ratios(Setup::RingFsync, other));
    }
    entries
}
