//! The interface below the log: every byte that the store reads or writes goes through [`FileSystem`] and [`StorageFile`]. So tests can cut
//! the power after any single call. All calls block.
//!
//! The interface guarantees exactly what POSIX does: written bytes are durable after [`StorageFile::sync_data`], names are durable after
//! [`FileSystem::sync_dir`], a rename is atomic.

use std::fs::{DirBuilder, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

/// An open file. Shared between the writer and readers.
pub trait StorageFile: Send + Sync {
    /// Reads from `offset` until `buffer` is full or the file ends; returns the number of bytes read.
    ///
    /// # Errors
    /// Disk errors.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes` at `offset`; the file grows as needed. Durable only after [`Self::sync_data`].
    ///
    /// # Errors
    /// Disk errors; a part of `bytes` may then have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written to this file durable, including its length.
    ///
    /// # Errors
    /// Disk errors. Earlier writes may then be lost even if a later call succeeds: the caller must not treat a retry as success.
    fn sync_data(&self) -> io::Result<()>;

    /// Truncates the file to `len` bytes. Durable only after [`Self::sync_data`].
    ///
    /// # Errors
    /// Disk errors.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// The file's length in bytes.
    ///
    /// # Errors
    /// Disk errors.
    fn size(&self) -> io::Result<u64>;
}

/// The directory operations that the store needs.
pub trait FileSystem: Send + Sync {
    /// Creates a directory and its missing parents.
    ///
    /// # Errors
    /// Disk errors.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Creates or truncates a file and opens it for reading and writing.
    ///
    /// # Errors
    /// Disk errors.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// `NotFound` if it does not exist; disk errors.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;

    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// `NotFound` if it does not exist; disk errors.
    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>>;

    /// Renames a file atomically, replacing any file with the new name.
    ///
    /// # Errors
    /// Disk errors.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Open handles stay readable.
    ///
    /// # Errors
    /// `NotFound` if it does not exist; disk errors.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable: creations, renames and removals.
    ///
    /// # Errors
    /// Disk errors; as with [`StorageFile::sync_data`], not to be retried.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names of the files in a directory, unordered.
    ///
    /// # Errors
    /// `NotFound` if the directory does not exist; disk errors.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Bytes that an unprivileged user can still write on the file system of `dir`.
    ///
    /// # Errors
    /// Disk errors.
    fn free_space(&self, dir: &Path) -> io::Result<u64>;

    /// Files that an unprivileged user can still create on the file system of `dir`; `None` without such a limit.
    ///
    /// # Errors
    /// Disk errors.
    fn free_inodes(&self, _dir: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

// The real [`FileSystem`]: positioned reads and writes, `fdatasync`, and `fsync` of directories.

/// The machine's own file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskFileSystem;

struct DiskFile(File);

impl StorageFile for DiskFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self
                .0
                .read_at(&mut buffer[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl FileSystem for DiskFileSystem {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(DiskFile(File::open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // All log files have Unicode names, so other names are skipped.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn free_space(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn free_inodes(&self, dir: &Path) -> io::Result<Option<u64>> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok((stat.f_files > 0).then_some(stat.f_favail))
    }
}

// Functions that several parts of the store share.

/// Bytes per read and write of a copy.
const COPY_BYTES: u64 = 1 << 20;

/// Creates a file with these bytes; durable except for its name.
pub(crate) fn write_file(
    fs: &dyn FileSystem,
    path: &Path,
    bytes: &[u8],
) -> io::Result<Arc<dyn StorageFile>> {
    let file = fs.create(path)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    Ok(file)
}

/// Returns the names in a directory; none if the directory does not exist.
pub(crate) fn list_if_any(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<String>> {
    match fs.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

/// Reads the first `at_most` bytes of a file.
pub(crate) fn read_file(fs: &dyn FileSystem, path: &Path, at_most: u64) -> io::Result<Vec<u8>> {
    let file = fs.open_read_only(path)?;
    let size = usize::try_from(file.size()?.min(at_most));
    read_bytes(&*file, 0, size.unwrap_or_default())
}

/// Reads at most `at_most` bytes starting at an offset; fewer at the file's end.
pub(crate) fn read_bytes(
    file: &dyn StorageFile,
    offset: u64,
    at_most: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; at_most];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Copies a range of bytes to an offset of another file, or of the same file.
pub(crate) fn copy_bytes(
    from: &dyn StorageFile,
    range: Range<u64>,
    to: &dyn StorageFile,
    offset: u64,
) -> io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let bytes = read_bytes(from, at, COPY_BYTES.min(range.end - at) as usize)?;
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_at(&bytes, offset + (at - range.start))?;
        at += bytes.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_log_is_readable_by_its_account_alone() {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("data/log");
        DiskFileSystem.create_dir(&log).unwrap();
        let file = log.join("binlog.000001");
        DiskFileSystem.create(&file).unwrap();
        for (path, expected) in [(&log, 0o700), (&file, 0o600)] {
            let mode = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected, "{}", path.display());
        }
    }
}
