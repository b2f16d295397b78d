//! Reads the member's closed log files back at a steady rate, and puts another member's copy in the place of one that is
//! damaged, whoever noticed it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_store::{FileNumber, LogHandle, ScrubStep};
use raft_types::{MemberId, Region};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::ring_handle::RingHandle;

/// Between two looks for files to read or to repair.
const LOOK: Duration = Duration::from_secs(5);
/// Between two tries to repair a file that no member could give.
const BETWEEN_TRIES: Duration = Duration::from_secs(60);
/// How long another member may take for a piece of a file.
const PIECE: Duration = Duration::from_secs(10);

/// For as long as it is polled. Without a rate nothing is read for its own sake, and what others find damaged is still
/// repaired.
pub(crate) async fn scrub(ring: RingHandle, own_region: Region, bytes_per_second: Option<u64>) {
    let reading = async {
        match bytes_per_second {
            Some(rate) => read_back(ring.log.clone(), rate).await,
            None => std::future::pending().await,
        }
    };
    tokio::join!(reading, repair_what_is_damaged(&ring, &own_region));
}

async fn read_back(log: LogHandle, rate: u64) {
    loop {
        let scrubbed = log.clone();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let step = spawn_blocking(move || scrubbed.scrub_step(rate, now)).await;
        match step {
            Ok(ScrubStep::Good(_) | ScrubStep::Damaged(_)) => {}
            Ok(ScrubStep::Nothing | ScrubStep::Interrupted) | Err(_) => sleep(LOOK).await,
        }
    }
}

async fn repair_what_is_damaged(ring: &RingHandle, own_region: &Region) {
    let mut tried: BTreeMap<FileNumber, Instant> = BTreeMap::new();
    loop {
        sleep(LOOK).await;
        let damaged: Vec<_> = ring
            .log
            .read_faults()
            .iter()
            .map(|fault| fault.file)
            .collect();
        tried.retain(|file, _| damaged.contains(file));
        for file in damaged {
            let recently = tried
                .get(&file)
                .is_some_and(|at| at.elapsed() < BETWEEN_TRIES);
            if !recently {
                repair(ring, own_region, file).await;
                tried.insert(file, Instant::now());
            }
        }
    }
}

async fn repair(ring: &RingHandle, own_region: &Region, file: FileNumber) {
    let log = ring.log.clone();
    match spawn_blocking(move || log.verify_again(file)).await {
        Ok(ScrubStep::Damaged(_)) => {}
        _ => return,
    }
    let mut others: Vec<_> = ring.member.others().into_iter().collect();
    others.sort_by_key(|(id, record)| (record.region != *own_region, *id));
    for (id, _) in others {
        match copy_from(ring, id, file).await {
            Ok(true) => {
                tracing::warn!(file = %file.name(), from = %id, "a damaged file of the log was replaced by another member's");
                return;
            }
            Ok(false) => return,
            Err(why) => {
                tracing::warn!(file = %file.name(), from = %id, why, "a damaged file of the log is not repaired");
            }
        }
    }
}

/// Whether the file was replaced by that member's; false where the log does not have it any more.
async fn copy_from(ring: &RingHandle, from: MemberId, file: FileNumber) -> Result<bool, String> {
    let log = ring.log.clone();
    let begun = spawn_blocking(move || log.begin_repair(file)).await;
    let begun = begun.map_err(|error| error.to_string())?;
    let Some(mut repair) = begun.map_err(|error| error.to_string())? else {
        return Ok(false);
    };
    while let Some(part) = repair.next_part() {
        let bytes = ring.member.part_of_file(from, part, PIECE).await;
        let bytes = bytes.map_err(|error| error.to_string())?;
        let written = spawn_blocking(move || repair.write(&bytes).map(|()| repair)).await;
        let written = written.map_err(|error| error.to_string())?;
        repair = written.map_err(|error| error.to_string())?;
    }
    let finished = spawn_blocking(move || repair.finish()).await;
    let finished = finished.map_err(|error| error.to_string())?;
    finished.map(|()| true).map_err(|error| error.to_string())
}
