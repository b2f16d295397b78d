//! The identity of a data directory: its member and its ring. It is written before any answer that depends on it, and a directory
//! permanently belongs to one ring.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use raft_types::{FormatRange, FormatVersion, Incarnation, MemberId, RingId, lock};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

/// The identity of one data directory, as stored in its identity file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The member number under which this directory was first used.
    pub member: MemberId,
    /// Generated when the directory was first used.
    pub incarnation: Incarnation,
    /// Its ring.
    pub ring: RingState,
}

impl Identity {
    /// A new directory for this member.
    pub fn fresh(member: MemberId) -> Self {
        Self {
            member,
            incarnation: Incarnation::random(),
            ring: RingState::Fresh,
        }
    }
}

/// How a data directory is bound to a ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RingState {
    /// It belongs to no ring: never bootstrapped, and not yet called by a bootstrapping member.
    #[default]
    Fresh,
    /// This member is bootstrapping the ring. It resumes after a restart.
    #[serde(rename = "founding")] // the name in identity files
    Bootstrapping {
        /// The ring being bootstrapped.
        ring: RingId,
    },
    /// It permanently belongs to this ring.
    Belongs {
        /// The ring of the calls that this directory answers; it never changes.
        ring: RingId,
    },
}

impl RingState {
    /// The ring, including one being bootstrapped.
    pub fn ring(&self) -> Option<RingId> {
        match self {
            Self::Fresh => None,
            Self::Bootstrapping { ring } | Self::Belongs { ring } => Some(*ring),
        }
    }
}

/// Writes the identity file of a data directory.
pub trait IdentityFile: Send + Sync + 'static {
    /// Replaces the whole file.
    ///
    /// # Errors
    /// The new content may not survive a power cut; the file then holds the old or the new content.
    fn write(&self, pages: &IdentityPages) -> io::Result<()>;
}

/// The identity in memory and its file; memory is never ahead of the file.
pub struct IdentityBook {
    pages: Mutex<IdentityPages>,
    file: Box<dyn IdentityFile>,
    ring: watch::Sender<RingState>,
    /// The formats that the program supports.
    speaks: FormatRange,
    /// The ring's format according to the log.
    ring_format: AtomicU32,
}

/// The content of the identity file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityPages {
    /// The member, its data directory and its ring.
    pub identity: Identity,
    /// The start of its ring's log.
    pub origin: LogOrigin,
    /// The highest format used in the directory.
    pub reached: FormatVersion,
    /// True if the directory has had a log, with votes and entries that it answered for. Also false if unknown.
    pub log_begun: bool,
}

/// Why a data directory does not change its ring.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// It belongs to another ring.
    #[error(
        "member {member} belongs to ring {ours}, not to {theirs}; a data directory never changes its ring: give the member an empty one"
    )]
    OtherRing {
        /// The member that owns the directory.
        member: MemberId,
        /// The ring in the identity file.
        ours: RingId,
        /// The ring that it was asked to join.
        theirs: RingId,
    },
    /// It is bootstrapping its own ring.
    #[error(
        "member {member} is creating a ring of its own ({ours}); bootstrap only one member, and start this one with an empty data directory"
    )]
    Bootstrapping {
        /// The member that was started with `--bootstrap`.
        member: MemberId,
        /// The ring that it bootstraps.
        ours: RingId,
    },
    /// The file could not be written.
    #[error("the identity file cannot be written: {0}; repair the data directory, then try again")]
    File(#[from] io::Error),
}

impl IdentityBook {
    /// The identity read from the file that `file` writes, for a directory in the first format.
    pub fn new(identity: Identity, origin: LogOrigin, file: Box<dyn IdentityFile>) -> Self {
        let reached = FormatVersion::FIRST;
        Self {
            ring: watch::Sender::new(identity.ring),
            pages: Mutex::new(IdentityPages {
                identity,
                origin,
                reached,
                log_begun: false,
            }),
            file,
            speaks: FormatRange::OF_THIS_PROGRAM,
            ring_format: AtomicU32::new(reached.0),
        }
    }

    /// Sets the formats that the program supports, the directory's highest format, and whether the directory has had a log.
    #[must_use]
    pub fn speaking(
        mut self,
        speaks: FormatRange,
        reached: FormatVersion,
        log_begun: bool,
    ) -> Self {
        self.speaks = speaks;
        // Valid until the log is open.
        self.ring_format = AtomicU32::new(reached.0);
        let pages = self.pages.get_mut();
        let pages = pages.unwrap_or_else(PoisonError::into_inner);
        (pages.reached, pages.log_begun) = (reached, log_begun);
        self
    }

    /// True if the directory has had a log: if it now has none, the log was lost. Also false if unknown.
    pub fn log_begun(&self) -> bool {
        lock(&self.pages).log_begun
    }

