//! A disk's contents, counters and planned faults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

/// One call to the disk, as a failing test shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCall {
    /// Its number; the first one is 1.
    pub number: u64,
    /// The requested operation.
    pub what: String,
}

impl fmt::Display for DiskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.number, self.what)
    }
}

/// The fault of a chosen call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// `ENOSPC`; a write first stores its first half.
    NoSpace,
    /// `EIO`. A sync that fails so drops the data that it should have made durable, as Linux does. The data stays readable until the next
    /// start, and a later sync succeeds without it.
    Io,
    /// The call takes this long and then succeeds.
    Slow(Duration),
}

impl CallFault {
    /// The error that the caller gets.
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::NoSpace => io::Error::from(io::ErrorKind::StorageFull),
            Self::Io | Self::Slow(_) => io::Error::other("input/output error (injected)"),
        }
    }
}

/// A name operation that is not durable yet.
#[derive(Debug, Clone)]
pub(super) enum NameOp {
    Link {
        name: PathBuf,
        inode: u64,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        inode: u64,
    },
    Unlink {
        name: PathBuf,
    },
}

#[derive(Clone, Default)]
pub(super) struct DiskState {
    pub(super) calls: u64,
    pub(super) record: Vec<DiskCall>,
    pub(super) keeps_no_record: bool,
    pub(super) faults: BTreeMap<u64, CallFault>,
    pub(super) cut_after: Option<u64>,
    /// Counts restarts: older handles no longer work.
    pub(super) boot: u64,
    pub(super) lies_about_sync: bool,
    /// Open files now, and the most at the same time.
    pub(super) open_files: usize,
    pub(super) most_open_files: usize,
    pub(super) capacity: Option<u64>,
    /// True if the hard state has no space.
    pub(super) refuses_hard_state: bool,
    next_inode: u64,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: BTreeMap<PathBuf, u64>,
    pub(super) durable_names: BTreeMap<PathBuf, u64>,
    pub(super) pending_names: Vec<NameOp>,
    pub(super) meta: BTreeMap<String, Vec<u8>>,
    pub(super) durable_meta: BTreeMap<String, Vec<u8>>,
    pub(super) pending_meta: Vec<(String, Option<Vec<u8>>)>,
}

impl DiskState {
    /// Counts and records a call. Returns the error that replaces its effect, or the fault that the caller must simulate.
    pub(super) fn admit(
        &mut self,
        boot: u64,
        what: impl FnOnce() -> String,
    ) -> io::Result<Option<CallFault>> {
        if boot != self.boot {
            return Err(io::Error::other("this handle is from before the restart"));
        }
        if self.is_off() {
            return Err(io::Error::other("the power is cut"));
        }
        self.calls += 1;
        if !self.keeps_no_record {
            self.record.push(DiskCall {
                number: self.calls,
                what: what(),
            });
        }
        let fault = self.faults.get(&self.calls).copied();
        if let Some(CallFault::Slow(pause)) = fault {
            std::thread::sleep(pause);
            return Ok(None);
        }
        Ok(fault)
    }

    pub(super) fn is_off(&self) -> bool {
        self.cut_after.is_some_and(|last| self.calls >= last)
    }

    pub(super) fn new_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.inodes.insert(self.next_inode, Inode::default());
        self.next_inode
    }

    /// Bytes that the files take, to compare with `capacity`.
    pub(super) fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.inodes.get(id))
            .map(|inode| inode.bytes().len() as u64)
            .sum()
    }
}

/// The state, shared by all users of the disk.
#[derive(Clone, Default)]
pub(super) struct SharedState(Arc<Mutex<DiskState>>);

impl SharedState {
    pub(super) fn of(state: DiskState) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// One file's bytes: the visible ones, the durable ones, and the operations between.

#[derive(Debug, Clone)]
enum ByteOp {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

/// The bytes of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Inode {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// Operations since the last sync, in order.
    pending: Vec<ByteOp>,
}

/// The effect of the write during which the power is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tear {
    /// Only the first bytes arrive.
    Prefix(usize),
    /// The file has its new length, but its growth is zeros after the first bytes.
    PrefixThenZeros(usize),
}

