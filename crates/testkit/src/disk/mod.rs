//! An in-memory disk with injected faults. It has the file system and the hard state of one member.
//!
//! Every call is counted and recorded. The power can be cut after any call; a seed then decides whether unsynced data is lost, kept or
//! torn. Single calls can fail. The disk can be full, report false successes of syncs, and corrupt stored bytes.

mod file_system;
mod state;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};

use binlog_store::{FileSystem, MetaStore};

pub use crate::disk::state::{CallFault, DiskCall, Survival};
use crate::disk::state::{DiskState, Inode, MountedDisk, SharedState};

/// A faulty disk. Clones share one disk.
#[derive(Clone, Default)]
pub struct FaultyDisk {
    shared: SharedState,
}

impl FaultyDisk {
    /// An empty disk without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.shared.lock()
    }

    /// Returns the file system, valid until the next restart.
    #[must_use]
    pub fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::new(MountedDisk::new(self.shared.clone()))
    }

    /// Returns the hard state, valid until the next restart.
    #[must_use]
    pub fn meta(&self) -> Arc<dyn MetaStore> {
        Arc::new(MountedDisk::new(self.shared.clone()))
    }

    /// Returns another disk with the same contents, faults and unsynced changes.
    #[must_use]
    pub fn fork(&self) -> Self {
        let mut state = self.state().clone();
        // The open files belong to the original disk.
        (state.open_files, state.most_open_files) = (0, 0);
        Self {
            shared: SharedState::of(state),
        }
    }

    /// Returns the highest number of files open at the same time since the previous call of this function.
    pub fn most_open_files(&self) -> usize {
        let mut state = self.state();
        let now = state.open_files;
        std::mem::replace(&mut state.most_open_files, now)
    }

    /// The number of calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Every call so far.
    #[must_use]
    pub fn record(&self) -> Vec<DiskCall> {
        self.state().record.clone()
    }

    /// Stops recording calls, for long runs over many disks.
    pub fn stop_recording(&self) {
        let mut state = self.state();
        state.keeps_no_record = true;
        state.record.clear();
    }

    /// Cuts the power after the call with this number has taken effect; later calls fail.
    pub fn cut_power_after(&self, number: u64) {
        self.state().cut_after = Some(number);
    }

    /// True if the power was cut.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().is_off()
    }

    /// Injects a fault into the call with this number.
    pub fn fail_call(&self, number: u64, fault: CallFault) {
        self.state().faults.insert(number, fault);
    }

    /// Removes all planned faults and the planned power cut. If the power is already off, it stays off.
    pub fn forget_faults(&self) {
        let mut state = self.state();
        state.faults.clear();
        if !state.is_off() {
            state.cut_after = None;
        }
    }

    /// Limits how much all files together may still grow, in bytes.
    pub fn leave_room(&self, bytes: u64) {
        let mut state = self.state();
        state.capacity = Some(state.used() + bytes);
    }

    /// Limits the size of all files together; `None` for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Sets whether reservations of space for the hard state fail.
    pub fn refuse_hard_state(&self, refuses: bool) {
        self.state().refuses_hard_state = refuses;
    }

    /// Sets whether file syncs report success without doing anything. A crash test must detect such a disk.
    pub fn lie_about_sync(&self, lies: bool) {
        self.state().lies_about_sync = lies;
    }

    /// Simulates that the machine loses power and restarts; `survival` decides which unsynced data survives. Faults and the planned cut
    /// are removed, and older handles no longer work.
    pub fn power_cycle(&self, survival: Survival) {
        let mut state = self.state();
        state::lose_power(&mut state, survival);
        state.restart();
    }

    /// Simulates that the process restarts on a running machine: all written data remains, synced or not. Faults and the planned cut
    /// are removed, and older handles no longer work.
    pub fn restart_process(&self) {
        self.state().restart();
    }

    /// Returns the names of the files below `dir`, in order.
    #[must_use]
    pub fn files(&self, dir: &Path) -> Vec<PathBuf> {
        self.state()
            .names
            .keys()
            .filter(|name| name.starts_with(dir))
            .cloned()
            .collect()
    }

    /// Returns a file's bytes, without counting a call.
    #[must_use]
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.names.get(path)?;
        Some(state.inodes.get(inode)?.bytes().to_vec())
    }

    /// Sets a file's bytes durably, without counting a call.
    pub fn set_contents(&self, path: &Path, bytes: Vec<u8>) {
        let mut state = self.state();
        let inode = match state.names.get(path) {
            Some(inode) => *inode,
            None => state.new_inode(),
        };
        state.names.insert(path.to_path_buf(), inode);
        state.durable_names.insert(path.to_path_buf(), inode);
        state.inodes.insert(inode, Inode::durable(bytes));
    }

    /// Removes a file durably, without counting a call.
    pub fn delete(&self, path: &Path) {
        let mut state = self.state();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    /// Flips one bit of a file durably. Returns false if the offset is past the end of the file.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> bool {
        let Some(mut bytes) = self.contents(path) else {
            return false;
        };
        let Some(byte) = bytes.get_mut(offset as usize) else {
            return false;
        };
        *byte ^= 1 << (bit % 8);
        self.set_contents(path, bytes);
        true
    }

    /// Copies the visible hard state of another disk to this one, durably, as when a copy is restored.
    pub fn copy_meta_from(&self, other: &Self) {
        let meta = other.state().meta.clone();
        let mut state = self.state();
        state.pending_meta.clear();
        state.durable_meta = meta.clone();
        state.meta = meta;
    }

    /// Copies the visible files of another disk below `dir` to this one, durably, as when a copy is restored.
    pub fn copy_files_from(&self, other: &Self, dir: &Path) {
        for path in self.files(dir) {
            self.delete(&path);
        }
        for path in other.files(dir) {
            self.set_contents(&path, other.contents(&path).unwrap_or_default());
        }
    }
}

// The disk's hard state, valid until the next restart.

/// Checks whether there is space for more of the hard state. Without space, a write that was not reserved fails.
fn room_for_hard_state(state: &DiskState) -> io::Result<()> {
    match state.refuses_hard_state {
        true => Err(CallFault::NoSpace.error()),
        false => Ok(()),
    }
}

impl MetaStore for MountedDisk {
    fn get(&self, key: &str) -> io::Result<Option<Vec<u8>>> {
        self.call(
            || format!("meta get {key}"),
            |state| Ok(state.meta.get(key).cloned()),
        )
    }

    /// Not counted as a call: only calls after which the power can be cut are counted.
    fn reserve(&self) -> io::Result<()> {
        room_for_hard_state(&self.disk.lock())
    }

    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.call(
            || format!("meta put {key}"),
            |state| {
                room_for_hard_state(state)?;
                state.meta.insert(key.to_owned(), value.to_vec());
                state
                    .pending_meta
                    .push((key.to_owned(), Some(value.to_vec())));
                Ok(())
            },
        )
    }

    fn remove(&self, key: &str) -> io::Result<()> {
        self.call(
            || format!("meta remove {key}"),
            |state| {
                room_for_hard_state(state)?;
                state.meta.remove(key);
                state.pending_meta.push((key.to_owned(), None));
                Ok(())
            },
        )
    }

    fn flush(&self) -> io::Result<()> {
        self.call(
            || "meta flush".to_owned(),
            |state| {
                state.pending_meta.clear();
                state.durable_meta = state.meta.clone();
                Ok(())
            },
        )
    }
}
