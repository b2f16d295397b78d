//! A connection for applying transactions.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use bytes::Bytes;
use mysql_link::{Connection, LinkError, Ran, ServerError, Statements};

use crate::backend::{Session, SessionId, Then, Turn, WriteError};
use crate::batch::{Batch, Commits};
use crate::locked;
use crate::mysql::checkpoint::{Checkpoint, OUT_OF_RANGE, TABLE, Whose, names};
use crate::mysql::outcome::{Failing, failing, link_error, lost, refused_by_us, write_error};
use crate::mysql::publishing::PUBLISHED_WITHIN;
use crate::mysql::row_run::{
    append_binlog, append_run, context_of, events_within, first_run, image_bytes, single_row,
    statement_bytes, statement_pieces,
};
use crate::mysql::shared::{LARGEST, Shared, limit_of_retry, no_packet};
use crate::mysql::statement_context::rows_statement;
use crate::schema::TableName;
use crate::transaction::{Body, RowContext, Transaction};

/// The most bytes of events in one BINLOG statement, unless one row has more. The server keeps several copies of a statement in
/// memory.
const STATEMENT_BYTES: usize = 1 << 20;
/// When the statements exceed this size, they are sent before more are written. A larger row is encoded while it is sent.
pub(super) const FLUSH_AT: usize = 4 << 20;

/// A connection to a MySQL for applying transactions. `autocommit` is off, so that the first statement after
/// `SET gtid_next` begins a transaction, and a lost connection ends it.
#[derive(Debug)]
pub struct MysqlSession {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) script: Script,
    /// The most bytes of events in one statement.
    pub(super) events_bound: usize,
    /// True if the current transaction has begun.
    begun: bool,
    /// True if `gtid_next` is set to a GTID, or was and is undefined since.
    named: bool,
    /// The most bytes in a statement.
    packet_limit: usize,
    /// True if this session was opened with larger packets.
    opened_with_room: bool,
    /// The time limit of the current packets, and whether a packet has exceeded it.
    rows_limit: Duration,
    ran_out: bool,
    /// The character sets and names of the collations that were queried so far.
    pub(super) collations: HashMap<u32, Option<(String, String)>>,
}

/// Why a packet was not completed.
enum Failed {
    /// The server refused the statement with this mark, and ran no statement after it.
    Statement {
        mark: Option<Mark>,
        error: ServerError,
    },
    /// The packet as a whole failed.
    Packet(WriteError),
}

impl From<WriteError> for Failed {
    fn from(error: WriteError) -> Self {
        Self::Packet(error)
    }
}

impl Failed {
    /// True if the checkpoint row has another number than the predecessor's.
    fn is_other_number(&self) -> bool {
        matches!(self, Self::Statement { mark: Some(Mark::Turn), error } if error.code == OUT_OF_RANGE)
    }
}

