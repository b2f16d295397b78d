//! The database of the embedded demonstration: takes transactions of many clients in, gives each its
//! place and its GTID, and answers a client when the ring has committed. What a change of leaders left
//! open is looked up in the ring's log and proposed again if it is not there, in the same order: none
//! twice, none lost. This is what the ingest does beside a real mysqld.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use binlog_format::events::{CommitTimestamp, LogicalClock, ServerVersion, TableId};
use binlog_format::gtid::{Gno, Gtid, GtidSet, SourceId, Tag};
use binlog_format::synthesis::{
    Column, ColumnType, RowTransaction, SynthesisError, Table, TransactionHead, Value,
    statement_transaction,
};
use consensus::{Leadership, Outcome, ProposalTicket, Term};
use member::RingHandle;
use raft_types::{AppEntry, TransactionPayload};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::demo::screen::Scoreboard;

/// How many transactions may wait for the ring.
const IN_FLIGHT: usize = 256;

/// Every GTID whose client was answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acknowledged(Arc<Mutex<GtidSet>>);

impl Acknowledged {
    pub(crate) fn set(&self) -> GtidSet {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn add(&self, gtid: Gtid) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(gtid);
    }
}

/// A client's way to the database.
#[derive(Debug, Clone)]
pub(crate) struct Client(mpsc::Sender<Request>);

#[derive(Debug)]
struct Request {
    transfer: Transfer,
    done: oneshot::Sender<()>,
}

impl Client {
    /// Commits a transfer; `None` when the database is closed.
    pub(crate) async fn commit(&self, transfer: Transfer) -> Option<()> {
        let (done, answered) = oneshot::channel();
        self.0.send(Request { transfer, done }).await.ok()?;
        answered.await.ok()
    }
}

pub(crate) struct Primary {
    bank: Bank,
    requests: mpsc::Receiver<Request>,
    ring: watch::Receiver<Option<RingHandle>>,
    acknowledged: Acknowledged,
    /// Not answered yet, in the order of the log.
    open: VecDeque<Open>,
}

struct Open {
    transaction: Transaction,
    done: Option<oneshot::Sender<()>>,
    ticket: Option<ProposalTicket>,
}

/// Why one leadership's work ended.
enum End {
    LeadershipLost,
    ClientsGone,
}

impl Primary {
    /// A database over the ring as `ring` shows it, and the way to it.
    pub(crate) fn new(
        source: SourceId,
        ring: watch::Receiver<Option<RingHandle>>,
    ) -> (Self, Client, Acknowledged) {
        let (sender, requests) = mpsc::channel(IN_FLIGHT);
        let acknowledged = Acknowledged::default();
        let primary = Self {
            bank: Bank::new(source),
            requests,
            ring,
            acknowledged: acknowledged.clone(),
            open: VecDeque::new(),
        };
        (primary, Client(sender), acknowledged)
    }

