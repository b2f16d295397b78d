//! One process at a time uses a data directory: an advisory lock on the file `lock` in it, which
//! the operating system releases when the process ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Holds a data directory until it is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

/// Why a data directory cannot be taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process uses it.
    #[error("{path} is in use by {holder}", path = path.display())]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process that has it, as it wrote itself down.
        holder: String,
    },
    /// The lock file cannot be opened or locked.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

impl DirectoryLock {
    /// Takes a data directory, which must exist.
    ///
    /// # Errors
    /// When another process has it, or the lock file cannot be used.
    pub(crate) fn take(data_dir: &Path) -> Result<Self, LockError> {
        let path = data_dir.join("lock");
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::InUse {
                    path: data_dir.to_owned(),
                    holder: holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // For people only: the lock is the truth, the number is who to look for.
        let _ = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(64).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!("the process with the pid {}", text.trim()),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_taken_once_and_free_again_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(directory.path()).unwrap();
        let refused = DirectoryLock::take(directory.path()).unwrap_err();
        let expected = format!("in use by the process with the pid {}", std::process::id());
        assert!(refused.to_string().contains(&expected), "{refused}");
        drop(lock);
        DirectoryLock::take(directory.path()).unwrap();
    }
}
