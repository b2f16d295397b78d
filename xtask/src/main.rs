//! `cargo xtask`: tasks of the workspace that cargo has no commands for.
//!
//! `mysql` provides a mysqld, `test` runs all checks, and `dist` builds packages, which `packages`, `containers` and `consumers` test.
//! `cargo lab` has longer tests and measurements. The crate `testkit` has the code that tests and these tasks share.

mod book;
mod consumers;
mod containers;
mod debian;
mod dist;
mod docker;
mod limits;
mod mysql;
mod packages;
mod screenshots;
mod second_chance;
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
    /// Build the tarball and the Debian packages for users
    Dist(dist::Options),
    /// Install, use and remove the packages in a clean Debian, in a container
    Packages(packages::Options),
    /// Build the containers, and inject faults into a ring in three regions of them
    Containers(containers::Options),
    /// Read a ring's log through failovers with common change-data consumers
    Consumers(consumers::Options),
    /// Build the documentation as a website
    Book(book::Options),
    /// Delay packets inside the router's container
    #[command(hide = true)]
    Delay(containers::DelayOptions),
    /// Take pictures of the page at `/` during a failover, in a headless Chromium
    Screenshots(screenshots::Options),
}

fn main() -> ExitCode {
    if let Some(code) = test::as_rustc() {
        return code;
    }
    let done = match Arguments::parse().task {
        Task::Book(options) => book::run(&options),
        Task::Mysql(options) => mysql::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Consumers(options) => consumers::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Packages(options) => packages::run(&options),
        Task::Containers(options) => containers::run(&options),
        Task::Delay(options) => containers::delay(&options),
        Task::Screenshots(options) => screenshots::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
