//! The state of a server. After every change, [`Server::advance`] executes everything that is possible.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use binlog_format::gtid::GtidSet;

use crate::answers::{Answer, SqlError};
use crate::binlog::Binlog;
use crate::commits::Commits;
use crate::copying::{Arrived, CopyReport};
use crate::engine::Engine;
use crate::options::{Account, MysqldOptions, Rights};
use crate::replica::Channel;
use crate::sessions::{Session, SessionId, Work};
use crate::variables::Variables;

/// The time of day at which the host's clock starts, in seconds since 1970. The model has no other time of day.
const EPOCH: u64 = 1_767_225_600;
/// How long a stopping server waits for idle sessions if no dump is attached.
const SESSIONS_LINGER: Duration = Duration::from_secs(2);
/// How long a stopping server waits for idle sessions if a dump is attached.
const SESSIONS_LINGER_WITH_DUMPS: Duration = Duration::from_secs(10);
/// How long a stopping server waits for ACKs. Then it ends the dumps and completes the commits without ACKs.
const COMMITS_LINGER: Duration = Duration::from_secs(9);

/// A server: its process, if it is running, and its persistent state.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) options: MysqldOptions,
    pub(crate) engine: Engine,
    pub(crate) persisted: BTreeMap<String, String>,
    pub(crate) channel: Option<Channel>,
    pub(crate) accounts: Vec<Account>,
    /// True if the clone plugin is installed. The installation survives restarts.
    pub(crate) clone_plugin: bool,
    pub(crate) copy_report: Option<CopyReport>,
    /// The number of clones with this server as their donor.
    pub(crate) lent: Arc<AtomicU32>,
    /// The data of a completed clone. The server adopts them at its next start.
    pub(crate) arrived: Option<Arrived>,
    /// Statements and arguments that the model does not know.
    pub(crate) unknown: Vec<String>,
    pub(crate) paused: bool,
    /// True if the data directory is not writable.
    pub(crate) frozen: bool,
    pub(crate) running: Option<Running>,
    /// The sessions of a gracefully stopped process. Their clients may not have received the last answers yet.
    pub(crate) parting: BTreeMap<SessionId, Session>,
    /// Counts the changes of the server, so that waiting tasks notice them.
    pub(crate) version: u64,
    /// The number of starts, which distinguishes sessions of different starts.
    pub(crate) starts: u64,
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) started: Duration,
    pub(crate) variables: Variables,
    /// True if writes are refused. The variables may differ while `SET` waits for its lock.
    pub(crate) read_only: bool,
    pub(crate) super_read_only: bool,
    pub(crate) binlog: Binlog,
    pub(crate) executed: GtidSet,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) next_session: SessionId,
    pub(crate) commits: Commits,
    /// For each list, the sessions in the order in which they requested its row lock.
    pub(crate) row_locks: BTreeMap<u64, VecDeque<SessionId>>,
    /// The time at which the stop of the server began.
    pub(crate) stopping: Option<Duration>,
}

impl Server {
    pub(crate) fn now(&self) -> Duration {
        (self.options.clock)()
    }

    /// The time of day in seconds since 1970.
    pub(crate) fn epoch_seconds(&self) -> u32 {
        u32::try_from(self.epoch_micros() / 1_000_000).unwrap_or(u32::MAX)
    }

    pub(crate) fn epoch_micros(&self) -> u64 {
        let micros = u64::try_from(self.now().as_micros()).unwrap_or(u64::MAX);
        micros.saturating_add(EPOCH * 1_000_000)
    }

    /// Records a change of the server, so that waiting tasks check it again.
    pub(crate) fn changed(&mut self) {
        self.version += 1;
    }

    /// Executes everything that is possible now.
    pub(crate) fn advance(&mut self) {
        if self.paused {
            return;
        }
        loop {
            let before = self.version;
            self.advance_commits();
            self.advance_sessions();
            self.advance_stop();
            if self.version == before || self.running.is_none() {
                return;
            }
        }
    }

