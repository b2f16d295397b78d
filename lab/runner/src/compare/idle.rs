//! `cargo lab compare idle`: measures the memory and processor time of members while no client writes.
//!
//! The requested number of rings of witnesses runs concurrently, with the default configuration. Each ring elects a leader and commits an
//! entry on all members. Then the rings are idle, and each leader must keep the leadership. All members are witnesses, so that a leader's
//! connections to its mysqld are not measured.

mod footprint;
mod rings;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::compare::idle::rings::Rings;
use crate::compare::idle::summary::Summary;
use crate::compare::processor_time::ProcessorTime;
use crate::compare::{begin, finish, set_all};

const FIGURES: &str = "idle";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rings concurrently
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rings: u16,
    /// Members of each ring
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    members: u16,
    /// How long they are watched, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How long they are left alone before, in seconds
    #[arg(long, default_value_t = 20)]
    settle: u64,
    /// Crash one member of each ring, its leader, when they have been watched; every ring has to elect another one
    #[arg(long)]
    crash: bool,
    /// This program instead of the build of the checkout, such as an older one or a package's
    #[arg(long)]
    witness: Option<PathBuf>,
}

/// Runs the comparison, prints the table and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    ensure!(
        !options.crash || options.members >= 3,
        "with --crash a ring needs three members"
    );
    let (built, mut figures) = begin(FIGURES)?;
    let program = options.witness.clone().unwrap_or(built);
    let mut rings = Rings::start(&program, options.rings.into(), options.members.into())?;
    rings.write("before")?;
    eprintln!("compare: every ring has committed an entry; they are left alone now");
    std::thread::sleep(Duration::from_secs(options.settle));
    let leaders = rings.leaders()?;
    let (before, machine_before) = (rings.footprints()?, ProcessorTime::now());
    std::thread::sleep(Duration::from_secs(options.seconds));
    let (after, machine_after) = (rings.footprints()?, ProcessorTime::now());
    rings.ensure_led_by(&leaders)?;
    rings.write("after")?;
    let cores = machine_before
        .zip(machine_after)
        .map(|(before, after)| after.since(&before));
    let summary = Summary::of(&leaders, &before, &after, options.seconds);
    print!("{}", summary.table(cores));
    summary.put_into(&mut figures)?;
    let entries = json!({
        "rings": options.rings, "members_of_a_ring": options.members, "seconds": options.seconds,
        "cores_used": cores.map(|cores| cores.ours), "cores_used_by_others": cores.map(|cores| cores.others),
    });
    set_all(&mut figures, &entries)?;
    if options.crash {
        let elected = rings.crash_leaders(&leaders)?;
        println!(
            "all leaders were killed at one moment: after {:.1} s every ring had another one, and each has committed an entry since",
            elected.as_secs_f64()
        );
        figures.set("all_leaders_replaced_seconds", elected.as_secs_f64())?;
    }
    finish(&figures)
}
