//! The files of the member's log: purge, retention and scrub.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_store::{
    FileNumber, LogHandle, NotArchived, PurgeLimit, PurgePlan, PurgePolicy, ScrubStep, StillNeeded,
};
use consensus::{CallError, NeededBy, PurgeError};
use mysql_link::ConnectOptions;
use mysqld_controller::apply::{CompareError, executed_gtids};
use raft_types::{MemberId, Region};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, sleep};

use crate::protocol::{KeptFile, PurgeReport, PurgeRequest, Refusal, RefusalKind};
use crate::ring_handle::{RingHandle, now_ms};
use crate::settings::LogSettings;
use crate::state::MemberState;

// Removes old files of the member's log by age and size, as configured. Each member purges its own log. It asks the leader which entries
// the ring needs; without an answer, it purges nothing. A file also stays while a reader holds it, until it is committed, and until the
// member's mysqld has executed it.

/// Interval between two checks for files to purge.
const PURGE_INTERVAL: Duration = Duration::from_secs(10);

/// Returns the purge policies of a member's configuration at the time `now`.
fn policies(settings: &LogSettings, now: SystemTime) -> impl Iterator<Item = PurgePolicy> {
    let limit = settings.keep_for.and_then(|age| now.checked_sub(age));
    let limit = limit.and_then(seconds_since_epoch);
    let by_age = limit.zip(seconds_since_epoch(now));
    let by_age = by_age.map(|(time, now)| PurgePolicy::ClosedBefore { time, now });
    let by_size = settings.keep_bytes.map(PurgePolicy::TotalBytes);
    by_age.into_iter().chain(by_size)
}

/// Returns a time in the form used in files; `None` if it is out of range.
fn seconds_since_epoch(time: SystemTime) -> Option<u32> {
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    u32::try_from(since_epoch.as_secs()).ok()
}

/// Purges files that are due, while polled. `mysqld` is the member's own mysqld; `not_archived` returns the entries that are kept for the
/// archive.
pub(crate) async fn purge_as_configured(
    ring: RingHandle,
    settings: LogSettings,
    mysqld: Option<ConnectOptions>,
    not_archived: impl Fn() -> Option<NotArchived>,
) {
    let mut ticks = tokio::time::interval(PURGE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = None;
    loop {
        ticks.tick().await;
        let purged = purge_due(&ring, &settings, mysqld.as_ref(), not_archived()).await;
        let kept = purged.unwrap_or_else(|error| Some(error.to_string()));
        if kept != reported {
            if let Some(why) = &kept {
                tracing::info!(why, "old files of the log stay");
            }
            reported = kept;
        }
    }
}

/// Why due files were not purged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPurged {
    /// It is unknown which entries the ring needs.
    #[error("the leader does not say what the ring still needs of the log: {0}")]
    Ring(CallError),
    /// It is unknown which entries the member's mysqld needs.
    #[error("mysqld does not say what it has executed: {0}")]
    Mysqld(CompareError),
    /// The engine refused the purge.
    #[error("the engine does not purge: {0}")]
    Engine(PurgeError),
}

/// Purges once. Returns why due files stay.
async fn purge_due(
    ring: &RingHandle,
    settings: &LogSettings,
    mysqld: Option<&ConnectOptions>,
    not_archived: Option<NotArchived>,
) -> Result<Option<String>, NotPurged> {
    let now = SystemTime::now();
    let due = farthest(ring, settings, now, &StillNeeded::default());
    if due.floor.is_none() {
        return Ok(None);
    }
    let needed = still_needed(ring, settings.absent_after, mysqld, not_archived).await?;
    let (needed, needed_by) = needed;
    let plan = farthest(ring, settings, now, &needed);
    if let Some(upto) = plan.floor {
        let purged = ring.member.purge(upto).await;
        purged.map_err(NotPurged::Engine)?;
        let (files, bytes) = (plan.remove.len(), plan.bytes);
        tracing::info!(%upto, files, bytes, "purged the log");
    }
    let because = |(file, limit)| Some(format!("{file} {}", kept_because(limit, needed_by)?));
    Ok(plan.kept.and_then(because))
}

/// Returns up to where the ring, mysqld and the archive no longer need entries, and which of them needs the next entry.
pub(crate) async fn still_needed(
    ring: &RingHandle,
    absent_after: Duration,
    mysqld: Option<&ConnectOptions>,
    by_archive: Option<NotArchived>,
) -> Result<(StillNeeded, Option<NeededBy>), NotPurged> {
    let floor = ring.member.purge_floor(absent_after).await;
    let floor = floor.map_err(NotPurged::Ring)?;
    let executed = match mysqld {
        Some(mysqld) => Some(executed_gtids(mysqld).await.map_err(NotPurged::Mysqld)?),
        None => None,
    };
    let needed = StillNeeded {
        by_ring: Some(floor.upto.map_or(0, |upto| upto.index + 1)),
        executed,
        by_archive,
    };
    Ok((needed, floor.needed_by))
}