    /// Works until every client has gone and everything is answered.
    pub(crate) async fn run(mut self) -> Result<(), SynthesisError> {
        for transaction in self.bank.opening()? {
            self.open.push_back(Open {
                transaction,
                done: None,
                ticket: None,
            });
        }
        while let Some((ring, term)) = self.leadership().await {
            self.forget_what_is_logged(&ring);
            match self.serve(&ring, term).await? {
                End::LeadershipLost => {}
                End::ClientsGone => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits until the member beside this database serves as the leader.
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

    /// A serving leader has committed an entry of its own term, and with it all that its log holds:
    /// what stands there is committed, what does not stand there never will be by itself.
    fn forget_what_is_logged(&mut self, ring: &RingHandle) {
        let logged = ring.log.gtid_set();
        while let Some(first) = self.open.front() {
            if !logged.contains(&first.transaction.gtid) {
                break;
            }
            self.answer_first();
        }
        for open in &mut self.open {
            open.ticket = None;
        }
    }

    async fn serve(&mut self, ring: &RingHandle, term: Term) -> Result<End, SynthesisError> {
        for at in 0..self.open.len() {
            if !self.propose(ring, term, at).await {
                return Ok(End::LeadershipLost);
            }
        }
        let mut clients_gone = false;
        loop {
            let room = self.open.len() < IN_FLIGHT;
            let Some(first) = self.open.front_mut() else {
                if clients_gone {
                    return Ok(End::ClientsGone);
                }
                tokio::select! {
                    request = self.requests.recv() => {
                        clients_gone = request.is_none();
                        if !self.take_in(request, ring, term).await? {
                            return Ok(End::LeadershipLost);
                        }
                    }
                    _ = self.ring.changed() => return Ok(End::LeadershipLost),
                }
                continue;
            };
            let Some(ticket) = &mut first.ticket else {
                return Ok(End::LeadershipLost);
            };
            tokio::select! {
                biased;
                outcome = ticket.outcome() => match outcome {
                    Outcome::Committed(_) => self.answer_first(),
                    Outcome::Refused(_) | Outcome::Unknown(_) => return Ok(End::LeadershipLost),
                },
                request = self.requests.recv(), if !clients_gone && room => {
                    clients_gone = request.is_none();
                    if !self.take_in(request, ring, term).await? {
                        return Ok(End::LeadershipLost);
                    }
                }
                _ = self.ring.changed() => return Ok(End::LeadershipLost),
            }
        }
    }

    /// Gives a request its place and proposes it; false when the leadership is over.
    async fn take_in(
        &mut self,
        request: Option<Request>,
        ring: &RingHandle,
        term: Term,
    ) -> Result<bool, SynthesisError> {
        let Some(request) = request else {
            return Ok(true);
        };
        self.open.push_back(Open {
            transaction: self.bank.transfer(request.transfer)?,
            done: Some(request.done),
            ticket: None,
        });
        Ok(self.propose(ring, term, self.open.len() - 1).await)
    }

    async fn propose(&mut self, ring: &RingHandle, term: Term, at: usize) -> bool {
        let Some(open) = self.open.get_mut(at) else {
            return true;
        };
        let entry = AppEntry::Transaction(open.transaction.payload.clone());
        match ring.member.propose(entry, term).await {
            Ok(ticket) => {
                open.ticket = Some(ticket);
                true
            }
            Err(_) => false,
        }
    }

    fn answer_first(&mut self) {
        let Some(open) = self.open.pop_front() else {
            return;
        };
        self.acknowledged.add(open.transaction.gtid);
        if let Some(done) = open.done {
            // A client that went away does not need its answer.
            let _ = done.send(());
        }
    }
}

/// How many accounts the bank has.
const ACCOUNTS: usize = 500;
const OPENING_BALANCE: i64 = 1_000;
/// All the money that there is.
pub(super) const WEALTH: i64 = OPENING_BALANCE * ACCOUNTS as i64;
/// The tables with their columns: accounts, and transfers.
pub(super) const TABLES: [(&str, &[&str]); 2] = [
    ("accounts", &["id", "balance"]),
    ("transfers", &["id", "payer", "payee", "amount", "note"]),
];
/// With it a transfer takes about 500 bytes in the log, as a row of an ordinary application does.
const NOTE_BYTES: u16 = 160;

/// The data of the embedded writer: a bank whose every transaction moves money between two accounts
/// and writes the transfer down. It makes the row events that a mysqld would write for it, before
/// images included, so that the log can be replayed.
#[derive(Debug)]
pub(crate) struct Bank {
    source: SourceId,
    next: u64,
    balances: Vec<i64>,
    accounts: Table,
    transfers: Table,
}

/// What a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    /// From which account; counted around.
    pub(crate) from: usize,
    /// To which one; counted around.
    pub(crate) to: usize,
    pub(crate) amount: i32,
}

/// One transaction, with its name.
#[derive(Debug, Clone)]
pub(crate) struct Transaction {
    pub(crate) gtid: Gtid,
    pub(crate) payload: TransactionPayload,
}

impl Bank {
    /// A bank that does not exist yet in any log; see [`Self::opening`].
    pub(crate) fn new(source: SourceId) -> Self {
        let column = |column_type| Column {
            column_type,
            nullable: false,
        };
        let table = |id, name: &str, columns: Vec<Column>| Table {
            id,
            schema: "bank".to_owned(),
            name: name.to_owned(),
            columns,
        };
        let big = || column(ColumnType::BigInt);
        let note = column(ColumnType::Varchar {
            max_bytes: NOTE_BYTES * 4,
        });
        Self {
            source,
            next: 1,
            balances: vec![OPENING_BALANCE; ACCOUNTS],
            accounts: table(TableId(101), "accounts", vec![big(), big()]),
            transfers: table(
                TableId(102),
                "transfers",
                vec![big(), big(), big(), column(ColumnType::Int), note],
            ),
        }
    }

    /// The transactions that make the bank.
    pub(crate) fn opening(&mut self) -> Result<Vec<Transaction>, SynthesisError> {
        let statements = [
            "CREATE DATABASE bank".to_owned(),
            "CREATE TABLE bank.accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL)"
                .to_owned(),
            format!(
                "CREATE TABLE bank.transfers (id BIGINT PRIMARY KEY, payer BIGINT NOT NULL, \
                 payee BIGINT NOT NULL, amount INT NOT NULL, note VARCHAR({NOTE_BYTES}) NOT NULL)"
            ),
        ];
        let mut opening = Vec::new();
        for statement in statements {
            let head = self.head();
            opening.push(seal(&head, statement_transaction(head, "", &statement)));
        }
        let head = self.head();
        let mut accounts = RowTransaction::begin(head);
        let rows: Vec<_> = (0..ACCOUNTS).map(|id| self.account(id)).collect();
        accounts.insert(&self.accounts, &rows)?;
        opening.push(seal(&head, accounts.commit()));
        Ok(opening)
    }

    /// Moves the money and makes the transaction that says so.
    pub(crate) fn transfer(&mut self, request: Transfer) -> Result<Transaction, SynthesisError> {
        let from = request.from % ACCOUNTS;
        // The two must differ: a row that changes twice in one statement is another matter.
        let to = match request.to % ACCOUNTS {
            to if to == from => (to + 1) % ACCOUNTS,
            to => to,
        };
        let before = [self.account(from), self.account(to)];
        self.balances[from] -= i64::from(request.amount);
        self.balances[to] += i64::from(request.amount);
        let after = [self.account(from), self.account(to)];
        let head = self.head();
        let id = i64::try_from(head.xid).unwrap_or(i64::MAX);
        let mut transaction = RowTransaction::begin(head);
        let changes: Vec<_> = before.into_iter().zip(after).collect();
        transaction.update(&self.accounts, &changes)?;
        let note = format!(
            "{:-^1$}",
            format!(" transfer {id} "),
            usize::from(NOTE_BYTES)
        );
        let row = vec![
            Value::BigInt(id),
            Value::BigInt(number(from)),
            Value::BigInt(number(to)),
            Value::Int(request.amount),
            Value::Text(note),
        ];
        transaction.insert(&self.transfers, &[row])?;
        Ok(seal(&head, transaction.commit()))
    }

    fn account(&self, id: usize) -> Vec<Value> {
        vec![Value::BigInt(number(id)), Value::BigInt(self.balances[id])]
    }

    fn head(&mut self) -> TransactionHead {
        let number = self.next;
        self.next += 1;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        TransactionHead {
            gtid: Gtid {
                source: self.source,
                tag: Tag::NONE,
                gno: Gno::new(number).unwrap_or(Gno::MAX),
            },
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)),
            version: VERSION,
            clock: LogicalClock {
                last_committed: i64::try_from(number - 1).unwrap_or(i64::MAX),
                sequence_number: i64::try_from(number).unwrap_or(i64::MAX),
            },
            xid: number,
        }
    }
}

