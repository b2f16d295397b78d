//! Archives the member's log when it is this member's turn, prunes the archive, and reports the progress. No commit waits for this work.

mod turn;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use archive::archiver::{ArchiveError, Archiver, Step};
use archive::encryption::Recipients;
use archive::pruning::{PruneError, Pruner, Pruning};
use archive::retention::Keep;
use archive::storage::Storage;
use binlog_store::{FileNumber, LogPlace, NotArchived};
use raft_types::MemberRecord;
use tokio::time::{Instant, sleep};

use self::turn::{Act, Seen, Turn, place};
use crate::ring_handle::{RingHandle, leader};
use crate::settings::ArchiveSettings;
use crate::status::ArchiveView;

/// How many archive intervals pass between two searches for prunable objects. Each search lists the whole archive.
const INTERVALS: u32 = 100;
const SOONEST: Duration = Duration::from_secs(10);
const LATEST: Duration = Duration::from_secs(600);
/// Maximum number of objects that are deleted in one interval.
const AT_ONCE: usize = 64;
/// The longest delay between retries while the storage fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Archives the log and prunes the archive, while polled.
pub(crate) async fn archive(
    ring: RingHandle,
    record: MemberRecord,
    settings: ArchiveSettings,
    progress: &ArchiveProgress,
) {
    let mut turn = Turn::default();
    let mut opened = None;
    let mut pause = settings.interval;
    loop {
        sleep(pause).await;
        let done = async {
            let opened = match &mut opened {
                Some(opened) => opened,
                None => opened.insert(Opened::of(&ring, &settings)?),
            };
            interval(&ring, &record, &settings, opened, &mut turn, progress).await
        };
        match done.await {
            Ok(()) => {
                progress.works();
                pause = settings.interval;
            }
            Err(error) => {
                progress.fails(&error);
                // The storage is opened again, because its credentials may have been renewed.
                opened = None;
                pause = (pause * 2).min(LONGEST_PAUSE).max(settings.interval);
            }
        }
    }
}

/// A connected storage.
struct Opened {
    archiver: Archiver,
    pruner: Pruner,
    /// The time of the last search for prunable objects.
    looked: Option<Instant>,
    /// The rest of an unfinished pruning.
    pruning: Option<Pruning>,
}

impl Opened {
    fn of(ring: &RingHandle, settings: &ArchiveSettings) -> Result<Self, ArchiveError> {
        let (url, file) = (settings.url.clone(), settings.options_file.as_deref());
        let storage = Storage::open_with(url, file, settings.call_limit)?;
        let (id, own) = (ring.member.status().ring, ring.member.id());
        let mut archiver = Archiver::new(storage.clone(), ring.log.clone(), id, own);
        archiver.bytes_per_second = settings.bytes_per_second;
        Ok(Self {
            archiver,
            pruner: Pruner::new(storage, Some((id, own))),
            looked: None,
            pruning: None,
        })
    }

