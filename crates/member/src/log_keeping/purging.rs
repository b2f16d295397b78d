//! Removes old files of the member's log as configured, by age and by size. Each member purges for itself, and asks the
//! leader what the ring still needs; without an answer nothing is purged. What a reader holds, what is not committed,
//! and what the mysqld beside the member has not executed stays as well.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_store::{PurgeLimit, PurgePlan, PurgePolicy, StillNeeded};
use consensus::NeededBy;
use mysql_link::ConnectOptions;
use mysqld_controller::role::executed_gtids;
use tokio::time::MissedTickBehavior;

use crate::ring_handle::RingHandle;
use crate::settings::LogSettings;

/// How often it is looked whether files are due.
const LOOK: Duration = Duration::from_secs(10);

/// How much of its log a member keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Files go this long after they were closed.
    pub(crate) age: Option<Duration>,
    /// The oldest files go while all together take more bytes.
    pub(crate) bytes: Option<u64>,
    /// A member that the leader has not heard for so long holds nothing back.
    pub(crate) absent_after: Duration,
}

impl Retention {
    pub(crate) fn of(log: &LogSettings) -> Self {
        Self {
            age: log.keep_for,
            bytes: log.keep_bytes,
            absent_after: log.absent_after,
        }
    }

    /// The policies at a moment.
    fn policies(self, now: SystemTime) -> impl Iterator<Item = PurgePolicy> {
        let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let by_age = self.age.and_then(|age| since_epoch.checked_sub(age));
        let by_age = by_age.and_then(|limit| u32::try_from(limit.as_secs()).ok());
        let by_age = by_age.map(PurgePolicy::ClosedBefore);
        by_age
            .into_iter()
            .chain(self.bytes.map(PurgePolicy::TotalBytes))
    }
}

/// Purges whenever it is due, for as long as it is polled. `mysqld` is the one beside the member.
pub(crate) async fn purge_as_configured(
    ring: RingHandle,
    retention: Retention,
    mysqld: Option<ConnectOptions>,
) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        ticks.tick().await;
        let kept = match look(&ring, retention, mysqld.as_ref()).await {
            Ok(kept) => kept,
            Err(why) => Some(why),
        };
        if kept != told {
            if let Some(why) = &kept {
                tracing::info!(why, "old files of the log stay");
            }
            told = kept;
        }
    }
}

/// Purges once; why files stay that are due.
async fn look(
    ring: &RingHandle,
    retention: Retention,
    mysqld: Option<&ConnectOptions>,
) -> Result<Option<String>, String> {
    let now = SystemTime::now();
    let due = farthest(ring, retention, now, &StillNeeded::default());
    if due.floor.is_none() {
        return Ok(None);
    }
    let (needed, needed_by) = still_needed(ring, retention.absent_after, mysqld).await?;
    let plan = farthest(ring, retention, now, &needed);
    if let Some(upto) = plan.floor {
        let purged = ring.member.purge(upto).await;
        purged.map_err(|error| format!("the engine does not purge: {error}"))?;
        let (files, bytes) = (plan.remove.len(), plan.bytes);
        tracing::info!(%upto, files, bytes, "purged the log");
    }
    Ok(plan
        .kept
        .and_then(|(file, limit)| Some(format!("{file} {}", in_words(limit, needed_by)?))))
}

/// What ring and mysqld still need of the log, and who needs it first; in words, why that is not known.
pub(crate) async fn still_needed(
    ring: &RingHandle,
    absent_after: Duration,
    mysqld: Option<&ConnectOptions>,
) -> Result<(StillNeeded, Option<NeededBy>), String> {
    let floor = ring.member.purge_floor(absent_after).await;
    let floor = floor.map_err(|error| {
        format!("the leader does not say what the ring still needs of the log: {error}")
    })?;
    let executed = match mysqld {
        Some(mysqld) => Some(
            executed_gtids(mysqld)
                .await
                .map_err(|error| format!("mysqld does not say what it has executed: {error}"))?,
        ),
        None => None,
    };
    let needed = StillNeeded {
        by_ring: Some(floor.upto.map_or(0, |upto| upto.index + 1)),
        executed,
    };
    Ok((needed, floor.needed_by))
}

/// The plan of the policy that reaches farthest.
fn farthest(
    ring: &RingHandle,
    retention: Retention,
    now: SystemTime,
    needed: &StillNeeded,
) -> PurgePlan {
    let plans = retention
        .policies(now)
        .map(|policy| ring.log.plan_purge(&policy, needed));
    plans
        .max_by_key(|plan| (plan.remove.len(), plan.kept.is_some()))
        .unwrap_or_default()
}

/// Why a file stays that is due; `None` where nobody would expect it to go.
pub(crate) fn in_words(limit: PurgeLimit, needed_by: Option<NeededBy>) -> Option<String> {
    match limit {
        PurgeLimit::Open => None,
        PurgeLimit::NotCommitted => Some("is not committed yet".to_owned()),
        PurgeLimit::NotExecuted => Some("has transactions that mysqld has not executed".to_owned()),
        PurgeLimit::Held { index } => Some(format!("is being read from entry {index} on")),
        PurgeLimit::NeededByRing { index } => Some(match needed_by {
            Some(NeededBy::Region(region)) => format!(
                "is needed from entry {index} on by a majority of region `{region}`; if its members are gone for good, \
                 remove them with `witness members remove`"
            ),
            Some(member @ NeededBy::Member(_)) => {
                format!("is needed from entry {index} on by {member}")
            }
            None => format!("is needed from entry {index} on"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Region;

    use super::*;

    #[test]
    fn policies_follow_the_clock() {
        let now = UNIX_EPOCH + Duration::from_secs(10_000);
        let both = Retention {
            age: Some(Duration::from_secs(4_000)),
            bytes: Some(77),
            absent_after: Duration::ZERO,
        };
        let policies: Vec<_> = both.policies(now).collect();
        let expected = [
            PurgePolicy::ClosedBefore(6_000),
            PurgePolicy::TotalBytes(77),
        ];
        assert_eq!(policies, expected);
        let forever = Retention {
            age: None,
            bytes: None,
            ..both
        };
        assert_eq!(forever.policies(now).count(), 0);
        let longer_than_time = Retention {
            age: Some(Duration::from_secs(20_000)),
            ..forever
        };
        assert_eq!(longer_than_time.policies(now).count(), 0);
    }

    #[test]
    fn what_holds_files_back_is_said_with_its_remedy() {
        let region = Some(NeededBy::Region(Region("south".to_owned())));
        let words = in_words(PurgeLimit::NeededByRing { index: 9 }, region);
        assert!(words.is_some_and(|words| words.contains("`south`") && words.contains("remove")));
        assert_eq!(in_words(PurgeLimit::Open, None), None);
    }
}
