//! Clients that work like an application: each has an ordinary account and a connection to the reported primary. After an error, or when
//! another member becomes the primary, a client searches for the primary again. A proxy would end the session in the same way. Most clients
//! append or increment. One uses foreign keys, and one creates, alters and drops tables. One manages XA transactions, and finishes its
//! prepared transactions at the current primary.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use fastrand::Rng;
use histories::Operation;
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, server_code};
use testkit::cluster::{CLIENT, CLIENT_PASSWORD};
use testkit::wait::eventually;
use tokio::runtime::Runtime;

use crate::guide::Direction;
use crate::ledger::{FAMILY_LIVES, Ledger, Outcome, Work};
use crate::lists::{History, statement, values};
use crate::stage::{COUNTERS, MADE};
use crate::summary::Findings;

/// Each client's kind of work, and its pause between two transactions.
const CLIENTS: [(Work, Duration); 9] = [
    (Work::Append, PACE),
    (Work::Increment, PACE),
    (Work::Append, PACE),
    (Work::Increment, PACE),
    (Work::Family, Duration::from_millis(60)),
    // A long pause, because followers cannot apply other transactions in parallel to DDL. At a machine load of 20 to 32, one DDL statement
    // in 1.5 s made a `rows` follower lag by 10 to 16 s after three minutes. The sync of each commit took most of that time; a `native`
    // follower groups syncs.
    (Work::Make, Duration::from_secs(5)),
    (Work::Xa, Duration::from_secs(3)),
    (Work::Lists, Duration::from_millis(60)),
    (Work::Lists, Duration::from_millis(60)),
];
/// Time limit for an answer. After it, the client searches for the primary again, and the outcome of its commit is unknown.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two transactions of a client, so that the ring gets most of the machine's few processors.
const PACE: Duration = Duration::from_millis(25);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Time limit for clients to pause.
const REST_LIMIT: Duration = Duration::from_secs(30);
/// Error codes of commits without effect: read-only server, deadlock, lock wait timeout.
const REFUSALS: [u16; 3] = [
    server_code::OPTION_PREVENTS_STATEMENT,
    DEADLOCK,
    server_code::LOCK_WAIT_TIMEOUT,
];
const DEADLOCK: u16 = 1213;
/// Prefix of XA transaction names, before the number.
const XID: &str = "nemesis-";

/// The running clients. Dropping this value ends them.
#[derive(Debug)]
pub(crate) struct Clients {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The reported primary, and all records of the clients.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub(crate) direction: Direction,
    pub(crate) ledger: Ledger,
    pub(crate) history: History,
    pub(crate) findings: Findings,
}

#[derive(Debug)]
struct Shared {
    books: Books,
    stop: AtomicBool,
    rest: AtomicBool,
    /// The number of clients with a transaction in progress.
    busy: AtomicUsize,
}

impl Clients {
    pub(crate) fn start(books: Books) -> Result<Self> {
        let shared = Arc::new(Shared {
            books,
            stop: AtomicBool::new(false),
            rest: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
        });
        let clients = (0..).zip(CLIENTS);
        let clients =
            clients.map(|(number, (work, pace))| live(number, work, pace, shared.clone()));
        let thread = run_all(clients.collect())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Stops new transactions, and waits until none is in progress.
    pub(crate) fn rest(&self) -> Result<()> {
        self.shared.rest.store(true, Ordering::SeqCst);
        let at_rest = || self.shared.busy.load(Ordering::SeqCst) == 0;
        eventually("the clients come to a rest", REST_LIMIT, at_rest)
    }

    /// Lets the clients begin transactions again.
    pub(crate) fn go_on(&self) {
        self.shared.rest.store(false, Ordering::SeqCst);
    }

    /// Returns an error if a client has ended unexpectedly.
    pub(crate) fn look_after(&self) -> Result<()> {
        match &self.thread {
            Some(thread) if !thread.is_finished() => Ok(()),
            _ => Err(anyhow!("the clients have ended by themselves")),
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}

/// Runs the tasks in a separate thread until all have ended.
pub(crate) fn run_all<F>(tasks: Vec<F>) -> Result<JoinHandle<()>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime()?;
    Ok(thread::spawn(move || {
        runtime.block_on(async {
            let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
            for task in tasks {
                // A panic of the task was already printed.
                let _ = task.await;
            }
        });
    }))
}

pub(crate) fn runtime() -> Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_all().build()?)
}

