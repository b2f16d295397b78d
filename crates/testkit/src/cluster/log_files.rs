//! The binlog files of a member as bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use anyhow::{Context, Result};

/// The files of one `log/` folder: every `binlog.*`, the index included.
#[derive(Clone, PartialEq, Eq)]
pub struct LogFiles {
    folder: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
}

/// The first difference between two members' files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstDifference {
    file: String,
    offset: Option<usize>,
    lengths: (Option<usize>, Option<usize>),
}

impl LogFiles {
    /// Reads them.
    ///
    /// # Errors
    /// When one cannot be read.
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
                    // It was purged since the listing, or is an index that was being replaced.
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

    /// The paths of the binlog files, oldest first, without the index.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files
            .keys()
            .filter(|name| *name != "binlog.index")
            .map(|name| self.folder.join(name))
            .collect()
    }

    /// All bytes together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// The first byte, in file order, that the other lacks or differs in.
    #[must_use]
    pub fn first_difference(&self, other: &Self) -> Option<FirstDifference> {
        let names = self.files.keys().chain(other.files.keys());
        let mut names: Vec<&String> = names.collect();
        names.sort();
        names.dedup();
        names.into_iter().find_map(|name| {
            let (mine, theirs) = (self.files.get(name), other.files.get(name));
            let lengths = (mine.map(Vec::len), theirs.map(Vec::len));
            let (Some(mine), Some(theirs)) = (mine, theirs) else {
                return Some(FirstDifference {
                    file: name.clone(),
                    offset: None,
                    lengths,
                });
            };
            (mine != theirs).then(|| {
                let offset = mine
                    .iter()
                    .zip(theirs)
                    .position(|(a, b)| a != b)
                    .unwrap_or(mine.len().min(theirs.len()));
                FirstDifference {
                    file: name.clone(),
                    offset: Some(offset),
                    lengths,
                }
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

impl fmt::Display for FirstDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(
                f,
                "{} at offset {offset} (lengths {:?})",
                self.file, self.lengths
            ),
            None => write!(f, "only one has {}", self.file),
        }
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
                .to_string()
                .starts_with("binlog.000002 at offset 2")
        );
        let shorter = files(&[("binlog.000001", "same"), ("binlog.000002", "ab")]);
        assert!(
            left.first_difference(&shorter)
                .unwrap()
                .to_string()
                .starts_with("binlog.000002 at offset 2")
        );
        let fewer = files(&[("binlog.000001", "same")]);
        assert_eq!(
            left.first_difference(&fewer).unwrap().to_string(),
            "only one has binlog.000002"
        );
    }
}
