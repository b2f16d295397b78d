//! `witness archive`: looks at the archive of a ring's log, verifies it, gets files of the log from it, and prunes it. No member has
//! to run, and none has to be left.

mod faults;
mod keygen;
mod listing;
mod place;
mod prune;
mod reading;

use std::path::PathBuf;

use crate::cli::session::block_on;
use crate::terminal::{Failure, Format};

use self::place::{PlaceArgs, ReadArgs};

/// The verbs of `witness archive`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ArchiveCommand {
    /// The files of the log that the archive has, and from when to when
    List(PlaceArgs),
    /// Read all that the archive has of the log: every checksum, and whether something is missing
    Verify(ReadArgs),
    /// Get the files of the log from the archive, verified, into a directory
    Fetch(reading::FetchArgs),
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

/// Runs a verb.
///
/// # Errors
/// Exit 7 where something of the archive is damaged or missing, 2 where an identity is missing or another one, 1 for everything else.
pub(crate) fn run(command: &ArchiveCommand, format: Format) -> Result<(), Failure> {
    match command {
        ArchiveCommand::List(place) => block_on(listing::list(place, format)),
        ArchiveCommand::Verify(args) => block_on(reading::verify(args, format)),
        ArchiveCommand::Fetch(args) => block_on(reading::fetch(args, format)),
        ArchiveCommand::Prune(args) => block_on(prune::prune(args, format)),
        ArchiveCommand::Keygen(args) => keygen::keygen(&args.file, format),
    }
}
