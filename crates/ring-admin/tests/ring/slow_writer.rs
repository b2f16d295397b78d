//! A leader with a real log on a slow disk. Requests wait before they reach the engine: in the engine's loop, they would delay heartbeats.
//! If the disk cannot read entries that a follower lacks, only that follower waits.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use binlog_store::{BinlogStore, FileSystem, LogHandle, StorageFile, StoreOptions};
use consensus::log_probe::LogProbe;
use consensus::{AppliedFloor, Bounds, MemberConfig, Outcome};
use raft_types::{AppEntry, LogId, MemberId, TransactionPayload};
use ring_admin::Member;
use testkit::disk::FaultyDisk;
use testkit::log_entries::transaction_events;

use crate::support::memory_log::MemoryDisk;
use crate::support::ring::{Ring, TIMERS, within};

const OWN: MemberId = MemberId(1);
/// How long the disk takes for a sync.
const SLOW: Duration = Duration::from_secs(4);
/// The longest time without a leader's message. A loaded machine delays messages less, and the disk takes far longer.
const SILENT: Duration = Duration::from_millis(2_000);

/// The faults of a disk.
#[derive(Clone, Default)]
struct Trouble {
    /// How long a sync takes.
    millis: Arc<AtomicU64>,
    /// True if all reads fail.
    unreadable: Arc<AtomicBool>,
}

/// Files of another file system, with faults.
struct SlowFiles {
    files: Arc<dyn FileSystem>,
    trouble: Trouble,
}

struct SlowFile {
    file: Arc<dyn StorageFile>,
    trouble: Trouble,
}

impl SlowFiles {
    fn slow(&self, file: io::Result<Arc<dyn StorageFile>>) -> io::Result<Arc<dyn StorageFile>> {
        let trouble = self.trouble.clone();
        Ok(Arc::new(SlowFile {
            file: file?,
            trouble,
        }))
    }
}

impl FileSystem for SlowFiles {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.create_dir(dir)
    }
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.slow(self.files.create(path))
    }
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.slow(self.files.open(path))
    }
    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.slow(self.files.open_read_only(path))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }
    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.files.free_space(dir)
    }
}

impl StorageFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.trouble.unreadable.load(Ordering::Relaxed) {
            true => Err(io::Error::other("input/output error (injected)")),
            false => self.file.read_at(buffer, offset),
        }
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        let millis = self.trouble.millis.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(millis));
        self.file.sync_data()
    }
    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
}

fn transaction(number: u64, bytes: usize) -> AppEntry {
    AppEntry::Transaction(TransactionPayload::seal(transaction_events(number, bytes)))
}

/// Returns a ring in which member 1 has a real log with a small queue. The other members never campaign.
async fn ring_with_a_real_log(trouble: &Trouble) -> (Ring, LogHandle) {
    let policy = consensus::quorum::QuorumPolicy::Majority;
    let mut ring = Ring::laid_out("home: 1d 2w 3w", policy);
    for id in [MemberId(2), MemberId(3)] {
        ring.start(id).await;
        ring.member(id).set_campaigning(false);
    }
    let bounds = Bounds {
        proposals_bytes: 1 << 20,
        ..Bounds::default()
    };
    let config = MemberConfig {
        timers: TIMERS,
        bounds,
        rules: ring.rules.clone(),
        ..MemberConfig::new(ring.id, OWN, ring.records[&OWN].kind)
    };
    let disk = FaultyDisk::new();
    let files = SlowFiles {
        files: disk.file_system(),
        trouble: trouble.clone(),
    };
    let options = StoreOptions {
        queue_bytes: 1 << 20,
        cache_bytes: 4 << 10,
        read_batch_bytes: 4 << 10,
        ..StoreOptions::new("/data", ring.id)
    };
    let (store, _) = BinlogStore::open(options, Arc::new(files), disk.meta()).unwrap();
    let log = store.handle();
    let port = ring.board.port(OWN);
    let calls = Arc::new(port.clone());
    let network = LogProbe::new(port, Arc::new(log.clone()), &TIMERS);
    let (last_applied, membership) = log.applied_at_open();
    let floor = AppliedFloor {
        last_applied: last_applied.map(LogId::from),
        membership,
    };
    let starts = Arc::new(log.clone());
    let member = Member::start(config, store, network, calls, floor, starts).await;
    let member = member.unwrap();
    member.take_in_by(Arc::new(log.clone()));
    // The empty disk is only for reports, which no member requests from the leader.
    ring.board
        .connect(OWN, member.inbound(), MemoryDisk::default());
    ring.members.insert(OWN, member);
    ring.bootstrap().await;
    (ring, log)
}

/// Regression test: the other members commit a large transaction long before the leader's own disk has written it, and the next transaction
/// follows. While the engine waited for room in the disk's queue, it sent no heartbeats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_continue_while_the_leaders_disk_writes() {
    let trouble = Trouble::default();
    let millis = &trouble.millis;
    let (ring, _) = ring_with_a_real_log(&trouble).await;
    let (leader, term) = ring.serving().await;
    assert_eq!(leader, OWN);
    let member = ring.member(leader).clone();
    let mut first = member.propose(transaction(1, 100), term).await.unwrap();
    within("a commit", first.outcome()).await;

    millis.store(SLOW.as_millis() as u64, Ordering::Relaxed);
    let mut large = member.propose(transaction(2, 8 << 20), term).await.unwrap();
    let outcome = within("a commit by the others", large.outcome()).await;
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");

    let begun = Instant::now();
    let next = tokio::spawn({
        let member = member.clone();
        async move {
            let mut next = member.propose(transaction(3, 100), term).await.unwrap();
            next.outcome().await
        }
    });
    let (mut silent_since, mut longest) = (None::<Instant>, Duration::ZERO);
    while begun.elapsed() < SLOW {
        if member.leadership_now().serving_term() == Some(term) {
            silent_since = None;
        } else {
            let since = *silent_since.get_or_insert_with(Instant::now);
            longest = longest.max(since.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(
        longest < SILENT,
        "the leader was without a quorum for {longest:?} of the {SLOW:?} in which its disk wrote"
    );
    millis.store(0, Ordering::Relaxed);
    let outcome = within("the next commit", next).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

/// Regression test: the leader's engine stopped at the first failed read of entries that one follower lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_lagging_follower_waits_for_the_leaders_slow_reads() {
    let trouble = Trouble::default();
    let (mut ring, log) = ring_with_a_real_log(&trouble).await;
    let (leader, term) = ring.serving().await;
    assert_eq!(leader, OWN);
    let member = ring.member(leader).clone();
    let commit = async |number: u64| {
        let mut ticket = member
            .propose(transaction(number, 1_000), term)
            .await
            .unwrap();
        match within("a commit", ticket.outcome()).await {
            Outcome::Committed(op_id) => op_id,
            other => panic!("{other:?}"),
        }
    };
    commit(1).await;
    let away = MemberId(3);
    ring.crash(away).await;
    for number in 2..=30 {
        commit(number).await;
    }
    trouble.unreadable.store(true, Ordering::Relaxed);
    ring.start(away).await;
    ring.member(away).set_campaigning(false);
    let mut last = commit(31).await;
    within("the alarm", async {
        while log.read_faults().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(log.stats().read_failures > 0);
    for number in 32..=40 {
        last = commit(number).await;
    }
    assert_eq!(member.status().fault, None);
    let lagging = *ring.member(away).committed().borrow();
    assert!(lagging < Some(last), "{lagging:?}");

    trouble.unreadable.store(false, Ordering::Relaxed);
    ring.committed_everywhere(last).await;
    assert_eq!(log.read_faults(), []);
}
