//! All rows and all values of unique keys, each with its versions.
//!
//! ```text
//! key ─► 3: row   7: row   9: deleted   [uncommitted: row]
//! ```
//!
//! A version's stamp says from when on it is there: its transaction's place in the log, or the number of its commit. What no
//! reader can ask for any more goes when its key is written again, or soon after it was deleted.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use binlog_format::gtid::{Gtid, GtidSet};
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

use crate::memory_database::row::Row;
use applier::backend::{Finished, SessionId};
use applier::transaction::Transaction;

/// The stamp of what is not committed, in a database that stamps at the commit.
pub(super) const UNCOMMITTED: u64 = u64::MAX;

const SHARDS: usize = 64;

/// A key's bytes: table, index, values.
pub(super) type Key = Box<[u8]>;

/// What is wrong with a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Complaint {
    /// Another open transaction has written it.
    Locked,
    /// A later transaction has written it.
    OutOfOrder,
    /// It is there already.
    Duplicate,
    /// It is not there.
    Missing,
    /// It is not what the log says that it was.
    Differs,
    /// Something that this database cannot do.
    CannotDo(&'static str),
}

impl Complaint {
    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Locked => "an open transaction has written the row: it was not safe to write it",
            Self::OutOfOrder => {
                "a later transaction has written the row: it was not safe to write it"
            }
            Self::Duplicate => "a row with this key is there already",
            Self::Missing => "there is no such row",
            Self::Differs => "the row is not what the log says that it was",
            Self::CannotDo(words) => words,
        }
    }
}

/// Who writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writer {
    pub(super) session: SessionId,
    pub(super) stamp: u64,
    /// Nobody reads what was before this stamp.
    pub(super) horizon: u64,
}

#[derive(Debug)]
struct Version {
    stamp: u64,
    row: Option<Row>,
}

#[derive(Debug, Default)]
struct Chain {
    /// In the order of their stamps.
    versions: Vec<Version>,
    /// The session whose uncommitted version is the last.
    owner: Option<SessionId>,
}

#[derive(Debug, Default)]
struct Shard {
    chains: HashMap<Key, Chain, Xxh3DefaultBuilder>,
    /// Deleted keys, with the stamps of their ends.
    deleted: VecDeque<(u64, Key)>,
}

#[derive(Debug)]
pub(super) struct Versions {
    shards: Box<[Mutex<Shard>]>,
}

impl Chain {
    fn at(&self, stamp: u64) -> Option<&Row> {
        let behind = self.versions.partition_point(|one| one.stamp <= stamp);
        self.versions.get(behind.checked_sub(1)?)?.row.as_ref()
    }

    fn put(&mut self, stamp: u64, row: Option<Row>) {
        let behind = self.versions.partition_point(|one| one.stamp <= stamp);
        match behind
            .checked_sub(1)
            .and_then(|last| self.versions.get_mut(last))
        {
            Some(own) if own.stamp == stamp => own.row = row,
            _ => self.versions.insert(behind, Version { stamp, row }),
        }
    }

    /// Drops what was over before the horizon. True when nothing is left.
    fn prune(&mut self, horizon: u64) -> bool {
        let behind = self.versions.partition_point(|one| one.stamp <= horizon);
        if behind > 1 {
            self.versions.drain(..behind - 1);
        }
        if let [only] = self.versions.as_slice()
            && only.row.is_none()
            && only.stamp <= horizon
        {
            self.versions.clear();
        }
        self.versions.is_empty()
    }
}

impl Shard {
    fn bury(&mut self, horizon: u64) {
        while let Some((_, key)) = self.deleted.pop_front_if(|(stamp, _)| *stamp <= horizon) {
            if let Some(chain) = self.chains.get_mut(&key)
                && chain.prune(horizon)
            {
                self.chains.remove(&key);
            }
        }
    }
}

impl Versions {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    /// Writes a key: `decide` gets what is there for the writer, and says what is to be there.
    pub(super) fn write(
        &self,
        key: &Key,
        writer: Writer,
        decide: impl FnOnce(Option<&Row>) -> Result<Option<Row>, Complaint>,
    ) -> Result<(), Complaint> {
        let mut guard = self.shard(key);
        let shard = &mut *guard;
        shard.bury(writer.horizon);
        let chain = match shard.chains.get_mut(key) {
            Some(chain) => chain,
            None => shard.chains.entry(key.clone()).or_default(),
        };
        let result = chain.write(writer, decide);
        match result {
            Ok(deleted) => {
                chain.prune(writer.horizon);
                if deleted && writer.stamp != UNCOMMITTED {
                    shard.deleted.push_back((writer.stamp, key.clone()));
                }
                Ok(())
            }
            Err(complaint) => {
                if chain.versions.is_empty() {
                    shard.chains.remove(key);
                }
                Err(complaint)
            }
        }
    }

