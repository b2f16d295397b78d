//! The clients of the demonstration. Clients of a mysqld insert one row after another, and wait for each answer. Without a mysqld, a
//! writer proposes such transactions to the ring. After a change of the leader, the outcome of some transactions is unknown. The
//! writer then searches the ring's log for them, and proposes the missing ones again, in the same order, so that none is
//! lost or duplicated. With a mysqld, the member's ingest does this.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion, TableId};
use binlog_format::gtid::{Gno, Gtid, GtidSet, SourceId, Tag};
use binlog_format::synthesis::{
    Column, ColumnType, RowTransaction, SynthesisError, Table, TransactionHead, Value,
    statement_transaction,
};
use consensus::{Leadership, Outcome, ProposalTicket, ProposeError, Term};
use member::RingHandle;
use mysql_link::{ConnectOptions, Connection, LinkError};
use raft_types::{AppEntry, ProposalSequence, TransactionPayload};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::demo::screen::Scoreboard;
use crate::terminal::{Attempt, Exit, Failure};

const CREATE_DATABASE: &str = "CREATE DATABASE demo";
const CREATE_TABLE: &str =
    "CREATE TABLE demo.notes (id BIGINT PRIMARY KEY, note VARCHAR(160) NOT NULL)";
/// The size of a note. With this size, a transaction has about 400 bytes in the log.
const NOTE_BYTES: usize = 160;

const CLIENTS: u64 = 8;
/// The size of the range of row numbers that each client has for itself.
const ROWS_PER_CLIENT: u64 = 1_000_000_000;
/// Time limit for a commit: as long as the longest event of the demonstration.
const LONGEST_COMMIT: Duration = Duration::from_secs(60);
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// Creates the table of the clients.
pub(crate) async fn prepare_table(account: &ConnectOptions) -> Attempt {
    column(account, CREATE_DATABASE).await?;
    column(account, CREATE_TABLE).await.map(drop)
}

/// Returns the number of rows that a reader sees.
pub(crate) async fn visible_rows(account: &ConnectOptions) -> Attempt<u64> {
    let count = column(account, "SELECT COUNT(*) FROM demo.notes").await?;
    count.concat().parse().map_err(Failure::error)
}

/// Runs the clients until `stop` is cancelled and every client has its last answer. Returns the transactions that mysqld has
/// executed.
///
/// # Errors
/// Exit 7 if mysqld lacks a row that it acknowledged.
pub(crate) async fn insert(
    account: ConnectOptions,
    board: Arc<Scoreboard>,
    stop: CancellationToken,
) -> Attempt<GtidSet> {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let first = client * ROWS_PER_CLIENT;
        clients.spawn(insert_rows(
            account.clone(),
            first,
            board.clone(),
            stop.clone(),
        ));
    }
    let acknowledged = clients.join_all().await.concat();
    let rows = column(&account, "SELECT id FROM demo.notes").await?;
    let rows: HashSet<u64> = rows.iter().filter_map(|id| id.parse().ok()).collect();
    let missing = acknowledged.iter().filter(|id| !rows.contains(id));
    if let missing @ 1.. = missing.count() {
        let why = format!("mysqld lacks {missing} rows that it acknowledged");
        return Err(Exit::Corrupt.because(why, "keep the files (--data-dir) and report it"));
    }
    let executed = column(&account, "SELECT @@GLOBAL.gtid_executed").await?;
    executed.concat().parse().map_err(Failure::error)
}

