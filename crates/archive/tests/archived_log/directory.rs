//! The log in a directory, on a disk that is temporarily full.

use std::time::Duration;

use archive::archiver::ArchiveError;
use archive::storage::{Storage, StorageSettings};
use testkit::real_disks::LoopDisk;

use crate::archiver::{archive_all, archiver};
use crate::reading::read_all;
use crate::ring::{Ring, entries, id, ring};

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_reported_and_leaves_no_gap() {
    let disk = LoopDisk::of_its_own(8 << 20).unwrap();
    let settings = StorageSettings {
        url: format!("file://{}", disk.folder().display())
            .parse()
            .unwrap(),
        options: Default::default(),
        call_limit: Duration::from_secs(20),
    };
    let storage = Storage::open(&settings).unwrap();
    let mut of = Ring::new();
    of.append(entries(0..40));
    let mut member = archiver(&of, &storage, 1);
    assert_eq!(archive_all(&mut member, id(10)).await, 0);
    let before = read_all(&storage, Some(ring())).await.unwrap();

    disk.fill().unwrap();
    for _ in 0..3 {
        let refused = member.step(Some(id(30))).await.unwrap_err();
        let words = refused.to_string();
        let is_of_storage = matches!(
            refused,
            ArchiveError::Storage(_) | ArchiveError::Seal { .. }
        );
        assert!(is_of_storage && words.contains("No space left"), "{words}");
    }
    // Existing objects stay unchanged, and partial ones do not count.
    assert_eq!(read_all(&storage, Some(ring())).await.unwrap(), before);

    disk.make_room().unwrap();
    assert_eq!(archive_all(&mut member, id(30)).await, 0);
    let all = read_all(&storage, Some(ring())).await.unwrap();
    assert_eq!(all.last().unwrap().last, Some(id(30)));
}
