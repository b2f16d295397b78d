//! The note in the data directory that the member leaves its mysqld alone: it neither starts nor stops it, nor opens, closes or
//! applies. `witness enable-raft` and `witness disable-raft` have it written and removed; a restart of the member changes nothing.

use std::io;
use std::path::{Path, PathBuf};

use mysqld_controller::durable_file;

const FILE_NAME: &str = "hands-off";
const CONTENT: &[u8] =
    b"This member leaves its mysqld alone, until `witness enable-raft` lets it act again.\n";

/// See the module.
pub(crate) struct HandsOff {
    data_dir: PathBuf,
}

impl HandsOff {
    /// Of this data directory.
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
        }
    }

    /// Whether it is there.
    ///
    /// # Errors
    /// When the directory cannot be looked at; then nobody knows, and nothing may be done to mysqld.
    pub(crate) fn is_set(&self) -> io::Result<bool> {
        self.data_dir.join(FILE_NAME).try_exists()
    }

    /// Writes it. Durable when it returns.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn set(&self) -> io::Result<()> {
        durable_file::replace(&self.data_dir.join(FILE_NAME), CONTENT)
    }

    /// Removes it. Durable when it returns.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn clear(&self) -> io::Result<()> {
        durable_file::remove(&self.data_dir.join(FILE_NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let note = HandsOff::of(directory.path());
        assert!(!note.is_set().unwrap());
        note.clear().unwrap();
        note.set().unwrap();
        note.set().unwrap();
        assert!(HandsOff::of(directory.path()).is_set().unwrap());
        note.clear().unwrap();
        assert!(!note.is_set().unwrap());
    }
}
