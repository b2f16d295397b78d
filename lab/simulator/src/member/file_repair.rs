//! Finds a member's damaged log files, and replaces them by another member's copies. Damage is found by a read for another member, or by
//! scrubbing. Does what `witness run` does in its `scrubbing`, with the same calls. The intervals are shorter, because a run lasts for
//! seconds.

use std::time::Duration;

use binlog_store::{FileNumber, LogHandle, ScrubStep};
use raft_types::MemberId;
use ring_admin::Member;

use crate::record::Record;

/// Interval at which damaged files are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Time limit for another member to send a part of a file.
const PIECE: Duration = Duration::from_secs(1);
/// Number of closed files that are read without a pause. Fewer are written in that time, so that a scrub cycle completes.
const IN_A_ROW: usize = 20;
/// The rate of scrubbing: as fast as the disk reads.
const RATE: u64 = u64::MAX;
/// Number of the scrub's seconds in a second of the run. The scrub begins a new cycle after a day, which then takes a second.
const SECONDS_A_SECOND: u64 = 24 * 3_600;

/// How a member handles damaged log files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileRepair {
    /// Interval of scrubbing. Without it, damage is found when another member needs the entries.
    pub(crate) scrub_every: Option<Duration>,
}

/// Finds and repairs damaged files until the process ends.
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
        // The scrub accepts any clock that continues after a restart.
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
        // Starts with the newest file, because the end of a file is compared with the next file.
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

/// Replaces the file by the copy of the member `from`. Does nothing if the log no longer contains the file.
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
