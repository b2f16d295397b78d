//! During and after pruning, the archive is one chain with everything that is kept.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use archive::archiver::Step;
use archive::chain::Pieces;
use archive::manifest::Manifest;
use archive::name::{LOG_FOLDER, Named, PieceName, Timeline};
use archive::pruning::{PruneError, Pruner, Pruning};
use archive::reading::ArchivedLog;
use archive::retention::{GRACE, Keep};
use archive::storage::{Storage, StorageError};
use binlog_store::FileNumber;
use object_store::memory::InMemory;
use raft_types::{MemberId, OpId, RingId};

use crate::archiver::{after_a_repair, archive_all, archiver, storage};
use crate::encrypted::new_keys;
use crate::faulty_storage::{Fault, FaultyStorage};
use crate::reading::read_all;
use crate::ring::{Ring, entries, id, ring};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Time at which the entries were committed and the old files archived.
const LONG_AGO: u64 = 1_700_000_000;
const MANY: usize = 10_000;

fn number(number: u64) -> FileNumber {
    FileNumber::new(number).unwrap()
}

/// Archives six files, each in parts and whole. The first ones were archived long ago.
async fn fill(storage: &Storage, old: u64) -> Ring {
    let mut of = Ring::new();
    of.append(entries(0..44));
    let mut member = archiver(&of, storage, 1);
    for committed in (3..44).step_by(4) {
        archive_all(&mut member, id(committed)).await;
    }
    archived_long_ago(storage, old).await;
    of
}

async fn archived_long_ago(storage: &Storage, old: u64) {
    let listing = storage.list(LOG_FOLDER).await.unwrap();
    for piece in listing
        .keys()
        .filter_map(|name| PieceName::of_manifest(name))
    {
        if piece.file.get() <= old {
            let bytes = storage.read(&piece.manifest(), 1 << 20).await.unwrap();
            let mut manifest = Manifest::read(&bytes, piece, Some(ring())).unwrap();
            manifest.archived_at = LONG_AGO;
            let name = piece.manifest();
            storage.write(&name, manifest.to_bytes()).await.unwrap();
        }
    }
}

fn pruner(storage: &Storage) -> Pruner {
    Pruner::new(storage.clone(), Some((ring(), MemberId(1))))
}

/// A time at which all replaced pieces may be deleted.
fn later() -> SystemTime {
    SystemTime::now() + GRACE + Duration::from_secs(60)
}

/// Keeps the commits of the last 30 days.
fn keep() -> Keep {
    Keep::for_the_last(Some(30 * DAY), None, later())
}

async fn look(storage: &Storage, keep: &Keep) -> Pruning {
    pruner(storage).look(keep, later()).await.unwrap()
}

async fn pieces(storage: &Storage) -> Pieces {
    Pieces::of_names(storage.list(LOG_FOLDER).await.unwrap().keys())
}

