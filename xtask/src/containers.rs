//! `cargo xtask containers`: runs the commands of docs/containers.md, and tests the whole: a ring in three regions with HAProxy and
//! Prometheus. A client writes through HAProxy. Containers are killed, paused and cut off, a region is lost under both policies, and every
//! container is upgraded. Prints how long each fault interrupted the client.

mod delay;
mod faults;
mod stack;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use tempfile::TempDir;
use testkit::bounded_run;

use crate::containers::faults::Faults;
use crate::containers::stack::Stack;
use crate::dist;
use crate::docker::{Engine, provide_images};

pub(crate) use crate::containers::delay::{Options as DelayOptions, run as delay};

const COPY_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Options {
    /// Pack the programs `witness` and `examples/manual` of this folder instead of building them
    #[arg(long, value_name = "DIR")]
    built_in: Option<PathBuf>,
    /// A few of the faults, as in `cargo xtask test`
    #[arg(long)]
    short: bool,
}

/// Runs the short form, with a program that is already built and the files in its folder.
pub(crate) fn run_short(program: &Path) -> Result<()> {
    run(&Options {
        built_in: program.parent().map(Path::to_path_buf),
        short: true,
    })
}

/// Runs the task.
pub(crate) fn run(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let engine = Engine::find_or_start()?;
    provide_images(&engine)?;
    let folder = as_after_dist(options)?;
    say("packages, and images to begin with", begun);
    let stack = Stack::up(&engine, folder)?;
    Faults::begin(stack, options.short)?.all()
}

/// Creates a folder with the files that the page uses, like a checkout after `cargo xtask dist`.
fn as_after_dist(options: &Options) -> Result<TempDir> {
    let built = dist::build(&dist::Options {
        out: testkit::checkout().join("target/containers/packages"),
        package_version: None,
        built_in: options.built_in.clone(),
    })?;
    let folder = tempfile::tempdir()?;
    let packages = folder.path().join("target/dist");
    fs::create_dir_all(&packages)?;
    for file in built {
        // Only these packages are needed in Docker's build context.
        let name = file.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|name| name.starts_with("witness_")) {
            fs::copy(&file, packages.join(name))?;
        }
    }
    for part in ["containers", "monitoring"] {
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(testkit::checkout().join(part));
        copy.arg(folder.path());
        bounded_run::run("cp", copy, Vec::new(), COPY_LIMIT)?.into_text("cp")?;
    }
    Ok(folder)
}

fn say(what: &str, since: Instant) {
    println!("containers: {what}: {:.1} s", since.elapsed().as_secs_f64());
}
