//! `witness status`: asks every member of the configuration and shows the ring.

mod explained;
mod routes_tree;
mod table;

use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use crate::cli::session::RingArgs;
use crate::operator::RingReport;
use crate::terminal::{Exit, Failure, Format, colours, print_json, print_json_line, print_text};

/// Arguments of `witness status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show it again every second until it is interrupted
    #[arg(short, long)]
    watch: bool,
    /// Say what a commit waits for, and for each member why it can or cannot be elected now
    #[arg(short, long)]
    explain: bool,
    #[command(flatten)]
    ring: RingArgs,
}

const AGAIN: Duration = Duration::from_secs(1);

/// Runs `witness status`.
///
/// # Errors
/// Exit 3 without a quorum, 2 for a wrong configuration.
pub(crate) fn run(args: &StatusArgs, format: Format) -> Result<(), Failure> {
    let asker = args.ring.asker()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        loop {
            let report = asker.report().await;
            show(&report, args, format)?;
            if !args.watch {
                return if report.quorum.ok {
                    Ok(())
                } else {
                    Err(Failure::silent(Exit::NoQuorum))
                };
            }
            tokio::time::sleep(AGAIN).await;
        }
    })
}

fn show(report: &RingReport, args: &StatusArgs, format: Format) -> Result<(), Failure> {
    let watch = args.watch;
    match format {
        Format::Json if watch => print_json_line(report),
        Format::Json => print_json(report),
        Format::Table => {
            let mut page = table::page(report, colours());
            if args.explain {
                page.push_str(&explained::lines(report));
            }
            if watch {
                // Whoever looks sees that it is alive, and in a kept output when each page was.
                let now = humantime::format_rfc3339_seconds(SystemTime::now());
                page.insert_str(0, &format!("{now}, again every second\n\n"));
            }
            if watch && std::io::stdout().is_terminal() {
                // Home, the page, and nothing of an older and longer one below it.
                let page = page.replace('\n', "\x1b[K\n");
                print_text(&format!("\x1b[H{page}\x1b[J"))
            } else if watch {
                print_text(&format!("{page}\n"))
            } else {
                print_text(&page)
            }
        }
    }
}
