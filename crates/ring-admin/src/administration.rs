//! The administration of a ring by one of its members: changes of the ring's membership and rules, and the parts of the member that
//! operators' requests and the leader tasks need for these changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use consensus::quorum::{RingRules, VoterSets, policy};
use consensus::{
    Administrator, Answer, DatabaseState, FormatError, HistoryEntry, HistoryEvent, MoveError,
    Program, Question, RaftMember, RaftNode, RoleSnapshot,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use openraft::raft::AppendEntriesRequest;
use raft_types::{
    FormatMismatch, FormatVersion, MemberId, MemberRecord, OpId, StoredMembership, TypeConfig, lock,
};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, watch};

use crate::formats::{self, Programs};
use crate::history::{self, Notes};
use crate::identity::IdentityBook;
use crate::mysqld::{self, Database, Writer};

/// The task that a leader performs for its ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderTask {
    /// The leader changes the voter sets.
    MovingQuorum {
        /// The target voter sets of this step.
        next: VoterSets,
        /// The database member that is to lead, if the leader is a witness.
        target: Option<MemberId>,
    },
    /// The leader, a witness, transfers the leadership to this database member.
    Transferring(MemberId),
    /// A task is due, but blocked for the reason in the text. While it is blocked, a witness continues to lead, but serves no clients.
    Waiting(String),
}

/// The state that one member's tasks for the administration of the ring share.
pub(crate) struct Administration {
    pub(crate) node: Arc<RaftNode>,
    /// The rules in this member's configuration file, which apply if the log has none.
    configured: RingRules,
    /// Held by a task that changes the members, the quorum or the leader, from its decision to the end of the change.
    pub(crate) reconfiguration_lock: AsyncMutex<()>,
    /// The member's writer; unset for a member without a writer.
    pub(crate) writer: OnceLock<Arc<dyn Writer>>,
    pub(crate) local: Arc<LocalState>,
    /// The current task of this leader; `None` if it has none, or does not lead.
    pub(crate) leader_task: watch::Sender<Option<LeaderTask>>,
}

/// The data of this member for the administration of the ring, apart from the log.
pub(crate) struct LocalState {
    /// The member's mysqld; unset for a member without a mysqld.
    pub(crate) database: OnceLock<Arc<dyn Database>>,
    /// Events that wait for the ring's history.
    pub(crate) notes: Notes,
    /// The program that runs here.
    pub(crate) program: Program,
    /// The identity file of the data directory, which stores the highest format; unset for a member without a data directory.
    pub(crate) book: OnceLock<Arc<IdentityBook>>,
    /// The latest reports of other members about their programs.
    pub(crate) programs: Mutex<Programs>,
    /// Why this member refused the last entries, as text; `None` after it has accepted entries.
    pub(crate) refused: Mutex<Option<String>>,
}

impl LocalState {
    pub(crate) fn new(program: Program) -> Self {
        Self {
            database: OnceLock::new(),
            notes: Notes::default(),
            program,
            book: OnceLock::new(),
            programs: Mutex::default(),
            refused: Mutex::default(),
        }
    }

    /// Returns the version of the member's own mysqld, if known.
    pub(crate) fn database_version(&self) -> Option<String> {
        self.database.get()?.version()
    }

    /// Checks that this program can use a log in this format. A format older than the supported ones is accepted: it does not prevent a
    /// start.
    fn check_supported(&self, found: FormatVersion) -> Result<(), FormatMismatch> {
        let speaks = self.program.formats;
        match found > speaks.newest() {
            true => Err(FormatMismatch { found, speaks }),
            false => Ok(()),
        }
    }

    /// Records this format in the data directory before any data of the format is written. A program that does not support the format then
    /// refuses the directory.
    pub(crate) fn reach(&self, format: FormatVersion) -> Result<(), FormatError> {
        self.check_supported(format)?;
        let raised = self.book.get().map_or(Ok(()), |book| book.raise(format));
        raised.map_err(|error| FormatError::Directory { format, error })
    }
}

impl Administrator for LocalState {
    fn check(&self, membership: &StoredMembership) -> Result<(), FormatMismatch> {
        self.check_supported(formats::of_membership(membership))
    }

    fn note_membership(&self, membership: &StoredMembership) {
        // Calls to other members use the ring's format.
        if let Some(book) = self.book.get() {
            book.note_ring_format(formats::of_membership(membership));
        }
    }

    fn prepare_for(&self, membership: &StoredMembership) -> Result<(), FormatError> {
        self.reach(formats::of_membership(membership))
    }

