//! Disks of real programs that can be frozen, filled and resized while they are written to. What a killed harness left is thawed and
//! unmounted by the next one. They need root, and one of them a loop device.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use crate::bounded_run;
use crate::owner::Owner;

// A disk that can be frozen and filled while programs write to it: an ext4 file system in a file, mounted through a loop device.
// A program that writes to a frozen file system cannot even be killed until it is thawed, so that whoever holds a [`LoopDisk`]
// thaws it before it ends programs; dropping it does so, too.

const LOOPS: &str = "/sys/block";
const IMAGE: &str = "img";
/// What takes the room on a full one.
const FILLER: &str = "filler";
/// The least that is taken at once while it is filled: a block of ext4.
const LEAST: u64 = 4096;

/// A disk that can be frozen and filled while programs write to it. It goes, with what is on it, when this is dropped.
#[derive(Debug)]
pub struct LoopDisk {
    folder: PathBuf,
    image: PathBuf,
    keep: bool,
}

impl LoopDisk {
    /// Mounts an empty one of so many bytes over a folder. Its image lies in `images`, and takes there what is written.
    ///
    /// # Errors
    /// When there is no loop device, or it cannot be mounted here; the message says which.
    pub fn mount(folder: &Path, images: &Path, bytes: u64) -> Result<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        remove_stale()?;
        let name = Owner::this_process()?.name(NUMBER.fetch_add(1, Ordering::Relaxed));
        let image = images.join(name).with_extension(IMAGE);
        File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .with_context(|| format!("cannot make {}", image.display()))?;
        let disk = Self {
            folder: folder.to_owned(),
            image,
            keep: false,
        };
        // Without a journal: what is tried here ends processes and not the machine, and each sync costs half as much.
        let arguments = ["-q", "-F", "-O", "^has_journal", "-m", "0"].map(OsStr::new);
        run(
            "mkfs.ext4",
            &[&arguments[..], &[disk.image.as_os_str()]].concat(),
        )?;
        run(
            "mount",
            &[
                OsStr::new("-o"),
                OsStr::new("loop"),
                disk.image.as_os_str(),
                folder.as_os_str(),
            ],
        )
        .context("no file system can be mounted through a loop device here")?;
        Ok(disk)
    }

    /// Lets the image stay, with what is on the disk, when this is dropped.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Lets nothing be written any more: whoever writes waits, and so does whoever syncs. Reading goes on.
    ///
    /// # Errors
    /// When it cannot be frozen, as when it is frozen already.
    pub fn freeze(&self) -> Result<()> {
        run("fsfreeze", &[OsStr::new("-f"), self.folder.as_os_str()])
    }

    /// Lets writers go on.
    ///
    /// # Errors
    /// When it is not frozen.
    pub fn thaw(&self) -> Result<()> {
        thaw(&self.folder)
    }

    /// Takes all room that is left, so that nothing grows any more. Files that have their blocks already are written to.
    ///
    /// # Errors
    /// When it cannot be written to.
    pub fn fill(&self) -> Result<()> {
        let path = self.folder.join(FILLER);
        let filler = File::options().create(true).append(true).open(&path)?;
        let mut held = filler.metadata()?.len();
        loop {
            let space = statvfs(&self.folder)?;
            // Halved on each refusal: what is free is not always to be had in one piece, and others write meanwhile.
            let mut piece = (space.f_bavail * space.f_frsize).max(LEAST);
            loop {
                match fallocate(&filler, FallocateFlags::empty(), held, piece) {
                    Ok(()) => {
                        held += piece;
                        break;
                    }
                    Err(Errno::NOSPC) if piece > LEAST => piece = (piece / 2).max(LEAST),
                    Err(Errno::NOSPC) => return Ok(()),
                    Err(error) => bail!("cannot fill {}: {error}", self.folder.display()),
                }
            }
        }
    }

    /// Gives the room back that [`Self::fill`] took.
    ///
    /// # Errors
    /// When it was not filled.
    pub fn make_room(&self) -> Result<()> {
        fs::remove_file(self.folder.join(FILLER)).context("this disk was not filled")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // It may not be frozen, nor even be mounted.
        let _ = thaw(&self.folder);
        let _ = unmount(&self.folder);
        if !self.keep {
            let _ = fs::remove_file(&self.image);
        }
    }
}

