//! The folder of the files, and their total size.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fmt, io};

use rustix::fs::{Mode, OFlags};

/// The prefix of a file's name while it briefly has one.
const NAME: &str = "payload-";

/// The folder for large payloads; clones are the same folder. The default is none: all payloads stay in memory.
#[derive(Debug, Clone, Default)]
pub struct SpillFolder(Option<Arc<Folder>>);

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Bytes of its disk that always stay free.
    reserve: u64,
    /// The total of all files in use.
    bytes: AtomicU64,
    /// The number for the next file name; names are not reused.
    names: AtomicU64,
    warned: AtomicBool,
}

impl SpillFolder {
    /// The folder at `path`: creates it if missing, and removes files that a crash left. A payload gets a file only while the disk
    /// keeps `reserve` bytes free, in addition to the payload's copy elsewhere on the disk. If the folder cannot be used, payloads
    /// stay in memory, and a warning is logged.
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

    /// Bytes of the payloads in files now.
    pub fn bytes(&self) -> u64 {
        let bytes = |folder: &Arc<Folder>| folder.bytes.load(Ordering::Relaxed);
        self.0.as_ref().map_or(0, bytes)
    }

    /// Whether all payloads stay in memory.
    pub fn is_off(&self) -> bool {
        self.0.is_none()
    }

    /// A file without a name, for reading and writing.
    pub(crate) fn file(&self) -> io::Result<File> {
        let folder = self.folder()?;
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(&folder.path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(file.into()),
            // The file system does not support it: the name is removed immediately; after a crash, the next start removes it.
            Err(_) => {
                let number = folder.names.fetch_add(1, Ordering::Relaxed);
                let path = folder.path.join(format!("{NAME}{number}"));
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).mode(0o600);
                let file = options.open(&path)?;
                fs::remove_file(&path)?;
                Ok(file)
            }
        }
    }

    /// Whether the disk has room for this many further bytes of a file, in addition to the payload's bytes written elsewhere.
    pub(crate) fn check_room(&self, file: u64, elsewhere: u64) -> io::Result<()> {
        let folder = self.folder()?;
        let disk = rustix::fs::statvfs(&folder.path)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let needed = file
            .saturating_add(elsewhere)
            .saturating_add(folder.reserve);
        if free >= needed {
            return Ok(());
        }
        let what = format!(
            "{free} bytes are free, and {needed} are needed, of which {} stay free",
            folder.reserve
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, what))
    }

    pub(crate) fn add(&self, bytes: u64) {
        if let Some(folder) = &self.0 {
            folder.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, bytes: u64) {
        if let Some(folder) = &self.0 {
            folder.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
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

    fn folder(&self) -> io::Result<&Folder> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "there is no folder for it");
        self.0.as_deref().ok_or_else(none)
    }
}

/// Equal if they are the same folder.
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
