//! The typed records of the hard state: the log's ring, the vote, the committed op id, the purge floor, the durable mark. Further records:
//! possible loss of acknowledged entries, writing without sync, verified files, and a restart of the log. Each value is a layout byte, a
//! CRC32C, and JSON.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use raft_types::{
    DoubtedTail, ElectionNotes, FormatRange, FormatVersion, Membership, MembershipPayload, OpId,
    RingId, Vote,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::format::{FileNumber, LoggedMembership};
use crate::meta::store::MetaStore;

/// The supported layouts of these records; the newest is written. A layout has the number of the format that introduced it.
const LAYOUTS: FormatRange = FormatRange::only(FormatVersion::FIRST);
const WRITTEN: u8 = 1;
const _: () = assert!(WRITTEN as u32 == LAYOUTS.newest().0);
const PREFIX_LEN: usize = 5;

const LOG: &str = "log";
const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const FLOOR: &str = "purge-floor";
const DURABLE: &str = "durable-mark";
const START: &str = "new-start";
const DOUBT: &str = "doubted-tail";
const SCRUB: &str = "verified-files";
const UNSYNCED: &str = "unsynced-run";
const ELECTIONS: &str = "elections";

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
    /// The same membership as its entry's bytes. Records of older versions lack it.
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

/// An entry known to be durable, and its end. Everything before it is durable too, so damage there is never a torn write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DurableMark {
    pub(crate) op_id: OpId,
    pub(crate) file: FileNumber,
    pub(crate) end: u64,
}

/// A closed file by its number and its last entry: with the same last entry it is the same file, whatever happened to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerifiedMark {
    pub(crate) file: FileNumber,
    pub(crate) last: OpId,
}

/// The closed files verified so far, and the progress of the current scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ScrubRecord {
    /// This file, and all present ones before it.
    pub(crate) verified: Option<VerifiedMark>,
    /// The last file that the current scrub has read.
    pub(crate) behind: Option<FileNumber>,
    /// The newest file when the current scrub began. The scrub ends with it, however fast others are written.
    pub(crate) until: Option<FileNumber>,
    /// End of the last scrub, in seconds since the epoch.
    pub(crate) completed_at: Option<u64>,
}

/// The log is being written without sync: entries acknowledged since then may be only in the machine's memory. The record is removed once
/// everything is synced and no more will be written. So its presence at a start shows that the run did not end cleanly.
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
    /// Acknowledged entries may be missing, and the doubt is not resolved yet.
    pub(crate) doubt: Option<DoubtedTail>,
    pub(crate) scrub: ScrubRecord,
    /// The log was written without sync, and the run did not end cleanly. Versions before that feature never set it.
    pub(crate) unsynced: Option<UnsyncedRun>,
    /// The record for the next election.
    pub(crate) elections: ElectionNotes,
}

/// The records in a [`MetaStore`]. A `put` is durable after the next [`HardState::flush`].
#[derive(Clone)]
pub(crate) struct HardState {
    meta: Arc<dyn MetaStore>,
}

impl HardState {
    /// The keys of the records.
    #[cfg(feature = "fuzzing")]
    pub(crate) const KEYS: [&str; 10] = [
        LOG, VOTE, COMMITTED, FLOOR, DURABLE, START, DOUBT, SCRUB, UNSYNCED, ELECTIONS,
    ];

    pub(crate) fn new(meta: Arc<dyn MetaStore>) -> Self {
        Self { meta }
    }

    /// The same records in another wrapper.
    pub(crate) fn through(
        &self,
        wrap: impl FnOnce(Arc<dyn MetaStore>) -> Arc<dyn MetaStore>,
    ) -> Self {
        Self::new(wrap(self.meta.clone()))
    }

    /// Ensures that there is room for the next records. Each `put` does so before it changes any data.
    pub(crate) fn reserve(&self) -> io::Result<()> {
        self.meta.reserve()
    }

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

    pub(crate) fn put_log(&self, record: &LogRecord) -> io::Result<()> {
        self.put(LOG, record)
    }