impl MysqlSession {
    /// Creates a session for a connection. `with_room`: it was opened with larger packets.
    pub(super) fn new(
        connection: Connection,
        packet_limit: usize,
        with_room: bool,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            connection,
            script: Script::default(),
            events_bound: STATEMENT_BYTES.min(events_within(packet_limit / 2)),
            begun: false,
            // A format description event leaves `gtid_next` undefined.
            named: true,
            packet_limit,
            opened_with_room: with_room,
            rows_limit: shared.options.rows_limit,
            ran_out: false,
            collations: HashMap::new(),
            shared,
        }
    }

    /// Sends the script, and returns how much of it was executed.
    pub(super) async fn run_script(&mut self) -> Result<Ran, WriteError> {
        self.run_script_in_turn(&mut || ()).await
    }

    /// Returns the error for a packet of rows that was not answered.
    fn packet_error(&mut self, error: LinkError) -> WriteError {
        self.ran_out = matches!(error, LinkError::Timeout { .. });
        link_error(error)
    }

    /// Prepares for the rows of a batch or barrier that begins with this transaction.
    pub(super) fn rows_begin(&mut self, first: &Transaction) {
        let more_time = locked(&self.shared.more_time).get(&first.gtid).copied();
        self.rows_limit = more_time.unwrap_or(self.shared.options.rows_limit);
        self.ran_out = false;
    }

    /// Records the result of the rows. If they exceeded their time limit, a retry gets more time, until the batch or barrier is
    /// completed.
    pub(super) fn rows_end(
        &self,
        first: &Transaction,
        is_done: bool,
        tables: impl FnOnce() -> Vec<TableName>,
    ) {
        if is_done {
            locked(&self.shared.more_time).remove(&first.gtid);
        } else if self.ran_out {
            let limit = self.rows_limit;
            let next = limit_of_retry(limit);
            locked(&self.shared.more_time).insert(first.gtid, next);
            tracing::warn!(
                gtid = %first.gtid,
                tables = names(&tables()),
                ?limit,
                ?next,
                "rows have taken longer than they may and begin again with more time; a large table without a primary key is \
                 searched for each of its rows"
            );
        }
    }

    /// As [`Self::run_script`]. Calls `passed` when the turn is taken, before the commit is answered.
    async fn run_script_in_turn(
        &mut self,
        passed: &mut (dyn FnMut() + Send),
    ) -> Result<Ran, WriteError> {
        let limit = self.rows_limit;
        let marks = &self.script.marks;
        // If no row was changed, either the row does not exist, or the transaction was executed already and is skipped. No batch
        // may follow.
        let note = |done: usize, changed: u64| {
            if changed == 1 && matches!(marks.get(done), Some(Mark::Turn)) {
                passed();
            }
        };
        let statements = &mut self.script.statements;
        let run = self.connection.run_all(statements, limit, note);
        let ran = run.await;
        ran.map_err(|error| self.packet_error(error))
    }

    /// Applies the events of one statement, encoded while they are sent. Returns the server's refusal, if any. If the statement
    /// exceeds this session's packet limit, the session counts as lost, and the next session is opened with larger packets.
    pub(super) async fn binlog(
        &mut self,
        events: &[Bytes],
    ) -> Result<Option<ServerError>, WriteError> {
        let length = statement_bytes(events.iter().map(Bytes::len).sum());
        if length >= LARGEST {
            return Ok(Some(no_packet(length)));
        }
        if length >= self.packet_limit && !self.opened_with_room {
            self.shared.room.asked.store(true, Release);
            return Err(WriteError::Lost(format!(
                "a row takes a statement of {length} bytes, and max_allowed_packet is {} here: the next session gets more",
                self.packet_limit
            )));
        }
        let text = statement_pieces(events);
        let limit = self.rows_limit;
        match self.connection.execute_pieces(length, text, limit).await {
            Ok(_) => Ok(None),
            Err(LinkError::Server(error)) => Ok(Some(error)),
            Err(error) => Err(self.packet_error(error)),
        }
    }

    /// Sends the script, and begins a new one. Adds the number of completed commits to `committed`.
    async fn flush(&mut self, committed: &mut usize) -> Result<(), Failed> {
        if self.script.statements.is_empty() {
            return Ok(());
        }
        let ran = self.run_script().await?;
        self.account(ran, committed)
    }

    /// Evaluates the script's result, and begins a new script. Adds the number of completed commits to `committed`.
    fn account(&mut self, Ran { done, error }: Ran, committed: &mut usize) -> Result<(), Failed> {
        for mark in self.script.marks.iter().take(done) {
            let Mark::Commit { guard } = mark else {
                continue;
            };
            *committed += 1;
            if let (Some(checkpoint), Some(number)) = (&self.shared.checkpoint, guard) {
                checkpoint.one_committed(*number);
            }
        }
        let mark = self.script.marks.get(done).cloned();
        self.script.clear();
        let Some(error) = error else { return Ok(()) };
        self.script.context = None;
        Err(Failed::Statement { mark, error })
    }

    /// Adds the statements of some rows to the script, and sends the script when it exceeds the limit.
    async fn put_rows(
        &mut self,
        batch: &Batch,
        rows: Range<usize>,
        committed: &mut usize,
    ) -> Result<(), Failed> {
        // A row that is larger than this is sent alone.
        let large_row = FLUSH_AT.min(events_within(self.packet_limit / 2));
        let mut next = rows.start;
        while next < rows.end {
            if self.script.statements.bytes() > FLUSH_AT {
                self.flush(committed).await?;
            }
            if image_bytes(batch, next) > large_row {
                self.script.context(batch, next);
                self.flush(committed).await?;
                if let Some(error) = self.binlog(&single_row(batch, next)).await? {
                    let mark = Some(Mark::Rows(next..next + 1));
                    return Err(Failed::Statement { mark, error });
                }
                next += 1;
                continue;
            }
            let run = self.script.rows(batch, next..rows.end, self.events_bound);
            next = run.end;
        }
        Ok(())
    }

    /// Sends some rows of a batch, then the statement `turn` that takes its turn, if any, and its commit if `then` requests it.
    async fn put(
        &mut self,
        batch: &Batch,
        rows: Range<usize>,
        then: Then,
        turn: Option<String>,
        passed: &mut (dyn FnMut() + Send),
    ) -> Result<(), Failed> {
        let first = batch.transactions().first();
        let Some(first) = first.filter(|_| batch.barrier().is_none()) else {
            return Err(refused_by_us("a barrier has no rows to be written one by one").into());
        };
        let stays = then == Then::StayOpen;
        self.rows_begin(first);
        let put = async {
            self.script.clear();
            if !self.begun {
                match batch.commits {
                    Commits::OneByOne => self.name(first),
                    Commits::AsOne if self.named => {
                        self.named = false;
                        self.script.push(Mark::Begin, "SET gtid_next='AUTOMATIC'");
                    }
                    Commits::AsOne => {}
                }
                self.begun = true;
            }
            let mut committed = 0;
            self.put_rows(batch, rows.clone(), &mut committed).await?;
            if stays {
                return self.flush(&mut committed).await;
            }
            if let Some(statement) = turn {
                self.script.push(Mark::Turn, statement);
            }
            self.script.push(Mark::Commit { guard: None }, "COMMIT");
            let ran = self.run_script_in_turn(passed).await?;
            self.account(ran, &mut committed)?;
            self.begun = false;
            Ok(())
        }
        .await;
        self.rows_end(first, put.is_ok() && !stays, || batch.tables_of(rows));
        put
    }

    /// Sets the GTID of the following transaction. For a target with a binlog, also sets the original server version and commit
    /// time, for its replicas.
    pub(super) fn name(&mut self, transaction: &Transaction) {
        self.named = true;
        self.script.marks.push(Mark::Begin);
        let out = self.script.statements.begin();
        append_begin(transaction, self.shared.options.target_binlog, out);
    }

    /// Applies the transactions of a batch one by one, beginning with index `from`, until the first failure.
    async fn put_all(
        &mut self,
        batch: &Batch,
        from: usize,
        committed: &mut usize,
    ) -> Result<(), Failed> {
        let Some(first) = batch.transactions().first() else {
            return Ok(());
        };
        self.rows_begin(first);
        let put = async {
            self.script.clear();
            let all = batch.transactions().get(from..).unwrap_or_default();
            let checkpoint = self.usable_checkpoint();
            let guards = checkpoint.map(|checkpoint| checkpoint.guards(batch.seq, all.len()));
            let mut guards = guards.unwrap_or_default().into_iter();
            for (at, transaction) in all.iter().enumerate() {
                self.name(transaction);
                let guard = guards.next().map(|(number, statement)| {
                    self.script.push(Mark::Turn, statement);
                    number
                });
                let rows = batch.rows_of(from + at);
                self.put_rows(batch, rows, committed).await?;
                self.script.push(Mark::Commit { guard }, "COMMIT");
            }
            self.flush(committed).await
        }
        .await;
        self.rows_end(first, put.is_ok(), || {
            batch.tables_of(batch.rows_of(from + *committed))
        });
        put
    }

    pub(super) fn usable_checkpoint(&self) -> Option<&Arc<Checkpoint>> {
        let checkpoint = self.shared.checkpoint.as_ref();
        checkpoint.filter(|checkpoint| !checkpoint.is_given_up())
    }

    /// Rolls back the failed transaction, and returns the reason. `at` is the transaction's index if transactions are committed one
    /// by one.
    async fn failure(&mut self, batch: &Batch, at: Option<usize>, failed: Failed) -> WriteError {
        let (mark, error) = match failed {
            Failed::Statement { mark, error } => (mark, error),
            Failed::Packet(error) => return error,
        };
        if let Err(lost) = self.rolled_back().await {
            return lost;
        }
        if let (Some(Mark::Rows(rows)), Some(at)) = (&mark, at) {
            return self.refusal(batch, at, rows.clone(), &error).await;
        }
        // The update of the checkpoint row failed, although the row has the expected number.
        if mark == Some(Mark::Turn)
            && failing(&error) == Failing::Refused
            && let Some(checkpoint) = &self.shared.checkpoint
        {
            checkpoint.give_up(&error.to_string());
            return WriteError::Again(format!("{TABLE} was not written: {error}"));
        }
        write_error(&error)
    }

    /// Explains an unexpected number in the checkpoint row. Either a call of a lost session committed this batch or a part of it,
    /// or another applier is running.
    async fn explain_number(&mut self, batch: &Batch) -> Result<(), WriteError> {
        self.rolled_back().await?;
        let query = format!("SELECT n FROM {TABLE} WHERE id=1");
        let answer = self.asked(&query).await?;
        let number = answer.value().and_then(|number| number.parse().ok());
        let checkpoint = self.shared.checkpoint.as_ref();
        match checkpoint.map(|checkpoint| checkpoint.found(number.unwrap_or_default())) {
            Some(Whose::Batch(seq)) if seq == batch.seq => Ok(()),
            // The executed GTIDs show how far the call got.
            Some(Whose::Batch(_) | Whose::One) => Err(WriteError::Lost(
                "a call of a lost session has gone on".to_owned(),
            )),
            Some(Whose::Other) | None => Err(refused_by_us(format!(
                "another applier has changed {TABLE} meanwhile: two work at one target, of which one has to end"
            ))),
        }
    }

    pub(super) async fn rolled_back(&mut self) -> Result<(), WriteError> {
        self.begun = false;
        self.script.clear();
        self.script.context = None;
        // If the rollback fails, the session is unusable.
        let back = self.connection.execute("ROLLBACK").await;
        back.map(drop).map_err(lost)
    }
}

