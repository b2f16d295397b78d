//! Looks at every state of a ring within a scope, and says how many there were.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use model::{Broken, RingModel, Scope};
use stateright::report::WriteReporter;
use stateright::{Checker, Model};

/// Looks at every state of a ring within bounds
#[derive(Parser)]
struct Arguments {
    /// How many members each region has
    #[arg(long, value_delimiter = ',', default_value = "3")]
    regions: Vec<usize>,
    /// Begin in the middle of a move from the first region to the second one
    #[arg(long)]
    begins_joint: bool,
    /// The last term; the founding is term 1
    #[arg(long, default_value_t = 3)]
    terms: u8,
    /// How many entries a log has at most
    #[arg(long, default_value_t = 4)]
    entries: usize,
    /// How many transactions clients write
    #[arg(long, default_value_t = 1)]
    writes: u8,
    /// How many steps the quorum takes
    #[arg(long, default_value_t = 0)]
    moves: u8,
    /// How many times a leader gives the leadership away
    #[arg(long, default_value_t = 0)]
    transfers: u8,
    /// How many times a member is killed and started again
    #[arg(long, default_value_t = 0)]
    restarts: u8,
    /// How long a lease is, in ticks; without one, time and who serves are left out
    #[arg(long, default_value_t = 0)]
    lease: u8,
    /// Take a rule away
    #[arg(long, value_enum)]
    broken: Option<Broken>,
    /// Threads that look
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// End after so many seconds, however much is left
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let scope = Scope {
        begins_joint: arguments.begins_joint,
        terms: arguments.terms,
        entries: arguments.entries,
        writes: arguments.writes,
        moves: arguments.moves,
        transfers: arguments.transfers,
        restarts: arguments.restarts,
        lease: arguments.lease,
        broken: arguments.broken,
        ..Scope::of(&arguments.regions)
    };
    println!("{scope:?}");
    let mut checker = RingModel::of(scope).checker().threads(arguments.threads);
    if let Some(seconds) = arguments.seconds {
        checker = checker.timeout(Duration::from_secs(seconds));
    }
    let done = checker
        .spawn_bfs()
        .join_and_report(&mut WriteReporter::new(&mut std::io::stdout()));
    let broken = done
        .discoveries()
        .keys()
        .any(|name| !name.starts_with("a later leader") && !name.starts_with("somebody"));
    match broken {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
