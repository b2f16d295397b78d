//! Sessions of a running server: who is connected, what each is at, and what it is told.

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

/// The number of a session.
pub(crate) type SessionId = u32;

/// One session. It outlives its client while its commit goes on.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) user: String,
    pub(crate) rights: Rights,
    /// What it is at.
    pub(crate) work: Work,
    /// What it is told, until it has taken it.
    pub(crate) answer: Option<Result<Answer, SqlError>>,
    /// What a transaction has read, for a client without a wire.
    pub(crate) reads: Reads,
    /// The client is gone or was sent away: the session ends when its work does.
    pub(crate) gone: bool,
    /// It was told that the server stops, and ends when it has heard it.
    pub(crate) is_dismissed: bool,
    /// Its statement, as the list of processes shows it, and since when.
    pub(crate) info: String,
    pub(crate) since: Duration,
    pub(crate) transaction: OpenTransaction,
    /// `lock_wait_timeout`, in seconds.
    pub(crate) lock_wait: u64,
    /// `sql_log_bin`. Without it the model knows statements about accounts alone.
    pub(crate) logs: bool,
    /// User variables.
    pub(crate) variables: BTreeMap<String, String>,
    /// What GET_LOCK has given it.
    pub(crate) user_locks: BTreeSet<String>,
    /// Whether `COM_BINLOG_DUMP_GTID` runs in it.
    pub(crate) dump: Option<Dump>,
}

/// A transaction of a session that has not been committed.
#[derive(Debug, Default)]
pub(crate) struct OpenTransaction {
    /// By BEGIN: statements do not commit by themselves.
    pub(crate) explicit: bool,
    pub(crate) rows: Vec<ListRow>,
    /// Lists that are locked until its end.
    pub(crate) locks: BTreeSet<u64>,
}

/// A dump under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dump {
    pub(crate) server_id: u32,
    pub(crate) uuid: Option<String>,
    pub(crate) semi_sync: bool,
    /// A newer one of the same UUID has ended it.
    pub(crate) replaced: bool,
}

/// What a session is at.
#[derive(Debug)]
pub(crate) enum Work {
    Idle,
    Write(Write),
    /// In the queue of commits, which knows the rest.
    Commit,
    Set(SetWork),
    FlushLogs,
    BinlogStatus,
    StopReplica,
    Copy(Copy),
    /// It waits for the lock on accounts, and runs then.
    Later(Statement),
}

/// A write on its way to its commit.
#[derive(Debug, Default)]
pub(crate) struct Write {
    /// Locks that it still needs, in this order.
    pub(crate) locks: VecDeque<u64>,
    pub(crate) reads: Vec<u64>,
    pub(crate) appends: Vec<(u64, u64)>,
    pub(crate) content: Content,
    /// What it does to accounts without a word in the binlog.
    pub(crate) accounts: Option<AccountChange>,
    /// It has the global lock in its statement's mode: a closing waits for it.
    pub(crate) holds_global: bool,
    pub(crate) commits: bool,
    /// When it gives up waiting for a row lock.
    pub(crate) until: Duration,
}

/// What is committed.
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

/// A SET statement of which a part is done.
#[derive(Debug)]
pub(crate) struct SetWork {
    pub(crate) left: VecDeque<Assignment>,
    pub(crate) closing: Option<Closing>,
    pub(crate) until: Duration,
}

/// A wait of `SET GLOBAL read_only` or `super_read_only`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closing {
    /// What is set when the lock is had.
    pub(crate) step: ClosingStep,
    /// Statements that write are over, and no new one begins.
    pub(crate) statements_over: bool,
}

/// `super_read_only` sets `read_only` first, and takes the lock for each.
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
            work: Work::Idle,
            answer: None,
            reads: Reads::default(),
            gone: false,
            is_dismissed: false,
            info: String::new(),
            since: now,
            transaction: OpenTransaction::default(),
            lock_wait,
            logs: true,
            variables: BTreeMap::new(),
            user_locks: BTreeSet::new(),
            dump: None,
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

    /// Whether a newer dump has ended its own.
    pub(crate) fn was_replaced(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.replaced)
    }

    /// Ends its work with an answer.
    pub(crate) fn finish(&mut self, answer: Result<Answer, SqlError>) {
        self.work = Work::Idle;
        self.answer = Some(answer);
    }
}