/// The version whose form of events is written.
const VERSION: ServerVersion = ServerVersion(90_704);

fn seal(head: &TransactionHead, payload: bytes::Bytes) -> Transaction {
    Transaction {
        gtid: head.gtid,
        payload: TransactionPayload::seal(payload),
    }
}

fn number(account: usize) -> i64 {
    i64::try_from(account).unwrap_or(i64::MAX)
}

// The clients of the embedded database: each commits one transfer after the other and waits for its
// answer, for as long as the demonstration lasts.

/// Between two transfers of one client; the demonstration shows latencies, not a full machine.
const THINK: Duration = Duration::from_millis(1);

pub(crate) struct Clients {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Clients {
    pub(crate) fn start(count: usize, client: &Client, board: &Arc<Scoreboard>) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let client = client.clone();
            tasks.spawn(work(number, client, board.clone(), stop.clone()));
        }
        Self { tasks, stop }
    }

    /// Lets every client finish the transfer that it is in.
    pub(crate) async fn finish(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn work(number: usize, client: Client, board: Arc<Scoreboard>, stop: CancellationToken) {
    let mut turn = number;
    while !stop.is_cancelled() {
        // Steps that have no common factor with the number of accounts visit all of them.
        turn = turn.wrapping_add(7);
        let transfer = Transfer {
            from: turn.wrapping_mul(13),
            to: turn.wrapping_mul(31) + number,
            amount: 1 + i32::try_from(turn % 100).unwrap_or(0),
        };
        let asked = Instant::now();
        if client.commit(transfer).await.is_none() {
            return;
        }
        board.committed(asked.elapsed());
        tokio::time::sleep(THINK).await;
    }
}
