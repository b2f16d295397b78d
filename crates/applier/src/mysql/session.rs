//! A connection that transactions are applied over.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use mysql_link::{Connection, LinkError, Ran, ServerError, Statements};

use crate::backend::{Session, SessionId, Then, Turn, WriteError};
use crate::mysql::options::{MysqlOptions, OpenSessions};
use crate::mysql::outcome::{Failing, failing, link_error, refused_by_us, write_error};
use crate::mysql::preparation::{LARGEST, PacketRoom, no_packet};
use crate::mysql::row_run::{
    append_binlog, append_run, events_within, first_run, image_bytes, single_row, statement_bytes,
    statement_pieces,
};
use crate::mysql::turn_row::{OUT_OF_RANGE, TurnRow};
use crate::transaction::{Body, RowChanges, Transaction};

/// Bytes of events in one BINLOG statement, unless a row has more: the server holds a statement several times.
const STATEMENT_BYTES: usize = 1 << 20;
/// Statements above this are sent before more are written; a row above it is encoded while it is sent.
pub(super) const FLUSH_AT: usize = 4 << 20;

/// A connection to a MySQL that transactions are applied over. `autocommit` is off, so that the first statement behind
/// `SET gtid_next` begins a transaction, and a lost connection ends it.
#[derive(Debug)]
pub struct MysqlSession {
    pub(super) connection: Connection,
    pub(super) options: Arc<MysqlOptions>,
    pub(super) script: Script,
    /// Bytes of events that one statement may have.
    pub(super) events_bound: usize,
    /// Whether the transaction at hand has been begun.
    begun: bool,
    open: Arc<OpenSessions>,
    /// Where commits pass on their turn.
    turns: Option<Arc<TurnRow>>,
    /// Bytes that a statement may have.
    packet_limit: usize,
    /// Larger packets for sessions that need them, and whether this one was opened after one was asked for.
    room: Arc<PacketRoom>,
    opened_with_room: bool,
    /// The character sets and names of collations that were asked for.
    pub(super) collations: HashMap<u32, Option<(String, String)>>,
}

/// How the rows of a packet end.
enum Ending<'a> {
    StayOpen,
    Commit,
    InTurn {
        statement: String,
        passed: &'a mut (dyn FnMut() + Send),
    },
}

/// A packet that was not run to its end.
struct Stopped {
    /// What the statement was for.
    mark: Option<Mark>,
    error: ServerError,
}

impl MysqlSession {
    pub(super) fn new(
        connection: Connection,
        packet_limit: usize,
        options: Arc<MysqlOptions>,
        open: Arc<OpenSessions>,
        turns: Option<Arc<TurnRow>>,
        room: Arc<PacketRoom>,
        opened_with_room: bool,
    ) -> Self {
        open.add(SessionId(u64::from(connection.id())));
        Self {
            connection,
            options,
            script: Script::default(),
            events_bound: STATEMENT_BYTES.min(events_within(packet_limit / 2)),
            begun: false,
            open,
            turns,
            packet_limit,
            room,
            opened_with_room,
            collations: HashMap::new(),
        }
    }

    /// Sends what the script has.
    pub(super) async fn run_script(&mut self) -> Result<Ran, WriteError> {
        let limit = self.options.rows_limit;
        let run = self.connection.run_all(&mut self.script.statements, limit);
        run.await.map_err(link_error)
    }

    /// The same; says when the script's turn is taken, before its commit is done.
    async fn run_script_in_turn(
        &mut self,
        passed: &mut (dyn FnMut() + Send),
    ) -> Result<Ran, WriteError> {
        let limit = self.options.rows_limit;
        let marks = &self.script.marks;
        // Without a changed row there is none, or the transaction was there already and is passed over: no one is to follow.
        let note = |done: usize, changed: u64| {
            if changed == 1 && matches!(marks.get(done), Some(Mark::Turn { .. })) {
                passed();
            }
        };
        let statements = &mut self.script.statements;
        let run = self.connection.run_all_noting(statements, limit, note);
        run.await.map_err(link_error)
    }