/// Runs one client, which reconnects after an error. Returns the numbers of its acknowledged rows.
async fn insert_rows(
    account: ConnectOptions,
    first: u64,
    board: Arc<Scoreboard>,
    stop: CancellationToken,
) -> Vec<u64> {
    let note = "-".repeat(NOTE_BYTES);
    let mut acknowledged = Vec::new();
    // Each number is used only once: if the answer to an insert was lost, its row may be in the table.
    let mut ids = first..;
    while !stop.is_cancelled() {
        if let Ok(mut connection) = Connection::open(&account).await {
            for id in ids.by_ref().take_while(|_| !stop.is_cancelled()) {
                let insert = format!("INSERT INTO demo.notes VALUES ({id}, '{note}')");
                let begun = Instant::now();
                let answer = connection.query_within(&insert, LONGEST_COMMIT).await;
                if answer.is_err() {
                    break;
                }
                acknowledged.push(id);
                board.committed(begun.elapsed());
            }
        }
        tokio::time::sleep(RECONNECT_AFTER).await;
    }
    acknowledged
}

/// Runs a statement on a new connection, and returns the first column of its result.
async fn column(account: &ConnectOptions, sql: &str) -> Attempt<Vec<String>> {
    let error = |error: LinkError| Failure::error(format!("mysqld: {error}"));
    let mut connection = Connection::open(account).await.map_err(error)?;
    let result = connection.query_within(sql, LONGEST_COMMIT).await;
    let rows = result.map_err(error)?.rows;
    connection.close().await;
    let values = rows.iter().filter_map(|row| row.text_at(0));
    Ok(values.map(str::to_owned).collect())
}

/// How many transactions wait for their commit at the same time.
const IN_FLIGHT: usize = 8;
/// The time between two transactions. It keeps the machine from saturation, so that the latencies are those of an unloaded ring.
const PACE: Duration = Duration::from_millis(1);

pub(crate) struct Writer {
    ring: watch::Receiver<Option<RingHandle>>,
    rows: Rows,
    /// The transactions that are not acknowledged yet, in the order of the log.
    open: VecDeque<Open>,
    acknowledged: GtidSet,
    board: Arc<Scoreboard>,
    stop: CancellationToken,
}

struct Open {
    gtid: Gtid,
    payload: TransactionPayload,
    begun: Instant,
    ticket: Option<ProposalTicket>,
}

impl Writer {
    /// Creates a writer. `ring` contains the ring while the member takes part in it.
    pub(crate) fn new(
        ring: watch::Receiver<Option<RingHandle>>,
        board: Arc<Scoreboard>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            ring,
            rows: Rows {
                source: SourceId(Uuid::new_v4()),
                next: 1,
            },
            open: VecDeque::new(),
            acknowledged: GtidSet::new(),
            board,
            stop,
        }
    }

    /// Writes until `stop` is cancelled and every transaction is acknowledged. Returns the acknowledged transactions.
    pub(crate) async fn run(mut self) -> Attempt<GtidSet> {
        while !(self.stop.is_cancelled() && self.open.is_empty()) {
            let Some((ring, term)) = self.leadership().await else {
                break;
            };
            self.acknowledge_logged(&ring.log.gtid_set());
            self.serve(&ring, term).await?;
        }
        Ok(self.acknowledged)
    }

    /// Waits until the member serves as the leader; returns `None` if the member has ended.
    async fn leadership(&mut self) -> Option<(RingHandle, Term)> {
        loop {
            let ring = self.ring.wait_for(Option::is_some).await.ok()?.clone()?;
            let mut leadership = ring.member.leadership();
            let serves = |now: &Leadership| now.serving_term().is_some();
            tokio::select! {
                serving = leadership.wait_for(serves) => {
                    if let Ok(now) = serving && let Some(term) = now.serving_term() {
                        return Some((ring.clone(), term));
                    }
                }
                changed = self.ring.changed() => changed.ok()?,
            }
        }
    }

    /// Acknowledges the open transactions that are in the leader's log. A serving leader has committed an entry of its own
    /// term, and so its whole log. A missing transaction is not committed unless it is proposed again.
    fn acknowledge_logged(&mut self, logged: &GtidSet) {
        for mut open in std::mem::take(&mut self.open) {
            if logged.contains(&open.gtid) {
                self.acknowledge(&open);
            } else {
                open.ticket = None;
                self.open.push_back(open);
            }
        }
    }

    /// Proposes transactions as the leader of `term`, until the term ends or all transactions are acknowledged after `stop`.
    async fn serve(&mut self, ring: &RingHandle, term: Term) -> Attempt {
        let sequence = ProposalSequence::default();
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for open in self.open.iter_mut().filter(|open| open.ticket.is_none()) {
                let entry = AppEntry::Transaction(open.payload.clone());
                match ring.member.propose_behind(entry, term, &sequence).await {
                    Ok(ticket) => open.ticket = Some(ticket),
                    Err(ProposeError::Stopped(_)) => return Ok(()),
                    Err(error) => return Err(Failure::error(error)),
                }
            }
            let stopped = self.stop.is_cancelled();
            if stopped && self.open.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                outcome = outcome(self.open.front_mut()) => {
                    let Outcome::Committed(_) = outcome else {
                        return Ok(());
                    };
                    if let Some(open) = self.open.pop_front() {
                        self.acknowledge(&open);
                    }
                }
                _ = self.ring.changed() => return Ok(()),
                () = self.stop.cancelled(), if !stopped => {}
                _ = pace.tick(), if !stopped && self.open.len() < IN_FLIGHT => {
                    let (gtid, payload) = self.rows.next().map_err(Failure::error)?;
                    self.open.push_back(Open {
                        gtid,
                        payload,
                        begun: Instant::now(),
                        ticket: None,
                    });
                }
            }
        }
    }

    fn acknowledge(&mut self, open: &Open) {
        self.acknowledged.add(open.gtid);
        self.board.committed(open.begun.elapsed());
    }
}

