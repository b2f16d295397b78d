//! `cargo lab compare lag`: measures the lag of a follower at a fixed write rate of its primary, and the highest rate without a growing
//! lag. It compares MySQL's own replica with this applier.
//!
//! Each follower has a primary of its own on the same machine, and follows it over MySQL's protocol. Data, settings and load are the same.
//! The first load is without a limit. If the follower does not keep up with it, the highest rate with which the follower keeps up is
//! searched. The lag is the age of a row that the primary updates fifty times a second, as a reader of the follower sees it.

mod pair;
mod picture;
mod search;
mod summary;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;
use testkit::figures::target_folder;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::workload::Workload;

use crate::compare::apply::workload;
use crate::compare::lag::pair::{Bed, Pair};
use crate::compare::lag::search::{Point, Rate, Search};
use crate::compare::lag::summary::{Run, Summary};
use crate::compare::{begin, chosen, finish, set_all};

const FIGURES: &str = "lag";
const WORKLOADS: [Workload; 4] = [
    Workload::OltpWriteOnly,
    Workload::HotRow,
    Workload::Adversarial,
    Workload::NewOrderPayment,
];

#[derive(Args)]
pub(crate) struct Options {
    /// How long each rate is held
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..))]
    seconds: u64,
    /// Concurrent clients that write on the primary
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Workers of each follower
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,
    /// Rates that are tried for each follower and load at most, before the one of half the highest
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    rates: u32,
    /// Workloads (default: uniform writes, one hot row, C5's adversarial one, NewOrder and Payment)
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    workloads: Vec<Workload>,
}

/// The kind of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Follower {
    /// MySQL's replica as a promotable replica: it writes applied transactions into its binlog.
    Native,
    /// This applier, with a target server that has a binlog.
    Ours,
}

impl Follower {
    pub(super) const ALL: [Self; 2] = [Self::Native, Self::Ours];

    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Ours => "ours",
        }
    }
}

/// Runs the comparison, prints the table, and writes the figures and the picture.
pub(super) fn run(options: &Options) -> Result<()> {
    let tree = MysqlTree::locate()?;
    let (witness, mut figures) = begin(FIGURES)?;
    let workloads = chosen(&options.workloads, &WORKLOADS);
    let mut runs = Vec::new();
    for (turn, &workload) in workloads.iter().enumerate() {
        eprintln!("compare: {}: making the tables", workload.key());
        let bed = Bed::make(&tree, workload)?;
        let mut order = Follower::ALL;
        order.rotate_left(turn % Follower::ALL.len());
        for follower in order {
            let pair = bed.pair(follower, options.workers, &witness)?;
            let what = || format!("{} on {}", follower.key(), workload.key());
            let (points, at_half) = measure(&pair, options, &what()).with_context(what)?;
            runs.push(Run {
                workload,
                follower,
                points,
                at_half,
            });
        }
    }
    let summary = Summary::of(runs);
    let entries = json!({
        "seconds": options.seconds, "clients": options.clients, "workers": options.workers,
        "highest_rate_kept": summary.highest_rates_kept(), "workloads": summary.figures(),
    });
    set_all(&mut figures, &entries)?;
    println!("{}", summary.table());
    finish(&figures)?;
    let picture = target_folder().join("figures").join("lag.svg");
    std::fs::write(&picture, picture::draw(&summary)?)
        .with_context(|| format!("cannot write {}", picture.display()))?;
    println!("picture: {}", picture.display());
    Ok(())
}

/// Measures one follower under one load. Tries rates until the highest rate with which it keeps up is known, and then half of that rate.
fn measure(pair: &Pair<'_>, options: &Options, what: &str) -> Result<(Vec<Point>, Option<Point>)> {
    let mut search = Search::new(options.rates);
    let duration = Duration::from_secs(options.seconds);
    let mut seed = 0;
    let mut point = |rate: Rate| {
        seed += 1;
        match rate {
            None => eprintln!("compare: {what}: all that the primary takes"),
            Some(rate) => eprintln!("compare: {what}: {rate:.0} transactions/s"),
        }
        pair.hold(rate, options.clients, duration, seed)
    };
    while let Some(rate) = search.next() {
        let point = point(rate)?;
        eprintln!("compare: {what}: {point}");
        search.points.push(point);
    }
    let at_half = search.highest_kept();
    let at_half = at_half.map(|highest| point(Some(highest / 2.0)));
    Ok((search.points, at_half.transpose()?))
}