    /// Rows of more bytes than these are sent alone.
    fn large_row(&self) -> usize {
        FLUSH_AT.min(events_within(self.packet_limit / 2))
    }

    /// Applies the events of one statement, encoded while they are sent. What the server refuses is returned. When the
    /// packet is larger than this session may send, the session counts as lost, and the next one is opened with more room.
    pub(super) async fn binlog(
        &mut self,
        events: &[Bytes],
    ) -> Result<Option<ServerError>, WriteError> {
        let length = statement_bytes(events.iter().map(Bytes::len).sum());
        if length >= LARGEST {
            return Ok(Some(no_packet(length)));
        }
        if length >= self.packet_limit && !self.opened_with_room {
            self.room.ask();
            return Err(WriteError::Lost(format!(
                "a row takes a statement of {length} bytes, and max_allowed_packet is {} here: the next session gets more",
                self.packet_limit
            )));
        }
        let text = statement_pieces(events);
        let limit = self.options.rows_limit;
        match self.connection.execute_pieces(length, text, limit).await {
            Ok(_) => Ok(None),
            Err(LinkError::Server(error)) => Ok(Some(error)),
            Err(error) => Err(link_error(error)),
        }
    }

    /// Sends what the script has, and begins a new one. Adds the commits that were done.
    async fn flush(&mut self, committed: &mut usize) -> Result<Result<(), Stopped>, WriteError> {
        if self.script.statements.is_empty() {
            return Ok(Ok(()));
        }
        let ran = self.run_script().await?;
        Ok(self.account(ran, committed))
    }

    /// What became of the script; begins a new one.
    fn account(&mut self, ran: Ran, committed: &mut usize) -> Result<(), Stopped> {
        let Ran { done, error } = ran;
        let marks = self.script.marks.iter().take(done);
        *committed += marks
            .filter(|mark| matches!(mark, Mark::Commit { .. }))
            .count();
        let mark = self.script.marks.get(done).cloned();
        self.script.clear();
        match error {
            None => Ok(()),
            Some(error) => Err(Stopped { mark, error }),
        }
    }

    /// Writes the statements of some rows, and sends what becomes too much.
    async fn put_rows(
        &mut self,
        at: usize,
        changes: &RowChanges,
        rows: Range<usize>,
        committed: &mut usize,
    ) -> Result<Result<(), Stopped>, WriteError> {
        let mut next = rows.start;
        while next < rows.end {
            if self.script.statements.bytes() > FLUSH_AT
                && let Err(stopped) = self.flush(committed).await?
            {
                return Ok(Err(stopped));
            }
            if image_bytes(changes, next) > self.large_row() {
                if let Err(stopped) = self.flush(committed).await? {
                    return Ok(Err(stopped));
                }
                if let Some(error) = self.binlog(&single_row(changes, next)).await? {
                    let mark = Some(Mark::Rows {
                        transaction: at,
                        rows: next..next + 1,
                    });
                    return Ok(Err(Stopped { mark, error }));
                }
                next += 1;
                continue;
            }
            let run = self
                .script
                .rows(at, changes, next..rows.end, self.events_bound);
            next = run.end;
        }
        Ok(Ok(()))
    }

    /// Some rows of one transaction, and perhaps its commit.
    async fn put(
        &mut self,
        transaction: &Transaction,
        rows: Range<usize>,
        ending: Ending<'_>,
    ) -> Result<Result<(), Stopped>, WriteError> {
        let Body::Rows(changes) = &transaction.body else {
            return Err(refused_by_us(
                "a barrier has no rows to be written one by one".to_owned(),
            ));
        };
        self.script.clear();
        if !self.begun {
            self.script
                .begin(0, transaction, self.options.target_binlog);
            self.begun = true;
        }
        let mut committed = 0;
        if let Err(stopped) = self.put_rows(0, changes, rows, &mut committed).await? {
            return Ok(Err(stopped));
        }
        let stays = matches!(ending, Ending::StayOpen);
        let sent = match ending {
            Ending::StayOpen => self.flush(&mut committed).await?,
            Ending::Commit => {
                self.script.commit(0);
                self.flush(&mut committed).await?
            }
            Ending::InTurn { statement, passed } => {
                self.script.turn(0, &statement);
                self.script.commit(0);
                let ran = self.run_script_in_turn(passed).await?;
                self.account(ran, &mut committed)
            }
        };
        if sent.is_ok() && !stays {
            self.begun = false;
        }
        Ok(sent)
    }

