//! The commit queue. Each transaction is written to the binlog, waits for an ACK, and is then committed in the engine.
//!
//! ```text
//! entering ──► queued ──► group ──► the engine
//!   (LOCK_log)  (written)  (waits for the ACK of its last transaction)
//! ```

use std::collections::{BTreeMap, VecDeque};

use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use binlog_format::synthesis::{TransactionHead, statement_transaction};
use bytes::Bytes;

use crate::answers::Answer;
use crate::binlog::Position;
use crate::lists::{ListRow, payload};
use crate::server::Server;
use crate::sessions::{Content, SessionId, Work};

/// A transaction to be committed.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) session: SessionId,
    pub(crate) rows: Vec<ListRow>,
    pub(crate) content: Content,
}

/// A transaction in the binlog that is not yet committed in the engine.
#[derive(Debug)]
struct Written {
    commit: Commit,
    gtid: Gtid,
    end: Position,
}

/// Transactions between their COMMIT statement and the engine's commit.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    pub(crate) entering: VecDeque<Commit>,
    queued: Vec<Written>,
    group: Vec<Written>,
    /// The sessions that request a rotation. The first one holds LOCK_log.
    pub(crate) flushes: VecDeque<SessionId>,
    acknowledged: Position,
    /// The last acknowledged position of each server id. Replicas that have disconnected are included.
    acks: BTreeMap<u32, Position>,
    /// True while the server is stopping and completes waiting commits without ACKs.
    pub(crate) through: bool,
}

impl Commits {
    /// Returns whether a session holds LOCK_log.
    pub(crate) fn log_is_locked(&self) -> bool {
        !self.flushes.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entering.is_empty() && self.queued.is_empty() && self.group.is_empty()
    }

    /// Returns the number of commits that wait for an ACK, as the semi-sync plugin counts them: only the leader of each group.
    pub(crate) fn waiting(&self) -> u64 {
        u64::from(!self.group.is_empty())
    }

    /// Returns whether the session is the leader of the group that waits for its ACK.
    pub(crate) fn is_in_group(&self, session: SessionId) -> bool {
        let first = self.group.first();
        first.is_some_and(|first| first.commit.session == session)
    }

    /// The transactions that are in the binlog and not committed in the engine.
    fn written(&self) -> impl Iterator<Item = &Written> {
        self.group.iter().chain(&self.queued)
    }

    /// The GTIDs and sessions of the transactions that are in the binlog and not committed in the engine.
    pub(crate) fn owned(&self) -> impl Iterator<Item = (Gtid, SessionId)> + '_ {
        let written = self.written();
        written.map(|written| (written.gtid, written.commit.session))
    }

    /// Returns whether the event that ends at this position requests an ACK.
    pub(crate) fn wants_ack(&self, end: Position) -> bool {
        end > self.acknowledged && self.written().any(|written| written.end == end)
    }

    /// Records the ACK of a server id. Releases the commits up to the position that `needed` server ids have acknowledged.
    pub(crate) fn acknowledge(&mut self, server_id: u32, position: Position, needed: u64) {
        self.acks.insert(server_id, position);
        self.count_acks(needed);
    }

    /// Releases commits after the number of required ACKs has changed.
    pub(crate) fn count_acks(&mut self, needed: u64) {
        let mut positions: Vec<Position> = self.acks.values().copied().collect();
        positions.sort_unstable_by(|one, other| other.cmp(one));
        let last = usize::try_from(needed.saturating_sub(1)).ok();
        if let Some(position) = last.and_then(|last| positions.get(last)) {
            self.acknowledged = self.acknowledged.max(*position);
        }
    }

    /// Forgets all ACKs. Called when semi-sync is enabled again, because earlier ACKs do not count then.
    pub(crate) fn forget_acks(&mut self) {
        self.acknowledged = Position::default();
        self.acks.clear();
    }

    pub(crate) fn holds_accounts(&self) -> bool {
        let written = self.written().map(|written| &written.commit);
        let mut commits = written.chain(&self.entering);
        commits.any(|commit| matches!(commit.content, Content::Accounts(_)))
    }
}

impl Server {
    /// Rotates the file if requested, writes the entering transactions to the binlog, and commits acknowledged transactions.
    pub(crate) fn advance_commits(&mut self) {
        self.rotate();
        self.flush();
        self.commit_group();
    }