/// Checks that the archive is one chain with the log's bytes, from file `kept` or an earlier one to the end. Returns its first file.
async fn assert_holds(storage: &Storage, of: &Ring, kept: u64) -> u64 {
    let manifests = read_all(storage, Some(ring())).await.unwrap();
    let begins = manifests[0].piece.begins();
    assert!(
        begins.offset == 0 && begins.file <= number(kept),
        "{begins}"
    );
    let ends = of.store.handle().committed_end(Some(id(43)));
    let last = manifests.last().unwrap();
    assert_eq!(last.piece.continues_at(), ends);
    let log = ArchivedLog::look(storage.clone(), Some(ring())).await;
    assert_eq!(log.unwrap().unwrap().missing_before(&manifests[0]), None);
    begins.file.get()
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_file_deletes_only_its_pieces() {
    let storage = storage(Arc::new(InMemory::new()));
    let of = fill(&storage, 3).await;
    let before = storage.list(LOG_FOLDER).await.unwrap();
    let superfluous = pieces(&storage).await.superfluous();
    assert!(superfluous.len() >= 10);
    let now = SystemTime::now();
    let soon = pruner(&storage).look(&Keep::default(), now).await.unwrap();
    assert!(soon.is_done(), "a reader may use them");

    let mut pruning = look(&storage, &Keep::default()).await;
    let plan = pruning.plan.clone();
    assert_eq!(plan.replaced.objects, 2 * superfluous.len() as u64);
    assert_eq!((plan.expired.objects, plan.begins), (0, None));
    assert_eq!(pruning.proceed(3).await.unwrap(), 3);
    assert!(!pruning.is_done());
    assert_eq!(
        pruning.proceed(MANY).await.unwrap(),
        plan.replaced.objects - 3
    );
    assert!(pruning.is_done());
    let after = storage.list(LOG_FOLDER).await.unwrap();
    assert_eq!(before.len() - after.len(), 2 * superfluous.len());
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let bytes: u64 = gone.map(|(_, listed)| listed.bytes).sum();
    assert_eq!(plan.replaced.bytes, bytes);
    assert_eq!(pieces(&storage).await.superfluous(), []);
    assert_eq!(assert_holds(&storage, &of, 1).await, 1);
    assert!(look(&storage, &Keep::default()).await.is_done());
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_files_are_deleted() {
    for (old, begins) in [(0, 1), (1, 2), (3, 4), (4, 5), (5, 5), (6, 5)] {
        let storage = storage(Arc::new(InMemory::new()));
        let of = fill(&storage, old).await;
        let mut pruning = look(&storage, &keep()).await;
        let plan = pruning.plan.clone();
        assert_eq!(plan.begins.map_or(1, FileNumber::get), begins, "{old}");
        let deleted = pruning.proceed(MANY).await.unwrap();
        assert_eq!(deleted, plan.replaced.objects + plan.expired.objects);
        assert_eq!(assert_holds(&storage, &of, begins).await, begins);
        let listing = storage.list(LOG_FOLDER).await.unwrap();
        let named = listing.keys().map(|name| Named::of(name).unwrap());
        assert!(
            named
                .into_iter()
                .all(|named| named.file().1 >= number(begins))
        );
        assert!(look(&storage, &keep()).await.is_done());
        // Archiving continues, and the next pruning begins later.
        let mut of = of;
        of.append(entries(44..70));
        archive_all(&mut archiver(&of, &storage, 2), id(69)).await;
        archived_long_ago(&storage, 7).await;
        let mut again = look(&storage, &keep()).await;
        assert_eq!(again.plan.begins, Some(number(8)));
        again.proceed(MANY).await.unwrap();
        let manifests = read_all(&storage, Some(ring())).await.unwrap();
        assert_eq!(manifests[0].piece.file, number(8));
        assert_eq!(manifests.last().unwrap().last, Some(id(69)));
        let begins = listing_begins(&storage).await;
        assert_eq!(begins, [number(8)], "the former ones are gone");
    }
}

/// The pruning member's clock is ahead: by this clock, everything is too old.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_jump_deletes_nothing_within_retention() {
    let storage = storage(Arc::new(InMemory::new()));
    let of = fill(&storage, 1).await;
    let leapt = SystemTime::now() + 400 * DAY;
    let keep = Keep::for_the_last(Some(30 * DAY), None, leapt);
    let mut pruning = pruner(&storage).look(&keep, leapt).await.unwrap();
    assert_eq!(pruning.plan.begins, Some(number(2)), "what is old goes");
    pruning.proceed(MANY).await.unwrap();
    assert_eq!(assert_holds(&storage, &of, 2).await, 2);
}

async fn listing_begins(storage: &Storage) -> Vec<FileNumber> {
    let listing = storage.list(LOG_FOLDER).await.unwrap();
    let begins = listing.keys().filter_map(|name| match Named::of(name)? {
        Named::Begin(begin) => Some(begin.file),
        _ => None,
    });
    begins.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn log_after_a_kept_backup_stays() {
    let storage = storage(Arc::new(InMemory::new()));
    let of = fill(&storage, 6).await;
    let manifests = read_all(&storage, Some(ring())).await.unwrap();
    let third = manifests.iter().find(|one| one.piece.file == number(3));
    let mut keep = keep();
    keep.after = vec![third.unwrap().gtids_before.clone()];
    let mut pruning = look(&storage, &keep).await;
    pruning.proceed(MANY).await.unwrap();
    assert_eq!(assert_holds(&storage, &of, 3).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_pruning_leaves_one_chain() {
    let steps = {
        let storage = storage(Arc::new(InMemory::new()));
        fill(&storage, 3).await;
        look(&storage, &keep()).await.plan.acts.len()
    };
    assert!(steps > 30, "{steps}");
    for done in 0..=steps {
        let storage = storage(Arc::new(InMemory::new()));
        let of = fill(&storage, 3).await;
        look(&storage, &keep()).await.proceed(done).await.unwrap();
        assert_holds(&storage, &of, 4).await;
        // Another member completes the pruning, even if it is configured to keep everything from now on.
        let mut next = look(&storage, &keep()).await;
        next.proceed(MANY).await.unwrap();
        assert_eq!(assert_holds(&storage, &of, 4).await, 4, "killed at {done}");
        assert_eq!(pieces(&storage).await.superfluous(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn storage_faults_during_pruning_lose_nothing_kept() {
    for fault in Fault::ALL {
        for at in 0.. {
            let faulty = Arc::new(FaultyStorage::default());
            let storage = storage(faulty.clone());
            let of = fill(&storage, 3).await;
            // An unanswered call lasts for the whole timeout.
            let at = if fault == Fault::Silent { at * 20 } else { at };
            faulty.plan(fault, at);
            let pruning = pruner(&storage).look(&keep(), later()).await;
            if let Ok(mut pruning) = pruning {
                // Either an error is reported, or the next call retries the step.
                while !pruning.is_done() {
                    if pruning.proceed(MANY).await.is_err() {
                        break;
                    }
                }
            }
            let happened = faulty.repair();
            assert_holds(&storage, &of, 4).await;
            let mut again = look(&storage, &keep()).await;
            again.proceed(MANY).await.unwrap();
            assert_eq!(assert_holds(&storage, &of, 4).await, 4, "{fault:?} at {at}");
            if !happened {
                assert!(at > 30, "{at}");
                break;
            }
        }
    }
}

/// The storage acknowledges the begin without storing it, so the objects before the begin must stay.
#[tokio::test(flavor = "multi_thread")]
async fn lost_begin_stops_pruning() {
    for fault in [Fault::Lost, Fault::Cut] {
        let faulty = Arc::new(FaultyStorage::default());
        let storage = storage(faulty.clone());
        let of = fill(&storage, 3).await;
        let mut pruning = look(&storage, &Keep::default()).await;
        pruning.proceed(MANY).await.unwrap();
        let mut pruning = look(&storage, &keep()).await;
        let before = storage.list(LOG_FOLDER).await.unwrap();
        faulty.plan(fault, 0);
        let refused = pruning.proceed(MANY).await.unwrap_err();
        assert!(
            matches!(refused, PruneError::Storage(StorageError::Lost { .. })),
            "{refused}"
        );
        faulty.repair();
        let after = storage.list(LOG_FOLDER).await.unwrap();
        assert!(before.keys().all(|name| after.contains_key(name)));
        // The next step writes the begin again.
        pruning.proceed(MANY).await.unwrap();
        assert_eq!(assert_holds(&storage, &of, 4).await, 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_whole_file_replaces_nothing() {
    let storage = storage(Arc::new(InMemory::new()));
    fill(&storage, 0).await;
    let superfluous = pieces(&storage).await.superfluous();
    let whole = |file: u64| {
        let end = superfluous
            .iter()
            .filter(|piece| piece.file == number(file));
        PieceName {
            start: 0,
            closed: true,
            ..*end.max_by_key(|piece| piece.end).unwrap()
        }
    };
    let (cut, lost) = (whole(1), whole(2));
    storage
        .write(&cut.object(), b"half".to_vec())
        .await
        .unwrap();
    storage.delete(&lost.object()).await.unwrap();
    let mut pruning = look(&storage, &Keep::default()).await;
    pruning.proceed(MANY).await.unwrap();
    // Without their manifests, the whole files no longer replace their pieces.
    for whole in [cut, lost] {
        storage.delete(&whole.manifest()).await.unwrap();
    }
    let manifests = read_all(&storage, Some(ring())).await.unwrap();
    assert!(
        manifests
            .iter()
            .filter(|one| one.piece.file == number(2))
            .count()
            > 1
    );
    assert_eq!(manifests[0].piece.begins().file, number(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_manifest_does_not_block_pruning() {
    let storage = storage(Arc::new(InMemory::new()));
    let of = fill(&storage, 3).await;
    for piece in pieces(&storage).await.superfluous() {
        storage.delete(&piece.manifest()).await.unwrap();
        storage.delete(&piece.object()).await.unwrap();
    }
    let first = pieces(&storage).await.all().next().unwrap();
    storage
        .write(&first.manifest(), b"{".to_vec())
        .await
        .unwrap();
    let mut pruning = look(&storage, &keep()).await;
    pruning.proceed(MANY).await.unwrap();
    assert_eq!(assert_holds(&storage, &of, 4).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn archive_of_another_ring_is_not_pruned() {
    let storage = storage(Arc::new(InMemory::new()));
    fill(&storage, 6).await;
    let before = storage.list(LOG_FOLDER).await.unwrap();
    let stranger = RingId("99999999-2222-3333-4444-555555555555".parse().unwrap());
    let pruner = Pruner::new(storage.clone(), Some((stranger, MemberId(1))));
    for keep in [Keep::default(), keep()] {
        let refused = pruner.look(&keep, later()).await.err().unwrap();
        assert!(matches!(refused, PruneError::OtherRing { .. }), "{refused}");
    }
    assert_eq!(storage.list(LOG_FOLDER).await.unwrap(), before);
}

/// Discarded entries are deleted together with the files of the same numbers, and never reappear in the next history.
#[tokio::test(flavor = "multi_thread")]
async fn history_after_a_repair_is_pruned() {
    let mut missed = Ring::new();
    missed.append(entries(0..35));
    let mut repaired = Ring::new();
    repaired.append(entries(0..12));
    repaired.append(after_a_repair(12..40));
    let committed = OpId::new(1001, 39);
    let fill = || async {
        let storage = storage(Arc::new(InMemory::new()));
        archive_all(&mut archiver(&missed, &storage, 1), id(34)).await;
        archive_all(&mut archiver(&repaired, &storage, 2), committed).await;
        archived_long_ago(&storage, 4).await;
        storage
    };
    let steps = look(&fill().await, &keep()).await.plan.acts.len();
    for done in 0..=steps {
        let storage = fill().await;
        let mut pruning = look(&storage, &keep()).await;
        assert_eq!(pruning.plan.begins, Some(number(5)));
        pruning.proceed(done).await.unwrap();
        let manifests = read_all(&storage, Some(ring())).await.unwrap();
        // The header of the current file follows the last entries.
        let mut lasts = manifests.iter().filter_map(|manifest| manifest.last);
        assert_eq!(lasts.next_back(), Some(committed));
        let of_newest = manifests
            .iter()
            .skip_while(|one| one.piece.file < number(5));
        for manifest in of_newest {
            assert_eq!(manifest.piece.timeline, Timeline(2));
        }
        // The next archiver sees the same history.
        let step = archiver(&repaired, &storage, 3).step(Some(committed)).await;
        assert!(matches!(step, Ok(Step::Nothing)), "{step:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_of_a_pruned_archive_is_told_so() {
    let storage = storage(Arc::new(InMemory::new()));
    let of = fill(&storage, 3).await;
    let superfluous = pieces(&storage).await.superfluous();
    let log = ArchivedLog::look(storage.clone(), Some(ring())).await;
    let log = log.unwrap().unwrap();
    let first = log.runs[0].pieces[0];
    let last = *log.runs[0].pieces.last().unwrap();
    assert!(!log.was_pruned(first).await.unwrap());
    look(&storage, &keep()).await.proceed(MANY).await.unwrap();
    assert!(log.was_pruned(first).await.unwrap());
    assert!(!log.was_pruned(last).await.unwrap());
    let replaced = superfluous.iter().find(|piece| piece.file == number(5));
    assert!(log.was_pruned(*replaced.unwrap()).await.unwrap());
    assert_holds(&storage, &of, 4).await;
}

/// Objects without a manifest are left by killed or concurrent archivers.
#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_archive_is_pruned_without_an_identity() {
    let storage = storage(Arc::new(InMemory::new()));
    let (recipients, _) = new_keys();
    let mut of = Ring::new();
    of.append(entries(0..44));
    let mut member = archiver(&of, &storage, 1);
    member.recipients = Some(recipients);
    for committed in (3..44).step_by(4) {
        archive_all(&mut member, id(committed)).await;
    }
    let whole = pieces(&storage).await.all().find(PieceName::is_whole_file);
    let left = whole.unwrap().encrypted_object(7);
    storage.write(&left, b"half of it".to_vec()).await.unwrap();
    look(&storage, &Keep::default())
        .await
        .proceed(MANY)
        .await
        .unwrap();
    let listing = storage.list(LOG_FOLDER).await.unwrap();
    assert!(!listing.contains_key(&left));
    let pieces = Pieces::of_names(listing.keys());
    assert_eq!(pieces.superfluous(), []);
    // A manifest and an object for each remaining piece.
    assert_eq!(listing.len(), 2 * pieces.all().count());
    assert_eq!(pieces.history(Timeline::FIRST).len(), 1);
}
