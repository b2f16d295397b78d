//! The typed records of the hard state: which ring's log this is, the vote, the committed op id, the
//! purge floor, the durable mark, that acknowledged entries may be missing, that the log is written without syncing, which files
//! were read back, and the note that the log begins anew. Each value is a byte for its layout, a CRC32C, and JSON.

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

/// The layouts of these records that are read; the newest is written. A layout has the number of the format that brought it.
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

/// How far the log had come into being.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogStage {
    /// The first file is being made; nothing was ever acknowledged.
    Creating,
    /// Entries may have been acknowledged.
    InUse,
}

/// That there is a log, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogRecord {
    pub(crate) ring: RingId,
    pub(crate) stage: LogStage,
}

/// Up to where entries were purged, and the membership in effect there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredFloor", into = "StoredFloor")]
pub(crate) struct PurgeFloor {
    pub(crate) op_id: OpId,
    /// The last membership entry up to the floor.
    pub(crate) membership: Option<LoggedMembership>,
}

/// A purge floor as its record has it.
#[derive(Serialize, Deserialize)]
struct StoredFloor {
    op_id: OpId,
    membership: Option<(OpId, Membership)>,
    /// The same membership in the bytes of its entry. Records of older versions lack it.
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

/// An entry that is known to be durable, and where it ends. Everything before it is then durable too,
/// so damage there is damage and never a torn write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DurableMark {
    pub(crate) op_id: OpId,
    pub(crate) file: FileNumber,
    pub(crate) end: u64,
}

/// A closed file by its number and its last entry: with the same last entry it is the same file, whatever the log went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerifiedMark {
    pub(crate) file: FileNumber,
    pub(crate) last: OpId,
}

/// Which closed files were read back and found good, and how far the present turn of reading all of them is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ScrubRecord {
    /// This file, and all before it that are there.
    pub(crate) verified: Option<VerifiedMark>,
    /// The last file that the present turn has read.
    pub(crate) behind: Option<FileNumber>,
    /// The newest file when the present turn began: with it the turn ends, however fast others are written.
    pub(crate) until: Option<FileNumber>,
    /// When the last turn ended, in seconds since the epoch.
    pub(crate) completed_at: Option<u64>,
}

/// That the log is being written without syncing: a part of what was acknowledged since then may be in the machine's memory
/// alone. It goes when everything is synced and nothing more will be written, so whoever finds it finds a run that did not end
/// in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnsyncedRun {
    /// In which life of the machine; none where nobody could say.
    pub(crate) boot: Option<String>,
}

/// All records, as they were read at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SavedState {
    pub(crate) log: Option<LogRecord>,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<OpId>,
    pub(crate) floor: Option<PurgeFloor>,
    pub(crate) durable: Option<DurableMark>,
    /// The header of the file with which the log is about to begin anew.
    pub(crate) start: Option<Bytes>,
    /// Acknowledged entries may be missing, and that is not settled yet.
    pub(crate) doubt: Option<DoubtedTail>,
    pub(crate) scrub: ScrubRecord,
    /// The log was written without syncing, and that did not end in order. Versions before that one never say so.
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
    /// Under which keys the records are.
    pub(crate) const KEYS: [&str; 10] = [
        LOG, VOTE, COMMITTED, FLOOR, DURABLE, START, DOUBT, SCRUB, UNSYNCED, ELECTIONS,
    ];

    pub(crate) fn new(meta: Arc<dyn MetaStore>) -> Self {
        Self { meta }
    }

    /// The same records, reached otherwise.
    pub(crate) fn through(
        &self,
        wrap: impl FnOnce(Arc<dyn MetaStore>) -> Arc<dyn MetaStore>,
    ) -> Self {
        Self::new(wrap(self.meta.clone()))
    }

    /// Makes sure that there is room for the next records. Each `put` does so before it changes anything.
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

    /// Sets or forgets the committed op id.
    pub(crate) fn put_committed(&self, committed: Option<OpId>) -> io::Result<()> {
        match committed {
            Some(committed) => self.put(COMMITTED, &committed),
            None => self.remove(COMMITTED),
        }
    }

    pub(crate) fn put_floor(&self, floor: &PurgeFloor) -> io::Result<()> {
        self.put(FLOOR, floor)
    }

    /// Sets or forgets the durable mark.
    pub(crate) fn put_durable(&self, mark: Option<DurableMark>) -> io::Result<()> {
        match mark {
            Some(mark) => self.put(DURABLE, &mark),
            None => self.remove(DURABLE),
        }
    }

    /// Notes that the log begins anew with a file of this header, or that it has begun.
    pub(crate) fn put_start(&self, header: Option<&Bytes>) -> io::Result<()> {
        match header {
            Some(header) => self.put(START, header),
            None => self.remove(START),
        }
    }

    /// Notes that acknowledged entries may be missing, or that this is settled.
    pub(crate) fn put_doubt(&self, doubt: Option<&DoubtedTail>) -> io::Result<()> {
        match doubt {
            Some(doubt) => self.put(DOUBT, doubt),
            None => self.remove(DOUBT),
        }
    }

    pub(crate) fn put_elections(&self, notes: &ElectionNotes) -> io::Result<()> {
        self.put(ELECTIONS, notes)
    }

    /// Notes that the log is written without syncing, or that all of it is synced.
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