async fn live(number: u64, work: Work, pace: Duration, shared: Arc<Shared>) {
    let mut connection: Option<(usize, Connection)> = None;
    let mut tables = Tables::default();
    let mut open = Prepared::default();
    let mut dice = Rng::with_seed(number);
    while !shared.stop.load(Ordering::SeqCst) {
        // The client is counted before it checks for a pause request, so that the request waits for it.
        shared.busy.fetch_add(1, Ordering::SeqCst);
        if !shared.rest.load(Ordering::SeqCst) {
            match &mut connection {
                Some((place, connected)) => {
                    let mut session = Session {
                        connection: connected,
                        at: *place,
                        shared: &shared,
                    };
                    let stays = match work {
                        Work::Make | Work::Unmake => tables.next(&mut session).await,
                        Work::Xa => open.next(&mut session).await,
                        Work::Lists => transact_lists(&mut session, &mut dice).await,
                        _ => transact(&mut session, work, number).await,
                    };
                    if !stays {
                        connection = None;
                    }
                }
                None => {
                    open.looked = false;
                    connection = connect(&shared.books.direction).await;
                }
            }
        }
        shared.busy.fetch_sub(1, Ordering::SeqCst);
        let pause = match connection {
            Some(_) => pace,
            None => LOOK_PAUSE,
        };
        tokio::time::sleep(pause).await;
    }
}

async fn connect(direction: &Direction) -> Option<(usize, Connection)> {
    let (index, place) = direction.primary()?;
    let endpoint = Endpoint::unix(&place.socket);
    let mut options = ConnectOptions::new(endpoint, CLIENT, CLIENT_PASSWORD);
    options.timeouts.statement = STATEMENT_LIMIT;
    Some((index, Connection::open(&options).await.ok()?))
}

/// Waits until the primary is no longer the member at this place.
async fn moved(direction: &Direction, place: usize) {
    while direction.primary_index().is_none_or(|now| now == place) {
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// A client's connection to the primary.
struct Session<'a> {
    connection: &'a mut Connection,
    at: usize,
    shared: &'a Shared,
}

impl Session<'_> {
    /// Runs a statement. If the statement fails, the error is the outcome of its transaction.
    async fn run(&mut self, statement: &str) -> Result<(), Outcome> {
        tokio::select! {
            answer = self.connection.execute(statement) => match answer {
                Ok(_) => Ok(()),
                Err(error) => Err(outcome_of(&error)),
            },
            () = moved(&self.shared.books.direction, self.at) => Err(Outcome::Unknown),
        }
    }

    /// Runs a transaction over lists, and records the results of its reads.
    async fn lists(&mut self, operations: &mut [Operation]) -> Outcome {
        for begin in ["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "BEGIN"] {
            if self.run(begin).await.is_err() {
                return Outcome::Failed;
            }
        }
        for operation in operations {
            let wanted = statement(operation);
            let done = match operation {
                Operation::Append(..) => self.run(&wanted).await,
                Operation::Read(_, read) => {
                    let items = self.read(&wanted).await;
                    items.map(|items| *read = values(&items.unwrap_or_default()))
                }
            };
            // A failure before the commit request has no effect.
            if done.is_err() {
                return Outcome::Failed;
            }
        }
        self.run("COMMIT")
            .await
            .err()
            .unwrap_or(Outcome::Acknowledged)
    }

    /// Returns the single value that a query returns, if any.
    async fn read(&mut self, statement: &str) -> Result<Option<String>, Outcome> {
        tokio::select! {
            answer = self.connection.query(statement) => match answer {
                Ok(answer) => Ok(answer.first().and_then(|row| row.text_at(0)).map(str::to_owned)),
                Err(error) => Err(outcome_of(&error)),
            },
            () = moved(&self.shared.books.direction, self.at) => Err(Outcome::Unknown),
        }
    }

    /// Records the outcome of an XA transaction. Returns whether the connection remains usable.
    fn ends(&self, number: u64, outcome: Outcome, started: Instant) -> bool {
        let ledger = &self.shared.books.ledger;
        ledger.write(Work::Xa, number, outcome, started);
        outcome == Outcome::Acknowledged
    }

    /// Runs one statement as a transaction, and records the outcome. Returns whether the connection remains usable.
    async fn transaction(&mut self, work: Work, number: u64, statement: &str) -> bool {
        let started = Instant::now();
        let done = self.run(statement).await;
        let outcome = done.err().unwrap_or(Outcome::Acknowledged);
        self.shared
            .books
            .ledger
            .write(work, number, outcome, started);
        done.is_ok()
    }
}

