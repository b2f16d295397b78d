//! A member archives its log into failing storage, and another member continues.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use archive::archiver::{ArchiveError, Archiver, MAX_MANIFEST_BYTES, Step};
use archive::chain::Pieces;
use archive::encryption::Identities;
use archive::manifest::Manifest;
use archive::name::{Begin, LOG_FOLDER, Timeline};
use archive::sealed::unseal;
use archive::storage::{Storage, StorageError};
use binlog_store::FileNumber;
use object_store::ObjectStore;
use object_store::path::Path;
use raft_types::{Entry, MemberId, OpId};
use testkit::log_entries::{rotate, transaction};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use crate::faulty_storage::{Fault, FaultyStorage};
use crate::ring::{Ring, entries, id, ring};

/// Longer than any call that does not hang.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(1);

pub(crate) fn storage(objects: Arc<dyn ObjectStore>) -> Storage {
    Storage::over(objects, Path::from("backups/one"), CALL_LIMIT)
}

pub(crate) fn archiver(of: &Ring, storage: &Storage, member: u64) -> Archiver {
    Archiver::new(storage.clone(), of.store.handle(), ring(), MemberId(member))
}

/// Archives everything, with a retry after each failure; returns the number of failed steps.
pub(crate) async fn archive_all(archiver: &mut Archiver, committed: OpId) -> usize {
    let mut failed = 0;
    loop {
        match archiver.step(Some(committed)).await {
            Ok(Step::Nothing) => return failed,
            Ok(Step::Archived { gap_from, .. }) => assert_eq!(gap_from, None),
            Err(_) => failed += 1,
        }
        assert!(failed < 5);
    }
}

async fn pieces(storage: &Storage) -> Pieces {
    Pieces::of_names(storage.list(LOG_FOLDER).await.unwrap().keys())
}

/// The files of a history in the archive.
async fn restored_of(storage: &Storage, timeline: Timeline) -> BTreeMap<FileNumber, Vec<u8>> {
    let history = pieces(storage).await.history(timeline);
    assert_eq!(history.len(), 1, "{history:?}");
    let mut files: BTreeMap<FileNumber, Vec<u8>> = BTreeMap::new();
    for piece in &history[0].pieces {
        let manifest = storage.read(&piece.manifest(), MAX_MANIFEST_BYTES).await;
        let manifest = Manifest::read(&manifest.unwrap(), *piece, Some(ring())).unwrap();
        let object = storage.download(&manifest.object.name, Handle::current());
        let object = object.await.unwrap();
        let bytes = spawn_blocking(move || {
            let mut bytes = Vec::new();
            unseal(&manifest, &Identities::default(), object, &mut bytes).unwrap();
            bytes
        });
        let file = files.entry(piece.file).or_default();
        assert_eq!(file.len() as u64, piece.start);
        file.extend(bytes.await.unwrap());
    }
    files
}

async fn assert_has_all(storage: &Storage, of: &Ring, committed: OpId) {
    assert_has_all_of(storage, Timeline::FIRST, of, committed).await;
}

async fn assert_has_all_of(storage: &Storage, timeline: Timeline, of: &Ring, committed: OpId) {
    let end = of.store.handle().committed_end(Some(committed));
    let files = restored_of(storage, timeline).await;
    assert_eq!(files.last_key_value().unwrap().0, &end.file);
    for (file, bytes) in files {
        let mut expected = of.bytes(file);
        if file == end.file {
            expected.truncate(end.offset as usize);
        }
        assert!(bytes == expected, "{file}");
    }
}