    fn advance_sessions(&mut self) {
        let Some(running) = &self.running else {
            return;
        };
        let busy = running.sessions.iter();
        let busy = busy.filter(|(_, session)| !session.is_idle() || session.gone);
        let busy: Vec<SessionId> = busy.map(|(id, _)| *id).collect();
        for id in busy {
            self.advance_session(id);
        }
    }

    fn advance_session(&mut self, id: SessionId) {
        let Some(session) = self.session(id) else {
            return;
        };
        match &session.work {
            Work::Idle if session.gone => self.end_session(id),
            Work::Idle | Work::Commit | Work::FlushLogs => {}
            Work::Write(_) => self.advance_write(id),
            Work::Set(_) => self.advance_set(id),
            Work::BinlogStatus => self.advance_binlog_status(id),
            Work::StopReplica => self.advance_stop_replica(id),
            Work::Copy(_) => self.advance_copy(id),
            Work::Later(_) => self.advance_later(id),
        }
    }

    /// Returns the time of the next timeout or scheduled event.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let running = self.running.as_ref().filter(|_| !self.paused)?;
        let sessions = running.sessions.values();
        let of_sessions = sessions.filter_map(|session| match &session.work {
            Work::Write(write) if write.holds_global => Some(write.until),
            Work::Set(set) => Some(set.until),
            Work::Copy(copy) => Some(copy.looks),
            _ => None,
        });
        of_sessions.chain(running.stop_deadline(self.now())).min()
    }

    /// Returns whether a timeout or scheduled event is due. While the server is stopping, always returns true.
    pub(crate) fn is_due(&self) -> bool {
        self.is_stopping() || self.deadline().is_some_and(|at| self.now() >= at)
    }

    // Sessions.

    pub(crate) fn session(&mut self, id: SessionId) -> Option<&mut Session> {
        self.running.as_mut()?.sessions.get_mut(&id)
    }

    pub(crate) fn set_work(&mut self, id: SessionId, work: Work) {
        if let Some(session) = self.session(id) {
            session.work = work;
        }
    }

    pub(crate) fn open_session(&mut self, user: &str, rights: Rights) -> Option<SessionId> {
        let now = self.now();
        let running = self.running.as_mut()?;
        let id = running.next_session;
        running.next_session += 1;
        let lock_wait = running.variables.number("lock_wait_timeout");
        let session = Session::new(user, rights, lock_wait, now);
        running.sessions.insert(id, session);
        self.changed();
        Some(id)
    }

    /// Records that the client has disconnected. A running commit continues.
    pub(crate) fn leave(&mut self, id: SessionId) {
        if let Some(session) = self.session(id) {
            session.gone = true;
            session.dump = None;
            self.changed();
        }
    }

    /// Executes `KILL`: ends waits for locks. A running commit continues without its client.
    pub(crate) fn kill_session(&mut self, id: SessionId) -> bool {
        if self.copying() == Some(id) {
            self.interrupt_copy();
        }
        let Some(session) = self.session(id) else {
            return false;
        };
        session.gone = true;
        session.dump = None;
        if !session.commits() {
            session.work = Work::Idle;
        }
        self.changed();
        true
    }

    fn end_session(&mut self, id: SessionId) {
        self.roll_back(id);
        let running = self.running.as_mut();
        let ended = running.and_then(|running| running.sessions.remove(&id));
        if let Some(session) = ended.filter(Session::was_replaced) {
            self.parting.insert(id, session);
        }
        self.changed();
    }

    pub(crate) fn finish(&mut self, id: SessionId, answer: Result<Answer, SqlError>) {
        if let Some(session) = self.session(id) {
            session.finish(answer);
        }
        self.changed();
    }

    // Graceful stop.

    /// Begins a graceful stop. From now on the server accepts no clients.
    pub(crate) fn begin_stop(&mut self) {
        let now = self.now();
        if let Some(running) = &mut self.running {
            running.stopping.get_or_insert(now);
            self.changed();
        }
        self.interrupt_copy();
    }

    /// Returns whether an account statement holds the account lock, because its commit waits.
    pub(crate) fn accounts_are_locked(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.commits.holds_accounts())
    }

    /// Returns whether the server runs and is not stopping.
    pub(crate) fn listens(&self) -> bool {
        self.running.is_some() && !self.is_stopping()
    }

    fn is_stopping(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.stopping.is_some())
    }

    /// If the server is stopping, answers a session's next statement with an error. The session ends after that answer.
    pub(crate) fn dismisses(&mut self, id: SessionId, code: u16) -> bool {
        if !self.is_stopping() {
            return false;
        }
        if let Some(session) = self.session(id) {
            session.is_dismissed = true;
        }
        let message = "Server shutdown in progress";
        self.finish(id, Err(SqlError::new(code, message)));
        true
    }

    /// Ends a session after the answer to a command other than a statement, if the server is stopping.
    pub(crate) fn has_pinged(&mut self, id: SessionId) {
        if self.is_stopping() {
            self.leave(id);
        }
    }

    fn advance_stop(&mut self) {
        let now = self.now();
        let Some(running) = &mut self.running else {
            return;
        };
        let Some(since) = running.stopping else {
            return;
        };
        let is_over = |linger: Duration| now >= since + linger;
        // Replica threads end immediately. Idle clients have some time to disconnect.
        let force = is_over(
            match running.sessions.values().any(|one| one.dump.is_some()) {
                true => SESSIONS_LINGER_WITH_DUMPS,
                false => SESSIONS_LINGER,
            },
        );
        let mut clients = false;
        let mut changed = false;
        for session in running.sessions.values_mut() {
            // A session remains until its client has received the answer.
            if session.gone || session.dump.is_some() || session.answer.is_some() {
                continue;
            }
            let lingers = !session.commits() && !force && session.user != crate::replica::USER;
            clients |= lingers;
            if !lingers && !session.commits() {
                session.gone = true;
                session.work = Work::Idle;
                changed = true;
            }
        }
        let replicas = running.sessions.values().any(Session::is_semi_sync_dump);
        let through = !replicas || is_over(COMMITS_LINGER);
        if through && !running.commits.through {
            running.commits.through = true;
            changed = true;
        }
        if changed {
            self.changed();
            return;
        }
        let committing = running.sessions.values().any(Session::commits);
        if clients || committing {
            return;
        }
        let seconds = self.epoch_seconds();
        if let Some(mut running) = self.running.take() {
            // A file that cannot be closed stays as after a crash.
            drop(running.binlog.close(seconds));
            // Recovery does not read a closed file, so that all commits must be durable in the engine.
            self.engine.force();
            self.parting = std::mem::take(&mut running.sessions);
        }
        self.end_replication();
        self.changed();
    }
}

