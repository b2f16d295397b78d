//! A copy of a running mysqld's data, made by the server itself in a separate directory that is removed once archived. A member has one
//! backup at a time, so remains of another one are of a killed backup.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use archive::base_backup::BaseName;
use binlog_format::gtid::GtidSet;
use mysql_link::ConnectOptions;
use mysqld_server::provision::{
    LocalCopy, LocalSource, ProvisionError, copy_under_way, end_copy, executed,
    executed_and_applied, local_source, ready_for_copies,
};
use raft_types::MemberId;
use tokio_util::sync::CancellationToken;

use crate::cli::archive::conditions::has_room;
use crate::cli::archive::place::stopped;
use crate::terminal::{Attempt, Exit, Failure};

/// Prefix of directories with copies.
const PREFIX: &str = "witness-base-";
/// In the member's data directory.
const LOCK: &str = "base-backup.lock";
/// A commit is in the engine, and so in a copy, shortly before it is in `gtid_executed`.
const SETTLE: Duration = Duration::from_secs(1);

/// Lock for one backup of a member, held for its whole duration.
pub(super) struct Alone {
    _file: File,
}

impl Alone {
    /// Does not wait.
    ///
    /// # Errors
    /// Exit 4 where another backup of this member is being taken.
    pub(super) fn take(data_dir: &Path) -> Attempt<Self> {
        let path = data_dir.join(LOCK);
        let failed = |error: io::Error| Failure::error(format!("{}: {error}", path.display()));
        let mut options = File::options();
        let options = options.create(true).truncate(false).write(true);
        let file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Exit::Refused.because(
                "another base backup of this member is being taken",
                "wait for its end",
            )),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// A complete copy.
pub(super) struct Copied {
    pub(super) directory: PathBuf,
    pub(super) source: LocalSource,
    pub(super) at_least: GtidSet,
    pub(super) at_most: GtidSet,
}

/// Directory for a member's copies, and their mysqld.
pub(super) struct Copying {
    pub(super) connect: ConnectOptions,
    pub(super) directory: PathBuf,
    pub(super) member: MemberId,
}

impl Copying {
    /// Checks that a copy can be made in the directory.
    ///
    /// # Errors
    /// Exit 2 for a relative path, 4 where it does not exist.
    pub(super) fn check(&self) -> Attempt {
        let shown = self.directory.display();
        if !self.directory.is_absolute() {
            return Err(Exit::Usage.because(
                format!("{shown} is a relative path, and mysqld works in its own directory"),
                "write the whole path",
            ));
        }
        match self.directory.is_dir() {
            true => Ok(()),
            false => Err(Exit::Refused.because(
                format!("there is no directory {shown}"),
                "make it, and give it to the account of mysqld: without its mount, the copy would fill the wrong disk",
            )),
        }
    }

    /// Removes the remains of this member's killed backups, and ends a copy that mysqld still makes for one.
    ///
    /// # Errors
    /// Exit 4 where mysqld makes a copy for another client, 1 where removal fails.
    pub(super) async fn remove_left(&self) -> Attempt<Vec<PathBuf>> {
        if let Some(under_way) = copy_under_way(&self.connect).await? {
            if !self.is_own(&under_way.into) {
                return Err(Exit::Refused.because(
                    format!(
                        "mysqld makes a copy of its data in {} for another client",
                        under_way.into.display()
                    ),
                    "wait for its end",
                ));
            }
            end_copy(&self.connect, under_way.id).await?;
        }
        let entries = fs::read_dir(&self.directory).and_then(Iterator::collect);
        let entries: Vec<fs::DirEntry> = entries.map_err(on_disk(&self.directory))?;
        let own = entries.iter().map(fs::DirEntry::path);
        let own: Vec<PathBuf> = own.filter(|path| self.is_own(path)).collect();
        own.iter().try_for_each(|path| remove(path))?;
        Ok(own)
    }

