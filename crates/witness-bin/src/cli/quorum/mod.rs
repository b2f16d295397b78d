//! `witness quorum`: what a commit waits for, region by region, and the repair of a quorum that is lost
//! for good.

mod fix;
mod set;
mod show;

use crate::terminal::{Failure, Format};

/// What can be done about the quorum.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum QuorumCommand {
    /// Show for each region who votes, who answers, and who holds commits back
    Show(show::ShowArgs),
    /// Change what commits wait for, while the ring runs
    Set(set::SetArgs),
    /// Repair a quorum that is lost for good; shows the evidence and the plan, and changes nothing without --apply
    Fix(fix::FixArgs),
}

/// Runs `witness quorum …`.
///
/// # Errors
/// As each says.
pub(crate) fn run(command: &QuorumCommand, format: Format) -> Result<(), Failure> {
    match command {
        QuorumCommand::Show(args) => show::run(args, format),
        QuorumCommand::Set(args) => set::run(args, format),
        QuorumCommand::Fix(args) => fix::run(args, format),
    }
}