    /// Whole transactions until the first that fails: its place among them, and why.
    async fn put_all(
        &mut self,
        transactions: &[Arc<Transaction>],
        committed: &mut usize,
    ) -> Result<Result<(), Stopped>, WriteError> {
        self.script.clear();
        for (at, transaction) in transactions.iter().enumerate() {
            let changes = match &transaction.body {
                Body::Rows(changes) => changes,
                Body::Barrier(_) => {
                    if let Err(stopped) = self.flush(committed).await? {
                        return Ok(Err(stopped));
                    }
                    self.run_barrier(transaction).await?;
                    *committed += 1;
                    continue;
                }
            };
            self.script
                .begin(at, transaction, self.options.target_binlog);
            let rows = 0..changes.rows.len();
            if let Err(stopped) = self.put_rows(at, changes, rows, committed).await? {
                return Ok(Err(stopped));
            }
            self.script.commit(at);
        }
        self.flush(committed).await
    }

    /// Takes the transaction back that failed, and says why it did.
    async fn failure(&mut self, transaction: &Transaction, stopped: Stopped) -> WriteError {
        if let Err(lost) = self.rolled_back().await {
            return lost;
        }
        match stopped.mark {
            Some(Mark::Rows { rows, .. }) => self.refusal(transaction, rows, &stopped.error).await,
            Some(Mark::Turn { .. }) => self.turn_failure(&stopped.error),
            _ => write_error(&stopped.error),
        }
    }

    /// A turn that was not had is no fault of the transaction, which may be applied again.
    fn turn_failure(&self, error: &ServerError) -> WriteError {
        match failing(error) {
            Failing::Lost => return WriteError::Lost(error.to_string()),
            Failing::Refused if error.code != OUT_OF_RANGE => {
                if let Some(turns) = &self.turns {
                    turns.give_up(&error.to_string());
                }
            }
            Failing::Refused | Failing::Again => {}
        }
        WriteError::Again(format!("the turn to commit was not had: {error}"))
    }

    pub(super) async fn rolled_back(&mut self) -> Result<(), WriteError> {
        self.begun = false;
        self.script.clear();
        let back = self.connection.execute("ROLLBACK").await;
        // A session that cannot take a transaction back is of no use.
        back.map(|_| ())
            .map_err(|error| WriteError::Lost(error.to_string()))
    }
}

impl Session for MysqlSession {
    fn id(&self) -> SessionId {
        SessionId(u64::from(self.connection.id()))
    }

    async fn write(
        &mut self,
        transaction: &Arc<Transaction>,
        rows: Range<usize>,
        then: Then,
    ) -> Result<(), WriteError> {
        let ending = match then {
            Then::StayOpen => Ending::StayOpen,
            Then::Commit => Ending::Commit,
        };
        match self.put(transaction, rows, ending).await? {
            Ok(()) => Ok(()),
            Err(stopped) => Err(self.failure(transaction, stopped).await),
        }
    }

    async fn write_in_turn(
        &mut self,
        transaction: &Arc<Transaction>,
        rows: Range<usize>,
        turn: Turn,
        mut passed: impl FnMut() + Send,
    ) -> Result<(), WriteError> {
        let usable = self.turns.as_ref().filter(|turns| !turns.is_given_up());
        let ending = match (usable, turn) {
            (Some(turns), turn) => Ending::InTurn {
                statement: turns.statement(transaction.seq, turn),
                passed: &mut passed,
            },
            (None, Turn::First) => Ending::Commit,
            // Nothing says whether the one before it is committed.
            (None, Turn::Next) => {
                self.rolled_back().await?;
                return Err(WriteError::Again("turns are not passed on".to_owned()));
            }
        };
        match self.put(transaction, rows, ending).await? {
            Ok(()) => Ok(()),
            Err(stopped) => Err(self.failure(transaction, stopped).await),
        }
    }

