//! Read-only access to a member's log without the member, for the command line's `log` subcommands. A running member may write at the same
//! time, so the last file may end with an unfinished entry.

mod cursor;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use raft_types::{Entry, OpId};

pub use crate::directory::cursor::{EntryCursor, EntryRecord, Followed, Follower, Sought};
pub use crate::directory::verify::{FileDifference, Side, VerifyReport};
use crate::file_system::{DiskFileSystem, FileSystem, StorageFile, list_if_any};
use crate::format::{FileHeader, FileNumber, MarkerKind};
use crate::options::log_dir;
use crate::scan::{
    Corruption, Depth, EntryScanner, Fault, FaultKind, ScanError, Window, scan_header,
};

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The disk reported an error.
    #[error("{0} failed: {1}")]
    Io(String, io::Error),
    /// The directory has no log file.
    #[error("{} has no log files: name a member's data directory, or the directory of its binlog files", .0.display())]
    NoLog(PathBuf),
    /// A file is damaged before its end.
    #[error("{}: {}", .0.display(), .1)]
    Corrupt(PathBuf, Corruption),
    /// A mysqld wrote the file.
    #[error("{} is mysqld's own binlog, not a file of a member's log", .0.display())]
    MysqldsBinlog(PathBuf),
    /// A file was purged while it was being read.
    #[error("{} was purged before it was read", .0.display())]
    Purged(PathBuf),
}

impl DirectoryError {
    /// True for damage, false for a missing or unreadable log.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}

/// A directory of log files.
#[derive(Clone)]
pub struct LogDirectory {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// The only file to read; `None` reads all files.
    only: Option<FileNumber>,
}

/// A file open for reading, with its header.
struct OpenFile {
    file: Arc<dyn StorageFile>,
    header: FileHeader,
    size: u64,
}

impl OpenFile {
    fn scanner(&self) -> EntryScanner {
        EntryScanner::of_file(&self.file, self.size, &self.header)
    }
}

impl LogDirectory {
    /// Opens the log in a member's data directory, or in the directory of the binlog files itself.
    ///
    /// # Errors
    /// [`DirectoryError::NoLog`] if neither has log files.
    pub fn open(fs: Arc<dyn FileSystem>, path: &Path) -> Result<Self, DirectoryError> {
        for dir in [log_dir(path), path.to_path_buf()] {
            let directory = Self::of(fs.clone(), dir);
            if !directory.numbers()?.is_empty() {
                return Ok(directory);
            }
        }
        Err(DirectoryError::NoLog(path.to_path_buf()))
    }

    /// The log in exactly this directory.
    pub(crate) fn of(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Self {
        let only = None;
        Self { fs, dir, only }
    }

    /// Like [`Self::open`], on the machine's file system.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn on_disk(path: &Path) -> Result<Self, DirectoryError> {
        Self::open(Arc::new(DiskFileSystem), path)
    }

    /// Opens one file of a log, on the machine's file system.
    ///
    /// # Errors
    /// The file's name is not that of a log file.
    pub fn of_file(path: &Path) -> Result<Self, DirectoryError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(number) = FileNumber::from_name(&name) else {
            let what = "a file of a log is named as in binlog.000001";
            let error = io::Error::new(io::ErrorKind::InvalidInput, what);
            let doing = format!("opening {}", path.display());
            return Err(DirectoryError::Io(doing, error));
        };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        Ok(Self {
            fs: Arc::new(DiskFileSystem),
            dir: dir.unwrap_or(Path::new(".")).to_owned(),
            only: Some(number),
        })
    }

    /// The directory of the log files. It may be a subdirectory of the path that was opened.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Returns whether a mysqld wrote this file, whatever the file's name. False for unreadable or damaged files.
    pub fn is_mysqlds_binlog(path: &Path) -> bool {
        let Ok(file) = DiskFileSystem.open_read_only(path) else {
            return false;
        };
        let size = file.size().unwrap_or(0);
        let header = scan_header(&mut Window::new(&file, size, Window::LOOKUP_BYTES), None);
        matches!(header, Err(ScanError::Fault(fault)) if fault.kind == FaultKind::MysqldsOwn)
    }

