//! Makes the archiving member delete prunable objects, a few per interval, so that new commits do not wait for it. A failure is only
//! reported.

use std::time::{Duration, SystemTime};

use archive::pruning::{PruneError, Pruner, Pruning};
use archive::retention::Keep;
use tokio::time::Instant;

use super::ArchiveProgress;
use crate::settings::ArchiveSettings;

/// Archive intervals between two searches for prunable objects: each lists the whole archive.
const INTERVALS: u32 = 100;
const SOONEST: Duration = Duration::from_secs(10);
const LATEST: Duration = Duration::from_secs(600);
/// Most objects deleted in an interval.
const AT_ONCE: usize = 64;

/// A member's pruning state.
pub(super) struct Prunes {
    pruner: Pruner,
    looked: Option<Instant>,
    /// The unfinished pruning.
    pruning: Option<Pruning>,
}

impl Prunes {
    pub(super) fn new(pruner: Pruner) -> Self {
        Self {
            pruner,
            looked: None,
            pruning: None,
        }
    }

    /// The work of one interval.
    pub(super) async fn interval(
        &mut self,
        settings: &ArchiveSettings,
        progress: &ArchiveProgress,
    ) {
        if !settings.prune {
            return;
        }
        match self.go_on(settings, progress).await {
            Ok(()) => {}
            Err(error) => {
                self.pruning = None;
                progress.prune_fails(&error);
            }
        }
    }

    async fn go_on(
        &mut self,
        settings: &ArchiveSettings,
        progress: &ArchiveProgress,
    ) -> Result<(), PruneError> {
        let mut pruning = match self.pruning.take() {
            Some(pruning) => pruning,
            None if is_due(self.looked, settings.interval, Instant::now()) => {
                self.looked = Some(Instant::now());
                let now = SystemTime::now();
                let keep = Keep::for_the_last(settings.keep, now);
                let keep = keep.with_base_backups(settings.keep_base_backups);
                self.pruner.look(&keep, now).await?
            }
            None => return Ok(()),
        };
        let deleted = pruning.go_on(AT_ONCE).await?;
        let plan = pruning.plan();
        progress.pruned(deleted, plan.begins);
        if pruning.is_done() {
            if !plan.acts.is_empty() {
                tracing::info!(
                    begins = plan.begins.map(|file| file.name()),
                    replaced = plan.replaced.objects,
                    expired = plan.expired.objects,
                    base_backups = plan.base_backups.objects,
                    "the archive is pruned"
                );
            }
        } else {
            self.pruning = Some(pruning);
        }
        Ok(())
    }
}

/// Whether another search is due.
fn is_due(looked: Option<Instant>, interval: Duration, now: Instant) -> bool {
    let pause = (interval * INTERVALS).clamp(SOONEST, LATEST);
    looked.is_none_or(|looked| now.duration_since(looked) >= pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_every_hundred_intervals_within_bounds() {
        let began = Instant::now();
        let due = |interval, after| {
            let now = began + Duration::from_secs(after);
            is_due(Some(began), Duration::from_millis(interval), now)
        };
        assert!(is_due(None, Duration::from_secs(5), began));
        for (interval, pause) in [(10, 10), (1_000, 100), (5_000, 500), (3_600_000, 600)] {
            assert!(!due(interval, pause - 1), "{interval}");
            assert!(due(interval, pause), "{interval}");
        }
    }
}
