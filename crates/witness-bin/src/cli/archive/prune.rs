//! `witness archive prune`: deletes prunable objects, or lists them.

use std::time::{Duration, SystemTime};

use archive::pruning::Pruner;
use archive::retention::{Amount, Keep};
use serde::Serialize;

use super::place::PlaceArgs;
use crate::config::keep_of;
use crate::terminal::{Attempt, Failure, Format, print};

/// Objects deleted between two checks for prunable objects.
const AT_ONCE: usize = 100;

/// Arguments of `witness archive prune`.
#[derive(Debug, clap::Args)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// How long committed transactions are kept, as in 30d; by default `archive.keep` of the configuration, or indefinitely
    #[arg(long, value_name = "DURATION", value_parser = keep_of)]
    keep: Option<Duration>,
    /// How many of the newest base backups are kept whatever their age; without it, as `archive.keep_base_backups` says, or all
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    keep_base_backups: Option<u32>,
    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct Pruned {
    dry_run: bool,
    /// First file of the archive afterwards, if it was ever pruned.
    begins: Option<String>,
    replaced: Amount,
    expired: Amount,
    base_backups: Amount,
}

pub(super) async fn prune(args: &PruneArgs, format: Format) -> Attempt {
    let place = args.place.place()?;
    let now = SystemTime::now();
    let keep = args.keep.or(place.keep).filter(|keep| !keep.is_zero());
    let pruner = Pruner::new(place.storage, None);
    let bases = args.keep_base_backups.map(|number| number as usize);
    let keep = Keep::for_the_last(keep, bases.or(place.keep_base_backups), now);
    let pruning = pruner.look(&keep, now).await;
    let mut pruning = pruning.map_err(Failure::error)?;
    let plan = &pruning.plan;
    let pruned = Pruned {
        dry_run: args.dry_run,
        begins: plan.begins.map(|file| file.name()),
        replaced: plan.replaced,
        expired: plan.expired,
        base_backups: plan.base_backups,
    };
    while !args.dry_run && !pruning.is_done() {
        pruning.proceed(AT_ONCE).await.map_err(Failure::error)?;
    }
    print(format, &pruned, || pruned.text())
}

impl Pruned {
    fn text(&self) -> String {
        let (done, begins) = match self.dry_run {
            true => ("would be deleted", "would begin"),
            false => ("deleted", "begins"),
        };
        let line = |what: &str, of: Amount| {
            format!(
                "{} objects, {} bytes {done}: {what}\n",
                of.objects, of.bytes
            )
        };
        let mut text = line("replaced by whole files", self.replaced);
        text.push_str(&line("older than what is kept", self.expired));
        text.push_str(&line("base backups", self.base_backups));
        if let Some(file) = &self.begins {
            text += &format!("the archive {begins} with {file}\n");
        }
        text
    }
}
