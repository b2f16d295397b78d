//! `cargo lab nemesis`: builds the members and the program `nemesis`. That program injects random faults into a ring with real mysqlds.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use testkit::cluster::{Profile, nemesis_binary, witness_binary};

use crate::previous_build;
use crate::sim::build;

#[derive(Args)]
pub(crate) struct Options {
    /// Stop after so many minutes; 10, when --cycles is not given either
    #[arg(long)]
    minutes: Option<f64>,
    /// Stop after so many faults
    #[arg(long)]
    cycles: Option<u32>,
    /// The faults of this seed; another one every time without it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// A soak: a fault every so many seconds, and in between nothing may move or grow
    #[arg(long)]
    every: Option<f64>,
    /// Faults of these kinds only: `help` names them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The longest SIGSTOP, in seconds
    #[arg(long, default_value_t = 60.0)]
    longest_stop: f64,
    /// Break something on purpose; then the run has to fail. `no-fence`: a primary that was cut off continues answering readers
    #[arg(long)]
    mutate: Option<String>,
    /// Members run the program of this revision at first, and change to this one and back: the fault `change-version`
    #[arg(long)]
    previous: Option<String>,
    /// `dev` has the engine's own assertions, `checked` has them and is optimized, `dist` is what is shipped
    #[arg(long, value_parser = build, default_value = "dev")]
    build: Profile,
}

/// Replaces this process by the nemesis, so that Ctrl-C ends the nemesis in an orderly way.
pub(crate) fn run(options: &Options) -> Result<()> {
    let witness = witness_binary(options.build)?;
    let mut command = Command::new(nemesis_binary(options.build)?);
    command.args(arguments(options, witness));
    if let Some(revision) = &options.previous {
        let previous = previous_build::witness_binary(revision, options.build)?;
        command.arg("--previous").arg(previous);
    }
    let error = command.exec();
    Err(error).context("cannot start the nemesis")
}

fn arguments(options: &Options, witness: PathBuf) -> Vec<String> {
    let mut arguments = vec![
        format!("--witness={}", witness.display()),
        format!("--seed={}", options.seed),
        format!("--longest-stop={}", options.longest_stop),
    ];
    arguments.extend(
        options
            .minutes
            .map(|minutes| format!("--minutes={minutes}")),
    );
    arguments.extend(options.cycles.map(|cycles| format!("--cycles={cycles}")));
    arguments.extend(options.every.map(|seconds| format!("--every={seconds}")));
    arguments.extend(options.only.iter().map(|kind| format!("--only={kind}")));
    let mutate = options.mutate.iter();
    arguments.extend(mutate.map(|what| format!("--mutate={what}")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_passed_on() {
        let options = Options {
            minutes: Some(1.5),
            cycles: Some(3),
            seed: 7,
            every: Some(60.0),
            only: vec!["restart".to_owned(), "promote".to_owned()],
            longest_stop: 30.0,
            mutate: Some("no-fence".to_owned()),
            previous: None,
            build: Profile::Dev,
        };
        assert_eq!(
            arguments(&options, "w".into()),
            [
                "--witness=w",
                "--seed=7",
                "--longest-stop=30",
                "--minutes=1.5",
                "--cycles=3",
                "--every=60",
                "--only=restart",
                "--only=promote",
                "--mutate=no-fence"
            ]
        );
    }
}