impl Session for MysqlSession {
    fn id(&self) -> SessionId {
        SessionId(u64::from(self.connection.id()))
    }

    async fn write(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        then: Then,
        mut passed: impl FnMut() + Send,
    ) -> Result<(), WriteError> {
        let Then::InTurn(turn) = then else {
            let at = (batch.commits == Commits::OneByOne).then_some(0);
            return match self.put(batch, rows, then, None, &mut passed).await {
                Ok(()) => Ok(()),
                Err(failed) => Err(self.failure(batch, at, failed).await),
            };
        };
        let Some(checkpoint) = self.usable_checkpoint().cloned() else {
            self.rolled_back().await?;
            return Err(refused_by_us("nothing is committed as one here"));
        };
        let statement = Some(checkpoint.take_turn(batch, turn));
        let done = match self.put(batch, rows, then, statement, &mut passed).await {
            Ok(()) => Ok(()),
            Err(failed) if failed.is_other_number() && turn == Turn::First => {
                self.explain_number(batch).await
            }
            Err(failed) if failed.is_other_number() => {
                let back = self.rolled_back().await;
                let reason = "the batch before was not committed";
                back.and(Err(WriteError::Again(reason.to_owned())))
            }
            Err(failed) => Err(self.failure(batch, None, failed).await),
        };
        match &done {
            Ok(()) => checkpoint.committed(batch.seq),
            // After other failures nothing was committed. A session that was lost may have committed.
            Err(WriteError::Lost(_)) => {}
            Err(_) => checkpoint.failed(batch.seq),
        }
        done
    }

