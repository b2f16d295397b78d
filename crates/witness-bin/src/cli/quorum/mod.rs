//! `witness quorum`: the requirements of a commit, region by region, and the repair of a permanently lost quorum.

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
/// Those of each subcommand.
pub(crate) fn run(command: &QuorumCommand, format: Format) -> Result<(), Failure> {
    match command {
        QuorumCommand::Show(args) => show::run(args, format),
        QuorumCommand::Set(args) => set::run(args, format),
        QuorumCommand::Fix(args) => fix::run(args, format),
    }
}
