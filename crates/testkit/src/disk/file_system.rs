//! The disk's file system, valid until the next restart.

use std::io;
use std::path::Path;
use std::sync::Arc;

use binlog_store::{FileSystem, StorageFile};

use super::state::{CallFault, DiskState, MountedDisk};

struct FaultyFile {
    disk: MountedDisk,
    inode: u64,
    name: String,
    writable: bool,
}

impl MountedDisk {
    fn file(&self, path: &Path, inode: u64, writable: bool) -> Arc<dyn StorageFile> {
        let mut state = self.disk.lock();
        state.open_files += 1;
        state.most_open_files = state.most_open_files.max(state.open_files);
        drop(state);
        Arc::new(FaultyFile {
            disk: self.clone(),
            inode,
            name: short(path),
            writable,
        })
    }

    fn open_existing(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn StorageFile>> {
        let inode = self.call(
            || format!("open {}", short(path)),
            |state| existing(state, path),
        )?;
        Ok(self.file(path, inode, writable))
    }
}

impl FileSystem for MountedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(|| format!("create_dir {}", short(dir)), |_| Ok(()))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        let inode = self.call(
            || format!("create {}", short(path)),
            |state| {
                if let Some(inode) = state.names.get(path).copied() {
                    state.inode(inode)?.truncate(0);
                    return Ok(inode);
                }
                let inode = state.new_inode();
                state.change_names(vec![(path.to_path_buf(), Some(inode))]);
                Ok(inode)
            },
        )?;
        Ok(self.file(path, inode, true))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.open_existing(path, true)
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        self.open_existing(path, false)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(
            || format!("rename {} to {}", short(from), short(to)),
            |state| {
                let inode = existing(state, from)?;
                let (from, to) = (from.to_path_buf(), to.to_path_buf());
                state.change_names(vec![(from, None), (to, Some(inode))]);
                Ok(())
            },
        )
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(
            || format!("remove {}", short(path)),
            |state| {
                existing(state, path)?;
                state.change_names(vec![(path.to_path_buf(), None)]);
                Ok(())
            },
        )
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.call(
            || format!("sync_dir {}", short(dir)),
            |state| {
                // A member's log has only one directory, so this syncs every name.
                state.pending_names.clear();
                state.durable_names = state.names.clone();
                Ok(())
            },
        )
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.call(
            || format!("list {}", short(dir)),
            |state| {
                Ok(state
                    .names
                    .keys()
                    .filter(|name| name.parent() == Some(dir))
                    .map(|name| short(name))
                    .collect())
            },
        )
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        self.call(
            || format!("free_space {}", short(dir)),
            |state| Ok(state.room().unwrap_or(1 << 40)),
        )
    }
}

impl FaultyFile {
    fn write(&self, state: &mut DiskState, bytes: &[u8], offset: u64) -> io::Result<()> {
        let room = state.room();
        let inode = state.inode(self.inode)?;
        let growth = (offset + bytes.len() as u64).saturating_sub(inode.bytes().len() as u64);
        let missing = room.map_or(0, |room| growth.saturating_sub(room));
        let fits = bytes.len().saturating_sub(missing as usize);
        inode.write(&bytes[..fits], offset as usize);
        if missing > 0 {
            Err(CallFault::NoSpace.error())
        } else {
            Ok(())
        }
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        self.disk.disk.lock().open_files -= 1;
    }
}

impl StorageFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let length = buffer.len();
        self.disk.call(
            || format!("read {length} bytes at {offset} of {}", self.name),
            |state| {
                let bytes = state.inode(self.inode)?.bytes();
                let available = bytes.get(offset as usize..).unwrap_or_default();
                let count = available.len().min(length);
                buffer[..count].copy_from_slice(&available[..count]);
                Ok(count)
            },
        )
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.disk.lock();
        let what = || format!("write {} bytes at {offset} of {}", bytes.len(), self.name);
        let fault = state.admit(self.disk.boot, what)?;
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match fault {
            None => self.write(&mut state, bytes, offset),
            Some(fault) => {
                let stored = if fault == CallFault::NoSpace {
                    bytes.len() / 2
                } else {
                    0
                };
                self.write(&mut state, &bytes[..stored], offset)?;
                Err(fault.error())
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.disk.lock();
        let fault = state.admit(self.disk.boot, || format!("sync {}", self.name))?;
        let lies = state.lies_about_sync;
        let inode = state.inode(self.inode)?;
        match fault {
            Some(fault) => {
                inode.drop_pending();
                return Err(fault.error());
            }
            None if lies => {}
            None => inode.sync(),
        }
        Ok(())
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk.call(
            || format!("truncate {} to {len}", self.name),
            |state| {
                state.inode(self.inode)?.truncate(len as usize);
                Ok(())
            },
        )
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.call(
            || format!("size of {}", self.name),
            |state| Ok(state.inode(self.inode)?.bytes().len() as u64),
        )
    }
}

fn existing(state: &DiskState, path: &Path) -> io::Result<u64> {
    state
        .names
        .get(path)
        .copied()
        .ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn short(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
