//! What one member does about formats: its data directory reaches one before anything of it is written there, and an entry of a
//! format that its program does not speak is refused.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use openraft::raft::AppendEntriesRequest;
use raft_types::{FormatMismatch, FormatVersion, MemberId, StoredMembership, TypeConfig};

use crate::bootstrap::identity::IdentityBook;
use crate::formats::{FormatStatus, Program, Programs, of_entry, of_membership};

/// The formats of one member.
#[derive(Debug)]
pub(crate) struct Formats {
    program: Program,
    /// The data directory; none for a member without one.
    book: OnceLock<Arc<IdentityBook>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    others: Programs,
    refused: Option<String>,
}

impl Formats {
    pub(crate) fn new(program: Program) -> Self {
        Self {
            program,
            book: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// From now on the formats that are reached stand in this data directory. The first one stays.
    pub(crate) fn keep_in(&self, book: Arc<IdentityBook>) {
        let _ = self.book.set(book);
    }

    /// Lets the calls to other members be made in the ring's format, as the log says it now.
    pub(crate) fn note_ring(&self, membership: &StoredMembership) {
        if let Some(book) = self.book.get() {
            book.note_ring_format(of_membership(membership));
        }
    }

    /// Makes sure, before anything of this format is written, that a program that does not speak it refuses the data directory.
    ///
    /// # Errors
    /// This program does not speak it, or the directory cannot be written; in words.
    pub(crate) fn reach(&self, format: FormatVersion) -> Result<(), String> {
        let speaks = self.program.formats;
        if format > speaks.newest() {
            let found = format;
            let mismatch = FormatMismatch { found, speaks };
            return Err(format!("the ring has gone on to {mismatch}"));
        }
        let raised = self.book.get().map_or(Ok(()), |book| book.raise(format));
        raised.map_err(|error| {
            format!("the data directory cannot be raised to format {format}: {error}")
        })
    }

    /// Whether these entries may come into the log.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn take_in(&self, request: &AppendEntriesRequest<TypeConfig>) -> Result<(), String> {
        let said = request
            .entries
            .iter()
            .filter_map(|entry| of_entry(&entry.payload));
        let taken = said.max().map_or(Ok(()), |highest| self.reach(highest));
        match &taken {
            Err(why) => self.refuse(why),
            // Requests without entries are answered all the same.
            Ok(()) if request.entries.is_empty() => {}
            Ok(()) => self.known().refused = None,
        }
        taken
    }

    /// Notes why this member takes no entries, until it takes some.
    pub(crate) fn refuse(&self, why: &str) {
        let mut known = self.known();
        if known.refused.as_deref() != Some(why) {
            tracing::error!(%why, "this member takes no more entries");
            known.refused = Some(why.to_owned());
        }
    }

    /// What the others said.
    pub(crate) fn others(&self) -> Programs {
        self.known().others.clone()
    }

    /// Replaces what the others said before.
    pub(crate) fn told(&self, others: Programs) {
        self.known().others = others;
    }

    /// What the members said of their programs, this one included.
    pub(crate) fn programs(&self, own: MemberId) -> Programs {
        let mut programs = self.others();
        programs.insert(own, self.program.clone());
        programs
    }

    pub(crate) fn status(&self, membership: &StoredMembership) -> FormatStatus {
        let known = self.known();
        FormatStatus {
            program: self.program.clone(),
            ring: of_membership(membership),
            others: known.others.clone(),
            refused: known.refused.clone(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each field is replaced as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
