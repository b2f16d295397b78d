//! Damaged files of a member's log: found when they are read for another member, or read back in turn, and replaced by another
//! member's copy. It is what `witness run` does around the store (its `scrubbing`), with the same calls, and sooner: a run lasts
//! for seconds.

use std::time::Duration;

use binlog_store::{FileNumber, LogHandle, ScrubStep};
use consensus::Member;
use raft_types::MemberId;

use crate::record::Record;

/// Between two looks for files to repair.
const LOOK: Duration = Duration::from_millis(500);
/// How long another member may take for a piece of a file.
const PIECE: Duration = Duration::from_secs(1);
/// So many closed files are read back in a row: more than are written meanwhile, so that a turn comes to its end.
const IN_A_ROW: usize = 20;
/// As fast as the disk gives them.
const RATE: u64 = u64::MAX;
/// Of the time that the scrub sees: it begins another turn after a day, which is a second here.
const SECONDS_A_SECOND: u64 = 24 * 3_600;

/// How a member looks after the files of its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileRepair {
    /// How often it reads closed files back; where it does not, damage is found by those that want entries.
    pub(crate) scrub_every: Option<Duration>,
}

/// Goes on for as long as the process.
pub(super) async fn mend(member: Member, log: LogHandle, record: Record, wanted: FileRepair) {
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
        // Any clock will do, as long as it goes on over a restart.
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
        // The newest first: the end of a file is held against the next one.
        for fault in log.read_faults().into_iter().rev() {
            record.note(&format!(
                "member {} has a damaged file {}: {}",
                member.id(),
                fault.file,
                fault.why
            ));
            repair(member, log, record, fault.file).await;
        }
    }
}

async fn repair(member: &Member, log: &LogHandle, record: &Record, file: FileNumber) {
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

/// Puts that member's copy in the place of the file, unless the log does not have it any more.
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
