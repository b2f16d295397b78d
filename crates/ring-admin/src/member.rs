//! A handle on one running member of a ring: its Raft, and the administration of the ring by it. The requests of operators are in the modules
//! of what they change.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use consensus::{Administrator, DatabaseState, HistoryEntry, HistoryEvent, Named, RaftMember};
use raft_types::{FormatVersion, MemberId};
use tokio::task::JoinSet;

use crate::administration::Administration;
use crate::formats;
use crate::history;
use crate::identity::IdentityBook;
use crate::mysqld::{Database, Writer};

/// A handle on one running member; clones share it. It is the member's [`RaftMember`] with the administration of the ring.
#[derive(Clone)]
pub struct Member(Arc<RunningMember>);

struct RunningMember {
    raft: RaftMember,
    admin: Arc<Administration>,
    /// Aborted with the last handle.
    _tasks: JoinSet<()>,
}

impl Member {
    pub(crate) fn new(raft: RaftMember, admin: Arc<Administration>, tasks: JoinSet<()>) -> Self {
        let running = RunningMember {
            raft,
            admin,
            _tasks: tasks,
        };
        Self(Arc::new(running))
    }

    pub(crate) fn admin(&self) -> &Arc<Administration> {
        &self.0.admin
    }

    /// From now on the ring's formats are stored in this data directory before data in them is written there.
    /// Calls to other members use the ring's format. Called once, directly after the start.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn keep_formats_in(&self, book: &Arc<IdentityBook>) -> io::Result<()> {
        let local = &self.0.admin.local;
        // A member has one data directory for its lifetime.
        let _ = local.book.set(book.clone());
        local.note_membership(&self.node().role().membership);
        book.raise(self.ring_format())
    }

    /// The ring's format by this member's log: the newest one that may be used. Code that needs a newer format than the
    /// first checks this.
    pub fn ring_format(&self) -> FormatVersion {
        formats::of_membership(&self.node().role().membership)
    }

    /// Sets the writer to this member's log, which is paused before a deliberate leadership transfer. Called once.
    pub fn set_writer(&self, writer: Arc<dyn Writer>) {
        // A member has one writer for its lifetime.
        let _ = self.0.admin.writer.set(writer);
    }

    /// Sets the source for what a promotion of this member would cost its mysqld. Called once.
    pub fn set_database(&self, database: Arc<dyn Database>) {
        // A member has one mysqld for its lifetime.
        let _ = self.0.admin.local.database.set(database);
    }

    /// Asks a database member, which may be this one, what a promotion of it would cost. Nothing without an answer.
    pub async fn database_state(&self, of: MemberId) -> Option<DatabaseState> {
        self.0.admin.database_state(of).await
    }

    /// The last events of the ring, oldest first, by this member's log.
    pub fn history(&self) -> Vec<HistoryEntry> {
        let role = self.node().role();
        let records = role.membership.membership().nodes();
        history::read(records.map(|(_, record)| record))
    }

    /// Records an event for the ring's history. It is appended when there is a leader, after pending client
    /// entries, and is lost if this process ends before.
    pub fn note(&self, by: &str, event: HistoryEvent) {
        let entry = self.0.admin.entry_now(by, event);
        self.0.admin.local.notes.take(vec![entry]);
    }

    /// A member as named in the log.
    pub fn named(&self, id: MemberId) -> Option<Named> {
        let role = self.node().role();
        let record = role.membership.get_node(&id)?;
        Some(Named::of(id, record))
    }
}

impl Deref for Member {
    type Target = RaftMember;

    fn deref(&self) -> &RaftMember {
        &self.0.raft
    }
}
