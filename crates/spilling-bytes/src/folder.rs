//! The folder of large payloads, their total size, and their files. A file is written sequentially, then mapped. It has no name, and only
//! this process ever has it open, so no other process can change or truncate the mapped bytes.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fmt, io, thread};

use bytes::BytesMut;
use filebuffer::FileBuffer;
use rustix::fs::{Mode, OFlags};

/// The prefix of a file's name while it briefly has one.
const NAME: &str = "payload-";
/// If a payload exceeds its announced size, the free space is checked again after this many more bytes.
const CHECK_EVERY: u64 = 64 << 20;

/// The folder for large payloads. Clones refer to the same folder. The default is no folder: all payloads stay in memory.
#[derive(Debug, Clone, Default)]
pub struct SpillFolder(Option<Arc<Folder>>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Bytes on the folder's disk that must stay free.
    reserve: u64,
    /// Total bytes of all files in use.
    bytes: AtomicU64,
    /// Number for the next file name. Names are not reused.
    names: AtomicU64,
    warned: AtomicBool,
}

impl SpillFolder {
    /// Opens the folder at `path`: creates it if it is missing, and removes files that a crash left. A payload gets a file only if the disk
    /// keeps `reserve` bytes free, in addition to the payload's copy elsewhere on the same disk. If the folder cannot be used, a warning is
    /// logged, and payloads stay in memory.
    pub fn open(path: impl Into<PathBuf>, reserve: u64) -> Self {
        let path = path.into();
        let folder = Self(Some(Arc::new(Folder {
            path: path.clone(),
            reserve,
            bytes: AtomicU64::new(0),
            names: AtomicU64::new(0),
            warned: AtomicBool::new(false),
        })));
        match prepare(&path) {
            Ok(()) => folder,
            Err(error) => {
                folder.warn(&error);
                Self::default()
            }
        }
    }

    /// Total bytes of the payloads that are in files now.
    pub fn bytes(&self) -> u64 {
        let bytes = |folder: &Arc<Folder>| folder.bytes.load(Ordering::Relaxed);
        self.0.as_ref().map_or(0, bytes)
    }

    /// Whether all payloads stay in memory.
    pub fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// Logs once that a payload stays in memory.
    pub(crate) fn warn(&self, error: &io::Error) {
        let Some(folder) = &self.0 else {
            return;
        };
        let path = folder.path.display();
        if folder.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(folder = %path, %error, "a large payload stays in memory");
        } else {
            tracing::warn!(
                folder = %path,
                %error,
                "a large transaction is held in memory, because a file in this folder cannot hold it: make room on the disk, or \
                 give the process as much memory as its largest transactions have. Said once"
            );
        }
    }
}

/// Two values are equal if they are the same folder.
impl PartialEq for SpillFolder {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for SpillFolder {}

impl fmt::Display for SpillFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(folder) => folder.path.display().fmt(f),
            None => f.write_str("no folder"),
        }
    }
}

/// Creates the folder, and removes files left by a crash between a file's creation and the removal of its name.
fn prepare(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let ours = entry.file_name().to_string_lossy().starts_with(NAME);
        if ours && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

impl Folder {
    /// A file without a name, for reading and writing.
    fn file(&self) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(&self.path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(file.into()),
            // The file system does not support files without names, so the name is removed immediately. After a crash in between, the next
            // start removes the file.
            Err(_) => {
                let number = self.names.fetch_add(1, Ordering::Relaxed);
                let path = self.path.join(format!("{NAME}{number}"));
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(0o600);
                let file = options.open(&path)?;
                fs::remove_file(&path)?;
                Ok(file)
            }
        }
    }

    /// Checks that the disk has room for this many further bytes of a file, in addition to the payload's bytes that are written elsewhere.
    fn check_room(&self, file: u64, elsewhere: u64) -> io::Result<()> {
        let disk = rustix::fs::statvfs(&self.path)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed = file.saturating_add(elsewhere).saturating_add(self.reserve);
        if free >= needed {
            return Ok(());
        }
        let what = format!(
            "{free} bytes are free, and {needed} are needed, of which {} stay free",
            self.reserve
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, what))
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    counted: Counted,
    /// The size of the payload for which the disk had room.
    room_for: u64,
}

/// Bytes of a file that are included in the folder's total.
#[derive(Debug)]
struct Counted {
    folder: Arc<Folder>,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.folder.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl SpillFile {
    /// Creates a file for a payload of `expected` bytes, which is also written elsewhere on the same disk.
    pub(crate) fn create(folder: &SpillFolder, expected: u64) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is no folder for it");
        let folder = folder.0.clone().ok_or_else(none)?;
        folder.check_room(expected, expected)?;
        Ok(Self {
            file: folder.file()?,
            counted: Counted { folder, bytes: 0 },
            room_for: expected,
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.counted.bytes
    }

    /// Appends bytes. If it fails, the file is unchanged.
    pub(crate) fn write(&mut self, bytes: &[u8], expected: u64) -> io::Result<()> {
        let Counted {
            folder,
            bytes: written,
        } = &mut self.counted;
        if expected > self.room_for {
            let expected = expected + CHECK_EVERY;
            folder.check_room(expected - *written, expected)?;
            self.room_for = expected;
        }
        self.file.write_all_at(bytes, *written)?;
        let added = bytes.len() as u64;
        *written += added;
        folder.bytes.fetch_add(added, Ordering::Relaxed);
        Ok(())
    }

    /// The file's bytes, in memory.
    pub(crate) fn read_back(&self) -> io::Result<BytesMut> {
        let length = usize::try_from(self.len()).map_err(io::Error::other)?;
        let mut bytes = BytesMut::zeroed(length);
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// The file's bytes, mapped. Pages are read on use, and none is locked in memory.
    pub(crate) fn map(self) -> Result<SpilledMap, (Self, io::Error)> {
        // A file without a name can be opened by its descriptor.
        let opened = FileBuffer::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let map = opened.and_then(|map| match map.len() as u64 {
            length if length == self.len() => Ok(map),
            length => Err(io::Error::other(format!(
                "the file has {length} bytes, and {} were written",
                self.len()
            ))),
        });
        match map {
            Ok(map) => Ok(SpilledMap(Some((map, self.counted)))),
            Err(error) => Err((self, error)),
        }
    }
}

/// A mapped file, until it is dropped.
pub(crate) struct SpilledMap(Option<(FileBuffer, Counted)>);

impl AsRef<[u8]> for SpilledMap {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |(map, _)| map)
    }
}

/// Unmapping a gigabyte takes a fraction of a second, and the last user may not be able to wait, so another thread does it.
impl Drop for SpilledMap {
    fn drop(&mut self) {
        let map = self.0.take();
        // If no thread can be created, the map is dropped in this one.
        thread::Builder::new()
            .name("spill-drop".to_owned())
            .spawn(move || drop(map))
            .ok();
    }
}
