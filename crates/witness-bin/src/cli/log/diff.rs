//! `witness log diff`: where two members' logs diverge.

use std::path::PathBuf;

use binlog_store::{FileDifference, Side};
use serde::Serialize;

use crate::cli::log::target::{failure, open};
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// Arguments of `witness log diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// A data directory, the directory of binlog files, or one file
    left: PathBuf,
    /// Another one
    right: PathBuf,
}

#[derive(Debug, Serialize)]
struct DifferenceLine {
    log_name: String,
    /// `only_in`, `shorter` or `differs`.
    difference: &'static str,
    /// `left` or `right`: the log with the file, or with fewer bytes of it.
    side: Option<&'static str>,
    /// The first differing byte.
    offset: Option<u64>,
    text: String,
}

/// Runs `witness log diff`.
///
/// # Errors
/// Exit 1 when the logs differ.
pub(super) fn run(args: &DiffArgs, format: Format) -> Result<(), Failure> {
    let (left, right) = (open(&args.left)?, open(&args.right)?);
    let differences = left.diff(&right).map_err(failure)?;
    let names = [
        left.path().display().to_string(),
        right.path().display().to_string(),
    ];
    let lines: Vec<_> = differences
        .iter()
        .map(|found| line(found, &names))
        .collect();
    match format {
        Format::Json => print_json(&lines)?,
        Format::Table if lines.is_empty() => print_text("the logs are the same, byte by byte\n")?,
        Format::Table => {
            let text: String = lines
                .iter()
                .map(|line| format!("{}\n", line.text))
                .collect();
            print_text(&text)?;
        }
    }
    if lines.is_empty() {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Error))
    }
}

fn line(found: &FileDifference, names: &[String; 2]) -> DifferenceLine {
    let side_name = |side: Side| match side {
        Side::Left => ("left", &names[0]),
        Side::Right => ("right", &names[1]),
    };
    match found {
        FileDifference::OnlyIn { file, side } => {
            let (side, name) = side_name(*side);
            DifferenceLine {
                log_name: file.name(),
                difference: "only_in",
                side: Some(side),
                offset: None,
                text: format!("{}: only in {name}", file.name()),
            }
        }
        FileDifference::Shorter {
            file,
            side,
            common_bytes: common,
        } => {
            let (side, name) = side_name(*side);
            DifferenceLine {
                log_name: file.name(),
                difference: "shorter",
                side: Some(side),
                offset: Some(*common),
                text: format!(
                    "{}: {name} ends at {common}; equal up to there",
                    file.name()
                ),
            }
        }
        FileDifference::Differs { file, offset } => DifferenceLine {
            log_name: file.name(),
            difference: "differs",
            side: None,
            offset: Some(*offset),
            text: format!("{}: differs from byte {offset} on", file.name()),
        },
    }
}
