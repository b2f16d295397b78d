//! What a member keeps in its data directory beside its log.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use consensus::{Identity, IdentityBook, IdentityPages, LogOrigin};
use mysqld_controller::durable_file;
use raft_types::{FormatMismatch, FormatRange, FormatVersion, MemberId};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

// One process at a time uses a data directory: an advisory lock on the file `lock` in it, which
// the operating system releases when the process ends, however it ends.

/// Where the log is in a data directory.
const LOG: &str = "log";
/// Where the hard state is in it.
pub(crate) const META: &str = "meta";

/// Holds a data directory until it is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    _file: File,
}

/// Why a data directory cannot be taken.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process holds the lock of the data directory.
    #[error("{path} is in use by {holder}", path = path.display())]
    InUse {
        /// The data directory that was to be taken.
        path: PathBuf,
        /// The process that has it, as it wrote itself down.
        holder: String,
    },
    /// What a member keeps in it belongs to another user.
    #[error("this member, which runs as user {user}, cannot write in {path}: {source}", path = path.display())]
    NotOurs {
        /// A directory in the data directory.
        path: PathBuf,
        /// The number of the user that the process runs as.
        user: u32,
        /// What the operating system says.
        source: io::Error,
    },
    /// The lock file cannot be opened or locked, or a directory beside it cannot be used for now.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The lock file in the data directory, or that directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