    /// The present files, in order.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn numbers(&self) -> Result<Vec<FileNumber>, DirectoryError> {
        if let Some(only) = self.only {
            return Ok(vec![only]);
        }
        let names = match list_if_any(&*self.fs, &self.dir) {
            // The path names a file, which contains no log files.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Vec::new(),
            other => other.map_err(self.io(format!("listing {}", self.dir.display())))?,
        };
        Ok(FileNumber::sorted(&names))
    }

    /// A file's header.
    ///
    /// # Errors
    /// The header is damaged, or the file cannot be read.
    pub fn header(&self, number: FileNumber) -> Result<FileHeader, DirectoryError> {
        Ok(self.open_file(number)?.header)
    }

    /// Reads the whole entry at a record's position.
    ///
    /// # Errors
    /// The entry is damaged, or the file no longer has it.
    pub fn load(&self, record: &EntryRecord) -> Result<Entry, DirectoryError> {
        let (file, size) = self.open_raw(record.file)?;
        let window = Window::new(&file, size, Window::LOOKUP_BYTES);
        let mut scanner = EntryScanner::new(window, record.file, record.offset, None);
        let scanned = scanner.next_entry();
        let scanned = scanned.map_err(|error| self.scan_error(record.file, error))?;
        let (_, entry) = scanned.ok_or_else(|| {
            let failed = self.io(format!("reading {}", record.file));
            failed(io::ErrorKind::UnexpectedEof.into())
        })?;
        Ok(entry)
    }

    fn path_of(&self, number: FileNumber) -> PathBuf {
        self.dir.join(number.name())
    }

    fn open_raw(&self, number: FileNumber) -> Result<(Arc<dyn StorageFile>, u64), DirectoryError> {
        self.open_raw_at(&self.path_of(number))
    }

    fn open_raw_at(&self, path: &Path) -> Result<(Arc<dyn StorageFile>, u64), DirectoryError> {
        let file = self
            .fs
            .open_read_only(path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => DirectoryError::Purged(path.to_path_buf()),
                _ => self.io(format!("opening {}", path.display()))(error),
            })?;
        let size = file
            .size()
            .map_err(self.io(format!("reading {}", path.display())))?;
        Ok((file, size))
    }

    fn open_file(&self, number: FileNumber) -> Result<OpenFile, DirectoryError> {
        self.open_file_at(number, &self.path_of(number))
    }

    fn open_file_at(&self, number: FileNumber, path: &Path) -> Result<OpenFile, DirectoryError> {
        let (file, size) = self.open_raw_at(path)?;
        let mut window = Window::new(&file, size, Window::LOOKUP_BYTES);
        let header = scan_header(&mut window, Some(number));
        let header = header.map_err(|error| self.scan_error(number, error))?;
        Ok(OpenFile { file, header, size })
    }

    fn io(&self, doing: String) -> impl FnOnce(io::Error) -> DirectoryError + use<> {
        move |source| DirectoryError::Io(doing, source)
    }

    fn scan_error(&self, file: FileNumber, error: ScanError) -> DirectoryError {
        match error {
            ScanError::Fault(fault) if fault.kind == FaultKind::MysqldsOwn => {
                DirectoryError::MysqldsBinlog(self.path_of(file))
            }
            ScanError::Fault(fault) => {
                DirectoryError::Corrupt(self.path_of(file), Corruption { file, fault })
            }
            ScanError::Io { source, .. } => self.io(format!("reading {file}"))(source),
        }
    }
}

// The content of each file.

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileListing {
    /// The file's number in the log.
    pub file: FileNumber,
    /// The file's size in bytes when it was listed.
    pub size: u64,
    /// The first entry; `None` while the file has none.
    pub first: Option<OpId>,
    /// The last entry; `None` while the file has none.
    pub last: Option<OpId>,
    /// Number of entries in the file.
    pub entries: u64,
    /// Times of the first and the last entry with a timestamp, in seconds since the epoch.
    pub times: Option<(u32, u32)>,
    /// All GTIDs of the files before it.
    pub previous_gtids: GtidSet,
    /// The GTIDs of the file's own transactions.
    pub gtids: GtidSet,
    /// Whether the file ends with a rotate entry.
    pub closed: bool,
    /// Why the list of entries ends early: an unfinished write at the end of the last file, or damage.
    pub fault: Option<Fault>,
}

impl LogDirectory {
    /// Lists the files from their markers and GTID events; payloads are not verified. Files purged during the call are omitted.
    ///
    /// # Errors
    /// A file cannot be read or has no header. Damage after the header is no error: the listing reports it.
    pub fn files(&self) -> Result<Vec<FileListing>, DirectoryError> {
        let mut listings = Vec::new();
        for number in self.numbers()? {
            match self.list_file(number) {
                Ok(listing) => listings.push(listing),
                Err(DirectoryError::Purged(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(listings)
    }

    fn list_file(&self, number: FileNumber) -> Result<FileListing, DirectoryError> {
        let open = self.open_file(number)?;
        let mut listing = FileListing {
            file: number,
            size: open.size,
            first: None,
            last: None,
            entries: 0,
            times: None,
            previous_gtids: open.header.previous_gtids.clone(),
            gtids: GtidSet::new(),
            closed: false,
            fault: None,
        };
        let mut scanner = open.scanner();
        loop {
            let entry = match scanner.next(Depth::FirstEvent) {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(listing),
                Err(ScanError::Fault(fault)) => {
                    listing.fault = Some(fault);
                    return Ok(listing);
                }
                Err(error) => return Err(self.scan_error(number, error)),
            };
            listing.first.get_or_insert(entry.op_id);
            listing.last = Some(entry.op_id);
            listing.entries += 1;
            listing.closed = entry.marker.kind == MarkerKind::Rotate;
            if entry.timestamp != 0 {
                let first = listing.times.map_or(entry.timestamp, |(first, _)| first);
                listing.times = Some((first, entry.timestamp));
            }
            listing.gtids.extend(entry.content.gtid());
        }
    }
}