/// Returns the plan of the policy that would purge most.
fn farthest(
    ring: &RingHandle,
    settings: &LogSettings,
    now: SystemTime,
    needed: &StillNeeded,
) -> PurgePlan {
    let plans = policies(settings, now).map(|policy| ring.log.plan_purge(&policy, needed));
    let farthest = plans.max_by_key(|plan| (plan.remove.len(), plan.kept.is_some()));
    farthest.unwrap_or_default()
}

/// Returns why a due file stays; `None` if no purge is expected.
fn kept_because(limit: PurgeLimit, needed_by: Option<NeededBy>) -> Option<String> {
    match limit {
        PurgeLimit::Open => None,
        PurgeLimit::NotCommitted => Some("is not committed yet".to_owned()),
        PurgeLimit::NotExecuted => Some("has transactions that mysqld has not executed".to_owned()),
        PurgeLimit::NotArchived => Some(
            "is not archived yet; it goes when it is, or when more than `archive.hold_bytes` would be kept for that"
                .to_owned(),
        ),
        PurgeLimit::Held(index) => Some(format!("is being read from entry {index} on")),
        PurgeLimit::NeededByRing(index) => Some(match needed_by {
            Some(NeededBy::Region(region)) => format!(
                "is needed from entry {index} on by a majority of region `{region}`; if its members are permanently lost, remove them \
                 with `witness members remove`"
            ),
            Some(NeededBy::Member(id)) => format!("is needed from entry {index} on by member {id}"),
            None => format!("is needed from entry {index} on"),
        }),
    }
}

// Purges a log on an operator's command, by the same rules as the configured purge.

/// Removes files that are no longer needed. In a dry run, only reports them.
///
/// # Errors
/// If it is unknown which files are still needed, or the log cannot be purged.
pub(crate) async fn purge_on_order(
    ring: &RingHandle,
    request: &PurgeRequest,
    state: &MemberState,
    dry_run: bool,
) -> Result<PurgeReport, Refusal> {
    let policy = policy(request, SystemTime::now())?;
    let absent_after = state.settings.log.absent_after;
    let (mysqld, archive) = (state.credentials.mysqld.as_ref(), state.not_archived());
    let needed = still_needed(ring, absent_after, mysqld, archive).await;
    let (needed, needed_by) = needed.map_err(|error| {
        Refusal::new(
            RefusalKind::NoQuorum,
            error.to_string(),
            "nothing was removed; check with `witness status` what is wrong, and try again",
        )
    })?;
    let plan = ring.log.plan_purge(&policy, &needed);
    if let (Some(upto), false) = (plan.floor, dry_run) {
        let purged = ring.member.purge(upto).await;
        purged.map_err(|error| refused(&error))?;
    }
    Ok(report(&plan, needed_by))
}

fn policy(request: &PurgeRequest, now: SystemTime) -> Result<PurgePolicy, Refusal> {
    Ok(match request {
        PurgeRequest::KeepBytes(bytes) => PurgePolicy::TotalBytes(*bytes),
        PurgeRequest::ClosedBefore(time) => PurgePolicy::ClosedBefore {
            time: *time,
            now: seconds_since_epoch(now).unwrap_or(u32::MAX),
        },
        PurgeRequest::BeforeFile(name) => {
            let number = FileNumber::from_name(name).ok_or_else(|| {
                Refusal::refused(
                    format!("`{name}` is not the name of a log file"),
                    "write it as in binlog.000007; `witness log list` shows them",
                )
            })?;
            PurgePolicy::BeforeFile(number)
        }
    })
}

fn refused(error: &PurgeError) -> Refusal {
    let kind = match error {
        PurgeError::Stopped(_) => RefusalKind::Failed,
        _ => RefusalKind::Refused,
    };
    Refusal::new(kind, error.to_string(), "nothing was removed; try again")
}

fn report(plan: &PurgePlan, needed_by: Option<NeededBy>) -> PurgeReport {
    let because = |limit| match limit {
        PurgeLimit::Open => "is being written to".to_owned(),
        limit => kept_because(limit, needed_by).unwrap_or_default(),
    };
    PurgeReport {
        removed: plan.remove.iter().map(|file| file.name()).collect(),
        bytes: plan.bytes,
        upto: plan.floor,
        kept: plan.kept.map(|(file, limit)| KeptFile {
            file: file.name(),
            because: because(limit),
        }),
    }
}

// Scrub: reads the closed files of the member's log again at a steady rate. A file that is found to be damaged, by the scrub or otherwise,
// is replaced by another member's copy.

/// Interval between two checks for files to read or to repair.
const SCRUB_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before another attempt, if no member could provide a file.
const BETWEEN_TRIES: Duration = Duration::from_secs(60);
/// How long another member may take to send a piece of a file.
const PIECE: Duration = Duration::from_secs(10);