/// Runs one transaction. Returns whether the connection remains usable.
async fn transact(session: &mut Session<'_>, work: Work, client: u64) -> bool {
    let ledger = &session.shared.books.ledger;
    let number = ledger.next();
    let started = Instant::now();
    let statements = match work {
        Work::Increment => {
            let counter = number % COUNTERS;
            vec![
                "BEGIN".to_owned(),
                format!("UPDATE nemesis.counters SET n = n + 1 WHERE counter = {counter}"),
                "UPDATE nemesis.pair SET n = n + 1 WHERE half = 0".to_owned(),
                format!("INSERT INTO nemesis.increments VALUES ({number}, {counter})"),
                "UPDATE nemesis.pair SET n = n + 1 WHERE half = 1".to_owned(),
                "COMMIT".to_owned(),
            ]
        }
        Work::Family => vec![
            "BEGIN".to_owned(),
            format!("INSERT INTO nemesis.parents VALUES ({number})"),
            format!("INSERT INTO nemesis.children (parent) VALUES ({number}), ({number})"),
            format!(
                "DELETE FROM nemesis.parents WHERE id < {} ORDER BY id LIMIT 2",
                number.saturating_sub(FAMILY_LIVES)
            ),
            "COMMIT".to_owned(),
        ],
        _ => vec![format!(
            "INSERT INTO nemesis.appended (id, client, note) VALUES ({number}, {client}, REPEAT('x', {}))",
            number % 60
        )],
    };
    let last = statements.len() - 1;
    for (place, statement) in statements.iter().enumerate() {
        let Err(failed) = session.run(statement).await else {
            continue;
        };
        // An error before the commit request means that nothing is committed.
        let outcome = match place == last {
            true => failed,
            false => Outcome::Failed,
        };
        ledger.write(work, number, outcome, started);
        return false;
    }
    ledger.write(work, number, Outcome::Acknowledged, started);
    true
}

/// Runs one transaction over lists. Returns whether the connection remains usable.
async fn transact_lists(session: &mut Session<'_>, dice: &mut Rng) -> bool {
    let number = session.shared.books.ledger.next();
    let mut operations = session.shared.books.history.plan(number, dice);
    let started = Instant::now();
    let outcome = session.lists(&mut operations).await;
    let shared = session.shared;
    shared
        .books
        .ledger
        .write(Work::Lists, number, outcome, started);
    let known = match outcome {
        Outcome::Acknowledged => histories::Outcome::Committed,
        Outcome::Failed => histories::Outcome::Failed,
        Outcome::Unknown => histories::Outcome::Unknown,
    };
    shared.books.history.write(started, known, operations);
    outcome == Outcome::Acknowledged
}

/// The state of the client that creates tables: its tables that it has not tried to drop, and the number of its next step.
#[derive(Debug, Default)]
struct Tables {
    made: VecDeque<u64>,
    step: u64,
}

impl Tables {
    /// Number of tables that the client keeps. It drops the oldest of more.
    const KEPT: usize = 3;

    /// Does the next step. Returns whether the connection remains usable.
    async fn next(&mut self, session: &mut Session<'_>) -> bool {
        self.step += 1;
        match self.step % 4 {
            0 => {
                let number = session.shared.books.ledger.next();
                let columns = match self.step % 8 {
                    0 => format!("SELECT {number} AS id"),
                    _ => String::new(),
                };
                let make = format!(
                    "CREATE TABLE nemesis.{MADE}{number} (id BIGINT PRIMARY KEY) {columns}"
                );
                let done = session.transaction(Work::Make, number, &make).await;
                if done {
                    self.made.push_back(number);
                }
                done
            }
            1 => match self.made.back() {
                Some(number) => {
                    let alter = format!(
                        "ALTER TABLE nemesis.{MADE}{number} ADD COLUMN more INT NOT NULL DEFAULT 7, ADD KEY (more)"
                    );
                    session.run(&alter).await.is_ok()
                }
                None => true,
            },
            // Other clients write to this table. The first statement may fail, because the column still exists if the last DROP failed.
            2 => {
                let _ = session
                    .run("ALTER TABLE nemesis.appended ADD COLUMN extra INT DEFAULT 3")
                    .await;
                session
                    .run("ALTER TABLE nemesis.appended DROP COLUMN extra")
                    .await
                    .is_ok()
            }
            _ if self.made.len() > Self::KEPT => {
                let Some(number) = self.made.pop_front() else {
                    return true;
                };
                let drop = format!("DROP TABLE nemesis.{MADE}{number}");
                session.transaction(Work::Unmake, number, &drop).await
            }
            _ => true,
        }
    }
}