impl DirectoryLock {
    /// Takes a data directory, which must exist.
    ///
    /// # Errors
    /// When another process has it, or the lock file cannot be used, or what is in it may not be written: a copy that root has made
    /// would work until the log begins its next file.
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
        // For people only: the lock is the truth, the number is who to look for.
        let _ = file
            .set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Whether files can be made in a directory, if it is there.
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

// Who a data directory is: the file `identity` in it, made when the directory is first used and
// replaced as a whole when it joins its ring. It also keeps the names of ring and member at first use,
// so that a directory is refused when the configuration says somebody else.

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdentityRecord {
    /// The format that the directory has reached: a program that does not speak it leaves the directory alone. The file itself looks
    /// the same in all of them.
    #[serde(rename = "version")]
    reached: FormatVersion,
    /// The ring's name at first use.
    pub ring_name: String,
    /// The member's name at first use.
    pub member_name: String,
    /// The member, its data directory and its ring.
    #[serde(flatten)]
    pub identity: Identity,
    /// Where the log of its ring begins.
    #[serde(default, skip_serializing_if = "LogOrigin::is_empty")]
    pub log_begins_behind: LogOrigin,
    /// Whether the directory has had a log. Not there in files of earlier programs, and of directories that have had none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub log_begun: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What is read of the file before anything else of it is believed.
#[derive(Deserialize)]
struct Reached {
    #[serde(rename = "version")]
    reached: FormatVersion,
}

const FILE_NAME: &str = "identity";

/// Who the configuration says that this process is.
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
    /// It belongs to somebody else.
    #[error("{path} belongs to {found}, but the configuration says {claimed}", path = path.display())]
    Foreign {
        /// The identity file that was read.
        path: PathBuf,
        /// Ring, number and name that the file says.
        found: String,
        /// Ring, number and name that the configuration says.
        claimed: String,
    },
    /// It is not an identity file.
    #[error("{path} is damaged: {reason}", path = path.display())]
    Damaged {
        /// The identity file that was read.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A program that speaks other formats wrote in the directory.
    #[error("{path} says that the data directory is in {mismatch}; nothing was changed", path = path.display())]
    Format {
        /// The identity file that was read.
        path: PathBuf,
        /// What was found, and what this program speaks.
        mismatch: FormatMismatch,
    },
    /// It is missing where there is a log.
    #[error("{path} is missing, but the directory holds a log", path = path.display())]
    Missing {
        /// Where the identity file should be.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The identity file, or the one that replaces it.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

impl IdentityRecord {
    /// Reads the identity of a data directory; `None` when it was never used.
    ///
    /// # Errors
    /// A damaged file, one of a directory that a program of these formats must not use, or what the operating system says.
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

    /// Reads the content of the file.
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

    /// The content of the file.
    pub(crate) fn written(&self) -> serde_json::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    fn fresh(claim: &Claim, reached: FormatVersion) -> Self {
        Self {
            reached,
            ring_name: claim.ring_name.clone(),
            member_name: claim.member_name.clone(),
            identity: Identity::fresh(claim.member_id),
            log_begins_behind: LogOrigin::default(),
            log_begun: false,
        }
    }

    fn check(&self, data_dir: &Path, claim: &Claim) -> Result<(), IdentityFileError> {
        let whose = |id, name: &str, ring: &str| format!("member {id} `{name}` of ring `{ring}`");
        let found = whose(self.identity.member, &self.member_name, &self.ring_name);
        let claimed = whose(claim.member_id, &claim.member_name, &claim.ring_name);
        if found == claimed {
            Ok(())
        } else {
            Err(IdentityFileError::Foreign {
                path: data_dir.join(FILE_NAME),
                found,
                claimed,
            })
        }
    }

    /// Replaces the file. Durable when it returns: a crash leaves the old content or the new one.
    fn store(&self, data_dir: &Path) -> io::Result<()> {
        durable_file::replace(&data_dir.join(FILE_NAME), &self.written()?)
    }
}

/// Opens the identity of a data directory for a program that speaks these formats, or makes one for a directory that is new.
///
/// # Errors
/// A foreign, damaged or lost identity, one of another format, or what the operating system says.
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
        // Without its identity a log cannot be told from that of another member.
        None if holds_a_log(data_dir) => return Err(IdentityFileError::Missing { path }),
        None => {
            let record = IdentityRecord::fresh(claim, speaks.oldest());
            record
                .store(data_dir)
                .map_err(|source| IdentityFileError::Io { path, source })?;
            record
        }
    };
    let file = BoundFile {
        data_dir: data_dir.to_owned(),
        record: record.clone(),
    };
    let (identity, origin) = (record.identity, record.log_begins_behind);
    let book = IdentityBook::new(identity, origin, Box::new(file)).with_log_begun(record.log_begun);
    Ok(book.speaking(speaks, record.reached))
}

fn holds_a_log(data_dir: &Path) -> bool {
    let entries = std::fs::read_dir(data_dir.join(LOG));
    entries.is_ok_and(|mut entries| entries.next().is_some())
}

/// The file of one directory, with the names that never change.
struct BoundFile {
    data_dir: PathBuf,
    record: IdentityRecord,
}

impl consensus::IdentityFile for BoundFile {
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

const UNMANAGED_FILE: &str = "hands-off";
const CONTENT: &[u8] =
    b"This member does not manage its mysqld until `witness enable-raft` is run again.\n";
/// What a note says besides where the mysqld was the primary.
const OF_THE_PRIMARY: &[u8] =
    b"Its mysqld was the primary, and had everything that the ring has.\n";

/// The note in the data directory that the member leaves its mysqld alone: it neither starts nor stops it, nor opens, closes or
/// applies. `witness enable-raft` and `witness disable-raft` have it written and removed; a restart of the member changes nothing.
#[derive(Debug, Clone)]
pub(crate) struct UnmanagedNote {
    data_dir: PathBuf,
}

impl UnmanagedNote {
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
        self.data_dir.join(UNMANAGED_FILE).try_exists()
    }

    /// Writes it. Durable when it returns.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn set(&self) -> io::Result<()> {
        durable_file::replace(&self.data_dir.join(UNMANAGED_FILE), CONTENT)
    }

    /// Writes it for a mysqld that was the primary, is closed, and had everything that the ring has. Durable when it returns.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn set_at_the_primary(&self) -> io::Result<()> {
        let content = [CONTENT, OF_THE_PRIMARY].concat();
        durable_file::replace(&self.data_dir.join(UNMANAGED_FILE), &content)
    }

    /// Whether it was written so.
    ///
    /// # Errors
    /// When it cannot be read, as where there is none.
    pub(crate) fn is_of_the_primary(&self) -> io::Result<bool> {
        let content = std::fs::read(self.data_dir.join(UNMANAGED_FILE))?;
        Ok(content.ends_with(OF_THE_PRIMARY))
    }

    /// Removes it. Durable when it returns.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn clear(&self) -> io::Result<()> {
        durable_file::remove(&self.data_dir.join(UNMANAGED_FILE))
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

    /// A disk of its own, say, that went read-only: that may pass, and nobody has to change owners for it.
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
    use consensus::RingState;
    use raft_types::RingId;

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
        // Nothing was written in the second format yet: the old program reads it.
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
        let origin = LogOrigin::behind("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7");
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
        // The file is as an earlier program wrote it, and read it.
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