    async fn commit(&mut self, transaction: &Arc<Transaction>) -> Result<(), WriteError> {
        self.write(transaction, 0..0, Then::Commit).await
    }

    async fn apply(
        &mut self,
        transactions: &[Arc<Transaction>],
    ) -> (usize, Result<(), WriteError>) {
        let mut committed = 0;
        let outcome = match self.put_all(transactions, &mut committed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(stopped)) => match transactions.get(committed) {
                Some(transaction) => {
                    let transaction = Arc::clone(transaction);
                    Err(self.failure(&transaction, stopped).await)
                }
                None => Err(write_error(&stopped.error)),
            },
            Err(error) => Err(error),
        };
        (committed, outcome)
    }

    async fn run_barrier(&mut self, transaction: &Arc<Transaction>) -> Result<(), WriteError> {
        match &transaction.body {
            Body::Barrier(barrier) => self.barrier(transaction, barrier).await,
            Body::Rows(changes) => {
                let rows = 0..changes.rows.len();
                self.write(transaction, rows, Then::Commit).await
            }
        }
    }

    async fn roll_back(&mut self) -> Result<(), WriteError> {
        self.rolled_back().await
    }
}

impl Drop for MysqlSession {
    fn drop(&mut self) {
        self.open.remove(self.id());
    }
}

// The statements of a packet, and what each of them is for.

/// What a statement does. Transactions are counted from 0 within the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// Names the transaction that follows.
    Begin {
        transaction: usize,
    },
    Rows {
        transaction: usize,
        rows: Range<usize>,
    },
    /// Takes the turn to commit.
    Turn {
        transaction: usize,
    },
    Commit {
        transaction: usize,
    },
}

/// Statements with their marks. Kept from one packet to the next with its memory.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) statements: Statements,
    pub(super) marks: Vec<Mark>,
    events: Vec<u8>,
}

impl Script {
    pub(super) fn clear(&mut self) {
        self.statements.clear();
        self.marks.clear();
        if self.events.capacity() > (4 << 20) {
            self.events = Vec::new();
        }
    }

    /// Names the next transaction; for a target with a binlog also when and where it came into being, so that chains of
    /// replicas know.
    pub(super) fn begin(&mut self, at: usize, transaction: &Transaction, target_binlog: bool) {
        self.marks.push(Mark::Begin { transaction: at });
        append_begin(transaction, target_binlog, self.statements.begin());
    }

    /// Writes one run of rows and returns it: the first of `rows` that fit into one statement.
    pub(super) fn rows(
        &mut self,
        at: usize,
        changes: &RowChanges,
        rows: Range<usize>,
        bound: usize,
    ) -> Range<usize> {
        let run = first_run(changes, rows, bound);
        self.events.clear();
        append_run(changes, run.clone(), &mut self.events);
        append_binlog(&self.events, self.statements.begin());
        self.marks.push(Mark::Rows {
            transaction: at,
            rows: run.clone(),
        });
        run
    }

    pub(super) fn turn(&mut self, at: usize, statement: &str) {
        self.marks.push(Mark::Turn { transaction: at });
        self.statements.push(statement);
    }

    pub(super) fn commit(&mut self, at: usize) {
        self.marks.push(Mark::Commit { transaction: at });
        self.statements.push("COMMIT");
    }
}

/// Appends the statement that names a transaction.
pub(super) fn append_begin(transaction: &Transaction, target_binlog: bool, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(out, "SET gtid_next='{}'", transaction.gtid);
    if !target_binlog {
        return;
    }
    if let Some(committed) = transaction.original_commit.or(transaction.immediate_commit) {
        let _ = write!(out, ",original_commit_timestamp={}", committed.0);
    }
    if let Some(version) = transaction.original_version {
        let _ = write!(out, ",original_server_version={}", version.0);
    }
}
