//! The hard state: its typed records, and the key-value store below them. The records are the log's ring, the vote, the committed op id, the
//! purge floor, the durable mark. Further records: possible loss of acknowledged entries, writing without sync, verified files, and a
//! restart of the log. Each value is a layout byte, a CRC32C, and JSON.

use std::fs::{File, TryLockError};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use raft_types::{
    DoubtedTail, ElectionNotes, FormatMismatch, FormatRange, FormatVersion, Membership,
    MembershipPayload, OpId, RingId, Vote,
};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::format::{FileNumber, LoggedMembership};

/// The supported layouts of these records; the newest is written. A layout has the number of the format that introduced it.
const LAYOUTS: FormatRange = FormatRange::only(FormatVersion::FIRST);
const WRITTEN: u8 = 1;
const _: () = assert!(WRITTEN as u32 == LAYOUTS.newest().0);
const PREFIX_LEN: usize = 5;

/// A record's key, with the record's type.
pub(crate) struct Key<T> {
    pub(crate) name: &'static str,
    record: PhantomData<fn() -> T>,
}

const fn key<T>(name: &'static str) -> Key<T> {
    Key {
        name,
        record: PhantomData,
    }
}

pub(crate) const LOG: Key<LogRecord> = key("log");
pub(crate) const VOTE: Key<Vote> = key("vote");
pub(crate) const COMMITTED: Key<OpId> = key("committed");
pub(crate) const FLOOR: Key<PurgeFloor> = key("purge-floor");
pub(crate) const DURABLE: Key<DurableMark> = key("durable-mark");
/// The header of the file with which the log is about to restart.
pub(crate) const START: Key<Bytes> = key("new-start");
/// Set while acknowledged entries may be missing, until this doubt is resolved.
pub(crate) const DOUBT: Key<DoubtedTail> = key("doubted-tail");
pub(crate) const SCRUB: Key<ScrubRecord> = key("verified-files");
pub(crate) const UNSYNCED: Key<UnsyncedRun> = key("unsynced-run");
pub(crate) const ELECTIONS: Key<ElectionNotes> = key("elections");

/// The state of the log's creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogStage {
    /// The first file is being created; no entry was ever acknowledged.
    Creating,
    /// Entries may have been acknowledged.
    InUse,
}

/// The log's existence and its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogRecord {
    pub(crate) ring: RingId,
    pub(crate) stage: LogStage,
}

/// The last purged entry, and the membership in effect there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredFloor", into = "StoredFloor")]
pub(crate) struct PurgeFloor {
    pub(crate) op_id: OpId,
    /// The last membership entry up to the floor.
    pub(crate) membership: Option<LoggedMembership>,
}

/// A purge floor in its stored form.
#[derive(Serialize, Deserialize)]
struct StoredFloor {
    op_id: OpId,
    membership: Option<(OpId, Membership)>,
    /// The same membership, as the bytes of its entry. Records of older versions lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    membership_bytes: Option<MembershipPayload>,
}

impl From<StoredFloor> for PurgeFloor {
    fn from(stored: StoredFloor) -> Self {
        let bytes = stored.membership_bytes;
        let membership = stored.membership.map(|(op_id, membership)| {
            let payload = bytes.unwrap_or_else(|| MembershipPayload::seal(membership));
            LoggedMembership::new(op_id, &payload)
        });
        Self {
            op_id: stored.op_id,
            membership,
        }
    }
}

impl From<PurgeFloor> for StoredFloor {
    fn from(floor: PurgeFloor) -> Self {
        let read = |logged: LoggedMembership| (logged.op_id, logged.payload());
        let (at, payload) = floor.membership.map(read).unzip();
        let membership = payload.as_ref().map(|payload| payload.membership().clone());
        Self {
            op_id: floor.op_id,
            membership: at.zip(membership),
            membership_bytes: payload,
        }
    }
}

/// An entry known to be durable, and its end offset. All earlier bytes are durable too, so damage before the end offset is never a torn
/// write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DurableMark {
    pub(crate) op_id: OpId,
    pub(crate) file: FileNumber,
    pub(crate) end: u64,
}

/// Identifies a closed file by its number and last entry. If the number and the last entry are the same, the file is the same, even if the
/// log was truncated in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerifiedMark {
    pub(crate) file: FileNumber,
    pub(crate) last: OpId,
}

/// The closed files verified so far, and the progress of the current scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ScrubRecord {
    /// This file and all earlier files of the log are verified.
    pub(crate) verified: Option<VerifiedMark>,
    /// The last file that the current scrub has read.
    #[serde(rename = "behind")]
    pub(crate) read_upto: Option<FileNumber>,
    /// The newest closed file when the current scrub began. The scrub ends after this file, even if newer files have been closed.
    pub(crate) until: Option<FileNumber>,
    /// End of the last scrub, in seconds since the epoch.
    pub(crate) completed_at: Option<u64>,
}

