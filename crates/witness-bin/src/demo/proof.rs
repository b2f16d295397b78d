//! The proof at the end of a demonstration, from the members' files alone.

use std::path::{Path, PathBuf};

use binlog_format::gtid::GtidSet;
use binlog_store::{DirectoryError, LogDirectory};

use super::comparison::compare_logs;
use super::story::Story;
use crate::terminal::Failure;

/// What a member's log holds.
struct Logged {
    gtids: GtidSet,
    /// Transactions that stand there more than once.
    doubled: u64,
}

/// The index of the last entry in a member's log; none when it has none that can be read.
pub(crate) fn last_index(data_dir: &Path) -> Option<u64> {
    let files = LogDirectory::on_disk(data_dir).ok()?.files().ok()?;
    files
        .iter()
        .rev()
        .find_map(|file| file.last)
        .map(|last| last.index)
}

/// Looks for every acknowledged transaction in every member's log, and compares the logs.
///
/// # Errors
/// When a log cannot be read.
pub(crate) fn prove(
    story: &mut Story,
    acknowledged: &GtidSet,
    data_dirs: &[PathBuf],
) -> Result<(), Failure> {
    for data_dir in data_dirs {
        let logged = logged(data_dir).map_err(|error| Failure::error(error.to_string()))?;
        let lost = acknowledged.difference(&logged.gtids).count();
        story.lost_total += u64::try_from(lost).unwrap_or(u64::MAX);
        story.doubled_total += logged.doubled;
    }
    let comparison = compare_logs(data_dirs)?;
    story.compared_bytes = comparison.bytes;
    story.difference = comparison.difference;
    story.conclude();
    Ok(())
}

fn logged(data_dir: &Path) -> Result<Logged, DirectoryError> {
    let mut logged = Logged {
        gtids: GtidSet::new(),
        doubled: 0,
    };
    for record in LogDirectory::on_disk(data_dir)?.entries()? {
        if let Some(gtid) = record?.gtid
            && !logged.gtids.add(gtid)
        {
            logged.doubled += 1;
        }
    }
    Ok(logged)
}
