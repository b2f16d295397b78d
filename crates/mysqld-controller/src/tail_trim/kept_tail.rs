//! A tail that was cut off a server's binlog, as it is kept: a file that stock `mysqlbinlog` reads, and
//! a document that says what it is. Nothing removes them but an operator.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plan::FileOffset;

/// The document of a kept tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimmedTail {
    /// Why it was cut off.
    pub reason: String,
    /// When, in seconds since the epoch.
    pub at: u64,
    /// The server's file that it was cut off.
    pub from: PathBuf,
    /// Where in that file it began.
    pub offset: FileOffset,
    /// Its bytes.
    pub bytes: u64,
    /// Its transactions, in MySQL's text form. The ring had not committed them.
    pub gtids: String,
    /// The file beside this document that holds it, behind the header of the file that it is from.
    pub kept_as: String,
}

const SUFFIX: &str = ".json";
/// The largest document that is read, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;

impl TrimmedTail {
    /// Where the tails of a member's mysqld are kept.
    pub fn directory(member_dir: &Path) -> PathBuf {
        member_dir.join("trimmed").join("mysqld")
    }

    /// The name of its document.
    pub(super) fn document(&self) -> String {
        format!("{}{SUFFIX}", self.kept_as)
    }

    /// The tails that are kept below a member's data directory, the oldest first.
    ///
    /// # Errors
    /// What the disk reports, and documents that cannot be read.
    pub fn list(member_dir: &Path) -> io::Result<Vec<Self>> {
        let directory = Self::directory(member_dir);
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut tails = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                tails.push(read(&path).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?);
            }
        }
        tails.sort_by(|one: &Self, other| (one.at, &one.kept_as).cmp(&(other.at, &other.kept_as)));
        Ok(tails)
    }
}

fn read(path: &Path) -> io::Result<TrimmedTail> {
    if fs::metadata(path)?.len() > MAX_DOCUMENT_BYTES {
        return Err(io::Error::other("it is too large for such a document"));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
