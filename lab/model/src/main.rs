//! Explores every state of a ring within a scope, and prints their number.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use model::trace::Replay;
use model::{RingModel, Scope};
use stateright::report::WriteReporter;
use stateright::{Checker, Expectation, Model};

/// Explore every state of a ring within bounds
#[derive(Parser)]
struct Arguments {
    /// Check this trace of the real code against the rules, and explore no ring
    #[arg(long)]
    trace: Option<PathBuf>,
    #[command(flatten)]
    scope: Scope,
    /// Number of threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// End after so many seconds, even if states are left
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(path) = &arguments.trace {
        return hold(path);
    }
    let scope = arguments.scope;
    println!("{scope:?}");
    let model = RingModel::of(scope);
    let always = |name: &str| {
        let properties = model.properties();
        let mut found = properties.iter().filter(|property| property.name == name);
        found.any(|property| matches!(property.expectation, Expectation::Always))
    };
    let mut checker = model.clone().checker().threads(arguments.threads);
    if let Some(seconds) = arguments.seconds {
        checker = checker.timeout(Duration::from_secs(seconds));
    }
    let done = checker
        .spawn_bfs()
        .join_and_report(&mut WriteReporter::new(&mut std::io::stdout()));
    match done.discoveries().keys().any(|name| always(name)) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Checks a trace against the rules, and prints how much of it was checked.
fn hold(path: &Path) -> ExitCode {
    let verdict = match fs::read_to_string(path) {
        Ok(lines) => Replay::of(&lines).map_err(|refusal| refusal.to_string()),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    };
    match verdict {
        Ok(counts) => {
            println!("{counts:?}");
            ExitCode::SUCCESS
        }
        Err(words) => {
            println!("{words}");
            ExitCode::FAILURE
        }
    }
}