    pub(crate) fn put_vote(&self, vote: &Vote) -> io::Result<()> {
        self.put(VOTE, vote)
    }

    /// Sets or clears the committed op id.
    pub(crate) fn put_committed(&self, committed: Option<OpId>) -> io::Result<()> {
        match committed {
            Some(committed) => self.put(COMMITTED, &committed),
            None => self.remove(COMMITTED),
        }
    }

    pub(crate) fn put_floor(&self, floor: &PurgeFloor) -> io::Result<()> {
        self.put(FLOOR, floor)
    }

    /// Sets or clears the durable mark.
    pub(crate) fn put_durable(&self, mark: Option<DurableMark>) -> io::Result<()> {
        match mark {
            Some(mark) => self.put(DURABLE, &mark),
            None => self.remove(DURABLE),
        }
    }

    /// Records that the log restarts with a file of this header; `None` once it has.
    pub(crate) fn put_start(&self, header: Option<&Bytes>) -> io::Result<()> {
        match header {
            Some(header) => self.put(START, header),
            None => self.remove(START),
        }
    }

    /// Records that acknowledged entries may be missing; `None` once resolved.
    pub(crate) fn put_doubt(&self, doubt: Option<&DoubtedTail>) -> io::Result<()> {
        match doubt {
            Some(doubt) => self.put(DOUBT, doubt),
            None => self.remove(DOUBT),
        }
    }

    pub(crate) fn put_elections(&self, notes: &ElectionNotes) -> io::Result<()> {
        self.put(ELECTIONS, notes)
    }

    /// Records that the log is written without sync; `None` once all of it is synced.
    pub(crate) fn put_unsynced(&self, run: Option<&UnsyncedRun>) -> io::Result<()> {
        match run {
            Some(run) => self.put(UNSYNCED, run),
            None => self.remove(UNSYNCED),
        }
    }

    pub(crate) fn put_scrub(&self, record: &ScrubRecord) -> io::Result<()> {
        self.put(SCRUB, record)
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.meta.flush()
    }

    fn get<T: DeserializeOwned>(&self, key: &str) -> io::Result<Option<T>> {
        let Some(value) = self.meta.get(key)? else {
            return Ok(None);
        };
        decode(&value).map(Some).map_err(|what| {
            let message = format!("the hard state's record `{key}` {what}");
            io::Error::new(io::ErrorKind::InvalidData, message)
        })
    }

    fn put<T: Serialize>(&self, key: &str, record: &T) -> io::Result<()> {
        self.reserve()?;
        self.meta.put(key, &encode(record)?)
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.reserve()?;
        self.meta.remove(key)
    }
}

fn encode<T: Serialize>(record: &T) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(record)?;
    let mut value = Vec::with_capacity(PREFIX_LEN + json.len());
    value.push(WRITTEN);
    value.extend_from_slice(&crc32c::crc32c(&json).to_le_bytes());
    value.extend_from_slice(&json);
    Ok(value)
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, String> {
    let Some((prefix, json)) = value.split_first_chunk::<PREFIX_LEN>() else {
        return Err("is too short".to_owned());
    };
    let readable = LAYOUTS.check(FormatVersion(prefix[0].into()));
    readable.map_err(|mismatch| format!("is in {mismatch}"))?;
    let expected = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    if crc32c::crc32c(json) != expected {
        return Err("is damaged: its CRC32C does not fit".to_owned());
    }
    serde_json::from_slice(json).map_err(|error| format!("cannot be read: {error}"))
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
        assert_eq!(decode(&value), Ok(mark));
    }

    #[test]
    fn damage_is_told() {
        let mut value = encode(&OpId::new(2, 7)).unwrap();
        assert!(decode::<OpId>(&value[..4]).unwrap_err().contains("short"));
        let last = value.len() - 1;
        value[last] ^= 1;
        assert!(decode::<OpId>(&value).unwrap_err().contains("damaged"));
        value[0] = 9;
        let later = decode::<OpId>(&value).unwrap_err();
        assert!(
            later.contains("format 9") && later.contains("a later version"),
            "{later}"
        );
    }
}
