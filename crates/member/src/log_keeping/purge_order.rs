//! Purging a log on an operator's order: what the configuration purges by itself goes by the same rules; see
//! [`crate::log_keeping::purging`].

use std::time::Duration;

use binlog_store::{FileNumber, PurgeLimit, PurgePlan, PurgePolicy};
use consensus::{NeededBy, PurgeError};
use mysql_link::ConnectOptions;

use super::purging::{in_words, still_needed};
use crate::protocol::{KeptFile, PurgeReport, PurgeWish, Refusal, RefusalKind};
use crate::ring_handle::RingHandle;

/// Removes what may go, or only says so. `mysqld` is the one beside the member.
///
/// # Errors
/// When nobody can say what is still needed, or the log cannot be purged.
pub(crate) async fn carry_out(
    ring: &RingHandle,
    wish: &PurgeWish,
    absent_after: Duration,
    mysqld: Option<&ConnectOptions>,
    dry_run: bool,
) -> Result<PurgeReport, Refusal> {
    let policy = policy(wish)?;
    let needed = still_needed(ring, absent_after, mysqld).await;
    let (needed, needed_by) = needed.map_err(|why| {
        Refusal::new(
            RefusalKind::NoQuorum,
            why,
            "nothing was removed; look with `witness status` what is wrong, and try again",
        )
    })?;
    let plan = ring.log.plan_purge(&policy, &needed);
    if let (Some(upto), false) = (plan.floor, dry_run) {
        let purged = ring.member.purge(upto).await;
        purged.map_err(|error| refused(&error))?;
    }
    Ok(report(&plan, needed_by))
}

fn policy(wish: &PurgeWish) -> Result<PurgePolicy, Refusal> {
    Ok(match wish {
        PurgeWish::KeepBytes(bytes) => PurgePolicy::TotalBytes(*bytes),
        PurgeWish::ClosedBefore(time) => PurgePolicy::ClosedBefore(*time),
        PurgeWish::BeforeFile(name) => {
            let number = FileNumber::from_name(name).ok_or_else(|| {
                Refusal::new(
                    RefusalKind::Refused,
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
        limit => in_words(limit, needed_by).unwrap_or_default(),
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

#[cfg(test)]
mod tests {
    use raft_types::{OpId, Region};

    use super::*;

    #[test]
    fn a_file_that_stays_says_for_whom() {
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
            why(PurgeLimit::NeededByRing { index: 42 }),
            "is needed from entry 42 on by a majority of region `south`; if its members are gone for good, remove them with \
             `witness members remove`"
        );
        assert_eq!(
            why(PurgeLimit::Held { index: 35 }),
            "is being read from entry 35 on"
        );
        assert_eq!(why(PurgeLimit::Open), "is being written to");
    }

    #[test]
    fn a_wish_names_a_file() {
        let wish = PurgeWish::BeforeFile("binlog.x".into());
        let refusal = policy(&wish).unwrap_err();
        assert_eq!(refusal.what, "`binlog.x` is not the name of a log file");
        let wish = PurgeWish::BeforeFile("binlog.000007".into());
        let seven = FileNumber::new(7).unwrap();
        assert_eq!(policy(&wish).unwrap(), PurgePolicy::BeforeFile(seven));
    }
}
