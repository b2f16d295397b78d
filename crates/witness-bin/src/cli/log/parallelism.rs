//! `witness log parallelism`: analyses how many transactions of binlog files can be applied in parallel. The files may be a mysqld's or a
//! member's.

use std::fmt::Write as _;
use std::path::PathBuf;

use applier::log_parallelism::{Analysis, Groups, Report};
use applier::source::{FileSource, Source};

use crate::terminal::{Attempt, Failure, Format, Table, bytes_bar, print};

/// Arguments of `witness log parallelism`.
#[derive(Debug, clap::Args)]
pub(crate) struct ParallelismArgs {
    /// Binlog files, in their order
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Transactions with more bytes are refused
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 31)]
    max_transaction_bytes: u64,
}

/// Runs `witness log parallelism`.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn run(args: &ParallelismArgs, format: Format) -> Attempt {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let report = runtime.block_on(analyse(args))?;
    print(format, &report, || text(&report))
}

async fn analyse(args: &ParallelismArgs) -> Attempt<Report> {
    let limit = args.max_transaction_bytes;
    let opened = FileSource::open(args.files.clone(), None, limit).await;
    let mut source = opened.map_err(Failure::error)?;
    let mut analysis = Analysis::new(limit);
    let bar = bytes_bar();
    while let Some(transaction) = source.next().await.map_err(Failure::error)? {
        analysis.add(&transaction).map_err(Failure::error)?;
        let read = source.read();
        bar.set_length(read.total);
        bar.set_position(read.done);
    }
    bar.finish_and_clear();
    Ok(analysis.report())
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "{} transactions, {} of them applied alone; {} row writes\n\n",
        report.transactions, report.barriers, report.row_writes
    );
    put_groups(
        &mut text,
        "Commit groups by the log (last_committed, sequence_number)",
        &report.by_log,
    );
    put_groups(
        &mut text,
        "Groups by the rows that transactions write (policy transactions)",
        &report.by_writesets,
    );
    text.push_str(
        "Longest chain of row writes that wait for each other, with any number of workers\n",
    );
    let mut table = Table::titled("Policy Row_writes Parallelism");
    for chain in &report.chains {
        table.row(vec![
            chain.policy.into(),
            chain.row_writes.to_string(),
            format!("{:.2}", chain.parallelism),
        ]);
    }
    text += &table.to_string();
    put_notes(&mut text, report);
    text
}

fn put_groups(text: &mut String, title: &str, groups: &Groups) {
    let _ = writeln!(
        text,
        "{title}: {:.2} transactions on average",
        groups.average_size
    );
    let mut table = Table::titled("Group_size Transactions %_of_transactions Groups %_of_groups");
    for size in &groups.sizes {
        table.row(vec![
            size.size.to_string(),
            size.transactions.to_string(),
            format!("{:.1}", size.percent_of_transactions),
            size.groups.to_string(),
            format!("{:.1}", size.percent_of_groups),
        ]);
    }
    let _ = writeln!(text, "{table}");
}

fn put_notes(text: &mut String, report: &Report) {
    text.push_str(
        "\nThe log has no unique keys except the primary one, and no foreign keys: waits for them are not counted.\n",
    );
    let mut note = |tables: &[String], words: &str| {
        if !tables.is_empty() {
            let _ = writeln!(text, "{words}: {}", tables.join(", "));
        }
    };
    note(
        &report.tables_without_primary_key,
        "Without a primary key, written one row after the other",
    );
    note(
        &report.tables_with_unknown_primary_key,
        "The log does not say which primary key these have, so that they count as having none \
         (set binlog_row_metadata=FULL on the source)",
    );
    if report.forgotten_keys > 0 {
        let _ = writeln!(
            text,
            "{} keys were forgotten to save memory: the real figures of transactions and rows may be higher",
            report.forgotten_keys
        );
    }
}
