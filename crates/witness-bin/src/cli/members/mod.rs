//! `witness members`: lists the ring's members; adds and removes members one at a time.

mod add;
mod list;
mod remove;
mod update;

use crate::terminal::{Failure, Format};

/// What can be done with the members.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum MembersCommand {
    /// Show every member as the ring's log says it
    List(list::ListArgs),
    /// Add a member; it gets the log first, and its vote when it has caught up
    Add(add::AddArgs),
    /// Change a member's address, name, priority, region or vote while the ring runs
    Update(update::UpdateArgs),
    /// Remove a member
    Remove(remove::RemoveArgs),
}

/// Runs `witness members …`.
///
/// # Errors
/// Those of each subcommand.
pub(crate) fn run(command: &MembersCommand, format: Format) -> Result<(), Failure> {
    match command {
        MembersCommand::List(args) => list::run(args, format),
        MembersCommand::Add(args) => add::run(args, format),
        MembersCommand::Update(args) => update::run(args, format),
        MembersCommand::Remove(args) => remove::run(args, format),
    }
}
