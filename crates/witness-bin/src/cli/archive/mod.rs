//! `witness archive`: lists and verifies the archive of a ring, fetches log files from it, prunes it, and adds base backups. Reading it
//! requires no running member, nor any remaining one.

mod backup;
mod bases;
mod conditions;
mod copying;
mod drill;
mod faults;
mod keygen;
mod listing;
mod own_archive;
mod place;
mod progress;
mod prune;
mod reading;
mod register;
mod restore;

use std::path::PathBuf;

use crate::cli::session::block_on;
use crate::terminal::{Failure, Format};

use self::place::{PlaceArgs, ReadArgs};

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
    /// Restore the newest base backup and the log behind it, look at what came out, and remove it
    Drill(Box<drill::DrillArgs>),
    /// Put a base backup into the archive: a copy of the data of this host's mysqld, which goes on
    Backup(backup::BackupArgs),
    /// Tell the archive of a backup that was made by other means, and is elsewhere
    Register(register::RegisterArgs),
    /// Delete what may go: pieces that a whole file has replaced, and what is too old
    Prune(prune::PruneArgs),
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
/// Exit 7 where a part of the archive is damaged or missing, 4 where the command is refused, 2 for a wrong configuration, argument or
/// identity, 1 for everything else.
pub(crate) fn run(command: &ArchiveCommand, format: Format) -> Result<(), Failure> {
    match command {
        ArchiveCommand::List(place) => block_on(listing::list(place, format)),
        ArchiveCommand::Verify(args) => block_on(reading::verify(args, format)),
        ArchiveCommand::Fetch(args) => block_on(reading::fetch(args, format)),
        ArchiveCommand::Restore(args) => restore::run(args, format),
        ArchiveCommand::Drill(args) => drill::run(args, format),
        ArchiveCommand::Backup(args) => block_on(backup::backup(args, format)),
        ArchiveCommand::Register(args) => block_on(register::register(args, format)),
        ArchiveCommand::Prune(args) => block_on(prune::prune(args, format)),
        ArchiveCommand::Keygen(args) => keygen::keygen(&args.file, format),
    }
}
