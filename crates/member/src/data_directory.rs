//! The files of a member's data directory, except its log.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use mysqld_server::durable_file;
use raft_types::{FormatMismatch, FormatRange, FormatVersion, MemberId};
use ring_admin::{Identity, IdentityBook, IdentityPages, LogOrigin};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

// An advisory lock on the file `lock` prevents a second process from using the data directory. The operating system releases the lock when
// the process ends, even if it crashes.

/// Name of the log's directory.
const LOG: &str = "log";
/// Name of the hard state's directory.
pub(crate) const META: &str = "meta";

/// The lock of a data directory, held until dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

/// Why a data directory cannot be locked.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("{path} is in use by {holder}", path = path.display())]
    InUse {
        /// Path of the data directory.
        path: PathBuf,
        /// The process that holds the lock, as text from the lock file.
        holder: String,
    },
    /// The contents belong to another user.
    #[error("this member, which runs as user {user}, cannot write in {path}: {source}", path = path.display())]
    NotOurs {
        /// A directory in the data directory.
        path: PathBuf,
        /// The process's numeric user id.
        user: u32,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The lock file cannot be opened or locked, or a directory next to it cannot be used at present.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The lock file in the data directory, or that directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl DirectoryLock {
    /// Locks a data directory, which must exist.
    ///
    /// # Errors
    /// If another process holds the lock, the lock file cannot be used, or the contents are not writable. (Without the last check, a
    /// directory that root has copied would work until the log begins its next file.)
    pub(crate) fn take(data_dir: &Path) -> Result<Self, LockError> {
        let path = data_dir.join("lock");
        let failed = |source| LockError::Io {
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => LockError::InUse {
                path: data_dir.to_owned(),
                holder: holder(&mut file),
            },
            TryLockError::Error(source) => failed(source),
        })?;
        for kept in [data_dir.join(LOG), data_dir.join(META)] {
            may_be_written(&kept).map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied => LockError::NotOurs {
                    path: kept,
                    user: rustix::process::geteuid().as_raw(),
                    source,
                },
                _ => LockError::Io { path: kept, source },
            })?;
        }
        // The number is only information for operators; the lock itself is decisive.
        let _ = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Checks that files can be created in a directory, if the directory exists.
fn may_be_written(directory: &Path) -> io::Result<()> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    match accessat(CWD, directory, wanted, AtFlags::EACCESS) {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(64).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => format!("the process with the pid {}", text.trim()),
        _ => "another process".to_owned(),
    }
}

// The file `identity` identifies a data directory. It is created at the first use, and replaced as a whole when the directory joins its
// ring. It keeps the ring's and the member's name of the first use, so that another configuration is refused.

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdentityRecord {
    /// The directory's format. A program that does not support it refuses the directory. The layout of this file is the same in all
    /// formats.
    #[serde(rename = "version")]
    reached: FormatVersion,
    /// The ring's name at first use.
    pub ring_name: String,
    /// The member's name at first use.
    pub member_name: String,
    /// Identity of member, data directory and ring.
    #[serde(flatten)]
    pub identity: Identity,
    /// The transactions before the ring's log.
    #[serde(default, skip_serializing_if = "LogOrigin::is_empty")]
    pub log_begins_behind: LogOrigin,
    /// True if the directory has had a log. Missing in files of earlier programs, and in directories that have had no log yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log_begun: bool,
}

/// The part of the file that is checked first.
#[derive(Deserialize)]
struct Reached {
    #[serde(rename = "version")]
    reached: FormatVersion,
}

const FILE_NAME: &str = "identity";

/// The configured identity of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// `ring_name` of the configuration.
    pub ring_name: String,
    pub member_id: MemberId,
    pub member_name: String,
}

