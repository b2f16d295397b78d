//! `cargo xtask`: the tasks of the workspace that cargo has no word for.
//!
//! `mysql` gets a mysqld, `test` runs everything, `sim` runs seeds of the simulator, `nemesis` injects faults into a ring with real
//! mysqlds, `nightly` does both for a night, `fuzz` runs libFuzzer over the parsers, `compare` measures against stock MySQL, `dist`
//! builds packages, `packages` and `containers` use them. Code that tests share with these tasks is in `testkit`.

mod compare;
mod consumers;
mod containers;
mod debian;
mod dist;
mod docker;
mod fuzz;
mod mysql;
mod nemesis;
mod nightly;
mod packages;
mod previous_build;
mod screenshots;
mod second_chance;
mod sim;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tasks of the witness workspace")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find a mysqld ($MYSQLD, then PATH), else unpack Debian's into .mysql/
    Mysql(mysql::Options),
    /// Run everything: format, lints and documentation, all tests with a real mysqld, the simulator, packages and containers
    Test(test::Options),
    /// Run seeds of the simulated ring
    Sim(sim::Options),
    /// Faults at random against a ring with real mysqlds
    Nemesis(nemesis::Options),
    /// Run new seeds of the simulator and new faults of the nemesis for a given time, and print the counts
    Nightly(nightly::Options),
    /// Inputs that nobody has seen for everything that reads from a socket or a file, by libFuzzer
    Fuzz(fuzz::Options),
    /// Build the tarball and the Debian packages that users install
    Dist(dist::Options),
    /// Install, use and remove the packages in a clean Debian, in a container
    Packages(packages::Options),
    /// Build the containers, and do faults to a ring in three regions of them
    Containers(containers::Options),
    /// Change-data consumers as their users have them read a ring's log through failovers
    Consumers(consumers::Options),
    /// Delay packets inside of the router's container
    #[command(hide = true)]
    Delay(containers::DelayOptions),
    /// Pictures of the page at `/` during a failover, by a headless Chromium
    Screenshots(screenshots::Options),
    /// Measure this project beside stock MySQL
    #[command(subcommand)]
    Compare(compare::Comparison),
}

fn main() -> ExitCode {
    if let Some(code) = test::as_rustc() {
        return code;
    }
    let done = match Arguments::parse().task {
        Task::Mysql(options) => mysql::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Consumers(options) => consumers::run(&options),
        Task::Sim(options) => sim::run(&options),
        Task::Nemesis(options) => nemesis::run(&options),
        Task::Nightly(options) => nightly::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Packages(options) => packages::run(&options),
        Task::Containers(options) => containers::run(&options),
        Task::Delay(options) => containers::delay(&options),
        Task::Screenshots(options) => screenshots::run(&options),
        Task::Compare(comparison) => compare::run(&comparison),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
