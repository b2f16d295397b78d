//! Disks for real programs. They can be frozen, filled and cut from power while programs write to them. If a harness is killed, the next
//! one thaws and unmounts its disks. Requires root and a loop device.

use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{FallocateFlags, fallocate, statvfs, syncfs};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::bounded_run;
use crate::owner::Owner;
use crate::wait::eventually;

// A disk is an ext4 file system in a file, mounted through a loop device. A program that writes to a frozen file system cannot even be
// killed before the thaw. The owner of a [`LoopDisk`] therefore thaws it before it ends programs. Dropping it also thaws it.

const LOOPS: &str = "/sys/block";
const IMAGE: &str = "img";
/// The file that fills a disk.
const FILLER: &str = "filler";
/// The smallest write of the filler: a block of ext4.
const LEAST: u64 = 4096;

/// A disk that can be frozen, filled and cut from power while programs write to it. Dropping it removes the disk and its contents.
#[derive(Debug)]
pub struct LoopDisk {
    folder: PathBuf,
    image: PathBuf,
    keep: bool,
    /// The temporary folder of mount point and image, if there is one.
    _home: Option<TempDir>,
}

impl LoopDisk {
    /// Mounts an empty disk of this many bytes over a folder. Its image is in `images`, and uses space there only for written blocks.
    ///
    /// # Errors
    /// If there is no loop device, or the mount fails; the message names the cause.
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
            _home: None,
        };
        let arguments = ["-q", "-F", "-m", "0"].map(OsStr::new);
        run(
            "mkfs.ext4",
            &[&arguments[..], &[disk.image.as_os_str()]].concat(),
        )?;
        disk.attach()?;
        Ok(disk)
    }

    /// Mounts a disk in a temporary folder, which also contains its image.
    ///
    /// # Errors
    /// As for [`Self::mount`].
    pub fn of_its_own(bytes: u64) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("disk-").tempdir()?;
        let folder = home.path().join("disk");
        fs::create_dir(&folder)?;
        let mut disk = Self::mount(&folder, home.path(), bytes)?;
        disk._home = Some(home);
        Ok(disk)
    }

    /// Returns the mount point.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn attach(&self) -> Result<()> {
        let arguments = ["-o", "loop"].map(OsStr::new);
        let image_and_folder = [self.image.as_os_str(), self.folder.as_os_str()];
        run("mount", &[arguments, image_and_folder].concat())
            .context("no file system can be mounted through a loop device here")
    }

    /// Syncs everything written to the disk, because in production a program's setup is synced long before a power cut.
    ///
    /// # Errors
    /// If the sync fails.
    pub fn force(&self) -> Result<()> {
        Ok(syncfs(File::open(&self.folder)?)?)
    }

    /// Cuts the power: unsynced writes are lost, and reads and writes fail from now on. Uses the kernel's own test facility, with which
    /// the file system stops without writing its journal.
    ///
    /// # Errors
    /// If the ioctl fails.
    pub fn cut_power(&self) -> Result<()> {
        // Perl is on every Debian, and can pass a pointer to an ioctl: `FS_IOC_SHUTDOWN` with `GOING_FLAGS_NOLOGFLUSH`.
        const STOP: &str = r#"
            open(my $folder, "<", $ARGV[0]) or die "$!\n";
            my $flags = pack("I", 2);
            ioctl($folder, 0x8004587d, $flags) or die "$!\n";
        "#;
        let arguments = ["-e", STOP].map(OsStr::new);
        run(
            "perl",
            &[&arguments[..], &[self.folder.as_os_str()]].concat(),
        )
    }

    /// Restores the power, with the contents at the cut. Processes with open files on the disk must have ended, or must end within
    /// `LIMIT`.
    ///
    /// # Errors
    /// If a process still has a file open, or the mount fails.
    pub fn restore_power(&self) -> Result<()> {
        // A process that was just killed may still exist. Not a lazy unmount: two file systems over one image would destroy it.
        eventually("no process uses the disk", LIMIT, || {
            run("umount", &[self.folder.as_os_str()])
        })?;
        self.attach()
    }

    /// Keeps the image and its contents when the disk is dropped.
    pub fn keep(&mut self) {
        self.keep = true;
    }

    /// Blocks all writes and syncs until the thaw. Reads continue.
    ///
    /// # Errors
    /// If the disk cannot be frozen, for example because it is frozen already.
    pub fn freeze(&self) -> Result<()> {
        run("fsfreeze", &[OsStr::new("-f"), self.folder.as_os_str()])
    }

    /// Unblocks writers.
    ///
    /// # Errors
    /// If the disk is not frozen.
    pub fn thaw(&self) -> Result<()> {
        thaw(&self.folder)
    }

    /// Allocates all free space, so that no file can grow. Files with allocated blocks can still be overwritten.
    ///
    /// # Errors
    /// If the write fails.
    pub fn fill(&self) -> Result<()> {
        let path = self.folder.join(FILLER);
        let filler = File::options().create(true).append(true).open(&path)?;
        let mut held = filler.metadata()?.len();
        loop {
            let space = statvfs(&self.folder)?;
            // Halved on each refusal, because free space is not always contiguous, and other processes write at the same time.
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

    /// Frees the space that [`Self::fill`] took.
    ///
    /// # Errors
    /// If the disk was not filled.
    pub fn make_room(&self) -> Result<()> {
        fs::remove_file(self.folder.join(FILLER)).context("this disk was not filled")
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // The disk may not be frozen, or not even mounted.
        let _ = thaw(&self.folder);
        let _ = unmount(&self.folder);
        if !self.keep {
            let _ = fs::remove_file(&self.image);
        }
    }
}

/// Thaws and unmounts the disks of harnesses that have ended.
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

// File systems mounted by a harness, and the search for those of a killed harness.

const LIMIT: Duration = Duration::from_secs(30);
const MOUNTS: &str = "/proc/self/mounts";

/// Returns the source and folder of every mount.
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
    // A lazy unmount: a program that was just killed may still have a file open. The loop device is removed with its mount.
    run("umount", &[OsStr::new("-l"), folder.as_os_str()])
}

/// Runs a system program with a time limit.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    bounded_run::text(program, command, LIMIT).map(drop)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
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
            fs::write(theirs, "during it").unwrap();
            done.send(()).unwrap();
        });
        let waits = written.recv_timeout(Duration::from_millis(300));
        assert_eq!(fs::read(folder.join("held")).unwrap(), b"before");
        // Thaw before any assertion about the writer, since nothing else ends the writer.
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

    #[test]
    fn a_disk_without_power_loses_what_was_not_forced_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("disk");
        fs::create_dir(&folder).unwrap();
        let disk = LoopDisk::mount(&folder, home.path(), 64 << 20).unwrap();
        let path = folder.join("file");
        fs::write(&path, "forced").unwrap();
        disk.force().unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b" and not").unwrap();
        fs::write(folder.join("new"), "not").unwrap();
        disk.cut_power().unwrap();
        assert!(file.write_all(b"later").is_err() || file.sync_all().is_err());
        drop(file);
        disk.restore_power().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"forced");
        assert!(!folder.join("new").exists());
        fs::write(&path, "again").unwrap();
        disk.force().unwrap();
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
