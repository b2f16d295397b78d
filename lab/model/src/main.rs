//! Explores every state of a ring within a scope, and prints their number.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use model::trace::Replay;
use model::{Broken, RingModel, Scope};
use stateright::report::WriteReporter;
use stateright::{Checker, Expectation, Model};

/// Explore every state of a ring within bounds
#[derive(Parser)]
struct Arguments {
    /// Check this trace of the real code against the rules, and explore no ring
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Number of members in each region
    #[arg(long, value_delimiter = ',', default_value = "3")]
    regions: Vec<usize>,
    /// Begin in the middle of a move from the first region to the second one
    #[arg(long)]
    begins_joint: bool,
    /// Members of the last region that join only when a leader adds them
    #[arg(long, default_value_t = 0)]
    spares: usize,
    /// The last term; the bootstrap is term 1
    #[arg(long, default_value_t = 3)]
    terms: u32,
    /// Number of terms after each repair, its own included
    #[arg(long, default_value_t = 3)]
    terms_after_a_repair: u32,
    /// Maximum length of a log, in entries
    #[arg(long, default_value_t = 4)]
    entries: usize,
    /// Number of client transactions
    #[arg(long, default_value_t = 1)]
    writes: u8,
    /// Number of quorum steps
    #[arg(long, default_value_t = 0)]
    moves: u8,
    /// Number of members added and removed
    #[arg(long, default_value_t = 0)]
    changes: u8,
    /// Number of leadership transfers
    #[arg(long, default_value_t = 0)]
    transfers: u8,
    /// Number of times a member is killed and restarted
    #[arg(long, default_value_t = 0)]
    restarts: u8,
    /// Number of members that lose their disks
    #[arg(long, default_value_t = 0)]
    wipes: u8,
    /// Number of times a member loses the last entry of its log
    #[arg(long, default_value_t = 0)]
    rots: u8,
    /// Number of plans to repair a lost quorum
    #[arg(long, default_value_t = 0)]
    plans: u8,
    /// Length of a lease, in ticks; 0 leaves out time and serving
    #[arg(long, default_value_t = 0)]
    lease: u8,
    /// Break a rule
    #[arg(long, value_enum)]
    broken: Option<Broken>,
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
    let scope = Scope {
        begins_joint: arguments.begins_joint,
        spares: arguments.spares,
        terms: arguments.terms,
        terms_after_a_repair: arguments.terms_after_a_repair,
        entries: arguments.entries,
        writes: arguments.writes,
        moves: arguments.moves,
        changes: arguments.changes,
        transfers: arguments.transfers,
        restarts: arguments.restarts,
        wipes: arguments.wipes,
        rots: arguments.rots,
        plans: arguments.plans,
        lease: arguments.lease,
        broken: arguments.broken,
        ..Scope::of(&arguments.regions)
    };
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