/// Why a data directory's identity cannot be used.
#[derive(Debug, Error)]
pub enum IdentityFileError {
    /// The file belongs to another ring or member.
    #[error("{path} belongs to {found}, but the configuration says {claimed}", path = path.display())]
    Foreign {
        /// Path of the identity file.
        path: PathBuf,
        /// Ring, number and name in the file.
        found: String,
        /// Ring, number and name in the configuration.
        claimed: String,
    },
    /// The file is not an identity file.
    #[error("{path} is damaged: {reason}", path = path.display())]
    Damaged {
        /// Path of the identity file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A program with another format has written to the directory.
    #[error("{path} says that the data directory is in {mismatch}; nothing was changed", path = path.display())]
    Format {
        /// Path of the identity file.
        path: PathBuf,
        /// The format found, and the formats of this program.
        mismatch: FormatMismatch,
    },
    /// The file is missing, although there is a log.
    #[error("{path} is missing, but the directory holds a log", path = path.display())]
    Missing {
        /// Expected path of the identity file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The identity file, or its replacement.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

impl IdentityRecord {
    /// Reads the identity of a data directory; `None` if the directory was never used.
    ///
    /// # Errors
    /// The file is damaged, the directory's format is not one of these formats, or the operating system returned an error.
    pub(crate) fn load(
        data_dir: &Path,
        speaks: FormatRange,
    ) -> Result<Option<Self>, IdentityFileError> {
        let path = data_dir.join(FILE_NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityFileError::Io { path, source }),
        };
        Self::read(&bytes, &path, speaks).map(Some)
    }

    /// Reads the file's content.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub(crate) fn read(
        bytes: &[u8],
        path: &Path,
        speaks: FormatRange,
    ) -> Result<Self, IdentityFileError> {
        let damaged = |error: serde_json::Error| IdentityFileError::Damaged {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let Reached { reached } = serde_json::from_slice(bytes).map_err(damaged)?;
        let readable = speaks.check(reached);
        readable.map_err(|mismatch| IdentityFileError::Format {
            path: path.to_owned(),
            mismatch,
        })?;
        serde_json::from_slice(bytes).map_err(damaged)
    }

    /// Returns the serialized content of the file.
    pub(crate) fn written(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    fn check(&self, data_dir: &Path, claim: &Claim) -> Result<(), IdentityFileError> {
        let whose = |id, name: &str, ring: &str| format!("member {id} `{name}` of ring `{ring}`");
        let found = whose(self.identity.member, &self.member_name, &self.ring_name);
        let claimed = whose(claim.member_id, &claim.member_name, &claim.ring_name);
        if found == claimed {
            return Ok(());
        }
        let path = data_dir.join(FILE_NAME);
        Err(IdentityFileError::Foreign {
            path,
            found,
            claimed,
        })
    }

    /// Replaces the file. Durable on return. After a crash, the file has either the old or the new content.
    fn store(&self, data_dir: &Path) -> io::Result<()> {
        durable_file::replace(&data_dir.join(FILE_NAME), &self.written()?)
    }
}

/// Opens the identity of a data directory for a program with these formats, or creates one for a new directory.
///
/// # Errors
/// The identity is foreign, damaged, missing or of another format, or the operating system returned an error.
pub(crate) fn open_identity(
    data_dir: &Path,
    claim: &Claim,
    speaks: FormatRange,
) -> Result<IdentityBook, IdentityFileError> {
    let path = data_dir.join(FILE_NAME);
    let record = match IdentityRecord::load(data_dir, speaks)? {
        Some(record) => {
            record.check(data_dir, claim)?;
            record
        }
        // Without its identity, the log cannot be distinguished from another member's log.
        None if holds_a_log(data_dir) => return Err(IdentityFileError::Missing { path }),
        None => {
            let record = IdentityRecord {
                reached: speaks.oldest(),
                ring_name: claim.ring_name.clone(),
                member_name: claim.member_name.clone(),
                identity: Identity::fresh(claim.member_id),
                log_begins_behind: LogOrigin::default(),
                log_begun: false,
            };
            let stored = record.store(data_dir);
            stored.map_err(|source| IdentityFileError::Io { path, source })?;
            record
        }
    };
    let file = BoundFile {
        data_dir: data_dir.to_owned(),
        record: record.clone(),
    };
    let (identity, origin) = (record.identity, record.log_begins_behind);
    let book = IdentityBook::new(identity, origin, Box::new(file));
    Ok(book.speaking(speaks, record.reached, record.log_begun))
}

fn holds_a_log(data_dir: &Path) -> bool {
    let entries = std::fs::read_dir(data_dir.join(LOG));
    entries.is_ok_and(|mut entries| entries.next().is_some())
}

/// The identity file of one directory, with the names that never change.
struct BoundFile {
    data_dir: PathBuf,
    record: IdentityRecord,
}

impl ring_admin::IdentityFile for BoundFile {
    fn write(&self, pages: &IdentityPages) -> io::Result<()> {
        let record = IdentityRecord {
            reached: pages.reached,
            identity: pages.identity,
            log_begins_behind: pages.origin.clone(),
            log_begun: pages.log_begun,
            ..self.record.clone()
        };
        record.store(&self.data_dir)
    }
}

const CONTENT: &[u8] =
    b"This member does not manage its mysqld until `witness enable-raft` is run again.\n";
/// Additional content of the note if mysqld was the primary.
const OF_THE_PRIMARY: &[u8] =
    b"Its mysqld was the primary, and had everything that the ring has.\n";

/// The note `hands-off`: the member must not start, stop, open or close its mysqld, or apply the log to it. `witness enable-raft` and
/// `witness disable-raft` write and remove the note. It stays over restarts.
#[derive(Debug, Clone)]
pub(crate) struct UnmanagedNote(PathBuf);

impl UnmanagedNote {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self(data_dir.join("hands-off"))
    }

    /// Returns true if the note exists.
    ///
    /// # Errors
    /// If the directory cannot be read. The member must not manage mysqld then.
    pub(crate) fn is_set(&self) -> io::Result<bool> {
        self.0.try_exists()
    }

    /// Writes the note. Durable on return.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn set(&self) -> io::Result<()> {
        durable_file::replace(&self.0, CONTENT)
    }

    /// Writes the note for a closed mysqld that was the primary and had all of the ring's transactions. Durable on return.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn set_at_the_primary(&self) -> io::Result<()> {
        durable_file::replace(&self.0, &[CONTENT, OF_THE_PRIMARY].concat())
    }