/// Every storage call fails once, and the archiving member continues or is killed.
#[tokio::test(flavor = "multi_thread")]
async fn storage_faults_leave_no_gap() {
    let mut of = Ring::new();
    of.append(entries(0..21));
    for fault in Fault::ALL {
        // An unanswered call lasts for the whole timeout.
        let killed: &[bool] = match fault {
            Fault::Silent => &[true],
            _ => &[false, true],
        };
        for killed in killed.iter().copied() {
            for at in 0.. {
                let faulty = FaultyStorage::with(fault, at);
                let storage = storage(faulty.clone());
                let mut first = archiver(&of, &storage, 1);
                for committed in [4, 9] {
                    let mut failed = archive_all(&mut first, id(committed)).await;
                    if killed && failed > 0 {
                        first = archiver(&of, &storage, 2);
                        failed -= 1;
                    }
                    assert!(failed <= 1);
                }
                let mut second = archiver(&of, &storage, 3);
                archive_all(&mut second, id(18)).await;
                let happened = faulty.repair();
                assert_has_all(&storage, &of, id(18)).await;
                if !happened {
                    assert!(at >= 15, "{at}");
                    break;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_acknowledged_object_is_an_error() {
    let mut of = Ring::new();
    of.append(entries(0..5));
    // The calls are: the listing, the bytes, the check of the bytes, the manifest.
    for (fault, at) in [
        (Fault::Lost, 1),
        (Fault::Cut, 1),
        (Fault::Lost, 3),
        (Fault::Cut, 3),
    ] {
        let storage = storage(FaultyStorage::with(fault, at));
        let step = archiver(&of, &storage, 1).step(Some(id(4))).await;
        assert!(
            matches!(step, Err(ArchiveError::Storage(StorageError::Lost { .. }))),
            "{step:?}"
        );
    }
}

/// Whichever object of the archive is lost, the next archiver that lists the archive fills the gap.
#[tokio::test(flavor = "multi_thread")]
async fn lost_pieces_are_archived_again() {
    let mut of = Ring::new();
    of.append(entries(0..30));
    let archived = async || {
        let storage = storage(Arc::new(FaultyStorage::default()));
        let mut member = archiver(&of, &storage, 1);
        for committed in (3..30).step_by(2) {
            while let Step::Archived { .. } = member.step(Some(id(committed))).await.unwrap() {}
        }
        storage
    };
    let all: Vec<_> = pieces(&archived().await).await.all().collect();
    assert!(all.len() > 12, "{all:?}");
    for two in all.windows(2) {
        let storage = archived().await;
        for piece in two {
            storage.delete(&piece.manifest()).await.unwrap();
        }
        let mut member = archiver(&of, &storage, 2);
        assert_eq!(archive_all(&mut member, id(29)).await, 0);
        assert_has_all(&storage, &of, id(29)).await;
        let read = crate::reading::read_all(&storage, Some(ring())).await;
        read.unwrap();
    }
}

/// Transactions are committed during every step, as under load.
#[tokio::test(flavor = "multi_thread")]
async fn step_ends_at_the_given_commit_position() {
    let mut of = Ring::new();
    of.append(entries(0..4));
    let storage = storage(Arc::new(FaultyStorage::default()));
    let mut member = archiver(&of, &storage, 1);
    let mut last = 3;
    // Two files of the log end during this loop.
    while last < 20 {
        let committed = of.store.handle().committed_end(Some(id(last)));
        for steps in 0.. {
            let step = member.step_to(committed, Some(id(last))).await.unwrap();
            if step == Step::Nothing {
                break;
            }
            assert!(steps < 3, "it has no end");
            last += 1;
            of.append(entries(last..last + 1));
        }
    }
    let all: Vec<_> = pieces(&storage).await.all().collect();
    let whole = all.iter().filter(|piece| piece.is_whole_file());
    assert_eq!(whole.count(), 2, "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn archiving_continues_where_another_member_stopped() {
    let mut of = Ring::new();
    of.append(entries(0..30));
    let storage = storage(Arc::new(FaultyStorage::default()));
    let mut members = [1, 2, 3].map(|member| archiver(&of, &storage, member));
    for (turn, committed) in (3..30).enumerate() {
        let member = &mut members[turn % 3];
        // One of the members does not check whether another one has continued.
        if turn % 3 != 2 {
            member.refresh(Some(id(committed))).await.unwrap();
        }
        archive_all(member, id(committed)).await;
        assert_has_all(&storage, &of, id(committed)).await;
        let end = of.store.handle().committed_end(Some(id(committed)));
        assert_eq!(member.archived(Some(id(committed))), Some(end));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_purged_before_archiving_is_a_gap() {
    let mut of = Ring::new();
    of.append(entries(0..30));
    let storage = storage(Arc::new(FaultyStorage::default()));
    let mut member = archiver(&of, &storage, 1);
    archive_all(&mut member, id(4)).await;
    let reached = member.archived(Some(id(4)));
    of.purge(id(15));
    let step = member.step(Some(id(20))).await.unwrap();
    let Step::Archived { gap_from, manifest } = step else {
        panic!("nothing was archived")
    };
    assert_eq!(gap_from, reached);
    assert_eq!(manifest.before, None);
    // The GTIDs of the gap are known, although its entries are not archived.
    assert_eq!(manifest.gtids_before, of.store.handle().purged_gtids());
    archive_all(&mut member, id(29)).await;
    assert_eq!(pieces(&storage).await.history(Timeline::FIRST).len(), 2);
}

/// The members write the same piece, each with its own manifest. The slower one continues from its own manifest.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_archivers_of_a_piece_leave_one_chain() {
    let mut of = Ring::new();
    of.append(entries(0..12));
    let storage = storage(Arc::new(FaultyStorage::default()));
    let (mut first, mut second) = (archiver(&of, &storage, 1), archiver(&of, &storage, 2));
    // This member's number has one digit more, so that its manifest has another size, too.
    let mut third = archiver(&of, &storage, 30);
    archive_all(&mut first, id(3)).await;
    for member in [&mut second, &mut third] {
        member.refresh(Some(id(3))).await.unwrap();
    }
    for member in [&mut first, &mut second, &mut third] {
        let step = member.step(Some(id(5))).await.unwrap();
        assert!(matches!(step, Step::Archived { .. }));
    }
    // The first member's manifest of the previous piece has been replaced.
    archive_all(&mut first, id(6)).await;
    let read = crate::reading::read_all(&storage, Some(ring())).await;
    assert_eq!(read.unwrap().len(), 3);
    archive_all(&mut first, id(11)).await;
    assert_has_all(&storage, &of, id(11)).await;
}

/// The entries of a log after a repair at index 12: in later terms, and with other file boundaries.
pub(crate) fn after_a_repair(range: std::ops::Range<u64>) -> Vec<Entry> {
    let repaired = |index| OpId::new(1001, index);
    let entry = |index| match index % 5 {
        4 => rotate(repaired(index)),
        _ => transaction(repaired(index), 2_000),
    };
    range.map(entry).collect()
}

/// A repair discards archived entries. The log continues as another history, from the file in which the two histories diverge. A member
/// that missed the repair does not archive anything.
#[tokio::test(flavor = "multi_thread")]
async fn repair_starts_another_history() {
    let mut missed = Ring::new();
    missed.append(entries(0..23));
    let storage = storage(Arc::new(FaultyStorage::default()));
    archive_all(&mut archiver(&missed, &storage, 1), id(13)).await;
    archive_all(&mut archiver(&missed, &storage, 1), id(22)).await;
    let before = restored_of(&storage, Timeline::FIRST).await;

    let mut repaired = Ring::new();
    repaired.append(entries(0..12));
    repaired.append(after_a_repair(12..31));
    let committed = OpId::new(1001, 30);
    let mut member = archiver(&repaired, &storage, 2);
    assert_eq!(archive_all(&mut member, committed).await, 0);
    let second = Timeline::FIRST.next();
    assert_eq!(pieces(&storage).await.newest(), Some(second));
    assert_has_all_of(&storage, second, &repaired, committed).await;
    assert_eq!(restored_of(&storage, Timeline::FIRST).await, before);
    // Archiving continues the new history, also after a restart.
    repaired.append(after_a_repair(31..40));
    let mut member = archiver(&repaired, &storage, 3);
    archive_all(&mut member, OpId::new(1001, 39)).await;
    assert_eq!(pieces(&storage).await.newest(), Some(second));

    let step = archiver(&missed, &storage, 1).step(Some(id(22))).await;
    assert!(matches!(step, Ok(Step::Nothing)), "{step:?}");
    missed.append(entries(23..45));
    let step = archiver(&missed, &storage, 1).step(Some(id(44))).await;
    let Err(ArchiveError::OtherHistory { archived, here }) = step else {
        panic!("{step:?}")
    };
    assert!(archived.term == 1001 && here.term == 1);
}

/// The new log is shorter than the archive, so it has no index that the archive lacks. Its last entry still shows that it is another
/// history. A member that listed the archive before that entry was committed checks again.
#[tokio::test(flavor = "multi_thread")]
async fn repaired_log_is_archived_before_it_outgrows_the_discarded_one() {
    let mut given_up = Ring::new();
    given_up.append(entries(0..30));
    let repaired_to = |index| OpId::new(1001, index);
    // The last committed index of the new history: within the archive, at its last entry, and after it in another file.
    for next in [12, 14, 29, 40] {
        let storage = storage(Arc::new(FaultyStorage::default()));
        for committed in [9, 13, 20, 29] {
            archive_all(&mut archiver(&given_up, &storage, 1), id(committed)).await;
        }
        let before = restored_of(&storage, Timeline::FIRST).await;
        let mut repaired = Ring::new();
        repaired.append(entries(0..12));
        let mut member = archiver(&repaired, &storage, 2);
        assert_eq!(archive_all(&mut member, id(11)).await, 0);
        // The truncation has no effect yet: the archive has all entries of the log.
        let end = repaired.store.handle().committed_end(Some(id(11)));
        assert!(member.archived(Some(id(11))) > Some(end));

        repaired.append(after_a_repair(12..next + 1));
        let committed = repaired_to(next);
        let end = repaired.store.handle().committed_end(Some(committed));
        assert_eq!(member.archived(Some(committed)), None, "{next}");
        // Another member's listing shows that the archive lacks the new entries.
        let mut other = archiver(&repaired, &storage, 3);
        other.refresh(Some(committed)).await.unwrap();
        assert!(other.archived(Some(committed)) < Some(end), "{next}");

        assert_eq!(archive_all(&mut member, committed).await, 0, "{next}");
        assert_eq!(member.archived(Some(committed)), Some(end));
        let second = Timeline::FIRST.next();
        assert_has_all_of(&storage, second, &repaired, committed).await;
        repaired.append(after_a_repair(next + 1..46));
        assert_eq!(archive_all(&mut member, repaired_to(45)).await, 0, "{next}");
        assert_has_all_of(&storage, second, &repaired, repaired_to(45)).await;
        assert_eq!(pieces(&storage).await.newest(), Some(second));
        assert_eq!(restored_of(&storage, Timeline::FIRST).await, before);
    }
}

/// The archive was pruned or begins late, and the repair returns to an entry before the archive's first one. The new history begins with
/// the log's first file, and has no gap.
#[tokio::test(flavor = "multi_thread")]
async fn repair_to_before_the_archive_leaves_no_gap() {
    let mut missed = Ring::new();
    missed.append(entries(0..44));
    for keeps_begin in [false, true] {
        let storage = storage(Arc::new(FaultyStorage::default()));
        archive_all(&mut archiver(&missed, &storage, 1), id(43)).await;
        let begin = Begin {
            timeline: Timeline::FIRST,
            file: FileNumber::new(4).unwrap(),
        };
        if keeps_begin {
            storage.write(&begin.name(), b"{}".to_vec()).await.unwrap();
        }
        for piece in pieces(&storage).await.all() {
            if piece.file < begin.file {
                storage.delete(&piece.manifest()).await.unwrap();
            }
        }
        let mut repaired = Ring::new();
        repaired.append(entries(0..12));
        for (from, end) in [(12, 46), (46, 50)] {
            repaired.append(after_a_repair(from..end));
            let committed = OpId::new(1001, end - 1);
            let mut member = archiver(&repaired, &storage, 2);
            archive_all(&mut member, committed).await;
            let second = Timeline::FIRST.next();
            assert_eq!(pieces(&storage).await.newest(), Some(second));
            let first = pieces(&storage).await.history(second)[0].begins();
            assert_eq!(first.map(|first| first.file), Some(FileNumber::FIRST));
            assert_has_all_of(&storage, second, &repaired, committed).await;
            let ends = repaired.store.handle().committed_end(Some(committed));
            assert_eq!(member.archived(Some(committed)), Some(ends));
        }
    }
}

/// The file in which the histories diverge must be complete.
#[tokio::test(flavor = "multi_thread")]
async fn divergence_before_purged_entries_is_refused() {
    let mut missed = Ring::new();
    missed.append(entries(0..23));
    let storage = storage(Arc::new(FaultyStorage::default()));
    archive_all(&mut archiver(&missed, &storage, 1), id(22)).await;
    let mut repaired = Ring::new();
    repaired.append(entries(0..12));
    repaired.append(after_a_repair(12..31));
    repaired.purge(OpId::new(1001, 19));
    let step = archiver(&repaired, &storage, 2)
        .step(Some(OpId::new(1001, 30)))
        .await;
    assert!(
        matches!(step, Err(ArchiveError::OtherHistory { .. })),
        "{step:?}"
    );
    assert_eq!(pieces(&storage).await.newest(), Some(Timeline::FIRST));
}
