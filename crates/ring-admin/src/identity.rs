//! The identity of a data directory: its member and its ring. The identity is durable before the member gives any answer that depends on
//! it. A directory belongs to one ring permanently.

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
    /// The state of the directory's ring.
    pub ring: RingState,
}

impl Identity {
    /// Creates the identity of a new directory for this member.
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
    /// The directory belongs to no ring: it was never bootstrapped, and no bootstrapping member has called it.
    #[default]
    Fresh,
    /// This member is bootstrapping the ring. It resumes the bootstrap after a restart.
    #[serde(rename = "founding")] // the name in identity files
    Bootstrapping {
        /// The ring being bootstrapped.
        ring: RingId,
    },
    /// The directory permanently belongs to this ring.
    Belongs {
        /// The ring, which never changes. Only calls of this ring are answered.
        ring: RingId,
    },
}

impl RingState {
    /// Returns the ring, also while it is being bootstrapped.
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
    /// When the new content may not be durable. After a power cut, the file has the old or the new content.
    fn write(&self, pages: &IdentityPages) -> io::Result<()>;
}

/// The identity in memory and its file. A change is written to the file before it is visible in memory.
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
    /// The start of the ring's log.
    pub origin: LogOrigin,
    /// The highest format used in the directory.
    pub reached: FormatVersion,
    /// True if the directory has had a log, with votes and entries that the member has acknowledged. False also if that is unknown.
    pub log_begun: bool,
}

/// Why a data directory does not change its ring.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The directory belongs to another ring.
    #[error(
        "member {member} belongs to ring {ours}, not to {theirs}; a data directory never changes its ring: give the member an empty one"
    )]
    OtherRing {
        /// The member that owns the directory.
        member: MemberId,
        /// The ring in the identity file.
        ours: RingId,
        /// The ring that the member was asked to join.
        theirs: RingId,
    },
    /// The member is bootstrapping its own ring.
    #[error(
        "member {member} is creating a ring of its own ({ours}); bootstrap only one member, and start this one with an empty data directory"
    )]
    Bootstrapping {
        /// The member that was started with `--bootstrap`.
        member: MemberId,
        /// The ring that the member bootstraps.
        ours: RingId,
    },
    /// The file could not be written.
    #[error("the identity file cannot be written: {0}; repair the data directory, then try again")]
    File(#[from] io::Error),
}

impl IdentityBook {
    /// Creates a book for an identity that was read from the file that `file` writes. The directory's format is the first one.
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
        // Until the log is open, the directory's highest format is assumed for the ring.
        self.ring_format = AtomicU32::new(reached.0);
        let pages = self.pages.get_mut();
        let pages = pages.unwrap_or_else(PoisonError::into_inner);
        (pages.reached, pages.log_begun) = (reached, log_begun);
        self
    }

    /// Returns true if the directory has had a log. If it has none now, the log was lost. Returns false also if that is unknown.
    pub fn log_begun(&self) -> bool {
        lock(&self.pages).log_begun
    }

    /// Records that the directory has a log. Must be called before the member gives an answer that only the log stores, and after the log
    /// is durable: a directory with this record and without a log is unusable. Durable on return.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_log_begun(&self) -> io::Result<()> {
        self.write(&mut lock(&self.pages), |pages| pages.log_begun = true)
    }

    /// Returns the formats that the program supports.
    pub fn speaks(&self) -> FormatRange {
        self.speaks
    }

    /// Returns the newest format of any data that may have been written in the directory.
    pub fn reached(&self) -> FormatVersion {
        lock(&self.pages).reached
    }

    /// Records that a program must support this format to use the directory. Must be called before any data of the format is written there.
    /// A lower format than the recorded one changes nothing. Durable on return.
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

    /// Returns the format of calls to other members: the ring's format, or the nearest format that the program supports.
    pub fn calls_in(&self) -> FormatVersion {
        let ring = FormatVersion(self.ring_format.load(Ordering::Relaxed));
        self.speaks.nearest(ring)
    }

    /// Returns the start of the ring's log. Without a ring, it is the very first transaction.
    pub fn origin(&self) -> LogOrigin {
        lock(&self.pages).origin.clone()
    }

    /// Returns a channel with the state of the directory's ring, for tasks that wait for a ring.
    pub fn ring(&self) -> watch::Receiver<RingState> {
        self.ring.subscribe()
    }

    /// Returns the current identity.
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

    /// Begins to bootstrap a ring whose log begins at `origin`. If the same ring is already being bootstrapped, nothing is changed.
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

    /// Changes the state of the ring. The origin is set together with the first ring, and never changes afterwards.
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

    /// Writes changed pages to the file, and then stores them in memory. If nothing has changed, nothing is written.
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

// The start of a ring's log: it follows the transactions that the servers had executed before the bootstrap. All members receive the same
// origin, because it is in the header of the first log file, which is byte-identical on all members.

/// The transactions that were executed before a ring's log begins, as a MySQL GTID set. Empty if the log has all transactions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogOrigin(String);

impl LogOrigin {
    /// Creates the origin of a log that begins after the transactions of this GTID set.
    pub fn after(gtids: impl Into<String>) -> Self {
        Self(gtids.into())
    }

    /// Returns the GTID set as text. It is empty if the log begins with the ring's first transaction.
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
        // Calls use the ring's format, not the directory's highest format.
        assert_eq!(book.calls_in(), FormatVersion::FIRST);
        // Before the log is open, only the directory's highest format is known.
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
        // The origin of the ring's log does not change either.
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