    /// Returns true if [`Self::set_at_the_primary`] wrote the note.
    ///
    /// # Errors
    /// If the note cannot be read, or does not exist.
    pub(crate) fn is_of_the_primary(&self) -> io::Result<bool> {
        let content = std::fs::read(&self.0)?;
        Ok(content.ends_with(OF_THE_PRIMARY))
    }

    /// Removes the note. Durable on return.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn clear(&self) -> io::Result<()> {
        durable_file::remove(&self.0)
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

    /// The cause may be a separate disk that became read-only for some time. To change the owner would not help then.
    #[test]
    fn a_directory_that_fails_is_not_somebody_elses() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(LOG, directory.path().join(LOG)).unwrap();
        let failed = DirectoryLock::take(directory.path()).unwrap_err();
        assert!(matches!(failed, LockError::Io { .. }), "{failed}");
    }
}

#[cfg(test)]
mod identity_tests {
    use raft_types::RingId;
    use ring_admin::RingState;

    use super::*;

    fn claim(id: u64, name: &str, ring: &str) -> Claim {
        Claim {
            ring_name: ring.into(),
            member_id: MemberId(id),
            member_name: name.into(),
        }
    }

    fn open_as_1(dir: &Path, claim: &Claim) -> Result<IdentityBook, IdentityFileError> {
        open_identity(dir, claim, FormatRange::OF_THIS_PROGRAM)
    }

    #[test]
    fn a_program_that_does_not_speak_the_directory_s_format_refuses_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let open = |speaks: &str| open_identity(dir, &claim(1, "a", "r"), speaks.parse().unwrap());
        open("1").unwrap();
        // The second format has not been written yet, so the old program can still read the directory.
        open("1-2").unwrap();
        let before = open("1").unwrap();
        assert_eq!(before.reached(), FormatVersion::FIRST);
        let too_new = open("2-3").unwrap_err().to_string();
        assert!(
            too_new.contains("format 1, and this program speaks 2-3: install an earlier version"),
            "{too_new}"
        );

