//! A disk whose size is chosen while programs write to it: a file system in memory. What a killed harness left mounted is
//! unmounted by the next one. It needs root.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use rustix::fs::statvfs;

use crate::mounts::{self, run, unmount};
use crate::owner::Owner;

/// How often a disk that is written to is measured again.
const MOST_TRIES: u32 = 100;

/// See the module. It goes, with what is on it, when this is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts an empty one of so many bytes over a folder.
    ///
    /// # Errors
    /// When it cannot be mounted here.
    pub fn mount(folder: &Path, bytes: u64) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        unmount_stale()?;
        let name = Owner::this_process()?.name(NUMBER.fetch_add(1, Ordering::Relaxed));
        let size = format!("size={bytes}");
        let arguments = ["-t", "tmpfs", "-o", &size, &name].map(OsStr::new);
        run("mount", &[&arguments[..], &[folder.as_os_str()]].concat())?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Changes its size.
    ///
    /// # Errors
    /// When it holds more than that.
    pub fn resize(&self, bytes: u64) -> Result<()> {
        let options = format!("remount,size={bytes}");
        let arguments = ["-o", &options].map(OsStr::new);
        let folder = self.folder.as_os_str();
        run("mount", &[&arguments[..], &[folder]].concat())
    }

    /// Makes it as small as what it holds, so that nothing more can be written.
    ///
    /// # Errors
    /// When its size cannot be changed.
    pub fn fill(&self) -> Result<()> {
        let mut tries = 0;
        loop {
            let space = statvfs(&self.folder)?;
            let held = (space.f_blocks - space.f_bfree) * space.f_frsize;
            tries += 1;
            match self.resize(held) {
                // Somebody wrote in between.
                Err(_) if tries < MOST_TRIES => {}
                done => return done,
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What cannot be unmounted now is stale for the next harness.
        let _ = unmount(&self.folder);
    }
}

/// Unmounts the disks of harnesses that are gone.
fn unmount_stale() -> Result<()> {
    for (source, folder) in mounts::all()? {
        if Owner::of(&source).is_some_and(|owner| owner.is_gone()) {
            // Another harness may be doing the same.
            let _ = unmount(&folder);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn nothing_more_fits_on_a_full_disk_until_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let disk = SmallDisk::mount(folder.path(), 1 << 20).unwrap();
        fs::write(folder.path().join("held"), vec![1; 100_000]).unwrap();
        disk.fill().unwrap();
        let refused = fs::write(folder.path().join("more"), vec![1; 100_000]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
        disk.resize(1 << 20).unwrap();
        fs::write(folder.path().join("more"), vec![1; 100_000]).unwrap();
        drop(disk);
        assert!(!folder.path().join("held").exists(), "it is unmounted");
    }
}