    fn accept_entries(&self, request: &AppendEntriesRequest<TypeConfig>) -> bool {
        let entries = request.entries.iter();
        let memberships = entries.filter_map(|entry| entry.payload.as_membership());
        let formats = memberships.map(|new| formats::of(new.nodes().map(|(_, record)| record)));
        let reached = formats.max().map_or(Ok(()), |highest| self.reach(highest));
        match &reached {
            Err(why) => self.entries_refused(&why.to_string()),
            // A request without entries is accepted in any case, so it does not clear the reason of a refusal.
            Ok(()) if request.entries.is_empty() => {}
            Ok(()) => *lock(&self.refused) = None,
        }
        reached.is_ok()
    }

    fn entries_refused(&self, why: &str) {
        let mut refused = lock(&self.refused);
        if refused.as_deref() != Some(why) {
            tracing::error!(%why, "this member takes no more entries");
            *refused = Some(why.to_owned());
        }
    }

    fn database_state(&self, primary: Option<String>) -> BoxFuture<'_, Option<DatabaseState>> {
        async move {
            match self.database.get() {
                Some(database) => Some(database.state(primary).await),
                None => None,
            }
        }
        .boxed()
    }

    fn keep_events(&self, entries: Vec<HistoryEntry>) {
        self.notes.take(entries);
    }
}

impl Administration {
    pub(crate) fn new(raft: &RaftMember, local: Arc<LocalState>) -> Self {
        Self {
            node: raft.node().clone(),
            configured: raft.config().rules.clone(),
            reconfiguration_lock: AsyncMutex::new(()),
            writer: OnceLock::new(),
            local,
            leader_task: watch::Sender::default(),
        }
    }

    /// Acquires the reconfiguration lock; returns `None` if another task holds it for longer than a lease.
    pub(crate) async fn lock(&self) -> Option<MutexGuard<'_, ()>> {
        let lock = self.reconfiguration_lock.lock();
        let patience = self.node.timers().lease;
        tokio::time::timeout(patience, lock).await.ok()
    }

    /// Creates an entry for the ring's history with the current time. `by` is empty if no operator ordered the change.
    pub(crate) fn entry_now(&self, by: &str, event: HistoryEvent) -> HistoryEntry {
        history::entry_now(self.node.role().term, by, event)
    }

    /// Queries a voting database member, which may be this one, for the state of its mysqld before a promotion; `None` without an answer.
    pub(crate) async fn database_state(&self, of: MemberId) -> Option<DatabaseState> {
        if of == self.node.id() {
            return self.local.database_state(None).await;
        }
        let view = self.node.ring_view();
        let peer = mysqld::candidates(&view).find(|peer| peer.id == of)?;
        let primary = self.local.database_version();
        let question = Question::Database { primary };
        let calls = self.node.calls();
        match calls.ask(of, &peer.record, question, mysqld::NAMED).await {
            Ok(Answer::Database(state)) => Some(state),
            Ok(_) | Err(_) => None,
        }
    }

    /// Returns the rules in force.
    pub(crate) fn rules(&self) -> RingRules {
        let role = self.node.role();
        let records = role.membership.membership().nodes();
        policy::in_force(records.map(|(_, record)| record), &self.configured)
    }

    /// Returns the members for the next membership, before any change to them. `role` has the current membership.
    pub(crate) fn members_to_be(&self, role: &RoleSnapshot) -> BTreeMap<MemberId, MemberRecord> {
        let mut members = role.members();
        policy::carry_on(&mut members, &self.configured);
        formats::carry_on(&mut members);
        members
    }

    /// Changes only the voter sets, in the current term of this leader. The caller holds the reconfiguration lock.
    pub(crate) async fn move_quorum(&self, sets: VoterSets) -> Result<(), MoveError> {
        let role = self.node.role();
        let members = self.members_to_be(&role);
        let moved = self.node.append_membership(&role, sets, members).await?;
        tracing::info!(op_id = %moved, "the quorum has moved");
        Ok(())
    }

    /// Changes only the members' records, in the current term of this leader, and adds entries to the ring's history. The caller holds the
    /// reconfiguration lock.
    pub(crate) async fn change_records(
        &self,
        entries: &[HistoryEntry],
        change: impl FnOnce(&mut BTreeMap<MemberId, MemberRecord>),
    ) -> Result<OpId, MoveError> {
        let role = self.node.role();
        let mut members = self.members_to_be(&role);
        change(&mut members);
        if !entries.is_empty() {
            history::append(&mut members, entries);
        }
        let sets = role.voter_sets().to_vec();
        self.node.append_membership(&role, sets, members).await
    }
}
