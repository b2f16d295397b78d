//! What a data directory knows about itself: whose it is, and to which ring it belongs. It is written
//! before anything is said that depends on it, and a directory belongs to one ring for good.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use raft_types::{FormatRange, FormatVersion, Incarnation, MemberId, RingId};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

/// The identity of one data directory, as its identity file holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The number in the ring that this directory was first used under.
    pub member: MemberId,
    /// Made when the directory was first used.
    pub incarnation: Incarnation,
    /// The ring that it belongs to.
    pub ring: RingState,
}

impl Identity {
    /// A new directory of this member.
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
    /// It belongs to no ring yet: never bootstrapped, and no bootstrapping member has called.
    #[default]
    Fresh,
    /// This member makes the ring and has not finished. It goes on where it was, also after a restart.
    #[serde(rename = "founding")] // the name in identity files
    Bootstrapping {
        /// The ring in the making.
        ring: RingId,
    },
    /// To this one, for good.
    Belongs {
        /// The ring whose calls this directory answers from now on; it never changes.
        ring: RingId,
    },
}

impl RingState {
    /// The ring, also one in the making.
    pub fn ring(&self) -> Option<RingId> {
        match self {
            Self::Fresh => None,
            Self::Bootstrapping { ring } | Self::Belongs { ring } => Some(*ring),
        }
    }
}

/// Writes the identity file of a data directory.
pub trait IdentityFile: Send + Sync + 'static {
    /// Replaces the file as a whole.
    ///
    /// # Errors
    /// When the new content may not survive a power cut; the old or the new one is then there.
    fn write(&self, pages: &IdentityPages) -> io::Result<()>;
}

/// The identity in memory and the file behind it; memory never runs ahead of the file.
pub struct IdentityBook {
    pages: Mutex<IdentityPages>,
    file: Box<dyn IdentityFile>,
    ring: watch::Sender<RingState>,
    /// What the program that uses the directory speaks.
    speaks: FormatRange,
    /// The ring's format, as the log says it.
    ring_format: AtomicU32,
}

/// What stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityPages {
    /// The member, its data directory and its ring.
    pub identity: Identity,
    /// Where the log of its ring begins.
    pub origin: LogOrigin,
    /// The format that the directory has reached.
    pub reached: FormatVersion,
    /// Whether the directory has had a log, and with it votes and entries that it answered for. False also where that is unknown.
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
        /// The ring that is written in the identity file.
        ours: RingId,
        /// The ring that it was asked to join.
        theirs: RingId,
    },
    /// It makes a ring of its own.
    #[error(
        "member {member} is creating a ring of its own ({ours}); bootstrap only one member, and start this one with an empty data directory"
    )]
    Founder {
        /// The member that was started with `--bootstrap`.
        member: MemberId,
        /// The ring that it makes.
        ours: RingId,
    },
    /// The file could not be written.
    #[error("the identity file cannot be written: {0}; repair the data directory, then try again")]
    File(#[from] io::Error),
}

impl IdentityBook {
    /// The identity as it was read from the file that `file` writes, of a directory in the first format.
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

    /// The same, of a directory that has reached a format and is used by a program that speaks these.
    #[must_use]
    pub fn speaking(mut self, speaks: FormatRange, reached: FormatVersion) -> Self {
        self.speaks = speaks;
        // Until the log is open.
        self.ring_format = AtomicU32::new(reached.0);
        let pages = self.pages.get_mut();
        pages.unwrap_or_else(PoisonError::into_inner).reached = reached;
        self
    }

    /// The same, of a directory that has had a log if this says so.
    #[must_use]
    pub fn with_log_begun(mut self, log_begun: bool) -> Self {
        let pages = self.pages.get_mut();
        pages.unwrap_or_else(PoisonError::into_inner).log_begun = log_begun;
        self
    }

    /// Whether the directory has had a log: without one, it has lost it. False also where that is unknown.
    pub fn log_begun(&self) -> bool {
        self.lock().log_begun
    }

