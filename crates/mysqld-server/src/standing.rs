//! The server's last role in its ring, stored on disk: the primary of a leadership, or a follower. After a restart, the record shows where
//! errant transactions of the server came from.
//!
//! A transaction that the ring lacks may be proposed only if this server wrote it as the primary. A server that has followed counts as the
//! primary again only after it was closed to all clients and a comparison found nothing errant. The order of writes:
//!
//! * The primary record is written after that comparison, and before the server is opened.
//! * The follower record is written before any client other than the ring's primary can write to the server. It is also written before a
//!   comparison while another member leads.
//!
//! A server recorded as `following` may have transactions beyond the log. They came neither from the ring nor from clients of a primary.

use std::io;
use std::path::{Path, PathBuf};

use binlog_format::gtid::GtidSet;
use raft_types::Term;
use serde::{Deserialize, Serialize};
use spilling_bytes::long_work;
use thiserror::Error;

use crate::durable_file;

const FILE: &str = "mysqld-standing.json";

/// A server's role in its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Standing {
    /// The ring's log is applied to the server, or will be.
    Following,
    /// When this leadership began, the server had all of the log and nothing else.
    Primary {
        /// The term of that leadership.
        term: u64,
    },
}

impl Standing {
    /// Returns the role of the primary of this leadership.
    pub fn primary(term: Term) -> Self {
        Self::Primary { term: term.0 }
    }
}

/// The role could not be stored.
#[derive(Debug, Error)]
#[error("what mysqld is in the ring cannot be written to {}: {source}", .file.display())]
pub struct StandingError {
    file: PathBuf,
    source: io::Error,
}

/// The file in which a member stores the role.
#[derive(Debug, Clone)]
pub struct StandingFile(PathBuf);

impl StandingFile {
    /// The file in this data directory of a member.
    pub fn of(member_dir: &Path) -> Self {
        Self(member_dir.join(FILE))
    }

    /// True if the primary role was recorded last.
    pub fn is_of_the_primary(&self) -> bool {
        matches!(self.load(), Some(Standing::Primary { .. }))
    }

    /// Loads the stored role. If the file is unreadable, returns `Following`, because a follower proposes nothing.
    pub fn load(&self) -> Option<Standing> {
        match durable_file::load(&self.0) {
            Ok(standing) => standing,
            Err(error) => {
                let file = self.0.display();
                tracing::warn!(
                    "{file} cannot be read, and mysqld is taken for a follower: {error}"
                );
                Some(Standing::Following)
            }
        }
    }

    /// Stores the role. Durable on return.
    ///
    /// # Errors
    /// The I/O error.
    pub async fn store(&self, standing: Standing) -> Result<(), StandingError> {
        let path = self.0.clone();
        let stored = long_work::on_disk(move || durable_file::store(&path, &standing));
        let file = self.0.clone();
        stored
            .await
            .map_err(|source| StandingError { file, source })
    }
}

/// True if the server's transactions beyond the log may be proposed. Pure. `log` is the ring's whole log, `origin` its content at creation:
/// a new ring starts with its first primary's transactions.
pub fn may_propose(standing: Option<Standing>, log: &GtidSet, origin: &GtidSet) -> bool {
    match standing {
        Some(Standing::Primary { .. }) => true,
        Some(Standing::Following) => false,
        None => log == origin,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_a_primary_and_a_ring_that_begins_give_the_ring_something_new() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let set = |text: &str| format!("{UUID}:{text}").parse::<GtidSet>().unwrap();
        let (nothing, origin, log) = (GtidSet::new(), set("1-5"), set("1-9"));
        let primary = Some(Standing::primary(Term(3)));
        let following = Some(Standing::Following);
        let table = [
            (primary, &log, &origin, true),
            (primary, &nothing, &nothing, true),
            (following, &log, &origin, false),
            (following, &origin, &origin, false),
            // No comparison was ever made: a newly added member, or a member with a new directory.
            (None, &log, &origin, false),
            (None, &log, &nothing, false),
            (None, &origin, &origin, true),
            (None, &nothing, &nothing, true),
        ];
        for (standing, log, origin, expected) in table {
            assert_eq!(may_propose(standing, log, origin), expected, "{standing:?}");
        }
    }

    #[tokio::test]
    async fn it_is_there_again_and_what_cannot_be_read_follows() {
        let home = tempfile::tempdir().unwrap();
        let file = StandingFile::of(home.path());
        assert_eq!(file.load(), None);
        for standing in [Standing::primary(Term(7)), Standing::Following] {
            file.store(standing).await.unwrap();
            assert_eq!(StandingFile::of(home.path()).load(), Some(standing));
        }
        fs::write(home.path().join(FILE), b"{}").unwrap();
        assert_eq!(file.load(), Some(Standing::Following));
        assert!(
            StandingFile::of(&home.path().join("none"))
                .store(Standing::Following)
                .await
                .is_err()
        );
    }
}