/// Thaws and unmounts the disks of harnesses that are gone.
fn remove_stale() -> Result<()> {
    let mounts = all()?;
    for entry in fs::read_dir(LOOPS).into_iter().flatten().flatten() {
        let Ok(image) = fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let owner = Path::new(image.trim()).file_stem().and_then(OsStr::to_str);
        if owner
            .and_then(Owner::of)
            .is_none_or(|owner| !owner.is_gone())
        {
            continue;
        }
        let device = Path::new("/dev").join(entry.file_name());
        let of_device = |(source, _): &&(String, PathBuf)| Path::new(source) == device;
        for (_, folder) in mounts.iter().filter(of_device) {
            // Another harness may be doing the same.
            let _ = thaw(folder);
            let _ = unmount(folder);
        }
    }
    Ok(())
}

fn thaw(folder: &Path) -> Result<()> {
    run("fsfreeze", &[OsStr::new("-u"), folder.as_os_str()])
}

// A disk whose size is chosen while programs write to it: a file system in memory. What a killed harness left mounted is
// unmounted by the next one. It needs root.

/// How often a disk that is written to is measured again.
const MOST_TRIES: u32 = 100;

/// A disk whose size is chosen while programs write to it. It goes, with what is on it, when this is dropped.
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
    for (source, folder) in all()? {
        if Owner::of(&source).is_some_and(|owner| owner.is_gone()) {
            // Another harness may be doing the same.
            let _ = unmount(&folder);
        }
    }
    Ok(())
}

// File systems that a harness mounts, and how those of a killed one are found again.

const LIMIT: Duration = Duration::from_secs(30);
const MOUNTS: &str = "/proc/self/mounts";

/// Source and folder of everything that is mounted.
pub(crate) fn all() -> Result<Vec<(String, PathBuf)>> {
    let mounts = fs::read_to_string(MOUNTS).context("cannot read what is mounted")?;
    Ok(parse(&mounts))
}

fn parse(mounts: &str) -> Vec<(String, PathBuf)> {
    let mount = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), PathBuf::from(words.next()?)))
    };
    mounts.lines().filter_map(mount).collect()
}

pub(crate) fn unmount(folder: &Path) -> Result<()> {
    // Lazily: a program that was killed a moment ago may still have a file open. A loop device goes with its mount.
    run("umount", &[OsStr::new("-l"), folder.as_os_str()])
}

/// Runs a program of the system, for a while at most.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    bounded_run::run(program, command, Vec::new(), LIMIT)?
        .into_text(program)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_frozen_disk_lets_writers_wait_and_a_full_one_refuses_them() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("disk");
        fs::create_dir(&folder).unwrap();
        let disk = LoopDisk::mount(&folder, home.path(), 16 << 20).unwrap();
        fs::write(folder.join("held"), "before").unwrap();
        disk.freeze().unwrap();
        let (done, written) = mpsc::channel();
        let theirs = folder.join("waits");
        let writer = thread::spawn(move || {
            fs::write(theirs, "meanwhile").unwrap();
            done.send(()).unwrap();
        });
        let waits = written.recv_timeout(Duration::from_millis(300));
        assert_eq!(fs::read(folder.join("held")).unwrap(), b"before");
        // Before anything is asserted of the writer, which nothing ends otherwise.
        disk.thaw().unwrap();
        assert!(waits.is_err(), "a frozen disk took a write");
        written.recv_timeout(Duration::from_secs(10)).unwrap();
        writer.join().unwrap();

        disk.fill().unwrap();
        let refused = fs::write(folder.join("more"), vec![1; 100_000]).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
        disk.make_room().unwrap();
        fs::write(folder.join("more"), vec![1; 100_000]).unwrap();
        drop(disk);
        assert!(!folder.join("held").exists(), "it is unmounted");
    }
}

#[cfg(test)]
mod small_disk_tests {
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

#[cfg(test)]
mod mounts_tests {
    use super::*;

    #[test]
    fn a_mount_has_a_source_and_a_folder() {
        let mounts =
            "/dev/loop1 /tmp/a ext4 rw 0 0\nnonsense\nwitness-1-2-3 /tmp/x tmpfs rw,size=64k 0 0\n";
        let expected = [("/dev/loop1", "/tmp/a"), ("witness-1-2-3", "/tmp/x")];
        let expected = expected.map(|(source, folder)| (source.to_owned(), folder.into()));
        assert_eq!(parse(mounts), expected);
    }
}
