//! When entries arrive in the logs of members far away.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use raft_types::{MemberId, OwnLog};
use tokio::task::AbortHandle;

use super::load::Commit;
use super::ring::Ring;

/// The moment from which on a log had all entries before an index; both only grow.
type Growth = Arc<Mutex<Vec<(u64, Instant)>>>;

/// Watches logs until it is dropped.
pub(crate) struct Arrivals(Vec<Watched>);

struct Watched {
    growth: Growth,
    watching: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Arrivals {
    pub(crate) fn watch(ring: &Ring, members: impl Iterator<Item = MemberId>) -> Self {
        Self(members.map(|member| watch(ring.log(member))).collect())
    }

    /// For each commit and each log, how long after the client had its answer the entry was there, in milliseconds. An entry
    /// that is not there yet is left out.
    pub(crate) fn lags_ms(&self, commits: &[Commit]) -> Vec<f64> {
        let logs = self.0.iter();
        logs.flat_map(|watched| {
            let growth = watched
                .growth
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let lags = commits.iter().map(|commit| lag_ms(&growth, commit));
            lags.collect::<Vec<_>>()
        })
        .flatten()
        .collect()
    }
}

fn watch(log: &dyn OwnLog) -> Watched {
    let growth = Growth::default();
    let mut appended = log.appended();
    let noted = growth.clone();
    let watching = tokio::spawn(async move {
        while appended.changed().await.is_ok() {
            let behind = *appended.borrow_and_update();
            let mut growth = noted.lock().unwrap_or_else(PoisonError::into_inner);
            growth.push((behind, Instant::now()));
        }
    });
    Watched {
        growth,
        watching: watching.abort_handle(),
    }
}

fn lag_ms(growth: &[(u64, Instant)], commit: &Commit) -> Option<f64> {
    let position = growth.partition_point(|(behind, _)| *behind <= commit.index);
    let (_, arrived) = growth.get(position)?;
    let after = arrived.checked_duration_since(commit.answered);
    let before = commit.answered.saturating_duration_since(*arrived);
    Some(after.map_or_else(|| -milliseconds(before), milliseconds))
}

fn milliseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
