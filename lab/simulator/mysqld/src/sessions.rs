//! The sessions of a running server, with their current work and answers.

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

/// A session. It continues without its client while its commit runs.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) user: String,
    pub(crate) rights: Rights,
    /// The current work of the session.
    pub(crate) work: Work,
    /// The answer, until the client receives it.
    pub(crate) answer: Option<Result<Answer, SqlError>>,
    /// The results of a transaction's reads, for a client without a connection.
    pub(crate) reads: Reads,
    /// True if the client has disconnected or must be disconnected. The session ends after its current work.
    pub(crate) gone: bool,
    /// True if an answer reports the server's stop to the client. The session ends after the client has received this answer.
    pub(crate) is_dismissed: bool,
    /// The statement as shown in the process list. `since` is its start time.
    pub(crate) info: String,
    pub(crate) since: Duration,
    pub(crate) transaction: OpenTransaction,
    /// `lock_wait_timeout`, in seconds.
    pub(crate) lock_wait: u64,
    /// `sql_log_bin`. While it is off, the model supports only account statements.
    pub(crate) logs: bool,
    /// User variables.
    pub(crate) variables: BTreeMap<String, String>,
    /// The user-level locks acquired with GET_LOCK.
    pub(crate) user_locks: BTreeSet<String>,
    /// The running `COM_BINLOG_DUMP_GTID`, if any.
    pub(crate) dump: Option<Dump>,
}

/// An uncommitted transaction of a session.
#[derive(Debug, Default)]
pub(crate) struct OpenTransaction {
    /// True after BEGIN: the transaction needs a COMMIT.
    pub(crate) explicit: bool,
    pub(crate) rows: Vec<ListRow>,
    /// The lists that are locked until the end of the transaction.
    pub(crate) locks: BTreeSet<u64>,
}

/// A running dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dump {
    pub(crate) server_id: u32,
    pub(crate) uuid: Option<String>,
    pub(crate) semi_sync: bool,
    /// True if a newer dump with the same UUID has ended this dump.
    pub(crate) replaced: bool,
}

/// The current work of a session.
#[derive(Debug, Default)]
pub(crate) enum Work {
    #[default]
    Idle,
    Write(Write),
    /// The commit is in the commit queue, which has its state.
    Commit,
    Set(SetWork),
    FlushLogs,
    BinlogStatus,
    StopReplica,
    Copy(Copy),
    /// The statement waits for the account lock, and then runs.
    Later(Statement),
}

/// A write before its commit.
#[derive(Debug, Default)]
pub(crate) struct Write {
    /// The lists that are still to be locked, in order.
    pub(crate) locks: VecDeque<u64>,
    pub(crate) reads: Vec<u64>,
    pub(crate) appends: Vec<(u64, u64)>,
    pub(crate) content: Content,
    /// An account change that is not written to the binlog.
    pub(crate) accounts: Option<AccountChange>,
    /// True if the statement holds the global read lock in its shared mode. `SET GLOBAL read_only` waits for this.
    pub(crate) holds_global: bool,
    pub(crate) commits: bool,
    /// The time at which the wait for a row lock ends with an error.
    pub(crate) until: Duration,
}

/// The contents of a transaction to commit.
#[derive(Debug, Default)]
pub(crate) enum Content {
    /// The rows that the session has written.
    #[default]
    Rows,
    /// A statement about accounts.
    Accounts(String),
    /// A transaction received from another server.
    Applied { gtid: Gtid, payload: Bytes },
}

/// A partly executed SET statement.
#[derive(Debug)]
pub(crate) struct SetWork {
    pub(crate) left: VecDeque<Assignment>,
    pub(crate) closing: Option<Closing>,
    pub(crate) until: Duration,
}

/// The progress of `SET GLOBAL read_only` or `super_read_only`, which waits for writing statements and commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closing {
    /// The variable that is set after the wait.
    pub(crate) step: ClosingStep,
    /// True if all writing statements have ended. No new one may begin.
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

/// The step of a `SET`. `super_read_only` first sets `read_only`, and waits for each of the two.
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

    /// Returns whether a newer dump has ended the dump of this session.
    pub(crate) fn was_replaced(&self) -> bool {
        self.dump.as_ref().is_some_and(|dump| dump.replaced)
    }

    /// Ends the session's work with an answer.
    pub(crate) fn finish(&mut self, answer: Result<Answer, SqlError>) {
        self.work = Work::Idle;
        self.answer = Some(answer);
    }
}
