//! Who a data directory is: the file `identity` in it. Written once when the directory is first
//! used, and once more when the directory joins its ring; never changed after that. A directory
//! is refused when the configuration says somebody else.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use raft_types::{Incarnation, MemberId, RingId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The identity of a data directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The version of this file's form.
    version: u32,
    /// The ring, once the directory belongs to one.
    pub ring_id: Option<RingId>,
    /// The ring's name at first use.
    pub ring_name: String,
    /// The member's number.
    pub member_id: MemberId,
    /// The member's name.
    pub member_name: String,
    /// The identity of the directory itself.
    pub incarnation: Incarnation,
}

const VERSION: u32 = 1;
const FILE_NAME: &str = "identity";

/// Who the configuration says that this process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The ring's name.
    pub ring_name: String,
    /// The member's number.
    pub member_id: MemberId,
    /// The member's name.
    pub member_name: String,
}

/// Why a data directory's identity cannot be used.
#[derive(Debug, Error)]
pub enum IdentityError {
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
    /// It belongs to another ring than the one that wants to adopt it.
    #[error("the data directory belongs to ring {found} already and cannot join ring {wanted}")]
    OtherRing {
        /// Its ring.
        found: RingId,
        /// The ring that wants it.
        wanted: RingId,
    },
    /// It is not an identity file.
    #[error("{path} is damaged: {reason}", path = path.display())]
    Damaged {
        /// The identity file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
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

impl Identity {
    /// Reads the identity of a data directory, or makes one for a directory that has none.
    ///
    /// Durable when it returns: a crash leaves the old file or the new one.
    ///
    /// # Errors
    /// A foreign or damaged identity, or what the operating system says.
    pub fn load_or_create(data_dir: &Path, claim: &Claim) -> Result<Self, IdentityError> {
        match Self::load(data_dir)? {
            Some(identity) => {
                identity.check(data_dir, claim)?;
                Ok(identity)
            }
            None => {
                let identity = Self {
                    version: VERSION,
                    ring_id: None,
                    ring_name: claim.ring_name.clone(),
                    member_id: claim.member_id,
                    member_name: claim.member_name.clone(),
                    incarnation: Incarnation::random(),
                };
                identity.store(data_dir)?;
                Ok(identity)
            }
        }
    }

    /// Reads the identity of a data directory; `None` when it was never used.
    ///
    /// # Errors
    /// A damaged file, or what the operating system says.
    pub fn load(data_dir: &Path) -> Result<Option<Self>, IdentityError> {
        let path = data_dir.join(FILE_NAME);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(IdentityError::Io { path, source }),
        };
        let damaged = |reason| IdentityError::Damaged {
            path: path.clone(),
            reason,
        };
        let identity: Self =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if identity.version != VERSION {
            return Err(damaged(format!("its version is {}", identity.version)));
        }
        Ok(Some(identity))
    }

    /// Makes the directory a part of a ring. Durable when it returns.
    ///
    /// # Errors
    /// When it belongs to another ring, or cannot be written.
    pub fn join(&mut self, data_dir: &Path, ring_id: RingId) -> Result<(), IdentityError> {
        match self.ring_id {
            Some(found) if found == ring_id => Ok(()),
            Some(found) => Err(IdentityError::OtherRing {
                found,
                wanted: ring_id,
            }),
            None => {
                let joined = Self {
                    ring_id: Some(ring_id),
                    ..self.clone()
                };
                joined.store(data_dir)?;
                *self = joined;
                Ok(())
            }
        }
    }

    fn check(&self, data_dir: &Path, claim: &Claim) -> Result<(), IdentityError> {
        let whose = |id, name: &str, ring: &str| format!("member {id} `{name}` of ring `{ring}`");
        let found = whose(self.member_id, &self.member_name, &self.ring_name);
        let claimed = whose(claim.member_id, &claim.member_name, &claim.ring_name);
        if found == claimed {
            Ok(())
        } else {
            Err(IdentityError::Foreign {
                path: data_dir.join(FILE_NAME),
                found,
                claimed,
            })
        }
    }

    fn store(&self, data_dir: &Path) -> Result<(), IdentityError> {
        let path = data_dir.join(FILE_NAME);
        let written = write_atomically(data_dir, self);
        written.map_err(|source| IdentityError::Io { path, source })
    }
}

fn write_atomically(data_dir: &Path, identity: &Identity) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(identity)?;
    text.push(b'\n');
    let temporary = data_dir.join(format!("{FILE_NAME}.new"));
    let mut file = File::create(&temporary)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&temporary, data_dir.join(FILE_NAME))?;
    File::open(data_dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: u64, name: &str, ring: &str) -> Claim {
        Claim {
            ring_name: ring.into(),
            member_id: MemberId(id),
            member_name: name.into(),
        }
    }

    #[test]
    fn an_identity_is_made_once_and_joins_one_ring() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        let mut made = Identity::load_or_create(dir, &claim(1, "a", "r")).unwrap();
        assert_eq!(made.ring_id, None);
        let again = Identity::load_or_create(dir, &claim(1, "a", "r")).unwrap();
        assert_eq!(made, again);
        let ring = RingId::random();
        made.join(dir, ring).unwrap();
        made.join(dir, ring).unwrap();
        assert_eq!(Identity::load(dir).unwrap().unwrap().ring_id, Some(ring));
        let other = made.join(dir, RingId::random());
        assert!(matches!(other, Err(IdentityError::OtherRing { .. })));
    }

    #[test]
    fn a_foreign_identity_is_refused_by_id_by_name_and_by_ring() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        Identity::load_or_create(dir, &claim(1, "a", "r")).unwrap();
        for foreign in [claim(2, "a", "r"), claim(1, "b", "r"), claim(1, "a", "s")] {
            let refused = Identity::load_or_create(dir, &foreign).unwrap_err();
            assert!(matches!(refused, IdentityError::Foreign { .. }));
            let message = refused.to_string();
            assert!(
                message.contains("belongs to member 1 `a` of ring `r`"),
                "{message}"
            );
        }
    }

    #[test]
    fn damage_is_told_from_absence() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path();
        assert!(Identity::load(dir).unwrap().is_none());
        for damage in ["", "{", "{\"version\": 1}", "\0\0\0\0"] {
            std::fs::write(dir.join("identity"), damage).unwrap();
            let refused = Identity::load_or_create(dir, &claim(1, "a", "r")).unwrap_err();
            assert!(matches!(refused, IdentityError::Damaged { .. }), "{damage}");
        }
    }
}
