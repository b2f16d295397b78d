//! The binlog files of a member as bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use anyhow::{Context, Result};

/// The contents of one `log/` folder: every `binlog.*` file, including the index.
#[derive(Clone, PartialEq, Eq)]
pub struct LogFiles {
    folder: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
}

impl LogFiles {
    /// Reads the files of a `log/` folder.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(folder: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        for entry in
            fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
        {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("binlog.") {
                match fs::read(entry.path()) {
                    Ok(bytes) => files.insert(name, bytes),
                    // The file was purged since the listing, or is an index that was being
                    // replaced.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => {
                        let what = format!("cannot read {}", entry.path().display());
                        return Err(error).context(what);
                    }
                };
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            files,
        })
    }

    /// Returns the paths of the binlog files, oldest first, without the index.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files
            .keys()
            .filter(|name| *name != "binlog.index")
            .map(|name| self.folder.join(name))
            .collect()
    }

    /// Returns the total size of the files in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// Describes the first byte, in file order, that `other` lacks or that differs in `other`.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<String> {
        let names: BTreeSet<_> = self.files.keys().chain(other.files.keys()).collect();
        names.into_iter().find_map(|name| {
            let (Some(mine), Some(theirs)) = (self.files.get(name), other.files.get(name)) else {
                return Some(format!("only one has {name}"));
            };
            (mine != theirs).then(|| {
                let lengths = (mine.len(), theirs.len());
                let at = mine.iter().zip(theirs).position(|(a, b)| a != b);
                let at = at.unwrap_or(lengths.0.min(lengths.1));
                format!("{name} at offset {at} (lengths {lengths:?})")
            })
        })
    }
}

impl fmt::Debug for LogFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files, {} bytes in {}",
            self.files.len(),
            self.bytes(),
            self.folder.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> LogFiles {
        let files = files
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.as_bytes().to_vec()))
            .collect();
        LogFiles {
            folder: PathBuf::new(),
            files,
        }
    }

    #[test]
    fn a_difference_names_file_and_offset() {
        let left = files(&[("binlog.000001", "same"), ("binlog.000002", "abcd")]);
        assert_eq!(left.first_difference(&left), None);
        let right = files(&[("binlog.000001", "same"), ("binlog.000002", "abXd")]);
        assert!(
            left.first_difference(&right)
                .unwrap()
                .starts_with("binlog.000002 at offset 2")
        );
        let shorter = files(&[("binlog.000001", "same"), ("binlog.000002", "ab")]);
        assert!(
            left.first_difference(&shorter)
                .unwrap()
                .starts_with("binlog.000002 at offset 2")
        );
        let fewer = files(&[("binlog.000001", "same")]);
        assert_eq!(
            left.first_difference(&fewer).unwrap(),
            "only one has binlog.000002"
        );
    }
}