impl Inode {
    /// A file whose bytes are all durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        Self {
            visible: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.visible
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        let op = ByteOp::Write {
            offset,
            bytes: bytes.to_vec(),
        };
        apply(&mut self.visible, &op);
        self.pending.push(op);
    }

    pub(super) fn truncate(&mut self, len: usize) {
        let op = ByteOp::Truncate { len };
        apply(&mut self.visible, &op);
        self.pending.push(op);
    }

    pub(super) fn sync(&mut self) {
        for op in self.pending.drain(..) {
            apply(&mut self.durable, &op);
        }
    }

    /// A failed sync: its data never reaches the disk.
    pub(super) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    pub(super) fn pending_ops(&self) -> usize {
        self.pending.len()
    }

    /// Length of the `op`-th pending operation, when it is a write.
    pub(super) fn pending_write_len(&self, op: usize) -> Option<usize> {
        match self.pending.get(op)? {
            ByteOp::Write { bytes, .. } => Some(bytes.len()),
            ByteOp::Truncate { .. } => None,
        }
    }

    /// The first `kept` pending operations arrive, the next one torn; the rest is lost.
    pub(super) fn lose_power(&mut self, kept: usize, tear: Option<Tear>) {
        let ops: Vec<ByteOp> = self.pending.drain(..).collect();
        for op in ops.iter().take(kept) {
            apply(&mut self.durable, op);
        }
        if let (Some(ByteOp::Write { offset, bytes }), Some(tear)) = (ops.get(kept), tear) {
            let (arrived, zeros) = match tear {
                Tear::Prefix(len) => (len, false),
                Tear::PrefixThenZeros(len) => (len, true),
            };
            let arrived = bytes[..arrived.min(bytes.len())].to_vec();
            apply(
                &mut self.durable,
                &ByteOp::Write {
                    offset: *offset,
                    bytes: arrived,
                },
            );
            let end = offset + bytes.len();
            if zeros && self.durable.len() < end {
                // Only the growth is zeroed: existing bytes keep their old value.
                self.durable.resize(end, 0);
            }
        }
        self.visible = self.durable.clone();
    }
}

fn apply(target: &mut Vec<u8>, op: &ByteOp) {
    match op {
        ByteOp::Truncate { len } => target.resize(*len, 0),
        ByteOp::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if !bytes.is_empty() && target.len() < end {
                target.resize(end, 0);
            }
            if let Some(place) = target.get_mut(*offset..end) {
                place.copy_from_slice(bytes);
            }
        }
    }
}

// The effect of a power cut: a seed chooses, purely, which pending operations arrived.

/// How much unsynced data survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// None of it: all caches were lost.
    Nothing,
    /// All of it: everything had just been written back.
    Everything,
    /// A part, chosen for each file: some writes, the last one torn at any byte or followed by zeros. Any of the names; a prefix of the
    /// hard state's changes.
    Seeded(u64),
}

pub(super) fn lose_power(state: &mut DiskState, survival: Survival) {
    let mut dice = match survival {
        Survival::Seeded(seed) => Some(fastrand::Rng::with_seed(seed)),
        Survival::Nothing | Survival::Everything => None,
    };
    let all = survival == Survival::Everything;

    for inode in state.inodes.values_mut() {
        let ops = inode.pending_ops();
        let (kept, tear) = match &mut dice {
            None => (if all { ops } else { 0 }, None),
            Some(dice) => {
                let kept = dice.usize(0..=ops);
                let tear = inode
                    .pending_write_len(kept)
                    .and_then(|len| choose_tear(dice, len));
                (kept, tear)
            }
        };
        inode.lose_power(kept, tear);
    }

    let mut names = std::mem::take(&mut state.durable_names);
    for op in state.pending_names.drain(..) {
        let arrived = dice.as_mut().map_or(all, fastrand::Rng::bool);
        if !arrived {
            continue;
        }
        match op {
            NameOp::Link { name, inode } => {
                names.insert(name, inode);
            }
            NameOp::Rename { from, to, inode } => {
                names.remove(&from);
                names.insert(to, inode);
            }
            NameOp::Unlink { name } => {
                names.remove(&name);
            }
        }
    }
    state.durable_names = names.clone();
    state.names = names;

    let kept = match &mut dice {
        None => {
            if all {
                state.pending_meta.len()
            } else {
                0
            }
        }
        Some(dice) => dice.usize(0..=state.pending_meta.len()),
    };
    for (key, value) in state.pending_meta.drain(..).take(kept) {
        match value {
            Some(value) => state.durable_meta.insert(key, value),
            None => state.durable_meta.remove(&key),
        };
    }
    state.meta = state.durable_meta.clone();
}

fn choose_tear(dice: &mut fastrand::Rng, len: usize) -> Option<Tear> {
    let arrived = dice.usize(0..=len);
    match dice.u8(0..4) {
        0 => None,
        1 => Some(Tear::PrefixThenZeros(arrived)),
        _ => Some(Tear::Prefix(arrived)),
    }
}