/// The log is being written without sync: entries acknowledged since then may be only in the machine's memory. The record is removed when
/// everything is synced and nothing more will be written. If a start finds the record, the last run did not end cleanly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnsyncedRun {
    /// The boot of the machine; `None` if unknown.
    pub(crate) boot: Option<String>,
}

/// All records, as read at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SavedState {
    pub(crate) log: Option<LogRecord>,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<OpId>,
    pub(crate) floor: Option<PurgeFloor>,
    pub(crate) durable: Option<DurableMark>,
    /// The header of the file with which the log is about to restart.
    pub(crate) start: Option<Bytes>,
    /// Set while acknowledged entries may be missing, until this doubt is resolved.
    pub(crate) doubt: Option<DoubtedTail>,
    pub(crate) scrub: ScrubRecord,
    /// Set if the log was written without sync and the run did not end cleanly. Versions before this feature never set it.
    pub(crate) unsynced: Option<UnsyncedRun>,
    /// The record for the next election.
    pub(crate) elections: ElectionNotes,
}

/// The records in a [`MetaStore`]. A `put` is durable after the next [`MetaStore::flush`].
#[derive(Clone)]
pub(crate) struct HardState {
    pub(crate) meta: Arc<dyn MetaStore>,
}

impl HardState {
    pub(crate) fn read(&self) -> io::Result<SavedState> {
        Ok(SavedState {
            log: self.get(LOG)?,
            vote: self.get(VOTE)?,
            committed: self.get(COMMITTED)?,
            floor: self.get(FLOOR)?,
            durable: self.get(DURABLE)?,
            start: self.get(START)?,
            doubt: self.get(DOUBT)?,
            scrub: self.get(SCRUB)?.unwrap_or_default(),
            unsynced: self.get(UNSYNCED)?,
            elections: self.get(ELECTIONS)?.unwrap_or_default(),
        })
    }

    /// Sets or clears a record. First ensures that the disk has room for the change.
    pub(crate) fn put<T: Serialize>(&self, key: Key<T>, record: Option<&T>) -> io::Result<()> {
        self.meta.reserve()?;
        match record {
            Some(record) => self.meta.put(key.name, &encode(record)?),
            None => self.meta.remove(key.name),
        }
    }

    /// Durably sets or clears a record.
    pub(crate) fn store<T: Serialize>(&self, key: Key<T>, record: Option<&T>) -> io::Result<()> {
        self.put(key, record)?;
        self.meta.flush()
    }

    fn get<T: DeserializeOwned>(&self, key: Key<T>) -> io::Result<Option<T>> {
        let Some(value) = self.meta.get(key.name)? else {
            return Ok(None);
        };
        decode(&value).map(Some).map_err(|fault| {
            let key = key.name;
            io::Error::new(io::ErrorKind::InvalidData, UnreadableRecord { key, fault })
        })
    }
}

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the hard state's record `{key}` {fault}")]
struct UnreadableRecord {
    key: &'static str,
    fault: RecordFault,
}