        open("1-2").unwrap().raise(FormatVersion(2)).unwrap();
        let bytes = || std::fs::read(dir.join("identity")).unwrap();
        let raised = bytes();
        let refused = open("1").unwrap_err().to_string();
        assert!(
            refused.contains(
                "format 2, and this program speaks 1: install a later version of witness"
            ),
            "{refused}"
        );
        assert_eq!(bytes(), raised);
        for later in ["1-2", "2-3"] {
            let book = open(later).unwrap();
            assert_eq!(book.identity(), before.identity());
            assert_eq!(book.reached(), FormatVersion(2));
        }
        let new = tempfile::tempdir().unwrap();
        let fresh = open_identity(new.path(), &claim(1, "a", "r"), "2-3".parse().unwrap());
        assert_eq!(fresh.unwrap().reached(), FormatVersion(2));
    }

    #[test]
    fn an_identity_is_made_once_and_keeps_its_ring() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let made = open_as_1(dir, &claim(1, "a", "r")).unwrap();
        assert_eq!(made.identity().ring, RingState::Fresh);
        let ring = RingId::random();
        let origin = LogOrigin::after("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7");
        made.adopt(ring, &origin).unwrap();
        let again = open_as_1(dir, &claim(1, "a", "r")).unwrap();
        assert_eq!(made.identity(), again.identity());
        assert_eq!(again.origin(), origin);
        assert_eq!(again.identity().ring, RingState::Belongs { ring });
    }

    #[test]
    fn that_a_log_was_begun_outlives_the_process_and_is_unknown_in_files_from_before() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let made = open_as_1(dir, &claim(1, "a", "r")).unwrap();
        // At this point, the file is as an earlier program wrote it.
        let before = std::fs::read_to_string(dir.join("identity")).unwrap();
        assert!(!before.contains("log_begun"), "{before}");
        assert!(!made.log_begun());
        made.note_log_begun().unwrap();
        assert!(open_as_1(dir, &claim(1, "a", "r")).unwrap().log_begun());
        std::fs::write(dir.join("identity"), before).unwrap();
        assert!(!open_as_1(dir, &claim(1, "a", "r")).unwrap().log_begun());
    }

    #[test]
    fn a_foreign_identity_is_refused_by_id_by_name_and_by_ring() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        open_as_1(dir, &claim(1, "a", "r")).unwrap();
        for foreign in [claim(2, "a", "r"), claim(1, "b", "r"), claim(1, "a", "s")] {
            let refused = open_as_1(dir, &foreign).unwrap_err();
            assert!(matches!(refused, IdentityFileError::Foreign { .. }));
            let message = refused.to_string();
            assert!(
                message.contains("belongs to member 1 `a` of ring `r`"),
                "{message}"
            );
        }
    }

    #[test]
    fn damage_and_loss_are_told_from_a_new_directory() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        assert!(
            IdentityRecord::load(dir, FormatRange::OF_THIS_PROGRAM)
                .unwrap()
                .is_none()
        );
        for damage in ["", "{", "{\"version\": 1}", "\0\0\0\0"] {
            std::fs::write(dir.join("identity"), damage).unwrap();
            let refused = open_as_1(dir, &claim(1, "a", "r")).unwrap_err();
            assert!(
                matches!(refused, IdentityFileError::Damaged { .. }),
                "{damage}"
            );
        }
        std::fs::remove_file(dir.join("identity")).unwrap();
        std::fs::create_dir(dir.join("log")).unwrap();
        std::fs::write(dir.join("log/binlog.000001"), "x").unwrap();
        let refused = open_as_1(dir, &claim(1, "a", "r")).unwrap_err();
        assert!(
            matches!(refused, IdentityFileError::Missing { .. }),
            "{refused}"
        );
    }
}

#[cfg(test)]
mod unmanaged_note_tests {
    use super::*;

    #[test]
    fn it_stays_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let note = UnmanagedNote::of(directory.path());
        assert!(!note.is_set().unwrap());
        note.clear().unwrap();
        note.set().unwrap();
        note.set().unwrap();
        assert!(UnmanagedNote::of(directory.path()).is_set().unwrap());
        assert!(!note.is_of_the_primary().unwrap());
        note.set_at_the_primary().unwrap();
        assert!(note.is_set().unwrap() && note.is_of_the_primary().unwrap());
        note.clear().unwrap();
        assert!(!note.is_set().unwrap());
    }
}
