//! Runs a ring of real members and real mysqlds in three regions, with clients that follow the primary. Injects random faults from a seed.
//! At intervals and at the end, checks the clients' outcomes against every server.
//!
//! `cargo lab nemesis` builds the members and runs this program.

mod arguments;
mod audit;
mod campaign;
mod clients;
mod fault;
mod guide;
mod intruder;
mod ledger;
mod lists;
mod readers;
mod soak;
mod stage;
mod strike;
mod summary;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::Arguments;

fn main() -> ExitCode {
    match campaign::run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