    /// Notes that the directory has a log, before anything is answered that only the log remembers. It has to be durable before:
    /// a directory that says so and never had one is of no use any more. Durable when it returns.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn note_log_begun(&self) -> io::Result<()> {
        let mut pages = self.lock();
        if pages.log_begun {
            return Ok(());
        }
        let changed = IdentityPages {
            log_begun: true,
            ..pages.clone()
        };
        self.file.write(&changed)?;
        *pages = changed;
        Ok(())
    }

    /// What the program that uses the directory speaks.
    pub fn speaks(&self) -> FormatRange {
        self.speaks
    }

    /// The newest format of anything that may have been written in the directory.
    pub fn reached(&self) -> FormatVersion {
        self.lock().reached
    }

    /// Notes, before anything of this format is written in the directory, that a program has to speak it. Durable when it returns;
    /// never lowered.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn raise(&self, to: FormatVersion) -> io::Result<()> {
        let mut pages = self.lock();
        if to <= pages.reached {
            return Ok(());
        }
        let changed = IdentityPages {
            reached: to,
            ..pages.clone()
        };
        self.file.write(&changed)?;
        *pages = changed;
        Ok(())
    }

    /// The ring's format, as the log says it now.
    pub fn note_ring_format(&self, format: FormatVersion) {
        self.ring_format.store(format.0, Ordering::Relaxed);
    }

    /// The format in which calls to other members are made: the ring's, or the one nearest to it that the program speaks.
    pub fn calls_in(&self) -> FormatVersion {
        let ring = FormatVersion(self.ring_format.load(Ordering::Relaxed));
        self.speaks.nearest(ring)
    }

    /// Where the log of its ring begins; at the first transaction of all while it has no ring.
    pub fn origin(&self) -> LogOrigin {
        self.lock().origin.clone()
    }

    /// The ring, for whoever waits until the directory belongs to one.
    pub fn ring(&self) -> watch::Receiver<RingState> {
        self.ring.subscribe()
    }

    /// A copy of what the identity file says at this moment.
    pub fn identity(&self) -> Identity {
        self.lock().identity
    }

    /// Joins a ring, whose log begins at `origin`. Joining it again changes nothing.
    ///
    /// # Errors
    /// [`IdentityError`] when the directory belongs to another ring or the file cannot be written.
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
                    Err(IdentityError::Founder { member, ours })
                }
            }
        })
    }

    /// Begins to make a ring, whose log begins at `origin`; going on with the same one changes nothing.
    ///
    /// # Errors
    /// [`IdentityError`] when the directory belongs to another ring or the file cannot be written.
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

    /// The ring that this member made has its first entry.
    ///
    /// # Errors
    /// [`IdentityError::File`].
    pub fn bootstrapped(&self) -> Result<(), IdentityError> {
        self.change(None, |identity| match identity.ring {
            RingState::Bootstrapping { ring } => Ok(RingState::Belongs { ring }),
            RingState::Fresh | RingState::Belongs { .. } => Ok(identity.ring),
        })
    }

    /// An origin is taken over with the first ring, and never changes after that.
    fn change(
        &self,
        origin: Option<&LogOrigin>,
        decide: impl FnOnce(&Identity) -> Result<RingState, IdentityError>,
    ) -> Result<(), IdentityError> {
        let mut pages = self.lock();
        let ring = decide(&pages.identity)?;
        if ring != pages.identity.ring {
            let mut changed = pages.clone();
            changed.identity.ring = ring;
            if let (Some(origin), RingState::Fresh) = (origin, pages.identity.ring) {
                changed.origin = origin.clone();
            }
            self.file.write(&changed)?;
            *pages = changed;
            self.ring.send_replace(ring);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, IdentityPages> {
        // The value is replaced as a whole, so a panic elsewhere cannot have left half of one.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for IdentityBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IdentityBook")
            .field(&self.identity())
            .finish()
    }
}

// Where a ring's log begins: behind the transactions that the servers had before there was a ring. All members are given the
// same origin together with the ring, because it stands in the header of the first file, which is the same bytes everywhere.

/// The transactions that a ring's log takes as given, a GTID set in MySQL's words. Empty where the log has them all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LogOrigin(String);

impl LogOrigin {
    /// A log that begins after the transactions of this GTID set.
    pub fn behind(gtids: impl Into<String>) -> Self {
        Self(gtids.into())
    }

    /// The GTID set as text, empty when the log begins with the ring's first transaction.
    pub fn gtids(&self) -> &str {
        &self.0
    }

    /// Whether the log begins with the first transaction of all.
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
        LogOrigin::behind("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7")
    }

    fn book() -> (IdentityBook, Disk) {
        let disk = Disk::default();
        let identity = Identity::fresh(MemberId(2));
        let book = IdentityBook::new(identity, LogOrigin::default(), Box::new(disk.clone()));
        (book, disk)
    }

    #[test]
    fn a_directory_reaches_a_format_on_disk_first_and_never_goes_back() {
        let (book, disk) = book();
        let two = FormatVersion(2);
        let range = FormatRange::between(FormatVersion::FIRST, two).unwrap();
        let book = book.speaking(range, FormatVersion::FIRST);
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
        // Calls are made in the ring's format, not in that of the directory.
        assert_eq!(book.calls_in(), FormatVersion::FIRST);
        // Before the log is open, nothing else is known.
        let again = IdentityBook::new(book.identity(), origin(), Box::new(disk.clone()));
        assert_eq!(again.speaking(range, two).calls_in(), two);
        for (ring, expected) in [(2, 2), (3, 2), (1, 1)] {
            book.note_ring_format(FormatVersion(ring));
            assert_eq!(book.calls_in().0, expected);
        }
    }

    #[test]
    fn a_directory_joins_one_ring_for_good() {
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
        // What its log begins behind stays as well.
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
    fn a_founder_joins_no_other_ring_and_ends_in_its_own() {
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
