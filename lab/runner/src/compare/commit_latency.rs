//! `cargo lab compare commit-latency`: how long a commit takes when it waits for stock replicas, and for this ring.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::figures::load_average;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::sysbench::Sysbench;
use testkit::mysqld::{MysqlClient, Mysqld};
use testkit::statistics::Percentiles;

use crate::compare::data::{LoadedData, TableSizes};
use crate::compare::disk;
use crate::compare::processor_time::ProcessorTime;
use crate::compare::setup::{Bed, Setup};
use crate::compare::summary::{Sample, Summary};
use crate::compare::{begin, finish, rounds, set_all, spread, work_folder};

const FIGURES: &str = "commit-latency";
/// Before the first measured step of a setup, so that buffers and connections are warm in all of them.
const WARM_UP: Duration = Duration::from_secs(2);
/// What the rest of a quiet machine may use, in cores.
const QUIET_CORES: f64 = 0.1;
/// Settings of the primary that decide what a commit costs; recorded for each setup.
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
    let sizes = TableSizes {
        tables: options.tables,
        rows: options.rows,
    };
    let data = LoadedData::load(&tree, work.path().join("data"), sizes)?;

    let mut run = Run {
        options,
        data,
        work,
        witness,
        bar: options.bar(setups.len())?,
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
    run.bar.finish_and_clear();

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

/// A comparison that is going on.
struct Run<'a> {
    options: &'a Options,
    data: LoadedData,
    work: TempDir,
    witness: PathBuf,
    bar: ProgressBar,
    /// Settings of each setup's primary.
    settings: BTreeMap<Setup, Value>,
}

impl Run<'_> {
    /// One setup of one round: all numbers of threads in turn on one primary.
    fn measure(&mut self, round: usize, setup: Setup) -> Result<Vec<Sample>> {
        let home = tempfile::Builder::new()
            .prefix("setup-")
            .tempdir_in(self.work.path())?;
        self.say(format!(
            "round {round} of {}: starting {}",
            self.options.rounds,
            setup.key()
        ));
        let bed = Bed::make(setup, &self.data, &home.path().join("bed"), &self.witness)?;
        let warmest = self.options.threads.iter().copied().max().unwrap_or(1);
        self.load(bed.primary(), warmest).duration(WARM_UP).run()?;
        let mut samples = Vec::new();
        for &threads in &self.options.threads {
            bed.settle()?;
            self.say(format!(
                "round {round} of {}: {}, {threads} threads",
                self.options.rounds,
                setup.key()
            ));
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
            self.bar.inc(1);
        }
        self.settings
            .insert(setup, settings_of(&bed.primary().client())?);
        Ok(samples)
    }

    fn load(&self, primary: &Mysqld, threads: u32) -> Sysbench {
        Sysbench::on(primary)
            .tables(self.options.tables, self.options.rows)
            .threads(threads)
            .duration(Duration::from_secs(self.options.seconds))
    }

    /// Says what continues: in the progress bar, or as a line where there is no terminal.
    fn say(&self, what: String) {
        if self.bar.is_hidden() {
            eprintln!("compare: {what}");
        } else {
            self.bar.set_message(what);
        }
    }
}

impl Options {
    fn setups(&self) -> Vec<Setup> {
        Setup::ALL
            .into_iter()
            .filter(|setup| self.setups.is_empty() || self.setups.contains(setup))
            .collect()
    }

    fn bar(&self, setups: usize) -> Result<ProgressBar> {
        let runs = setups * self.threads.len() * self.rounds as usize;
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({eta} left)")?;
        Ok(ProgressBar::new(runs as u64).with_style(style))
    }
}

/// The figures.
fn entries(
    options: &Options,
    tree: &MysqlTree,
    summary: &Summary,
    syncs: &[Percentiles],
    settings: &BTreeMap<Setup, Value>,
) -> Value {
    let of_syncs = |value: fn(&Percentiles) -> f64| spread(syncs.iter().map(value));
    let mut setups = json!({});
    for setup in Setup::ALL {
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
        // Equal work: two mysqlds apply in both.
        "ratio_mean_of_ring_applies_to_semi_sync": summary.ratios(Setup::RingApplies, Setup::SemiSync),
    });
    // The durable ring is the one that the project promises; the other's ratios are in its cells.
    for other in Setup::OF_OTHERS {
        let name = format!("ratio_mean_to_{}", other.key());
        entries[name] = json!(summary.ratios(Setup::RingFsync, other));
    }
    entries
}

fn settings_of(client: &MysqlClient) -> Result<Value> {
    let settings: Result<serde_json::Map<String, Value>> = RECORDED_SETTINGS
        .into_iter()
        .map(|name| Ok((name.to_owned(), client.variable(name)?.into())))
        .collect();
    Ok(settings?.into())
}