/// Scrubs while polled. Without a rate, no files are read, but files that were otherwise found to be damaged are still repaired.
pub(crate) async fn scrub(ring: RingHandle, own_region: Region, bytes_per_second: Option<u64>) {
    let reading = async {
        if let Some(rate) = bytes_per_second {
            read_back(ring.log.clone(), rate).await;
        }
    };
    tokio::join!(reading, repair_what_is_damaged(&ring, &own_region));
}

async fn read_back(log: LogHandle, rate: u64) {
    loop {
        let scrubbed = log.clone();
        let step = spawn_blocking(move || scrubbed.scrub_step(rate, now_ms() / 1000)).await;
        match step {
            Ok(ScrubStep::Good(_) | ScrubStep::Damaged(_)) => {}
            Ok(ScrubStep::Nothing | ScrubStep::Interrupted) | Err(_) => sleep(SCRUB_INTERVAL).await,
        }
    }
}

async fn repair_what_is_damaged(ring: &RingHandle, own_region: &Region) {
    let mut tried: BTreeMap<FileNumber, Instant> = BTreeMap::new();
    loop {
        sleep(SCRUB_INTERVAL).await;
        // The newest file is repaired first, because the end of a file is compared with the next file.
        let faults = ring.log.read_faults();
        let damaged: Vec<_> = faults.iter().rev().map(|fault| fault.file).collect();
        tried.retain(|file, _| damaged.contains(file));
        for file in damaged {
            let tried_at = tried.get(&file);
            if tried_at.is_none_or(|at| at.elapsed() >= BETWEEN_TRIES) {
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
            Err(error) => {
                tracing::warn!(file = %file.name(), from = %id, %error, "a damaged file of the log is not repaired");
            }
        }
    }
}

/// Replaces a file by another member's copy, and returns true. Returns false if the log no longer has the file.
async fn copy_from(
    ring: &RingHandle,
    from: MemberId,
    file: FileNumber,
) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let log = ring.log.clone();
    let Some(mut repair) = spawn_blocking(move || log.begin_repair(file)).await?? else {
        return Ok(false);
    };
    while let Some(part) = repair.next_part() {
        let bytes = ring.member.part_of_file(from, part, PIECE).await?;
        repair = spawn_blocking(move || repair.write(&bytes).map(|()| repair)).await??;
    }
    spawn_blocking(move || repair.finish()).await??;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use binlog_store::{Durability, VerifyAtStart};
    use raft_types::{OpId, Region};

    use super::*;

    #[test]
    fn policies_follow_the_clock() {
        let now = UNIX_EPOCH + Duration::from_secs(10_000);
        let both = LogSettings {
            durability: Durability::Fsync,
            max_file_bytes: 0,
            cache_bytes: 0,
            queue_bytes: 0,
            verify: VerifyAtStart::All,
            scrub_rate: None,
            disk_limit_bytes: None,
            disk_reserve_bytes: 0,
            keep_for: Some(Duration::from_secs(4_000)),
            keep_bytes: Some(77),
            absent_after: Duration::ZERO,
        };
        let found: Vec<_> = policies(&both, now).collect();
        let expected = [
            PurgePolicy::ClosedBefore {
                time: 6_000,
                now: 10_000,
            },
            PurgePolicy::TotalBytes(77),
        ];
        assert_eq!(found, expected);
        let forever = LogSettings {
            keep_for: None,
            keep_bytes: None,
            ..both
        };
        assert_eq!(policies(&forever, now).count(), 0);
        let longer_than_time = LogSettings {
            keep_for: Some(Duration::from_secs(20_000)),
            ..forever
        };
        assert_eq!(policies(&longer_than_time, now).count(), 0);
    }

    #[test]
    fn a_kept_file_is_reported_with_the_reason() {
        assert_eq!(kept_because(PurgeLimit::Open, None), None);
        let number = |number| FileNumber::new(number).unwrap();
        let why = |limit| {
            let plan = PurgePlan {
                remove: vec![number(1)],
                bytes: 9,
                floor: Some(OpId::new(1, 30)),
                kept: Some((number(2), limit)),
            };
            let report = report(&plan, Some(NeededBy::Region(Region("south".into()))));
            assert_eq!(report.removed, ["binlog.000001"]);
            report.kept.unwrap().because
        };
        assert_eq!(
            why(PurgeLimit::NeededByRing(42)),
            "is needed from entry 42 on by a majority of region `south`; if its members are permanently lost, remove them with \
             `witness members remove`"
        );
        assert_eq!(why(PurgeLimit::Held(35)), "is being read from entry 35 on");
        assert_eq!(why(PurgeLimit::Open), "is being written to");
    }

    #[test]
    fn a_request_names_a_file() {
        let request = PurgeRequest::BeforeFile("binlog.x".into());
        let refusal = policy(&request, UNIX_EPOCH).unwrap_err();
        assert_eq!(refusal.what, "`binlog.x` is not the name of a log file");
        let request = PurgeRequest::BeforeFile("binlog.000007".into());
        let seven = FileNumber::new(7).unwrap();
        assert_eq!(
            policy(&request, UNIX_EPOCH).unwrap(),
            PurgePolicy::BeforeFile(seven)
        );
    }
}
