//! Who a data directory is: the file `identity` in it, made when the directory is first used and
//! replaced as a whole when it joins its ring. It also keeps the names of ring and member at first use,
//! so that a directory is refused when the configuration says somebody else.

use std::io;
use std::path::{Path, PathBuf};

use consensus::{Identity, IdentityBook, LogOrigin};
use mysqld_controller::durable_file;
use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdentityRecord {
    /// The version of the file's form.
    version: u32,
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
}

const VERSION: u32 = 1;
const FILE_NAME: &str = "identity";

/// Who the configuration says that this process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The ring's name.
    pub ring_name: String,
    /// The member's number.
    pub member_id: MemberId,
    /// The member's name.
    pub member_name: String,
}

/// Why a data directory's identity cannot be used.
#[derive(Debug, Error)]
pub enum IdentityFileError {
    /// It belongs to somebody else.
    #[error("{path} belongs to {found}, but the configuration says {claimed}", path = path.display())]
    Foreign {
        /// The identity file.
        path: PathBuf,
        /// Whose it is.
        found: String,
        /// Who the configuration says.
        claimed: String,
    },
    /// It is not an identity file.
    #[error("{path} is damaged: {reason}", path = path.display())]
    Damaged {
        /// The identity file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is missing where there is a log.
    #[error("{path} is missing, but the directory holds a log", path = path.display())]
    Missing {
        /// The identity file.
        path: PathBuf,
    },
    /// It cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The identity file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
}

impl IdentityRecord {
    /// Reads the identity of a data directory; `None` when it was never used.
    ///
    /// # Errors
    /// A damaged file, or what the operating system says.
    pub(crate) fn load(data_dir: &Path) -> Result<Option<Self>, IdentityFileError> {
        let path = data_dir.join(FILE_NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityFileError::Io { path, source }),
        };
        let damaged = |reason| IdentityFileError::Damaged {
            path: path.clone(),
            reason,
        };
        let record: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if record.version != VERSION {
            return Err(damaged(format!("its version is {}", record.version)));
        }
        Ok(Some(record))
    }

    fn fresh(claim: &Claim) -> Self {
        Self {
            version: VERSION,
            ring_name: claim.ring_name.clone(),
            member_name: claim.member_name.clone(),
            identity: Identity::fresh(claim.member_id),
            log_begins_behind: LogOrigin::default(),
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
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        durable_file::replace(&data_dir.join(FILE_NAME), &text)
    }
}

/// Opens the identity of a data directory, or makes one for a directory that is new.
///
/// # Errors
/// A foreign, damaged or lost identity, or what the operating system says.
pub(crate) fn open_identity(
    data_dir: &Path,
    claim: &Claim,
) -> Result<IdentityBook, IdentityFileError> {
    let path = data_dir.join(FILE_NAME);
    let record = match IdentityRecord::load(data_dir)? {
        Some(record) => {
            record.check(data_dir, claim)?;
            record
        }
        // Without its identity a log cannot be told from that of another member.
        None if holds_a_log(data_dir) => return Err(IdentityFileError::Missing { path }),
        None => {
            let record = IdentityRecord::fresh(claim);
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
    Ok(IdentityBook::new(identity, origin, Box::new(file)))
}

fn holds_a_log(data_dir: &Path) -> bool {
    let entries = std::fs::read_dir(data_dir.join("log"));
    entries.is_ok_and(|mut entries| entries.next().is_some())
}

/// The file of one directory, with the names that never change.
struct BoundFile {
    data_dir: PathBuf,
    record: IdentityRecord,
}

impl consensus::IdentityFile for BoundFile {
    fn write(&self, identity: &Identity, origin: &LogOrigin) -> io::Result<()> {
        let record = IdentityRecord {
            identity: *identity,
            log_begins_behind: origin.clone(),
            ..self.record.clone()
        };
        record.store(&self.data_dir)
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn an_identity_is_made_once_and_keeps_its_ring() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let made = open_identity(dir, &claim(1, "a", "r")).unwrap();
        assert_eq!(made.identity().ring, RingState::Fresh);
        let ring = RingId::random();
        let origin = LogOrigin::behind("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7");
        made.adopt(ring, &origin).unwrap();
        let again = open_identity(dir, &claim(1, "a", "r")).unwrap();
        assert_eq!(made.identity(), again.identity());
        assert_eq!(again.origin(), origin);
        assert_eq!(again.identity().ring, RingState::Belongs { ring });
    }

    #[test]
    fn a_foreign_identity_is_refused_by_id_by_name_and_by_ring() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        open_identity(dir, &claim(1, "a", "r")).unwrap();
        for foreign in [claim(2, "a", "r"), claim(1, "b", "r"), claim(1, "a", "s")] {
            let refused = open_identity(dir, &foreign).unwrap_err();
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
        assert!(IdentityRecord::load(dir).unwrap().is_none());
        for damage in ["", "{", "{\"version\": 1}", "\0\0\0\0"] {
            std::fs::write(dir.join("identity"), damage).unwrap();
            let refused = open_identity(dir, &claim(1, "a", "r")).unwrap_err();
            assert!(
                matches!(refused, IdentityFileError::Damaged { .. }),
                "{damage}"
            );
        }
        std::fs::remove_file(dir.join("identity")).unwrap();
        std::fs::create_dir(dir.join("log")).unwrap();
        std::fs::write(dir.join("log/binlog.000001"), "x").unwrap();
        let refused = open_identity(dir, &claim(1, "a", "r")).unwrap_err();
        assert!(
            matches!(refused, IdentityFileError::Missing { .. }),
            "{refused}"
        );
    }
}