impl Running {
    /// Returns the time of the next step of a graceful stop.
    fn stop_deadline(&self, now: Duration) -> Option<Duration> {
        let since = self.stopping?;
        let moments = [SESSIONS_LINGER, COMMITS_LINGER, SESSIONS_LINGER_WITH_DUMPS];
        let moments = moments.into_iter().map(|linger| since + linger);
        moments.filter(|moment| *moment > now).min()
    }

    /// The rights of a session's account.
    pub(crate) fn rights(&self, id: SessionId) -> Rights {
        let session = self.sessions.get(&id);
        session.map_or(Rights::Client, |session| session.rights)
    }

    /// The number of attached semi-sync dumps.
    pub(crate) fn semi_sync_clients(&self) -> u64 {
        let dumps = self.sessions.values().filter(|one| one.is_semi_sync_dump());
        dumps.count() as u64
    }

    /// Returns whether commits wait for an ACK.
    pub(crate) fn waits_for_acks(&self) -> bool {
        let is_on = |name: &str| self.variables.is_on(name);
        is_on("rpl_semi_sync_source_enabled")
            && !self.commits.through
            && (is_on("rpl_semi_sync_source_wait_no_replica") || self.semi_sync_clients() > 0)
    }

    pub(crate) fn is_closed_to(&self, rights: Rights) -> Option<&'static str> {
        let closed = self.read_only && !rights.administers();
        match self.super_read_only {
            true => Some("--super-read-only"),
            false => closed.then_some("--read-only"),
        }
    }
}
