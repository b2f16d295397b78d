//! `witness archive`: lists and verifies the archive of a ring, fetches log files from it, prunes it, and adds base backups. Reading it
//! requires no running member, nor any remaining one.

mod backup;
mod conditions;
mod copying;
mod drill;
mod findings;
mod listing;
mod place;
mod prune;
mod reading;
mod register;
mod restore;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use archive::encryption::new_identity;
use serde_json::json;

use self::place::{PlaceArgs, ReadArgs};
use crate::cli::session::block_on;
use crate::terminal::{Attempt, Exit, Format, print};

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
    Drill(Box<drill::DrillArgs>),
    /// Put a base backup into the archive: a copy of the data of this host's mysqld, which keeps running
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
pub(crate) fn run(command: &ArchiveCommand, format: Format) -> Attempt {
    match command {
        ArchiveCommand::List(place) => block_on(listing::list(place, format)),
        ArchiveCommand::Verify(args) => block_on(reading::verify(args, format)),
        ArchiveCommand::Fetch(args) => block_on(reading::fetch(args, format)),
        ArchiveCommand::Restore(args) => restore::run(args, format),
        ArchiveCommand::Drill(args) => drill::run(args, format),
        ArchiveCommand::Backup(args) => block_on(backup::backup(args, format)),
        ArchiveCommand::Register(args) => block_on(register::register(args, format)),
        ArchiveCommand::Prune(args) => block_on(prune::prune(args, format)),
        ArchiveCommand::Keygen(args) => keygen(&args.file, format),
    }
}

/// Writes the secret key into a file that only the caller can access, and prints the public one.
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