#[derive(Debug, thiserror::Error)]
enum RecordFault {
    #[error("is too short")]
    Short,
    #[error("is in {0}")]
    Layout(#[from] FormatMismatch),
    #[error("is damaged: its CRC32C does not fit")]
    Checksum,
    #[error("cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

fn encode<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(record)?;
    let mut value = Vec::with_capacity(PREFIX_LEN + json.len());
    value.push(WRITTEN);
    value.extend_from_slice(&crc32c::crc32c(&json).to_le_bytes());
    value.extend_from_slice(&json);
    Ok(value)
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, RecordFault> {
    let Some((prefix, json)) = value.split_first_chunk::<PREFIX_LEN>() else {
        return Err(RecordFault::Short);
    };
    LAYOUTS.check(FormatVersion(prefix[0].into()))?;
    let expected = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if crc32c::crc32c(json) != expected {
        return Err(RecordFault::Checksum);
    }
    Ok(serde_json::from_slice(json)?)
}

// The interface below the records: a small ordered key-value store. Production uses sled ([`crate::SledMeta`]). Tests use a store that
// loses and tears unflushed data.

/// A store of small values. A `put` or `remove` is durable after the next [`MetaStore::flush`]. Calls become durable in order: after a
/// crash, the store contains the result of all calls up to some point.
pub trait MetaStore: Send + Sync {
    /// The value of a key.
    ///
    /// # Errors
    /// Store errors, damage included.
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>>;

    /// Ensures that the disk has room for the next few calls. If it fails for lack of room, it may be retried; the other calls must not be
    /// retried.
    ///
    /// # Errors
    /// `StorageFull` or `QuotaExceeded` if there is no room; the store is then unchanged. Store errors.
    fn reserve(&self) -> io::Result<()>;

    /// Sets a key's value.
    ///
    /// # Errors
    /// Store errors.
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()>;

    /// Removes a key; no effect if it has no value.
    ///
    /// # Errors
    /// Store errors.
    fn remove(&self, key: &str) -> io::Result<()>;

    /// Makes every earlier call durable.
    ///
    /// # Errors
    /// Store errors; whether the earlier calls are durable is then unknown.
    fn flush(&self) -> io::Result<()>;
}

// [`MetaStore`] over sled: a handful of keys, so the cache is small, and data is flushed only on the store's request.
//
// On Linux, sled 0.34 flushes with `sync_file_range`, which neither flushes the disk's own cache nor stores the file's length. A power cut
// could lose a vote. So each flush here is followed by an `fdatasync` of sled's file.
//
// After the first write error, sled accepts no writes until it is reopened. To prevent such an error on a full disk, blocks are reserved
// after the file's end (`fallocate`), enough for sled's next calls. Each call first checks that they are still reserved. If the file system
// cannot reserve blocks, or is copy-on-write, sled fails on a full disk.
//
// On open, sled writes a snapshot under a temporary name and renames it when complete. A full disk, a kill or a power cut can leave the
// temporary file. At the next start, sled 0.34 reads this file as its newest snapshot, and rejects it as damaged. So the file is removed
// before sled opens.

/// sled's page cache, in bytes; all keys together take a few kilobytes.
const CACHE_BYTES: u64 = 1 << 20;

/// Bytes reserved after the file's end. sled grows by one segment of 512 KiB at a time; each segment has room for hundreds of our records.
const RESERVED_BYTES: u64 = 2 << 20;

/// Name of the file in which sled stores everything.
const SLED_FILE: &str = "db";

/// Prefix of a snapshot's file name, and suffix of an incomplete snapshot's.
const SNAPSHOT: (&str, &str) = ("snap.", ".generating");

/// The hard state in a sled database. sled locks its directory, so a second process that opens the same data directory is refused here.
pub struct SledMeta {
    db: sled::Db,
    file: File,
}

impl SledMeta {
    /// Opens the database in `dir`, or creates it.
    ///
    /// # Errors
    /// `ResourceBusy` if another process has it open, `InvalidData` if sled finds damage. `StorageFull` or `QuotaExceeded` if the disk has
    /// no room for the writes of a start; the database can be opened once there is room.
    pub fn open(dir: &Path) -> io::Result<Self> {
        remove_unfinished_snapshots(dir)?;
        let db = sled::Config::new()
            .path(dir)
            .cache_capacity(CACHE_BYTES)
            .mode(sled::Mode::LowSpace)
            .flush_every_ms(None)
            .open()
            .map_err(plain)?;
        let file = File::options()
            .read(true)
            .write(true)
            .open(dir.join(SLED_FILE))?;
        file.sync_all()?;
        // Make the names that sled has just created durable.
        for dir in [Some(dir), dir.parent()].into_iter().flatten() {
            let named = !dir.as_os_str().is_empty();
            File::open(if named { dir } else { Path::new(".") })?.sync_all()?;
        }
        Ok(Self { db, file })
    }
}

/// Removes incomplete snapshots: sled would reject them as damaged. [`SledMeta::open`] syncs the directory; after a crash before that sync,
/// the next start removes them again.
fn remove_unfinished_snapshots(dir: &Path) -> io::Result<()> {
    let file = match File::options().write(true).open(dir.join(SLED_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    // sled's own lock: its holder may be writing a snapshot.
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another process has it open")
        }
        TryLockError::Error(error) => error,
    })?;
    let (begin, end) = SNAPSHOT;
    for entry in dir.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(begin) && name.ends_with(end) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Returns the original error. For a disk error, sled returns a copy with the original's `Debug` text as message.
fn plain(error: sled::Error) -> io::Error {
    let error = io::Error::from(error);
    let words = error.to_string();
    let code = words.split_once("Os { code: ");
    let code = code.and_then(|(_, rest)| rest.split_once(',')?.0.parse().ok());
    code.map_or(error, io::Error::from_raw_os_error)
}

impl MetaStore for SledMeta {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        let value = self.db.get(key).map_err(plain)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn reserve(&self) -> io::Result<()> {
        let now = self.file.metadata()?;
        // `blocks` counts units of 512 bytes on every file system. sled truncates its file when its last segments are free, which also
        // frees the reserved blocks.
        if now.blocks() * 512 >= now.len() + RESERVED_BYTES {
            return Ok(());
        }
        let wanted = now.len() + 2 * RESERVED_BYTES;
        loop {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, wanted) {
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => return Err(error.into()),
                // The file system cannot reserve blocks.
                Ok(()) | Err(_) => return Ok(()),
            }
        }
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.db.insert(key, value).map_err(plain)?;
        Ok(())
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.db.remove(key).map_err(plain)?;
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.db.flush().map_err(plain)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let mark = DurableMark {
            op_id: OpId::new(2, 7),
            file: FileNumber::FIRST,
            end: 900,
        };
        let value = encode(&mark).unwrap();
        assert_eq!(value[0], WRITTEN);
        assert_eq!(decode::<DurableMark>(&value).unwrap(), mark);
    }

    #[test]
    fn damage_is_reported() {
        let mut value = encode(&OpId::new(2, 7)).unwrap();
        let short = decode::<OpId>(&value[..4]);
        assert!(matches!(short, Err(RecordFault::Short)));
        let last = value.len() - 1;
        value[last] ^= 1;
        let damaged = decode::<OpId>(&value);
        assert!(matches!(damaged, Err(RecordFault::Checksum)));
        value[0] = 9;
        let later = decode::<OpId>(&value);
        assert!(matches!(later, Err(RecordFault::Layout(_))));
    }
}

#[cfg(test)]
mod sled_tests {
    use std::time::Duration;

