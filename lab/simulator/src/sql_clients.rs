//! The clients of the ring's servers. Writers write at any server that accepts writes, and each server has a reader. All results and reads
//! are recorded. At the end they are checked for consistency.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use histories::{Access, Operation, Outcome, Transaction, check_in_words};
use mysqld_model::{ClientSession, Mysqld, Reads, SqlError};
use raft_types::MemberId;

use crate::event::Event;
use crate::record::Record;
use crate::tick::Tick;

/// The account of the clients.
const ACCOUNT: &str = "client";
/// Number of writers.
const WRITERS: usize = 4;
/// After this many transactions the writers use new lists, so that no list becomes long.
const TRANSACTIONS: u64 = 60;
/// Number of lists in use at a time.
const AT_A_TIME: u64 = 4;
/// How long a client waits for an answer. Then it tries another server.
const PATIENCE: Duration = Duration::from_secs(4);
/// Pause of a client after a server has refused it, before it tries another server.
const ELSEWHERE: Duration = Duration::from_millis(60);
/// Maximum number of characters of each transaction in a finding.
const SHOWN: usize = 400;

/// The servers, each with its member.
pub(crate) type Servers = BTreeMap<MemberId, Mysqld>;

/// All clients, and the record of their transactions.
pub(crate) struct SqlClients {
    servers: Servers,
    dice: Rng,
    record: Record,
    /// The maximum pause between two transactions of a writer.
    pause: Duration,
    writers: Vec<Client>,
    readers: Vec<Client>,
    history: Vec<Transaction>,
    /// The number of transactions that have begun.
    begun: u64,
    /// The number of sessions that readers have opened.
    sessions: u64,
    /// True if writers must not begin transactions.
    rest: bool,
}

/// A client.
struct Client {
    number: usize,
    /// The member of the client's current server, or of the next server to try.
    at: MemberId,
    session: Option<ClientSession>,
    /// The number of a reader's session.
    session_number: u64,
    busy: Option<Busy>,
    next: Tick,
}

/// A transaction that the client waits for.
struct Busy {
    began: Tick,
    operations: Vec<Operation>,
}

impl Busy {
    /// Returns the finished transaction, with the results of its reads.
    fn ended(self, now: Tick, outcome: Outcome, access: Access, reads: &Reads) -> Transaction {
        let seen = |operation| match operation {
            Operation::Read(list, _) => {
                Operation::Read(list, reads.get(&list).cloned().unwrap_or_default())
            }
            append => append,
        };
        Transaction {
            began: self.began.0,
            ended: now.0,
            outcome,
            access,
            operations: self.operations.into_iter().map(seen).collect(),
        }
    }
}

impl Client {
    fn begin(&mut self, operations: Vec<Operation>, now: Tick) {
        if let Some(session) = &mut self.session {
            session.begin(as_transaction(&operations));
        }
        let began = now;
        self.busy = Some(Busy { began, operations });
    }
}

fn log_in(servers: &Servers, at: MemberId) -> Option<ClientSession> {
    servers.get(&at)?.log_in(ACCOUNT).ok()
}

impl SqlClients {
    pub(crate) fn new(servers: Servers, pause: Duration, dice: Rng, record: Record) -> Self {
        let all: Vec<MemberId> = servers.keys().copied().collect();
        let client = |number: usize, at: MemberId| Client {
            number,
            at,
            session: None,
            session_number: 0,
            busy: None,
            next: Tick::default(),
        };
        let writers = (0..WRITERS).map(|number| client(number, all[number % all.len()]));
        let readers = (0..all.len()).map(|number| client(WRITERS + number, all[number]));
        let (writers, readers) = (writers.collect(), readers.collect());
        Self {
            servers,
            dice,
            record,
            pause,
            writers,
            readers,
            history: Vec::new(),
            begun: 0,
            sessions: 0,
            rest: false,
        }
    }

    /// Stops writers from beginning transactions.
    pub(crate) fn rest(&mut self) {
        self.rest = true;
    }

    /// Returns whether no writer waits for an answer.
    pub(crate) fn are_at_rest(&self) -> bool {
        self.rest && self.writers.iter().all(|writer| writer.busy.is_none())
    }

    /// Runs one step of all clients.
    pub(crate) fn step(&mut self, now: Tick) {
        for place in 0..self.writers.len() {
            self.hear_writer(place, now);
            let writer = &self.writers[place];
            if writer.busy.is_none() && writer.next <= now && !self.rest {
                self.write(place, now);
            }
        }
        for place in 0..self.readers.len() {
            self.hear_reader(place, now);
            let reader = &self.readers[place];
            if reader.busy.is_none() && reader.next <= now {
                self.read(place, now);
            }
        }
    }

