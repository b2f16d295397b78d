//! `witness archive`: lists and verifies the archive of a ring, fetches log files from it, restores from it, prunes it, and adds base
//! backups. The archive can be read even if all members are lost.

mod backup;
mod place;
mod reading;
mod restore;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use archive::encryption::new_identity;
use archive::pruning::Pruner;
use archive::retention::{Amount, Keep};
use serde::Serialize;
use serde_json::json;

use self::place::{PlaceArgs, ReadArgs};

use crate::cli::session::block_on;
use crate::config::keep_of;
use crate::terminal::{Attempt, Exit, Failure, Format, print};

/// The verbs of `witness archive`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ArchiveCommand {
    /// The files of the log that the archive has, and from when to when, and its base backups
    List(PlaceArgs),
    /// Read all that the archive has: every checksum, and whether something is missing
    Verify(ReadArgs),
    /// Get the files of the log from the archive, verified, into a directory
    Fetch(reading::FetchArgs),
    /// Make a data directory for mysqld from a base backup and the log, up to a time or a transaction
    Restore(Box<restore::RestoreArgs>),
    /// Restore the newest base backup and the log after it, check the result, and remove it
    Drill(Box<restore::DrillArgs>),
    /// Put a base backup into the archive: a copy of the data of this host's mysqld, which keeps running
    Backup(backup::BackupArgs),
    /// Tell the archive of a backup that was made by other means, and is elsewhere
    Register(backup::RegisterArgs),
    /// Delete what may go: pieces that a whole file has replaced, and what is too old
    Prune(PruneArgs),
    /// Make a pair of keys for an archive that is encrypted, and print the public one
    Keygen(KeygenArgs),
}

/// Arguments of `witness archive keygen`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeygenArgs {
    /// Where the identity, the secret key, is written; no file yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs a subcommand.
///
/// # Errors
/// Exit 7 if a part of the archive is damaged or missing, 4 if the command is refused, 2 for a wrong configuration, argument or identity, 1
/// for everything else.
pub(crate) fn run(command: &ArchiveCommand, format: Format) -> Attempt {
    match command {
        ArchiveCommand::List(place) => block_on(reading::list(place, format)),
        ArchiveCommand::Verify(args) => block_on(reading::verify(args, format)),
        ArchiveCommand::Fetch(args) => block_on(reading::fetch(args, format)),
        ArchiveCommand::Restore(args) => block_on(restore::restore(args, format)),
        ArchiveCommand::Drill(args) => block_on(restore::drill(args, format)),
        ArchiveCommand::Backup(args) => block_on(backup::backup(args, format)),
        ArchiveCommand::Register(args) => block_on(backup::register(args, format)),
        ArchiveCommand::Prune(args) => block_on(prune(args, format)),
        ArchiveCommand::Keygen(args) => keygen(&args.file, format),
    }
}

/// Writes a new secret key into a file that only the caller can access, and prints the public key.
fn keygen(file: &Path, format: Format) -> Attempt {
    let (identity, recipient) = new_identity()?;
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(file);
    let mut made = made.map_err(|error| {
        Exit::Refused.because(
            format!("cannot make {}: {error}", file.display()),
            "name a file that does not exist yet: without its identity, an encrypted archive cannot be read",
        )
    })?;
    made.write_all(identity.as_bytes())?;
    made.sync_all()?;
    let json = json!({ "recipient": recipient, "identity_file": file.display().to_string() });
    print(format, &json, || format!("{recipient}\n"))
}

// `witness archive prune`: deletes the objects that retention no longer needs. A dry run only counts them.

/// The most objects that one call deletes.
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
    /// The first file of the archive after pruning; `None` if the archive was never pruned.
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
    let amounts = [
        ("replaced by whole files", plan.replaced),
        ("older than what is kept", plan.expired),
        ("base backups", plan.base_backups),
    ];
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
    print(format, &pruned, || {
        let (done, begin) = match args.dry_run {
            true => ("would be deleted", "would begin"),
            false => ("deleted", "begins"),
        };
        let lines = amounts.map(|(what, Amount { objects, bytes })| {
            format!("{objects} objects, {bytes} bytes {done}: {what}\n")
        });
        let begins = pruned.begins.as_ref();
        let begins = begins.map(|file| format!("the archive {begin} with {file}\n"));
        lines.concat() + &begins.unwrap_or_default()
    })
}