    /// Records that the directory has a log, before any answer that only the log remembers. The log must be durable first: a directory with
    /// this record that never had a log is unusable. Durable on return.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_log_begun(&self) -> io::Result<()> {
        self.write(&mut lock(&self.pages), |pages| pages.log_begun = true)
    }

    /// The formats that the program supports.
    pub fn speaks(&self) -> FormatRange {
        self.speaks
    }

    /// The newest format of any data that may have been written in the directory.
    pub fn reached(&self) -> FormatVersion {
        lock(&self.pages).reached
    }

    /// Records that a program must support this format, before any data of the format is written in the directory. Durable on return; never
    /// lowered.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn raise(&self, to: FormatVersion) -> io::Result<()> {
        self.write(&mut lock(&self.pages), |pages| {
            pages.reached = to.max(pages.reached)
        })
    }

    /// Sets the ring's format according to the log.
    pub fn note_ring_format(&self, format: FormatVersion) {
        self.ring_format.store(format.0, Ordering::Relaxed);
    }

    /// The format of calls to other members: the ring's, or the nearest one that the program supports.
    pub fn calls_in(&self) -> FormatVersion {
        let ring = FormatVersion(self.ring_format.load(Ordering::Relaxed));
        self.speaks.nearest(ring)
    }

    /// The start of its ring's log; the very first transaction if it has no ring.
    pub fn origin(&self) -> LogOrigin {
        lock(&self.pages).origin.clone()
    }

    /// The ring, as a channel to wait for it.
    pub fn ring(&self) -> watch::Receiver<RingState> {
        self.ring.subscribe()
    }

    /// A copy of the current identity.
    pub fn identity(&self) -> Identity {
        lock(&self.pages).identity
    }

    /// Joins a ring whose log begins at `origin`. Idempotent.
    ///
    /// # Errors
    /// [`IdentityError`] if the directory belongs to another ring or the file cannot be written.
    pub fn adopt(&self, ring: RingId, origin: &LogOrigin) -> Result<(), IdentityError> {
        self.change(Some(origin), |identity| {
            let member = identity.member;
            match identity.ring {
                RingState::Fresh => Ok(RingState::Belongs { ring }),
                RingState::Belongs { ring: ours } if ours == ring => Ok(identity.ring),
                RingState::Belongs { ring: ours } => Err(IdentityError::OtherRing {
                    member,
                    ours,
                    theirs: ring,
                }),
                RingState::Bootstrapping { ring: ours } => {
                    Err(IdentityError::Bootstrapping { member, ours })
                }
            }
        })
    }

    /// Begins to bootstrap a ring whose log begins at `origin`, or resumes the same one without a change.
    ///
    /// # Errors
    /// [`IdentityError`] if the directory belongs to another ring or the file cannot be written.
    pub fn begin_bootstrap(&self, ring: RingId, origin: &LogOrigin) -> Result<(), IdentityError> {
        self.change(Some(origin), |identity| match identity.ring {
            RingState::Fresh => Ok(RingState::Bootstrapping { ring }),
            RingState::Bootstrapping { ring: ours } if ours == ring => Ok(identity.ring),
            RingState::Bootstrapping { ring: ours } | RingState::Belongs { ring: ours } => {
                Err(IdentityError::OtherRing {
                    member: identity.member,
                    ours,
                    theirs: ring,
                })
            }
        })
    }

    /// Records that the bootstrapped ring has its first entry.
    ///
    /// # Errors
    /// [`IdentityError::File`].
    pub fn bootstrapped(&self) -> Result<(), IdentityError> {
        self.change(None, |identity| match identity.ring {
            RingState::Bootstrapping { ring } => Ok(RingState::Belongs { ring }),
            RingState::Fresh | RingState::Belongs { .. } => Ok(identity.ring),
        })
    }

    /// The origin is set with the first ring, and never changes afterwards.
    fn change(
        &self,
        origin: Option<&LogOrigin>,
        decide: impl FnOnce(&Identity) -> Result<RingState, IdentityError>,
    ) -> Result<(), IdentityError> {
        let mut pages = lock(&self.pages);
        let ring = decide(&pages.identity)?;
        if ring != pages.identity.ring {
            self.write(&mut pages, |pages| {
                if let (Some(origin), RingState::Fresh) = (origin, pages.identity.ring) {
                    pages.origin = origin.clone();
                }
                pages.identity.ring = ring;
            })?;
            self.ring.send_replace(ring);
        }
        Ok(())
    }

    /// Writes the changed pages to the file, then keeps them in memory. Without a change nothing is written.
    fn write(
        &self,
        pages: &mut IdentityPages,
        change: impl FnOnce(&mut IdentityPages),
    ) -> io::Result<()> {
        let mut changed = pages.clone();
        change(&mut changed);
        if changed != *pages {
            self.file.write(&changed)?;
            *pages = changed;
        }
        Ok(())
    }
}

impl std::fmt::Debug for IdentityBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IdentityBook")
            .field(&self.identity())
            .finish()
    }
}

// The start of a ring's log: after the transactions that the servers had before bootstrap. All members receive the same origin with the
// ring, because the first file's header contains it, and that file is byte-identical everywhere.

/// The transactions that a ring's log presupposes, as a MySQL GTID set. Empty if the log has all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogOrigin(String);