/// The state of the client of XA transactions: the numbers with an acknowledged PREPARE and no COMMIT request.
#[derive(Debug, Default)]
struct Prepared {
    promised: BTreeSet<u64>,
    /// True if the client has committed all XA transactions that were prepared before this connection.
    looked: bool,
}

impl Prepared {
    /// Runs one XA transaction; first, commits earlier prepared ones. Returns whether the connection remains usable.
    async fn next(&mut self, session: &mut Session<'_>) -> bool {
        if !self.looked {
            self.looked = self.finish(session).await;
            return self.looked;
        }
        let number = session.shared.books.ledger.next();
        let started = Instant::now();
        let xid = format!("'{XID}{number}'");
        for statement in [
            format!("XA START {xid}"),
            format!("INSERT INTO nemesis.xa_rows VALUES ({number})"),
            format!("XA END {xid}"),
        ] {
            if session.run(&statement).await.is_err() {
                return session.ends(number, Outcome::Failed, started);
            }
        }
        if session.run(&format!("XA PREPARE {xid}")).await.is_err() {
            // If the transaction is prepared, `finish` commits it later.
            return session.ends(number, Outcome::Unknown, started);
        }
        self.promised.insert(number);
        self.commit(session, number, started).await
    }

    async fn commit(&mut self, session: &mut Session<'_>, number: u64, started: Instant) -> bool {
        let done = session.run(&format!("XA COMMIT '{XID}{number}'")).await;
        let outcome = match done {
            Ok(()) => Outcome::Acknowledged,
            // The server refused the COMMIT, so that the transaction is still prepared. `finish` commits it later.
            Err(Outcome::Failed) => return false,
            Err(_) => Outcome::Unknown,
        };
        self.promised.remove(&number);
        session.ends(number, outcome, started)
    }

    /// Commits all prepared transactions. Reports a transaction with an acknowledged PREPARE that is not prepared at the primary. True if
    /// all are committed.
    async fn finish(&mut self, session: &mut Session<'_>) -> bool {
        let Ok(answer) = session.connection.query("XA RECOVER").await else {
            return false;
        };
        let data = answer.rows.iter().filter_map(|row| row.text("data"));
        let listed: BTreeSet<u64> = data.filter_map(number_of_xid).collect();
        if session.shared.books.direction.primary_index() != Some(session.at) {
            return false;
        }
        for number in self.promised.difference(&listed) {
            session.shared.books.findings.add(format!(
                "XA transaction {number} has an acknowledged PREPARE, but is not prepared at the primary"
            ));
        }
        self.promised.retain(|number| listed.contains(number));
        for number in listed {
            if !self.commit(session, number, Instant::now()).await {
                return false;
            }
        }
        true
    }
}

fn number_of_xid(data: &str) -> Option<u64> {
    data.strip_prefix(XID)?.parse().ok()
}

/// Returns the outcome of a commit that failed with this error.
fn outcome_of(error: &LinkError) -> Outcome {
    match error.server_code() {
        Some(code) if REFUSALS.contains(&code) => Outcome::Failed,
        _ => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use mysql_link::ServerError;

    use super::*;

    #[test]
    fn only_our_own_prepared_transactions_are_finished() {
        assert_eq!(number_of_xid("nemesis-17"), Some(17));
        assert_eq!(number_of_xid("nemesis-"), None);
        assert_eq!(number_of_xid("other-17"), None);
    }

    #[test]
    fn only_a_refusal_is_certain() {
        let error = |code| {
            LinkError::Server(ServerError {
                code,
                sqlstate: "HY000".to_owned(),
                message: String::new(),
            })
        };
        assert_eq!(outcome_of(&error(1290)), Outcome::Failed);
        assert_eq!(
            outcome_of(&error(server_code::QUERY_INTERRUPTED)),
            Outcome::Unknown
        );
        let endpoint = Endpoint::unix("/x");
        assert_eq!(outcome_of(&LinkError::GivenUp(endpoint)), Outcome::Unknown);
    }
}