    async fn apply(&mut self, batch: &Arc<Batch>, from: usize) -> (usize, Result<(), WriteError>) {
        let mut committed = 0;
        let done = match self.put_all(batch, from, &mut committed).await {
            Ok(()) => Ok(()),
            Err(failed) if failed.is_other_number() => {
                let done = self.explain_number(batch).await;
                if done.is_ok() {
                    committed = batch.transactions().len() - from;
                }
                done
            }
            Err(failed) => Err(self.failure(batch, Some(from + committed), failed).await),
        };
        (committed, done)
    }

    async fn run_barrier(&mut self, transaction: &Arc<Transaction>) -> Result<(), WriteError> {
        let Body::Barrier(barrier) = &transaction.body else {
            return Err(refused_by_us("rows are no barrier"));
        };
        // Cosmetic: earlier transactions are in `gtid_executed` first. Nothing depends on this.
        if let Some(checkpoint) = &self.shared.checkpoint {
            let _ = tokio::time::timeout(PUBLISHED_WITHIN, checkpoint.all_published()).await;
        }
        self.named = true;
        let for_good = self.written_for_good(barrier).await?;
        if !for_good.is_empty() {
            let gtid = transaction.gtid;
            self.begin_for_good(gtid, barrier, &for_good).await?;
        }
        self.rows_begin(transaction);
        let done = self.barrier(transaction, barrier, &for_good).await;
        self.shared.for_good.ended(barrier);
        self.rows_end(transaction, done.is_ok(), || barrier.tables());
        done
    }

