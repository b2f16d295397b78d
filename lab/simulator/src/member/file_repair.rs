//! Damaged log files of a member: found by reads for another member or by scrubbing, and replaced by another member's copy. Does what
//! `witness run` does around the store (its `scrubbing`), with the same calls, at shorter intervals: a run lasts for seconds.

use std::time::Duration;

use binlog_store::{FileNumber, LogHandle, ScrubStep};
use raft_types::MemberId;
use ring_admin::Member;

use crate::record::Record;

/// Interval of checks for files to repair.
const LOOK: Duration = Duration::from_millis(500);
/// Timeout of another member for a piece of a file.
const PIECE: Duration = Duration::from_secs(1);
/// Closed files read in a row: more than are written in the meantime, so that a scrub cycle completes.
const IN_A_ROW: usize = 20;
/// As fast as the disk reads.
const RATE: u64 = u64::MAX;
/// The scrub's time scale: it begins a new cycle after a day, which is a second here.
const SECONDS_A_SECOND: u64 = 24 * 3_600;

/// A member's handling of its log files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileRepair {
    /// Interval of scrubbing; without it, damage is found by members that need the entries.
    pub(crate) scrub_every: Option<Duration>,
}

/// Runs as long as the process.
pub(super) async fn repair(member: Member, log: LogHandle, record: Record, wanted: FileRepair) {
    let reading = async {
        match wanted.scrub_every {
            Some(pause) => read_back(&log, &record, pause).await,
            None => std::future::pending().await,
        }
    };
    futures::join!(reading, repair_what_is_damaged(&member, &log, &record));
}

async fn read_back(log: &LogHandle, record: &Record, pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        // Any clock suffices that continues over a restart.
        let now = record.now().elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX) / 1_000 * SECONDS_A_SECOND;
        for _ in 0..IN_A_ROW {
            if log.scrub_step(RATE, now) == ScrubStep::Nothing {
                break;
            }
        }
    }
}

async fn repair_what_is_damaged(member: &Member, log: &LogHandle, record: &Record) {
    loop {
        tokio::time::sleep(LOOK).await;
        // Newest first: the end of a file is compared with the next one.
        for fault in log.read_faults().into_iter().rev() {
            record.note(&format!(
                "member {} has a damaged file {}: {}",
                member.id(),
                fault.file,
                fault.why
            ));
            repair_file(member, log, record, fault.file).await;
        }
    }
}

async fn repair_file(member: &Member, log: &LogHandle, record: &Record, file: FileNumber) {
    if !matches!(log.verify_again(file), ScrubStep::Damaged(_)) {
        return;
    }
    for from in member.others().into_keys() {
        let outcome = copy_from(member, log, from, file).await;
        record.note(&format!(
            "member {} gets {file} from {from}: {outcome:?}",
            member.id()
        ));
        if outcome.is_ok() {
            return;
        }
    }
}

/// Replaces the file by that member's copy, unless the log no longer has it.
async fn copy_from(
    member: &Member,
    log: &LogHandle,
    from: MemberId,
    file: FileNumber,
) -> Result<(), String> {
    let words = |error: std::io::Error| error.to_string();
    let Some(mut repair) = log.begin_repair(file).map_err(words)? else {
        return Ok(());
    };
    while let Some(part) = repair.next_part() {
        let bytes = member.part_of_file(from, part, PIECE).await;
        let bytes = bytes.map_err(|error| error.to_string())?;
        repair.write(&bytes).map_err(words)?;
    }
    repair.finish().map_err(words)
}