    fn hear_writer(&mut self, place: usize, now: Tick) {
        let writer = &mut self.writers[place];
        let Some(busy) = &writer.busy else {
            return;
        };
        let answer = writer.session.as_mut().and_then(ClientSession::poll);
        let (outcome, reads) = match answer {
            None if now - busy.began < PATIENCE => return,
            None => (Outcome::Unknown, Reads::default()),
            Some(Ok(reads)) => (Outcome::Committed, reads),
            Some(Err(error)) if is_unsure(&error) => (Outcome::Unknown, Reads::default()),
            Some(Err(_)) => (Outcome::Failed, Reads::default()),
        };
        let Some(busy) = writer.busy.take() else {
            return;
        };
        writer.next = now.after(match outcome {
            Outcome::Committed => below(self.pause, &mut self.dice),
            Outcome::Failed | Outcome::Unknown => ELSEWHERE,
        });
        let (number, at) = (writer.number, writer.at);
        if outcome != Outcome::Committed {
            writer.session = None;
            writer.at = another(at, &self.servers, &mut self.dice);
        }
        self.record.saw(&Event::Told(number, at, outcome));
        self.history
            .push(busy.ended(now, outcome, Access::Primary, &reads));
    }

    fn write(&mut self, place: usize, now: Tick) {
        let writer = &mut self.writers[place];
        if writer.session.is_none() {
            writer.session = log_in(&self.servers, writer.at);
            if writer.session.is_none() {
                writer.at = another(writer.at, &self.servers, &mut self.dice);
                writer.next = now.after(ELSEWHERE);
                return;
            }
        }
        let operations = plan(self.begun, &mut self.dice);
        self.begun += 1;
        writer.begin(operations, now);
    }

    fn hear_reader(&mut self, place: usize, now: Tick) {
        let reader = &mut self.readers[place];
        let Some(busy) = &reader.busy else {
            return;
        };
        let answer = reader.session.as_mut().and_then(ClientSession::poll);
        if answer.is_none() && now - busy.began < PATIENCE {
            return;
        }
        let Some(busy) = reader.busy.take() else {
            return;
        };
        reader.next = now.after(below(self.pause * 2, &mut self.dice));
        let Some(Ok(reads)) = answer else {
            reader.session = None;
            return;
        };
        let access = Access::Follower(reader.session_number);
        self.history
            .push(busy.ended(now, Outcome::Committed, access, &reads));
    }

    fn read(&mut self, place: usize, now: Tick) {
        let reader = &mut self.readers[place];
        if reader.session.is_none() {
            reader.session = log_in(&self.servers, reader.at);
            if reader.session.is_none() {
                reader.next = now.after(ELSEWHERE);
                return;
            }
            self.sessions += 1;
            reader.session_number = self.sessions;
        }
        let newest = self.begun / TRANSACTIONS;
        let lists = newest.saturating_sub(1) * AT_A_TIME..(newest + 1) * AT_A_TIME;
        let operations: Vec<Operation> = lists
            .map(|list| Operation::Read(list, Vec::new()))
            .collect();
        reader.begin(operations, now);
    }

    /// Reads all lists at a server after all writers have stopped. The check then requires all acknowledged appends.
    pub(crate) fn read_all(&mut self, now: Tick, server: &Mysqld) {
        let there = server.lists();
        let lists = 0..(self.begun / TRANSACTIONS + 1) * AT_A_TIME;
        let read = |list| Operation::Read(list, there.get(&list).cloned().unwrap_or_default());
        self.history.push(Transaction {
            began: now.0,
            ended: now.0 + 1,
            outcome: Outcome::Committed,
            access: Access::Primary,
            operations: lists.map(read).collect(),
        });
    }

    /// Returns all anomalies of the recorded transactions as text.
    pub(crate) fn judge(&self) -> Vec<String> {
        check_in_words(&self.history, SHOWN)
    }
}

/// Returns whether this error leaves the transaction's outcome unknown, because the session was lost.
fn is_unsure(error: &SqlError) -> bool {
    const SERVER_LOST: u16 = 2013;
    error.code == SERVER_LOST
}

/// Returns the operations of a transaction: up to two reads, and then one or two appends.
fn plan(number: u64, dice: &mut Rng) -> Vec<Operation> {
    let now = number / TRANSACTIONS;
    let list = |dice: &mut Rng| now * AT_A_TIME + dice.u64(0..AT_A_TIME);
    let mut operations = Vec::new();
    for _ in 0..dice.u8(0..3) {
        operations.push(Operation::Read(list(dice), Vec::new()));
    }
    for part in 0..dice.u64(1..3) {
        operations.push(Operation::Append(list(dice), number * 10 + part));
    }
    operations
}

fn as_transaction(operations: &[Operation]) -> mysqld_model::Transaction {
    let mut transaction = mysqld_model::Transaction::default();
    for operation in operations {
        match operation {
            Operation::Append(list, value) => transaction.appends.push((*list, *value)),
            Operation::Read(list, _) => transaction.reads.push(*list),
        }
    }
    transaction
}

/// Returns a random server other than this one, if there is one.
fn another(than: MemberId, servers: &Servers, dice: &mut Rng) -> MemberId {
    let others: Vec<MemberId> = servers.keys().copied().filter(|id| *id != than).collect();
    match others.is_empty() {
        true => than,
        false => others[dice.usize(0..others.len())],
    }
}

fn below(longest: Duration, dice: &mut Rng) -> Duration {
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(dice.u64(1..longest.max(2)))
}
