//! `witness status`: queries every configured member and shows the ring.

pub(crate) mod table;
mod watched;

use std::io::IsTerminal;
use std::time::Duration;

use crate::cli::session::{QueryArgs, block_on, no_answer};
use crate::cli::status::watched::Watched;
use crate::operator::RingReport;
use crate::terminal::{
    Attempt, Exit, Failure, Format, colours, print, print_json_line, print_text,
};
use crate::text::times::now_ms;

/// Arguments of `witness status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show it again every second until it is interrupted, with the events since then
    #[arg(short, long)]
    watch: bool,
    /// Say what a commit waits for, and for each member why it can or cannot be elected now
    #[arg(short, long)]
    explain: bool,
    #[command(flatten)]
    query: QueryArgs,
}

const AGAIN: Duration = Duration::from_secs(1);

/// Runs `witness status`.
///
/// # Errors
/// Exit 3 without a quorum, 1 where no mysqld of the ring runs, 2 for a wrong configuration.
pub(crate) fn run(args: &StatusArgs, format: Format) -> Attempt {
    let asker = args.query.asker()?;
    block_on(async {
        let mut watched = Watched::new(now_ms());
        loop {
            let report = asker.report().await;
            if args.watch {
                watched.see(now_ms(), &report);
                show_again(&report, args, &mut watched, format)?;
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            // Only addresses of the ring are known.
            if report.members.is_empty() {
                return Err(no_answer(&report));
            }
            print(format, &report, || {
                let explained = args.explain.then(|| table::explained(&report));
                table::page(&report, colours()) + &explained.unwrap_or_default()
            })?;
            return match (report.quorum.ok, report.databases_down().is_empty()) {
                (false, _) => Err(Failure::silent(Exit::NoQuorum)),
                (true, false) => Err(Failure::silent(Exit::Error)),
                (true, true) => Ok(()),
            };
        }
    })
}

fn show_again(
    report: &RingReport,
    args: &StatusArgs,
    watched: &mut Watched,
    format: Format,
) -> Attempt {
    if format == Format::Json {
        return print_json_line(report);
    }
    let on_a_terminal = std::io::stdout().is_terminal();
    let page = watched.page(report, args.explain, colours(), on_a_terminal);
    if !on_a_terminal {
        return print_text(&format!("{page}\n"));
    }
    // Cursor home, the page, and a clear of each old line's rest.
    let page = page.replace('\n', "\x1b[K\n");
    print_text(&format!("\x1b[H{page}\x1b[J"))
}
