//! What a disk holds, counts and is to do wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::inode::Inode;

/// One call that reached the disk, as it is shown in a failing test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCall {
    /// Its number; the first one is 1.
    pub number: u64,
    /// What was asked for.
    pub what: String,
}

impl fmt::Display for DiskCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {}", self.number, self.what)
    }
}

/// How a chosen call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// `ENOSPC`; a write stores its first half before.
    NoSpace,
    /// `EIO`. A sync that fails so drops what it should have made durable, as Linux does: it stays
    /// readable until the next start, and a later sync succeeds without it.
    Io,
    /// The call takes this long and then succeeds.
    Slow(Duration),
}

impl CallFault {
    /// What the caller is told.
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::NoSpace => io::Error::from(io::ErrorKind::StorageFull),
            Self::Io | Self::Slow(_) => io::Error::other("input/output error (injected)"),
        }
    }
}

/// A name operation that has not been made durable.
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
    /// Counts restarts: a handle from before one is dead.
    pub(super) boot: u64,
    pub(super) lies_about_sync: bool,
    pub(super) capacity: Option<u64>,
    /// Whether there is no room for the hard state.
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
    /// Counts and records a call; the error that it must return instead of taking effect, or the
    /// fault that the caller must play.
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

    /// Bytes that the files take; what `capacity` is compared with.
    pub(super) fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.inodes.get(id))
            .map(|inode| inode.bytes().len() as u64)
            .sum()
    }
}

/// The state, for everybody who holds the disk.
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