    /// Does one interval's share of the pruning.
    async fn prune(
        &mut self,
        settings: &ArchiveSettings,
        progress: &ArchiveProgress,
    ) -> Result<(), PruneError> {
        let mut pruning = match self.pruning.take() {
            Some(pruning) => pruning,
            None if is_due(self.looked, settings.interval, Instant::now()) => {
                self.looked = Some(Instant::now());
                let now = SystemTime::now();
                let keep = Keep::for_the_last(settings.keep, settings.keep_base_backups, now);
                self.pruner.look(&keep, now).await?
            }
            None => return Ok(()),
        };
        let deleted = pruning.proceed(AT_ONCE).await?;
        let plan = &pruning.plan;
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

/// Archives and prunes for one interval.
async fn interval(
    ring: &RingHandle,
    record: &MemberRecord,
    settings: &ArchiveSettings,
    opened: &mut Opened,
    turn: &mut Turn,
    progress: &ArchiveProgress,
) -> Result<(), ArchiveError> {
    let archiver = &mut opened.archiver;
    let own = ring.member.id();
    let mark = *ring.member.committed().borrow();
    let committed = ring.log.committed_end(mark);
    let leader = leader(*ring.member.leadership().borrow(), own);
    let mut members = ring.member.others();
    members.insert(own, record.clone());
    let place = place(own, leader, &members);
    let archives = match turn.act(place, settings.interval, committed, Instant::now()) {
        Act::Archive => true,
        Act::Nothing => {
            progress.leaves_it_to_others();
            return Ok(());
        }
        Act::Look => {
            archiver.refresh(mark).await?;
            let seen = Seen {
                archived: archiver.archived(mark),
                by: archiver.last_archived_by(),
            };
            turn.looked(own, seen, committed, Instant::now())
        }
    };
    progress.reaches(archives, archiver.archived(mark), committed);
    if archives {
        // The file is read each time, so that recipients can change without a restart.
        let recipients = settings.recipients_file.as_deref().map(Recipients::of_file);
        archiver.recipients = recipients.transpose()?;
    }
    // Entries that are committed in the meantime are not included. Under load, the loop would otherwise not end, and whole files and the
    // next interval would have to wait.
    while archives
        && let Step::Archived { manifest, gap_from } = archiver.step_to(committed, mark).await?
    {
        if let Some(from) = gap_from {
            tracing::error!(%from, "the log was purged from here on before it was archived: the archive has a gap");
        }
        progress.archived(manifest.object.bytes, gap_from.is_some());
        progress.reaches(true, archiver.archived(mark), committed);
    }
    progress.reaches(archives, archiver.archived(mark), committed);
    // A failed pruning is not continued; the next search begins another one.
    if archives
        && settings.prune
        && let Err(error) = opened.prune(settings, progress).await
    {
        progress.prune_fails(&error);
    }
    Ok(())
}

/// Returns true if another search for prunable objects is due.
fn is_due(looked: Option<Instant>, interval: Duration, now: Instant) -> bool {
    let pause = (interval * INTERVALS).clamp(SOONEST, LATEST);
    looked.is_none_or(|looked| now.duration_since(looked) >= pause)
}

/// Progress of the archive, as this member has seen it.
#[derive(Debug)]
pub(crate) struct ArchiveProgress(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// The view at the last check, without the values that depend on the settings and the time.
    view: ArchiveView,
    archived: Option<LogPlace>,
    /// The end of the committed entries that the archive lacks, and the time when this was first observed.
    lacks: Option<(Instant, LogPlace)>,
}

/// The progress before the first check.
impl Default for ArchiveProgress {
    fn default() -> Self {
        let beginning = LogPlace {
            file: FileNumber::FIRST,
            offset: 0,
        };
        Self(Mutex::new(Progress {
            // The ring reports the smallest lag of all members, so this member's unknown lag must not be zero.
            lacks: Some((Instant::now(), beginning)),
            ..Progress::default()
        }))
    }
}

impl ArchiveProgress {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn works(&self) {
        if let Some(error) = self.lock().view.error.take() {
            tracing::info!(before = error, "the log is archived again");
        }
    }

    fn fails(&self, error: &ArchiveError) {
        let view = &mut self.lock().view;
        view.failures_total += 1;
        if view.error.replace(error.to_string()) != view.error {
            tracing::warn!(%error, "the log is not archived");
        }
    }

    fn prune_fails(&self, error: &PruneError) {
        let view = &mut self.lock().view;
        view.prune_failures_total += 1;
        if view.prune_error.replace(error.to_string()) != view.prune_error {
            tracing::warn!(%error, "the archive is not pruned");
        }
    }

    fn pruned(&self, objects: u64, begins: Option<FileNumber>) {
        let view = &mut self.lock().view;
        view.prune_error = None;
        view.pruned_objects_total += objects;
        view.begins = begins.map(|file| file.name());
    }

    fn archived(&self, bytes: u64, after_a_gap: bool) {
        let view = &mut self.lock().view;
        view.pieces_total += 1;
        view.bytes_total += bytes;
        view.gaps_total += u64::from(after_a_gap);
    }

    /// Records that other members precede this one. The progress of the last check is kept.
    fn leaves_it_to_others(&self) {
        self.lock().view.archives = false;
    }

    fn reaches(&self, archives: bool, archived: Option<LogPlace>, committed: LogPlace) {
        let mut progress = self.lock();
        progress.view.archives = archives;
        progress.archived = archived.or(progress.archived);
        let has = |place: LogPlace| archived >= Some(place);
        progress.lacks = match progress.lacks {
            Some((since, place)) if !has(place) => Some((since, place)),
            _ if has(committed) => None,
            _ => Some((Instant::now(), committed)),
        };
    }

    /// Returns the entries that a purge must keep for the archive.
    pub(crate) fn not_archived(&self, most_bytes: u64) -> NotArchived {
        NotArchived {
            from: self.lock().archived,
            most_bytes,
        }
    }

    pub(crate) fn view(&self, settings: &ArchiveSettings) -> ArchiveView {
        let progress = self.lock();
        ArchiveView {
            url: settings.url.to_string(),
            archived: progress.archived.map(|place| place.to_string()),
            lag_seconds: (progress.lacks).map_or(0.0, |(since, _)| since.elapsed().as_secs_f64()),
            encrypts: settings.recipients_file.is_some(),
            ..progress.view.clone()
        }
    }
}

#[cfg(test)]
mod progress_tests {
    use super::*;

    fn lag(progress: &ArchiveProgress) -> Option<Duration> {
        let lacks = progress.lock().lacks;
        lacks.map(|(since, _)| since.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_lag_is_not_zero() {
        let second = Duration::from_secs(1);
        let place = |offset| LogPlace {
            file: FileNumber::FIRST,
            offset,
        };
        let progress = ArchiveProgress::default();
        sleep(second).await;
        assert_eq!(lag(&progress), Some(second));
        // The archive is empty, and other members precede this one.
        progress.reaches(false, None, place(500));
        sleep(second).await;
        assert_eq!(lag(&progress), Some(second * 2));

        progress.reaches(false, Some(place(500)), place(500));
        assert_eq!(lag(&progress), None);
        progress.reaches(false, Some(place(500)), place(700));
        sleep(second).await;
        progress.reaches(true, Some(place(600)), place(800));
        assert_eq!(lag(&progress), Some(second));
        progress.reaches(true, Some(place(700)), place(900));
        assert_eq!(lag(&progress), Some(Duration::ZERO));
    }

    #[test]
    fn waiting_member_does_not_report_archiving() {
        let place = LogPlace {
            file: FileNumber::FIRST,
            offset: 500,
        };
        let progress = ArchiveProgress::default();
        progress.reaches(true, Some(place), place);
        assert!(progress.lock().view.archives);
        progress.leaves_it_to_others();
        let progress = progress.lock();
        assert!(!progress.view.archives);
        // The archive was checked, and it has these entries.
        assert_eq!(progress.archived, Some(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pruning_searches_every_hundred_intervals_within_bounds() {
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