    /// Gives the uncommitted version of a key its stamp.
    pub(super) fn commit(&self, key: &Key, stamp: u64) {
        let mut guard = self.shard(key);
        let shard = &mut *guard;
        let Some(chain) = shard.chains.get_mut(key) else {
            return;
        };
        chain.owner = None;
        if let Some(last) = chain.versions.last_mut()
            && last.stamp == UNCOMMITTED
        {
            last.stamp = stamp;
            if last.row.is_none() {
                shard.deleted.push_back((stamp, key.clone()));
            }
        }
    }

    /// Takes the version with this stamp back.
    pub(super) fn take_back(&self, key: &Key, stamp: u64) {
        let mut shard = self.shard(key);
        let Some(chain) = shard.chains.get_mut(key) else {
            return;
        };
        chain.owner = None;
        chain.versions.retain(|one| one.stamp != stamp);
        if chain.versions.is_empty() {
            shard.chains.remove(key);
        }
    }

    /// Loses everything behind `stamp`, and whatever is uncommitted.
    pub(super) fn lose_behind(&self, stamp: u64) {
        for shard in &self.shards {
            let mut shard = locked(shard);
            shard.chains.retain(|_, chain| {
                chain.owner = None;
                chain.versions.retain(|one| one.stamp <= stamp);
                !chain.versions.is_empty()
            });
            shard.deleted.retain(|(deleted, _)| *deleted <= stamp);
        }
    }

    /// A key's row as of a stamp.
    pub(super) fn get(&self, key: &Key, stamp: u64) -> Option<Row> {
        self.shard(key).chains.get(key)?.at(stamp).cloned()
    }

    /// All rows whose keys begin with `prefix`, as of a stamp, in the order of their keys.
    pub(super) fn all(&self, prefix: &[u8], stamp: u64) -> Vec<(Key, Row)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = locked(shard);
            let chains = shard.chains.iter();
            let of_prefix = chains.filter(|(key, _)| key.starts_with(prefix));
            found.extend(
                of_prefix.filter_map(|(key, chain)| Some((key.clone(), chain.at(stamp)?.clone()))),
            );
        }
        found.sort_unstable();
        found
    }

    /// Versions of all keys.
    pub(super) fn count(&self) -> usize {
        let shards = self.shards.iter().map(locked);
        shards
            .map(|shard| {
                shard
                    .chains
                    .values()
                    .map(|chain| chain.versions.len())
                    .sum::<usize>()
            })
            .sum()
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        let hash = Xxh3DefaultBuilder::new().hash_one(key);
        // The map within the shard uses the other end of the hash.
        locked(&self.shards[(hash >> 32) as usize % SHARDS])
    }
}