    fn rotate(&mut self) {
        let seconds = self.epoch_seconds();
        let Some(running) = self.running.as_mut().filter(|_| !self.frozen) else {
            return;
        };
        let commits = &mut running.commits;
        if !(commits.group.is_empty() && commits.queued.is_empty()) {
            return;
        }
        let Some(session) = commits.flushes.pop_front() else {
            return;
        };
        self.engine.force();
        let rotated = running.binlog.rotate(seconds);
        self.finish(session, rotated.map(|()| Answer::Done(0)).map_err(broken));
    }

    fn flush(&mut self) {
        while let Some(commit) = self.next_to_flush() {
            self.write(commit);
        }
    }

    fn next_to_flush(&mut self) -> Option<Commit> {
        let running = self.running.as_mut().filter(|_| !self.frozen)?;
        match running.commits.log_is_locked() {
            true => None,
            false => running.commits.entering.pop_front(),
        }
    }

    fn write(&mut self, commit: Commit) {
        let gtid = match &commit.content {
            Content::Applied { gtid, .. } => Some(*gtid),
            Content::Rows | Content::Accounts(_) => self.free_gtid(),
        };
        let Some(gtid) = gtid else {
            return;
        };
        let events = self.events(gtid, &commit);
        let Some(running) = &mut self.running else {
            return;
        };
        let force = running.variables.number("sync_binlog") == 1;
        match running.binlog.append(gtid, &events, force) {
            Ok(end) => {
                self.engine.prepare(gtid, commit.rows.clone());
                running.commits.queued.push(Written { commit, gtid, end });
            }
            // The server ends, as with `binlog_error_action = ABORT_SERVER`.
            Err(_) => self.running = None,
        }
        self.changed();
    }

    /// Returns the lowest GTID of this server that is neither executed nor owned.
    fn free_gtid(&self) -> Option<Gtid> {
        let running = self.running.as_ref()?;
        let source = SourceId(self.options.server_uuid);
        let mut taken = running.executed.clone();
        taken.extend(running.commits.owned().map(|(gtid, _)| gtid));
        let first = taken
            .intervals()
            .find(|(of, tag, _)| *of == source && tag.is_none());
        let number = match first {
            Some((.., interval)) if interval.first().get() == 1 => interval.last().get() + 1,
            _ => 1,
        };
        Some(Gtid {
            source,
            tag: Tag::NONE,
            gno: Gno::new(number)?,
        })
    }

    fn events(&self, gtid: Gtid, commit: &Commit) -> Bytes {
        let running = self.running.as_ref();
        let sequence = running.map_or(0, |running| running.binlog.sequence);
        let version = self.options.version.split('.');
        let version = version.filter_map(|part| part.parse::<u32>().ok());
        let head = TransactionHead {
            gtid,
            server_id: self.options.server_id,
            thread_id: commit.session,
            commit: CommitTimestamp(self.epoch_micros()),
            version: ServerVersion(version.fold(0, |number, part| number * 100 + part)),
            clock: LogicalClock {
                last_committed: sequence,
                sequence_number: sequence + 1,
            },
            xid: gtid.gno.get(),
        };
        match &commit.content {
            Content::Applied { payload, .. } => payload.clone(),
            Content::Rows => payload(head, &commit.rows),
            Content::Accounts(statement) => statement_transaction(head, "", statement),
        }
    }

    fn commit_group(&mut self) {
        let Some(running) = &mut self.running else {
            return;
        };
        let waits = running.waits_for_acks() && self.options.waits_for_acks;
        let commits = &mut running.commits;
        if commits.group.is_empty() {
            std::mem::swap(&mut commits.group, &mut commits.queued);
        }
        let Some(last) = commits.group.last() else {
            return;
        };
        if waits && commits.acknowledged < last.end {
            return;
        }
        for Written { commit, gtid, .. } in std::mem::take(&mut commits.group) {
            self.engine.commit(gtid);
            running.executed.add(gtid);
            let Some(session) = running.sessions.get_mut(&commit.session) else {
                continue;
            };
            session.transaction = Default::default();
            session.work = Work::Idle;
            session.answer = Some(Ok(Answer::Done(commit.rows.len() as u64)));
            for queue in running.row_locks.values_mut() {
                queue.retain(|waiting| *waiting != commit.session);
            }
        }
        running.row_locks.retain(|_, queue| !queue.is_empty());
        self.changed();
    }
}

fn broken(error: std::io::Error) -> crate::answers::SqlError {
    crate::answers::SqlError::new(1026, format!("Error writing the binlog: {error}"))
}
