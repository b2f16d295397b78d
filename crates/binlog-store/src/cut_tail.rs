//! Log tails that were truncated although parts of them were committed. The directory `trimmed/`, next to the log, keeps the bytes of each
//! tail and a document that describes it. An operator removes them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use raft_types::OpId;
use serde::{Deserialize, Serialize};

use crate::file_system::{FileSystem, StorageFile, copy_bytes, list_if_any, read_file, write_file};
use crate::format::FileNumber;

/// Maximum size of a document in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;
const SUFFIX: &str = ".json";

/// A truncated part of a log file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutPart {
    /// The original file.
    pub file: FileNumber,
    /// Start offset in that file; 0 if the whole file was removed.
    pub offset: u64,
    /// Number of bytes truncated from this file.
    pub bytes: u64,
    /// Name of the file with the saved bytes, in the document's directory.
    pub kept_as: String,
}

/// A truncated tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CutTail {
    /// Why the tail was truncated, as given by the caller.
    pub reason: String,
    /// Time of the truncation in seconds since the epoch.
    pub at: u64,
    /// The last entry after the truncation; `None` for an empty log.
    pub kept: Option<OpId>,
    /// The first truncated entry.
    pub first: OpId,
    /// The last truncated entry.
    pub last: OpId,
    /// The last entry that had been recorded as committed.
    pub committed: Option<OpId>,
    /// The truncated GTIDs, in MySQL's text form. A mysqld that has them has errant transactions.
    pub gtids: String,
    /// The tail's bytes, in file order.
    pub parts: Vec<CutPart>,
}

impl CutTail {
    /// Returns the tails saved in a data directory, oldest first.
    ///
    /// # Errors
    /// Disk errors, and unreadable documents.
    pub fn list(fs: &dyn FileSystem, data_dir: &Path) -> io::Result<Vec<Self>> {
        let dir = directory(data_dir);
        let names = list_if_any(fs, &dir)?;
        let mut tails: Vec<Self> = Vec::new();
        for name in names.iter().filter(|name| name.ends_with(SUFFIX)) {
            let document = read_file(fs, &dir.join(name), MAX_DOCUMENT_BYTES);
            let tail = document.and_then(|document| Ok(serde_json::from_slice(&document)?));
            tails.push(tail.map_err(|error| {
                let what = format!("{}: {error}", dir.join(name).display());
                io::Error::new(error.kind(), what)
            })?);
        }
        tails.sort_by_key(|tail| (tail.at, tail.first));
        Ok(tails)
    }
}

pub(crate) fn directory(data_dir: &Path) -> PathBuf {
    data_dir.join("trimmed")
}

/// Saves the bytes of the tail's parts, part n from file n of `files`. Then saves the document that describes them.
/// Everything is durable on return.
pub(crate) fn keep(
    fs: &dyn FileSystem,
    data_dir: &Path,
    tail: &CutTail,
    files: &[Arc<dyn StorageFile>],
) -> io::Result<()> {
    let dir = directory(data_dir);
    fs.create_dir(&dir)?;
    fs.sync_dir(data_dir)?;
    // Truncating again after a crash replaces the saved tail.
    let stem = format!("{}-{}", tail.first, tail.last);
    for (part, file) in tail.parts.iter().zip(files) {
        let copy = fs.create(&dir.join(&part.kept_as))?;
        let range = part.offset..part.offset + part.bytes;
        copy_bytes(&**file, range, &*copy, 0)?;
        copy.sync_data()?;
    }
    let temporary = dir.join(format!("{stem}.new"));
    write_file(fs, &temporary, &serde_json::to_vec_pretty(tail)?)?;
    fs.rename(&temporary, &dir.join(format!("{stem}{SUFFIX}")))?;
    fs.sync_dir(&dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::DiskFileSystem;

    /// Bytes per read of a copy; the test copies more than that.
    const COPY_BYTES: usize = 1 << 20;

    fn tail(at: u64, first: OpId) -> CutTail {
        CutTail {
            reason: "a test".to_owned(),
            at,
            kept: None,
            first,
            last: OpId::new(2, 9),
            committed: None,
            gtids: String::new(),
            parts: Vec::new(),
        }
    }

    #[test]
    fn exactly_the_truncated_bytes_are_saved() {
        let data_dir = tempfile::tempdir().unwrap();
        let log = data_dir.path().join("log");
        let bytes: Vec<u8> = (0..3 * COPY_BYTES).map(|at| (at % 251) as u8).collect();
        std::fs::write(&log, &bytes).unwrap();
        let files = [DiskFileSystem.open(&log).unwrap()];
        let (first, end) = (OpId::new(2, 7), 2 * COPY_BYTES + 99);
        let keep = |at, bytes| {
            let part = CutPart {
                file: FileNumber::FIRST,
                offset: 10,
                bytes,
                kept_as: "a part".to_owned(),
            };
            let mut tail = tail(at, first);
            tail.parts.push(part);
            keep(&DiskFileSystem, data_dir.path(), &tail, &files)
        };
        keep(5, end as u64 - 10).unwrap();
        let copy = std::fs::read(directory(data_dir.path()).join("a part")).unwrap();
        assert!(copy == bytes[10..end], "{} bytes", copy.len());
        // If the file is too short, the tail does not count as saved.
        let error = keep(6, bytes.len() as u64 - 9).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_tails_are_listed_from_the_oldest_on() {
        let data_dir = tempfile::tempdir().unwrap();
        let list = || CutTail::list(&DiskFileSystem, data_dir.path());
        assert_eq!(list().unwrap(), []);
        let tails = [(7, 5), (3, 8), (7, 2)].map(|(at, index)| tail(at, OpId::new(1, index)));
        for tail in &tails {
            keep(&DiskFileSystem, data_dir.path(), tail, &[]).unwrap();
        }
        let [late, early, first_of_late] = tails;
        assert_eq!(list().unwrap(), [early, first_of_late, late]);

        let folder = directory(data_dir.path());
        std::fs::write(folder.join("damaged.json"), "{").unwrap();
        assert!(list().unwrap_err().to_string().contains("damaged.json"));
        // An unreadable folder is distinguished from a missing one.
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
        assert_ne!(list().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
