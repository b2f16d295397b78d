//! A handle on one running member of a ring: its Raft, and the administration of the ring. The methods for operators' requests are in the
//! modules of the data that they change.

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

/// A handle on one running member: its [`RaftMember`], with the administration of the ring. Clones share the member.
#[derive(Clone)]
pub struct Member(Arc<RunningMember>);

struct RunningMember {
    raft: RaftMember,
    admin: Arc<Administration>,
    /// The administration's tasks, which are aborted when the last handle is dropped.
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

    /// Sets the identity file of the member's data directory. Called once, directly after the start. After this call, a
    /// format is recorded there before data of that format is written, and calls to other members use the ring's format.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep_formats_in(&self, book: &Arc<IdentityBook>) -> io::Result<()> {
        let local = &self.0.admin.local;
        // A member has one data directory for its lifetime.
        let _ = local.book.set(book.clone());
        local.note_membership(&self.node().role().membership);
        book.raise(self.ring_format())
    }

    /// Returns the ring's format according to this member's log: the newest format that may be used. Code that needs a
    /// newer format than the first must check it.
    pub fn ring_format(&self) -> FormatVersion {
        formats::of_membership(&self.node().role().membership)
    }

    /// Sets the writer to this member's log, which is paused before a deliberate leadership transfer. Called once.
    pub fn set_writer(&self, writer: Arc<dyn Writer>) {
        // A member has one writer for its lifetime.
        let _ = self.0.admin.writer.set(writer);
    }

    /// Sets the member's mysqld, which reports its state before a promotion. Called once.
    pub fn set_database(&self, database: Arc<dyn Database>) {
        // A member has one mysqld for its lifetime.
        let _ = self.0.admin.local.database.set(database);
    }

    /// Queries a database member, which may be this one, for the state of its mysqld before a promotion; `None` without an answer.
    pub async fn database_state(&self, of: MemberId) -> Option<DatabaseState> {
        self.0.admin.database_state(of).await
    }

    /// Returns the last events of the ring in this member's log, oldest first.
    pub fn history(&self) -> Vec<HistoryEntry> {
        let role = self.node().role();
        let records = role.membership.membership().nodes();
        history::read(records.map(|(_, record)| record))
    }

    /// Records an event for the ring's history. The event is appended to the log when there is a leader, after pending
    /// entries of clients. If this process ends earlier, the event is lost.
    pub fn note(&self, by: &str, event: HistoryEvent) {
        let entry = self.0.admin.entry_now(by, event);
        self.0.admin.local.notes.take(vec![entry]);
    }

    /// Returns a member with its name in the log.
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
