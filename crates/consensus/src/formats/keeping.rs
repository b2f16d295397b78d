//! Format rules of one member: its data directory records a format before any data of it are written, and entries of unsupported formats
//! are refused.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use openraft::raft::AppendEntriesRequest;
use raft_types::{FormatMismatch, FormatVersion, MemberId, StoredMembership, TypeConfig};

use crate::bootstrap::identity::IdentityBook;
use crate::formats::{FormatStatus, Program, Programs, of_entry, of_membership};

/// The formats of one member.
#[derive(Debug)]
pub(crate) struct Formats {
    program: Program,
    /// The data directory; unset for a member without one.
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

    /// Stores the reached formats in this data directory from now on. Only the first call has an effect.
    pub(crate) fn keep_in(&self, book: Arc<IdentityBook>) {
        let _ = self.book.set(book);
    }

    /// Sets the format of calls to other members from the ring's format in the log.
    pub(crate) fn note_ring(&self, membership: &StoredMembership) {
        if let Some(book) = self.book.get() {
            book.note_ring_format(of_membership(membership));
        }
    }

    /// Ensures, before any data of this format are written, that a program without support for it refuses the data directory.
    ///
    /// # Errors
    /// This program does not support it, or the directory cannot be written, as text.
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

    /// Checks that these entries may be appended to the log.
    ///
    /// # Errors
    /// The reason for refusal, as text.
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

    /// Records why this member accepts no entries, until it accepts some.
    pub(crate) fn refuse(&self, why: &str) {
        let mut known = self.known();
        if known.refused.as_deref() != Some(why) {
            tracing::error!(%why, "this member takes no more entries");
            known.refused = Some(why.to_owned());
        }
    }

    /// The others' reports.
    pub(crate) fn others(&self) -> Programs {
        self.known().others.clone()
    }

    /// Replaces the others' earlier reports.
    pub(crate) fn told(&self, others: Programs) {
        self.known().others = others;
    }

    /// The members' program reports, including this one's.
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