impl LogOrigin {
    /// A log that begins after the transactions of this GTID set.
    pub fn after(gtids: impl Into<String>) -> Self {
        Self(gtids.into())
    }

    /// The GTID set as text; empty if the log begins with the ring's first transaction.
    pub fn gtids(&self) -> &str {
        &self.0
    }

    /// Whether the log begins with the very first transaction.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[derive(Default, Clone)]
    struct Disk {
        content: Arc<Mutex<Option<IdentityPages>>>,
        full: Arc<AtomicBool>,
    }

    impl IdentityFile for Disk {
        fn write(&self, pages: &IdentityPages) -> io::Result<()> {
            if self.full.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *self.content.lock().unwrap() = Some(pages.clone());
            Ok(())
        }
    }

    fn origin() -> LogOrigin {
        LogOrigin::after("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7")
    }

    fn book() -> (IdentityBook, Disk) {
        let disk = Disk::default();
        let identity = Identity::fresh(MemberId(2));
        let book = IdentityBook::new(identity, LogOrigin::default(), Box::new(disk.clone()));
        (book, disk)
    }

    #[test]
    fn a_directory_stores_a_format_first_and_never_lowers_it() {
        let (book, disk) = book();
        let two = FormatVersion(2);
        let range = FormatRange::between(FormatVersion::FIRST, two).unwrap();
        let book = book.speaking(range, FormatVersion::FIRST, false);
        disk.full.store(true, Ordering::Relaxed);
        book.raise(two).unwrap_err();
        assert_eq!(book.reached(), FormatVersion::FIRST);
        disk.full.store(false, Ordering::Relaxed);
        book.raise(two).unwrap();
        book.raise(FormatVersion::FIRST).unwrap();
        assert_eq!(book.reached(), two);
        book.adopt(RingId::random(), &origin()).unwrap();
        let written = disk.content.lock().unwrap().clone().unwrap();
        assert_eq!(written.reached, two);
        // Calls use the ring's format, not the directory's.
        assert_eq!(book.calls_in(), FormatVersion::FIRST);
        // Before the log is open, no other format is known.
        let again = IdentityBook::new(book.identity(), origin(), Box::new(disk.clone()));
        assert_eq!(again.speaking(range, two, false).calls_in(), two);
        for (ring, expected) in [(2, 2), (3, 2), (1, 1)] {
            book.note_ring_format(FormatVersion(ring));
            assert_eq!(book.calls_in().0, expected);
        }
    }

    #[test]
    fn a_directory_joins_one_ring_permanently() {
        let (book, disk) = book();
        let (ring, other) = (RingId::random(), RingId::random());
        let mut waiting = book.ring();
        book.adopt(ring, &origin()).unwrap();
        assert!(waiting.has_changed().unwrap());
        assert_eq!(*waiting.borrow_and_update(), RingState::Belongs { ring });
        let written = disk.content.lock().unwrap().clone().unwrap();
        assert_eq!(
            (written.identity, written.origin),
            (book.identity(), origin())
        );
        book.adopt(ring, &origin()).unwrap();
        let refusal = book
            .adopt(other, &LogOrigin::default())
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("member 2 belongs to ring"), "{refusal}");
        assert_eq!(book.identity().ring, RingState::Belongs { ring });
        // Its log's origin stays as well.
        book.adopt(ring, &LogOrigin::default()).unwrap();
        assert_eq!(book.origin(), origin());
    }

    #[test]
    fn that_a_log_was_begun_is_on_disk_first_and_stays() {
        let (book, disk) = book();
        disk.full.store(true, Ordering::Relaxed);
        book.note_log_begun().unwrap_err();
        assert!(!book.log_begun());
        disk.full.store(false, Ordering::Relaxed);
        book.note_log_begun().unwrap();
        assert!(book.log_begun());
        book.adopt(RingId::random(), &origin()).unwrap();
        let written = disk.content.lock().unwrap().clone().unwrap();
        assert!(written.log_begun && written.identity.ring != RingState::Fresh);
    }

    #[test]
    fn nothing_changes_when_the_file_cannot_be_written() {
        let (book, disk) = book();
        disk.full.store(true, Ordering::Relaxed);
        assert!(matches!(
            book.adopt(RingId::random(), &origin()),
            Err(IdentityError::File(_))
        ));
        assert_eq!(book.identity().ring, RingState::Fresh);
        assert!(!book.ring().has_changed().unwrap());
    }

    #[test]
    fn a_bootstrapping_member_joins_only_its_own_ring() {
        let (book, _disk) = book();
        let ring = RingId::random();
        book.begin_bootstrap(ring, &origin()).unwrap();
        book.begin_bootstrap(ring, &origin()).unwrap();
        let refusal = book
            .adopt(RingId::random(), &origin())
            .unwrap_err()
            .to_string();
        assert!(refusal.contains("bootstrap only one member"), "{refusal}");
        book.bootstrapped().unwrap();
        assert_eq!(book.identity().ring, RingState::Belongs { ring });
        assert!(book.begin_bootstrap(RingId::random(), &origin()).is_err());
    }
}
