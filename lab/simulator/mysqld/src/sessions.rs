//! Sessions of a running server: clients, their current work, and answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use binlog_format::gtid::Gtid;
use bytes::Bytes;

use crate::accounts::AccountChange;
use crate::answers::{Answer, SqlError};
use crate::client::Reads;
use crate::copying::Copy;
use crate::lists::ListRow;
use crate::options::Rights;
use crate::statement::{Assignment, Statement};

/// A session's id.
pub(crate) type SessionId = u32;

/// One session. It outlives its client while its commit runs.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) user: String,
    pub(crate) rights: Rights,
    /// Its current work.
    pub(crate) work: Work,
    /// Its answer, until the client takes it.
    pub(crate) answer: Option<Result<Answer, SqlError>>,
    /// A transaction's reads, for a client without a wire.
    pub(crate) reads: Reads,
    /// The client is gone or dismissed: the session ends with its work.
    pub(crate) gone: bool,
    /// It was notified of the server's stop, and ends once it received that.
    pub(crate) is_dismissed: bool,
    /// Its statement in the process list, and its start time.
    pub(crate) info: String,
    pub(crate) since: Duration,
    pub(crate) transaction: OpenTransaction,
    /// `lock_wait_timeout`, in seconds.
    pub(crate) lock_wait: u64,
    /// `sql_log_bin`. Without it, the model supports only account statements.
    pub(crate) logs: bool,
    /// User variables.
    pub(crate) variables: BTreeMap<String, String>,
    /// Locks from GET_LOCK.
    pub(crate) user_locks: BTreeSet<String>,
    /// Whether `COM_BINLOG_DUMP_GTID` runs in it.
    pub(crate) dump: Option<Dump>,
}

/// An uncommitted transaction of a session.
#[derive(Debug, Default)]
pub(crate) struct OpenTransaction {
    /// After BEGIN: no autocommit.
    pub(crate) explicit: bool,
    pub(crate) rows: Vec<ListRow>,
    /// Lists that are locked until its end.
    pub(crate) locks: BTreeSet<u64>,
}

/// A running dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dump {
    pub(crate) server_id: u32,
    pub(crate) uuid: Option<String>,
    pub(crate) semi_sync: bool,
    /// A newer one with the same UUID has ended it.
    pub(crate) replaced: bool,
}

/// A session's current work.
#[derive(Debug, Default)]
pub(crate) enum Work {
    #[default]
    Idle,
    Write(Write),
    /// In the commit queue, which has the rest of the state.
    Commit,
    Set(SetWork),
    FlushLogs,
    BinlogStatus,
    StopReplica,
    Copy(Copy),
    /// It waits for the account lock, and then runs.
    Later(Statement),
}

/// A write before its commit.
#[derive(Debug, Default)]
pub(crate) struct Write {
    /// Locks that it still needs, in order.
    pub(crate) locks: VecDeque<u64>,
    pub(crate) reads: Vec<u64>,
    pub(crate) appends: Vec<(u64, u64)>,
    pub(crate) content: Content,
    /// Account changes without binlog events.
    pub(crate) accounts: Option<AccountChange>,
    /// It holds the global lock in its statement's mode, which a closing waits for.
    pub(crate) holds_global: bool,
    pub(crate) commits: bool,
    /// Timeout for a row lock.
    pub(crate) until: Duration,
}

/// The contents of a commit.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// The session's own rows.
    #[default]
    Rows,
    /// A statement about accounts.
    Accounts(String),
    /// A transaction of another server.
    Applied { gtid: Gtid, payload: Bytes },
}

/// A partly executed SET statement.
#[derive(Debug)]
pub(crate) struct SetWork {
    pub(crate) left: VecDeque<Assignment>,
    pub(crate) closing: Option<Closing>,
    pub(crate) until: Duration,
}

/// A wait of `SET GLOBAL read_only` or `super_read_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closing {
    /// The step after the lock is acquired.
    pub(crate) step: ClosingStep,
    /// Writing statements have ended, and no new one begins.
    pub(crate) statements_over: bool,
}

impl Closing {
    pub(crate) fn begin(step: ClosingStep) -> Self {
        let statements_over = false;
        Self {
            step,
            statements_over,
        }
    }
}

/// `super_read_only` sets `read_only` first, and acquires the lock for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosingStep {
    ReadOnly,
    ReadOnlyForSuper,
    Super,
}

impl Session {
    pub(crate) fn new(user: &str, rights: Rights, lock_wait: u64, now: Duration) -> Self {
        Self {
            user: user.to_owned(),
            rights,
            since: now,
            lock_wait,
            logs: true,
            ..Self::default()
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.work, Work::Idle)
    }

    pub(crate) fn commits(&self) -> bool {
        matches!(self.work, Work::Commit)
    }

    pub(crate) fn holds_global(&self) -> bool {
        matches!(&self.work, Work::Write(write) if write.holds_global)
    }

    pub(crate) fn is_semi_sync_dump(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.semi_sync)
    }

    pub(crate) fn closing(&self) -> Option<Closing> {
        match &self.work {
            Work::Set(set) => set.closing,
            _ => None,
        }
    }

    /// True if a newer dump has ended its own.
    pub(crate) fn was_replaced(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.replaced)
    }

    /// Ends its work with an answer.
    pub(crate) fn finish(&mut self, answer: Result<Answer, SqlError>) {
        self.work = Work::Idle;
        self.answer = Some(answer);
    }
}