    async fn roll_back(&mut self) -> Result<(), WriteError> {
        self.rolled_back().await
    }
}

// The statements of a packet, and the purpose of each.

/// The purpose of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// Sets or resets `gtid_next`, or sets up the session for rows.
    Begin,
    /// Writes these rows of the batch.
    Rows(Range<usize>),
    /// Takes the turn to commit, by updating the checkpoint row.
    Turn,
    /// Commits. `guard`: the number that the checkpoint row has then, if transactions are committed one by one.
    Commit { guard: Option<u64> },
}

/// Statements with their marks. The memory is reused from one packet to the next.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) statements: Statements,
    pub(super) marks: Vec<Mark>,
    events: Vec<u8>,
    /// The session context after these statements, if known. It is kept from one packet to the next.
    pub(super) context: Option<RowContext>,
}

impl Script {
    pub(super) fn clear(&mut self) {
        self.statements.clear();
        self.marks.clear();
        if self.events.capacity() > (4 << 20) {
            self.events = Vec::new();
        }
    }

    /// Sets up the session for a row, if needed. Most transactions of a workload need the same settings.
    fn context(&mut self, batch: &Batch, row: usize) {
        let Some(context) = context_of(batch, row) else {
            return;
        };
        if self.context.as_ref() != Some(context) {
            self.push(Mark::Begin, rows_statement(context));
            self.context = Some(context.clone());
        }
    }

    /// Adds one run of rows with its session settings, and returns the run: the first of `rows` that fit into one statement.
    pub(super) fn rows(&mut self, batch: &Batch, rows: Range<usize>, bound: usize) -> Range<usize> {
        self.context(batch, rows.start);
        let run = first_run(batch, rows, bound);
        self.events.clear();
        append_run(batch, run.clone(), &mut self.events);
        append_binlog(&self.events, self.statements.begin());
        self.marks.push(Mark::Rows(run.clone()));
        run
    }

    fn push(&mut self, mark: Mark, statement: impl AsRef<[u8]>) {
        self.marks.push(mark);
        self.statements.push(statement);
    }
}

/// Appends the statement that sets the GTID of a transaction.
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