impl Chain {
    /// Says whether the key is deleted now.
    fn write(
        &mut self,
        writer: Writer,
        decide: impl FnOnce(Option<&Row>) -> Result<Option<Row>, Complaint>,
    ) -> Result<bool, Complaint> {
        if self.owner.is_some_and(|owner| owner != writer.session) {
            return Err(Complaint::Locked);
        }
        let is_late = self
            .versions
            .last()
            .is_some_and(|last| last.stamp > writer.stamp);
        if is_late {
            return Err(Complaint::OutOfOrder);
        }
        let row = decide(self.at(writer.stamp))?;
        let deleted = row.is_none();
        self.put(writer.stamp, row);
        if writer.stamp == UNCOMMITTED {
            self.owner = Some(writer.session);
        }
        Ok(deleted)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A row is written in one step: nobody leaves it half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// What is committed, and what readers see of it.

/// The order of commits.
///
/// ```text
/// AtWrite:   … committed ─► current │ committed, not committed, committed …      by places in the log
/// AtCommit:  … committed ─► current                                              by numbers of commits
/// ```
///
/// Where versions are stamped with places in the log, everything up to `current` is committed (C5's c), and what is
/// committed behind it is not seen, nor kept in a crash. Where a commit gives the stamp, everything that is committed is
/// seen; whether that is a prefix of the log is the applier's concern.
#[derive(Debug)]
pub(super) struct Commits {
    finished: Finished,
    pub(super) executed: GtidSet,
    pub(super) current: u64,
    /// Behind `current`.
    committed: BTreeMap<u64, Gtid>,
    /// Where readers' snapshots were taken last, and how often they were.
    pub(super) point: u64,
    pub(super) points: u64,
    /// Stamps that readers hold, and how many of them.
    readers: BTreeMap<u64, usize>,
}

impl Commits {
    pub(super) fn new(finished: Finished) -> Self {
        Self {
            finished,
            executed: GtidSet::new(),
            current: 0,
            committed: BTreeMap::new(),
            point: 0,
            points: 0,
            readers: BTreeMap::new(),
        }
    }

    /// Transactions are committed as one; `stamp_with` is called with the number of their commit, before readers see it.
    pub(super) fn commit(
        &mut self,
        transactions: &[Arc<Transaction>],
        stamp_with: impl FnOnce(u64),
    ) {
        match self.finished {
            Finished::AtCommit => {
                let current = self.current + transactions.len() as u64;
                stamp_with(current);
                for transaction in transactions {
                    self.executed.add(transaction.gtid);
                }
                self.current = current;
            }
            Finished::AtWrite => {
                for transaction in transactions {
                    self.committed.insert(transaction.seq.0, transaction.gtid);
                }
                while let Some(gtid) = self.committed.remove(&(self.current + 1)) {
                    self.executed.add(gtid);
                    self.current += 1;
                }
            }
        }
    }

    /// Whether all that is committed is a prefix, as far as is known here.
    pub(super) fn is_prefix(&self) -> bool {
        self.committed.is_empty()
    }

    /// Readers' snapshots are taken here.
    pub(super) fn take_point(&mut self) {
        self.point = self.current;
        self.points += 1;
    }

    /// What is committed behind `current` is lost. Returns the last stamp that stays.
    pub(super) fn lose(&mut self) -> u64 {
        self.committed.clear();
        self.current
    }

    /// A reader begins to read at a stamp.
    pub(super) fn pin(&mut self, stamp: u64) {
        *self.readers.entry(stamp).or_default() += 1;
    }

    pub(super) fn unpin(&mut self, stamp: u64) {
        if let Some(count) = self.readers.get_mut(&stamp) {
            *count -= 1;
            if *count == 0 {
                self.readers.remove(&stamp);
            }
        }
    }

    /// Nobody reads what was before this stamp. Before the first point, nobody reads at one.
    pub(super) fn horizon(&self) -> u64 {
        let seen = match self.points {
            0 => self.current,
            _ => self.current.min(self.point),
        };
        self.readers
            .keys()
            .next()
            .map_or(seen, |oldest| seen.min(*oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        Row::of([Some(text.as_bytes())])
    }

    fn writer(stamp: u64, horizon: u64) -> Writer {
        Writer {
            session: SessionId(1),
            stamp,
            horizon,
        }
    }

    #[test]
    fn readers_see_what_was_there_then() {
        let versions = Versions::new();
        let key: Key = b"k".as_slice().into();
        for stamp in [3, 5] {
            let text = stamp.to_string();
            versions
                .write(&key, writer(stamp, 0), |_| Ok(Some(row(&text))))
                .unwrap();
        }
        versions.write(&key, writer(9, 0), |_| Ok(None)).unwrap();
        let at = |stamp| versions.get(&key, stamp);
        assert_eq!(
            [2, 3, 4, 8, 9].map(at),
            [None, Some(row("3")), Some(row("3")), Some(row("5")), None]
        );
        let late = versions.write(&key, writer(4, 0), |_| Ok(None));
        assert_eq!(late, Err(Complaint::OutOfOrder));
    }

    #[test]
    fn what_nobody_reads_any_more_goes() {
        let versions = Versions::new();
        let key: Key = b"k".as_slice().into();
        for stamp in 1..=10 {
            versions
                .write(&key, writer(stamp, stamp - 1), |_| Ok(Some(row("x"))))
                .unwrap();
        }
        assert_eq!(versions.count(), 2);
        versions.write(&key, writer(11, 10), |_| Ok(None)).unwrap();
        for shard in &versions.shards {
            locked(shard).bury(11);
        }
        assert_eq!(versions.count(), 0);
    }

    #[test]
    fn an_open_transaction_locks_what_it_writes() {
        let versions = Versions::new();
        let key: Key = b"k".as_slice().into();
        versions
            .write(&key, writer(UNCOMMITTED, 0), |_| Ok(Some(row("a"))))
            .unwrap();
        let other = Writer {
            session: SessionId(2),
            ..writer(UNCOMMITTED, 0)
        };
        assert_eq!(
            versions.write(&key, other, |_| Ok(None)),
            Err(Complaint::Locked)
        );
        assert_eq!(versions.get(&key, 100), None);
        versions.commit(&key, 7);
        assert_eq!(versions.get(&key, 7), Some(row("a")));
        versions.write(&key, other, |_| Ok(None)).unwrap();
        versions.take_back(&key, UNCOMMITTED);
        assert_eq!(versions.get(&key, 7), Some(row("a")));
        versions.lose_behind(6);
        assert_eq!(versions.count(), 0);
    }
}