    /// True if this is the directory of a copy of this member.
    fn is_own(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.and_then(|name| name.strip_prefix(PREFIX)?.parse::<BaseName>().ok());
        path.parent() == Some(&self.directory)
            && name.is_some_and(|name| name.member() == self.member)
    }

    /// Makes mysqld copy its data. A partial copy is removed after a failure or stop.
    ///
    /// # Errors
    /// Exit 4 where there is no room, or a copy would lack tables; 1 where mysqld fails, or `stop` was cancelled.
    pub(super) async fn copy(&self, name: BaseName, stop: &CancellationToken) -> Attempt<Copied> {
        let source = local_source(&self.connect).await?;
        if !source.other_engines.is_empty() {
            return Err(Exit::Refused.because(
                format!(
                    "a copy would have no rows of tables of other engines than InnoDB, as {}",
                    source.other_engines.join(", ")
                ),
                "alter them to ENGINE=InnoDB, or back up a stopped server with --data-directory",
            ));
        }
        let space = rustix::fs::statvfs(&self.directory);
        let space = space.map_err(|error| on_disk(&self.directory)(error.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        has_room(source.bytes, free, &self.directory.display().to_string())?;
        ready_for_copies(&self.connect).await?;
        let directory = self.directory.join(format!("{PREFIX}{name}"));
        let at_least = executed(&self.connect).await?;
        let copied = async {
            self.clone_into(&directory, stop).await?;
            tokio::time::sleep(SETTLE).await;
            Ok::<_, Failure>(executed_and_applied(&self.connect).await?)
        };
        match copied.await {
            Ok(at_most) => Ok(Copied {
                directory,
                source,
                at_least,
                at_most,
            }),
            Err(failure) => {
                // The next backup removes the rest.
                let _ = remove(&directory);
                Err(failure)
            }
        }
    }

    async fn clone_into(&self, directory: &Path, stop: &CancellationToken) -> Attempt {
        let copy = LocalCopy::open(&self.connect).await?;
        let id = copy.id();
        tokio::select! {
            copied = copy.copy(directory) => copied.map_err(|error| match error {
                ProvisionError::Server { .. } => Exit::Error.because(
                    error,
                    format!(
                        "the account of mysqld has to be allowed to make a directory in {}",
                        self.directory.display()
                    ),
                ),
                error => error.into(),
            }),
            () = stop.cancelled() => {
                end_copy(&self.connect, id).await?;
                Err(stopped())
            }
        }
    }
}

/// Removes a copy, as far as it exists.
///
/// # Errors
/// Exit 1 where it cannot be removed.
pub(super) fn remove(directory: &Path) -> Attempt {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Exit::Error.because(
            format!("{} cannot be removed: {error}", directory.display()),
            "run the command as root or as the account of mysqld, whose files they are",
        )),
        _ => Ok(()),
    }
}

impl From<ProvisionError> for Failure {
    fn from(error: ProvisionError) -> Self {
        Self::error(error)
    }
}

fn on_disk(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::error(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use mysql_link::{Endpoint, Secret};

    use super::*;

    #[test]
    fn member_takes_one_backup_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = Alone::take(folder.path()).unwrap();
        let refused = Alone::take(folder.path()).err().unwrap();
        assert_eq!(refused.exit, Exit::Refused);
        drop(first);
        assert!(Alone::take(folder.path()).is_ok());
    }

    #[test]
    fn copy_directories_of_this_member_are_recognised() {
        let copying = Copying {
            connect: ConnectOptions::new(Endpoint::unix("/s"), "w", Secret::new(String::new())),
            directory: "/copies".into(),
            member: MemberId(3),
        };
        let is_own = |path: &str| copying.is_own(Path::new(path));
        assert!(is_own("/copies/witness-base-20261126T143816Z-3"));
        for other in [
            "/copies/witness-base-20261126T143816Z-4",
            "/copies/witness-base-mine",
            "/copies/20261126T143816Z-3",
            "/elsewhere/witness-base-20261126T143816Z-3",
            "/copies/a/witness-base-20261126T143816Z-3",
            "/copies",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
