//! `witness log verify`: reads a log whole and checks every checksum and every position.

use binlog_store::VerifyProgress;
use serde::Serialize;

use crate::cli::log::target::{TargetArgs, failure, open};
use crate::terminal::{Exit, Failure, Format, bytes_bar, print_json, print_text};

#[derive(Debug, Serialize)]
struct Verdict {
    ok: bool,
    path: String,
    files: usize,
    entries: u64,
    bytes: u64,
    first_op_id: Option<String>,
    last_op_id: Option<String>,
    /// A write at the very end that is not finished; normal while the member runs, and after a crash.
    unfinished: Option<String>,
    /// The first of what is damaged.
    damage: Option<String>,
    /// All of it, from the oldest file on.
    damaged: Vec<String>,
}

/// Runs `witness log verify`.
///
/// # Errors
/// Exit 7 when the log is damaged.
pub(super) fn run(args: &TargetArgs, format: Format) -> Result<(), Failure> {
    let directory = open(&args.path()?)?;
    let bar = bytes_bar();
    let progress = |progress: VerifyProgress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.done_bytes);
    };
    let report = directory.verify(&progress).map_err(|error| failure(&error));
    bar.finish_and_clear();
    let report = report?;
    let verdict = Verdict {
        ok: report.damaged.is_empty(),
        path: directory.path().display().to_string(),
        files: report.files,
        entries: report.entries,
        bytes: report.bytes,
        first_op_id: report.first.map(|op_id| op_id.to_string()),
        last_op_id: report.last.map(|op_id| op_id.to_string()),
        unfinished: report.unfinished.map(|unfinished| unfinished.to_string()),
        damage: report.damaged.first().map(ToString::to_string),
        damaged: report.damaged.iter().map(ToString::to_string).collect(),
    };
    match format {
        Format::Json => print_json(&verdict)?,
        Format::Table => print_text(&text(&verdict))?,
    }
    if verdict.ok {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Corrupt))
    }
}

fn text(verdict: &Verdict) -> String {
    let Verdict {
        path,
        files,
        entries,
        bytes,
        ..
    } = verdict;
    let mut text = format!("{path}: {entries} entries in {files} files, {bytes} bytes");
    if let (Some(first), Some(last)) = (&verdict.first_op_id, &verdict.last_op_id) {
        text.push_str(&format!(", from {first} to {last}"));
    }
    text.push('\n');
    if let Some(unfinished) = &verdict.unfinished {
        text.push_str(&format!(
            "unfinished at the end: {unfinished}; a start of the member repairs it\n"
        ));
    }
    if verdict.ok {
        text.push_str("every checksum and every position is right\n");
    }
    for damage in &verdict.damaged {
        text.push_str(&format!("DAMAGED: {damage}\n"));
    }
    text
}
