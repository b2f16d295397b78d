//! Disks of real programs that can be frozen, filled, and lose their power while they are written to. What a killed harness left
//! is thawed and unmounted by the next one. They need root and a loop device.

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

// An ext4 file system in a file, mounted through a loop device.
// A program that writes to a frozen file system cannot even be killed until it is thawed, so that whoever holds a [`LoopDisk`]
// thaws it before it ends programs; dropping it does so, too.

const LOOPS: &str = "/sys/block";
const IMAGE: &str = "img";
/// What takes the room on a full one.
const FILLER: &str = "filler";
/// The least that is taken at once while it is filled: a block of ext4.
const LEAST: u64 = 4096;

/// A disk that can be frozen and filled, and whose power can be cut, while programs write to it. It goes, with what is on it,
/// when this is dropped.
#[derive(Debug)]
pub struct LoopDisk {
    folder: PathBuf,
    image: PathBuf,
    keep: bool,
    /// Of folder and image, where they have one.
    _home: Option<TempDir>,
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

    /// One that is mounted, with its image, in a temporary folder.
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

    /// Where it is mounted.
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

    /// Forces everything that was written to it, as what a program set up is long before its power goes.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn force(&self) -> Result<()> {
        Ok(syncfs(File::open(&self.folder)?)?)
    }

    /// Cuts its power: what was written and not forced is lost, and whoever reads or writes from now on gets an error. The file
    /// system stops without writing its journal, which is the kernel's own means to test file systems with.
    ///
    /// # Errors
    /// When it cannot be told to.
    pub fn cut_power(&self) -> Result<()> {
        // An ioctl takes a pointer, and perl is on every Debian: `FS_IOC_SHUTDOWN` with `GOING_FLAGS_NOLOGFLUSH`.
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

    /// Gives it power again, with what it had when that was cut. Whoever had a file open there has to have ended, or ends soon.
    ///
    /// # Errors
    /// When somebody has a file open, or it is not mounted again.
    pub fn restore_power(&self) -> Result<()> {
        // What was killed a moment ago may not be gone. Not lazily: two file systems over one image would destroy it.
        eventually("nobody uses the disk", LIMIT, || {
            run("umount", &[self.folder.as_os_str()])
        })?;
        self.attach()
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