    use testkit::wait::eventually;

    use super::*;

    #[test]
    fn values_survive_a_new_start_and_a_second_process_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta");
        {
            let meta = SledMeta::open(&path).unwrap();
            meta.put("vote", b"one").unwrap();
            meta.put("vote", b"two").unwrap();
            meta.put("floor", b"gone").unwrap();
            meta.remove("floor").unwrap();
            meta.flush().unwrap();
            let refused = SledMeta::open(&path).err().map(|error| error.kind());
            assert_eq!(refused, Some(io::ErrorKind::ResourceBusy));
        }
        // The lock is on an open file. If another test is starting a process, that process has inherited the file until its exec.
        let open = || SledMeta::open(&path);
        let meta = eventually("the lock is free", Duration::from_secs(5), open).unwrap();
        assert_eq!(meta.get("vote").unwrap(), Some(b"two".to_vec()));
        assert_eq!(meta.get("floor").unwrap(), None);
    }

    #[test]
    fn disk_errors_keep_their_original_text() {
        let refused = || io::Error::from_raw_os_error(5);
        let words = refused().to_string();
        let error = sled::Error::Io(refused());
        let copied = error.clone();
        for error in [copied.clone(), copied, error] {
            let told = plain(error);
            assert_eq!(
                (told.kind(), told.to_string()),
                (refused().kind(), words.clone())
            );
        }
        let other = plain(sled::Error::Io(io::Error::other("no")));
        assert_eq!(other.to_string(), "no");
    }

    /// Reads the file as another process would, without sled's memory. This does not prove that the content is on the disk: only a power
    /// cut shows that.
    #[test]
    fn flushed_values_are_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let meta = SledMeta::open(&dir.path().join("meta")).unwrap();
        meta.put("vote", b"one").unwrap();
        meta.flush().unwrap();
        let copy = dir.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for entry in dir.path().join("meta").read_dir().unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
            }
        }
        let copied = SledMeta::open(&copy).unwrap();
        assert_eq!(copied.get("vote").unwrap(), Some(b"one".to_vec()));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_not_one_that_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        remove_unfinished_snapshots(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join(SLED_FILE)).unwrap();
        assert!(remove_unfinished_snapshots(dir.path()).is_err());
    }

    #[test]
    fn unfinished_snapshots_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta");
        let open = || SledMeta::open(&path);
        let opened = || eventually("the lock is free", Duration::from_secs(5), open).unwrap();
        let meta = opened();
        meta.put("vote", b"one").unwrap();
        meta.flush().unwrap();
        drop(meta);
        for left in [&b""[..], b"half of it", &[7; 10_000]] {
            let unfinished = path.join("snap.FFFFFFFFFFFFFFFF.generating");
            std::fs::write(&unfinished, left).unwrap();
            let meta = opened();
            assert_eq!(meta.get("vote").unwrap(), Some(b"one".to_vec()));
            assert!(!unfinished.exists());
        }
        // sled does read a complete snapshot.
        std::fs::write(path.join("snap.FFFFFFFFFFFFFFFF"), b"half of it").unwrap();
        let damaged = open().err().map(|error| error.kind());
        assert_eq!(damaged, Some(io::ErrorKind::InvalidData));
    }
}
