//! The data directory is larger than the memory limit, and memory use is bounded. This is a separate test, because it measures the whole
//! process.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::ops::ControlFlow;
use std::time::Duration;

use archive::base_backup::{
    BASE_VERSION, BaseForm, BaseManifest, BaseName, UploadOptions, download, finish, upload,
};
use archive::encryption::Identities;
use archive::storage::{Storage, StorageSettings};
use peak_alloc::PeakAlloc;
use raft_types::{MemberId, RingId};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const DATA: usize = 64 << 20;
/// Memory for two parts of an upload, and buffers for reading and compression.
const MOST: usize = 32 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn taking_and_restoring_a_base_backup_takes_little_memory() {
    let (from, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut random = fastrand::Rng::with_seed(1);
    for file in 0..4 {
        // The bytes are incompressible, so that the upload has the full size.
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(DATA / 4)
            .collect();
        fs::write(from.path().join(format!("{file}.ibd")), bytes).unwrap();
    }
    let storage = Storage::open(&StorageSettings {
        url: format!("file://{}", archive.path().display())
            .parse()
            .unwrap(),
        options: Default::default(),
        call_limit: Duration::from_secs(60),
    });
    let storage = storage.unwrap();
    let name = BaseName::new(1, MemberId(1)).unwrap();
    let go_on = |_| ControlFlow::Continue(());
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let packed = upload(&storage, name, from.path(), UploadOptions::default(), go_on).await;
    let packed = packed.unwrap();
    let taking = MEMORY.peak_usage() - before;
    let base = BaseManifest {
        version: BASE_VERSION,
        ring: RingId("11111111-2222-3333-4444-555555555555".parse().unwrap()),
        name,
        form: BaseForm::DataDirectory,
        gtids_at_least: Default::default(),
        gtids_at_most: Default::default(),
        committed: None,
        began_at: 1,
        ended_at: 1,
        mysqld_version: None,
        server_uuid: None,
        keyring_needed: None,
        objects: packed.objects,
        tar: Some(packed.tar),
        unpacked_bytes: packed.unpacked_bytes,
        files: packed.files,
        taken_by: MemberId(1),
    };
    finish(&storage, &base).await.unwrap();
    let into = from.path().join("restored");
    MEMORY.reset_peak_usage();
    download(&storage, &base, &Identities::default(), &into, go_on)
        .await
        .unwrap();
    let restoring = MEMORY.peak_usage() - before;
    assert_eq!(
        fs::metadata(into.join("3.ibd")).unwrap().len() as usize,
        DATA / 4
    );
    assert!(base.stored_bytes() as usize >= DATA);
    assert!(
        taking < MOST && restoring < MOST,
        "{taking} and {restoring} bytes"
    );
}
