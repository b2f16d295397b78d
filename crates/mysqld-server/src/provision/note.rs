//! The note on disk about a mysqld that is being provisioned. While the note exists, the data may be incomplete: mysqld is started whatever
//! its binlog contains, nothing is applied to it, and it does not become the primary.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::durable_file;
use crate::provision::donor::CloneAccount;

const FILE: &str = "mysqld-provision.json";

/// The record of a copy in progress, in `mysqld-provision.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionNote {
    /// The name of the member whose data are copied; empty if an operator must choose the member.
    pub donor: String,
    /// The progress of the copy.
    pub step: NoteStep,
}

/// Progress of a provisioning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum NoteStep {
    /// mysqld was held down, and may start for the copy. Nothing was removed yet.
    Starting,
    /// The data are being replaced. The copy is complete when this account exists.
    Copying {
        /// The donor's account for this copy.
        account: CloneAccount,
    },
    /// The copy is complete; the accounts copied with it are removed.
    Copied,
    /// No copy is in progress. The state of the data is unknown, and mysqld is not used before it has a copy.
    Needed {
        /// Why, as a message.
        why: String,
    },
}

impl ProvisionNote {
    /// Loads the stored note.
    ///
    /// # Errors
    /// When the note exists and cannot be read.
    pub fn load(member_dir: &Path) -> io::Result<Option<Self>> {
        let path = member_dir.join(FILE);
        durable_file::load(&path).map_err(durable_file::about(&path))
    }

    /// Stores the note. Durable on return.
    ///
    /// # Errors
    /// The I/O error; the previous note may still exist.
    pub fn store(&self, member_dir: &Path) -> io::Result<()> {
        durable_file::store(&member_dir.join(FILE), self)
    }

    /// Removes the note, if it exists. Durable on return.
    ///
    /// # Errors
    /// The I/O error; the note may still exist.
    pub fn remove(member_dir: &Path) -> io::Result<()> {
        durable_file::remove(&member_dir.join(FILE))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use raft_types::MemberId;

    use super::*;

    #[test]
    fn a_note_stays_until_it_is_taken_away() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        assert_eq!(ProvisionNote::load(home).unwrap(), None);
        let account = CloneAccount::random(MemberId(3));
        for step in [
            NoteStep::Starting,
            NoteStep::Copying { account },
            NoteStep::Copied,
            NoteStep::Needed {
                why: "it was reset".to_owned(),
            },
        ] {
            let note = ProvisionNote {
                donor: "db-2".to_owned(),
                step,
            };
            note.store(home).unwrap();
            assert_eq!(ProvisionNote::load(home).unwrap(), Some(note));
        }
        ProvisionNote::remove(home).unwrap();
        ProvisionNote::remove(home).unwrap();
        assert_eq!(ProvisionNote::load(home).unwrap(), None);
    }

    #[test]
    fn a_note_that_cannot_be_read_is_no_missing_one() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(FILE), b"{").unwrap();
        assert!(ProvisionNote::load(home.path()).is_err());
    }
}
