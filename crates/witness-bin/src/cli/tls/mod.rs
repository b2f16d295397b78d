//! `witness tls`: creates the certificates of a ring, and shows certificates.

mod authority;
mod certificate;
mod init;
mod show;

#[cfg(feature = "fuzzing")]
pub(crate) use crate::cli::tls::certificate::are_read as certificates_are_read;
use crate::terminal::{Failure, Format};

/// Subcommands of `witness tls`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum TlsCommand {
    /// Make the ring's authority and a certificate for each member, or those that are missing
    Init(Box<init::InitArgs>),
    /// Show certificates: names, who signed, how long they are valid, whether the key fits
    Show(show::ShowArgs),
}

/// Runs `witness tls`.
///
/// # Errors
/// Exit 1 when a file cannot be used or a certificate is invalid, 2 for a wrong configuration or name, 4 when a file exists already.
pub(crate) fn run(command: &TlsCommand, format: Format) -> Result<(), Failure> {
    match command {
        TlsCommand::Init(args) => init::run(args, format),
        TlsCommand::Show(args) => show::run(args, format),
    }
}