/// Waits for the outcome of a proposal. If there is no proposal, it waits forever.
async fn outcome(open: Option<&mut Open>) -> Outcome {
    match open.and_then(|open| open.ticket.as_mut()) {
        Some(ticket) => ticket.outcome().await,
        None => std::future::pending().await,
    }
}

/// The server version in the events.
const VERSION: ServerVersion = ServerVersion(90_704);

/// Creates the transactions that a mysqld would write: first the database and the table, then one row in each transaction.
struct Rows {
    source: SourceId,
    next: u64,
}

impl Rows {
    fn next(&mut self) -> Result<(Gtid, TransactionPayload), SynthesisError> {
        let number = self.next;
        self.next += 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        let sequence_number = i64::try_from(number).unwrap_or(i64::MAX);
        let head = TransactionHead {
            gtid: Gtid {
                source: self.source,
                tag: Tag::NONE,
                gno: Gno::new(number).unwrap_or(Gno::MAX),
            },
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(u64::try_from(micros).unwrap_or(u64::MAX)),
            version: VERSION,
            clock: LogicalClock {
                last_committed: sequence_number - 1,
                sequence_number,
            },
            xid: number,
        };
        let events = match number {
            1 => statement_transaction(head, "", CREATE_DATABASE),
            2 => statement_transaction(head, "", CREATE_TABLE),
            _ => {
                let note = format!("{:-^NOTE_BYTES$}", format!(" row {number} "));
                let row = vec![Value::BigInt(sequence_number), Value::Text(note)];
                let mut transaction = RowTransaction::begin(head);
                transaction.insert(&table(), &[row])?;
                transaction.commit()
            }
        };
        Ok((head.gtid, TransactionPayload::seal(events)))
    }
}

fn table() -> Table {
    let note = ColumnType::Varchar {
        // utf8mb4 has at most four bytes for each character.
        max_bytes: 4 * NOTE_BYTES as u16,
    };
    let columns = [ColumnType::BigInt, note].map(|column_type| Column {
        column_type,
        nullable: false,
    });
    Table {
        id: TableId(101),
        schema: "demo".to_owned(),
        name: "notes".to_owned(),
        columns: columns.into(),
    }
}
