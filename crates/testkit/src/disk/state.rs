//! A disk's contents, counters and planned faults.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use fastrand::Rng;

/// One call to the disk, as the output of a failing test shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCall {
    /// The call's number; the first call has number 1.
    pub number: u64,
    /// The requested operation.
    pub what: String,
}

impl fmt::Display for DiskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.number, self.what)
    }
}

/// A fault to inject into a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The call fails with `ENOSPC`. A write stores its first half before that.
    NoSpace,
    /// The call fails with `EIO`. If it is a sync, the data that it should have made durable is dropped, as on Linux: the data remains
    /// readable until the next start, and a later sync succeeds without it.
    Io,
    /// The call takes this long and then succeeds.
    Slow(Duration),
}

impl CallFault {
    /// Returns the error for the caller.
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::NoSpace => io::Error::from(io::ErrorKind::StorageFull),
            Self::Io | Self::Slow(_) => io::Error::other("input/output error (injected)"),
        }
    }
}

/// A change of names that is not durable yet: the names with their new inodes.
pub(super) type NameOp = Vec<(PathBuf, Option<u64>)>;

#[derive(Clone, Default)]
pub(super) struct DiskState {
    pub(super) calls: u64,
    pub(super) record: Vec<DiskCall>,
    pub(super) keeps_no_record: bool,
    pub(super) faults: BTreeMap<u64, CallFault>,
    pub(super) cut_after: Option<u64>,
    /// The number of restarts. Handles from before the last restart no longer work.
    pub(super) boot: u64,
    pub(super) lies_about_sync: bool,
    /// The number of files open now, and the highest number at the same time.
    pub(super) open_files: usize,
    pub(super) most_open_files: usize,
    pub(super) capacity: Option<u64>,
    /// True if there is no space for the hard state.
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
    /// Counts and records a call. Returns the error with which it fails instead of taking effect, or the fault that the caller must
    /// simulate.
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

    pub(super) fn inode(&mut self, id: u64) -> io::Result<&mut Inode> {
        let inode = self.inodes.get_mut(&id);
        inode.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Changes names. The change becomes durable with the next sync of the directory.
    pub(super) fn change_names(&mut self, op: NameOp) {
        change_names(&mut self.names, op.clone());
        self.pending_names.push(op);
    }

    /// Returns the bytes that all files use.
    pub(super) fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.inodes.get(id))
            .map(|inode| inode.bytes().len() as u64)
            .sum()
    }

    /// Returns the free bytes; `None` without a capacity limit.
    pub(super) fn room(&self) -> Option<u64> {
        Some(self.capacity?.saturating_sub(self.used()))
    }

    /// Invalidates all older handles, and removes the planned faults.
    pub(super) fn restart(&mut self) {
        self.boot += 1;
        self.cut_after = None;
        self.faults.clear();
    }
}

fn change_names(names: &mut BTreeMap<PathBuf, u64>, op: NameOp) {
    for (name, inode) in op {
        match inode {
            Some(inode) => names.insert(name, inode),
            None => names.remove(&name),
        };
    }
}

/// The disk's state, shared by all its users.
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

/// A handle of the disk, which is valid until the next restart.
#[derive(Clone)]
pub(super) struct MountedDisk {
    pub(super) disk: SharedState,
    pub(super) boot: u64,
}

impl MountedDisk {
    pub(super) fn new(disk: SharedState) -> Self {
        let boot = disk.lock().boot;
        Self { disk, boot }
    }

    /// Simulates a call that either fails as a whole or takes effect.
    pub(super) fn call<T>(
        &self,
        what: impl FnOnce() -> String,
        effect: impl FnOnce(&mut DiskState) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.disk.lock();
        match state.admit(self.boot, what)? {
            Some(fault) => Err(fault.error()),
            None => effect(&mut state),
        }
    }
}

// The bytes of one file: the visible bytes, the durable bytes, and the operations in between.

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

impl Inode {
    /// Creates a file whose bytes are all durable.
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

    /// Drops unsynced operations after a failed sync: their data never reaches the disk.
    pub(super) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// Keeps the first pending operations and, if dice are given, a part of the next one. The others are lost.
    fn lose_power(&mut self, dice: &mut Option<Rng>, all: bool) {
        let ops = std::mem::take(&mut self.pending);
        let kept = kept(dice, all, ops.len());
        for op in ops.iter().take(kept) {
            apply(&mut self.durable, op);
        }
        if let (Some(dice), Some(ByteOp::Write { offset, bytes })) = (dice, ops.get(kept)) {
            let arrived = bytes[..dice.usize(0..=bytes.len())].to_vec();
            let (offset, end) = (*offset, offset + bytes.len());
            let tear = dice.u8(0..4);
            if tear > 0 {
                let bytes = arrived;
                apply(&mut self.durable, &ByteOp::Write { offset, bytes });
            }
            if tear == 1 && self.durable.len() < end {
                // The file has its new length. Only the added part is zeroed; existing bytes keep their old value.
                self.durable.resize(end, 0);
            }
        }
        self.visible = self.durable.clone();
    }
}

fn kept(dice: &mut Option<Rng>, all: bool, ops: usize) -> usize {
    match dice {
        Some(dice) => dice.usize(0..=ops),
        None if all => ops,
        None => 0,
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

// The effect of a power cut: a seed determines which pending operations have reached the disk. Pure.

/// How much unsynced data survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Nothing survives: all caches were lost.
    Nothing,
    /// Everything survives: all data had just been written back.
    Everything,
    /// A part survives, chosen for each file: the first writes, the last of them torn at any byte or followed by zeros. Of the changes of
    /// names any survive; of the changes of the hard state, a prefix.
    Seeded(u64),
}

pub(super) fn lose_power(state: &mut DiskState, survival: Survival) {
    let mut dice = match survival {
        Survival::Seeded(seed) => Some(Rng::with_seed(seed)),
        Survival::Nothing | Survival::Everything => None,
    };
    let all = survival == Survival::Everything;

    for inode in state.inodes.values_mut() {
        inode.lose_power(&mut dice, all);
    }

    let mut names = std::mem::take(&mut state.durable_names);
    for op in state.pending_names.drain(..) {
        if dice.as_mut().map_or(all, Rng::bool) {
            change_names(&mut names, op);
        }
    }
    state.durable_names = names.clone();
    state.names = names;

    let kept = kept(&mut dice, all, state.pending_meta.len());
    for (key, value) in state.pending_meta.drain(..).take(kept) {
        match value {
            Some(value) => state.durable_meta.insert(key, value),
            None => state.durable_meta.remove(&key),
        };
    }
    state.meta = state.durable_meta.clone();
}
