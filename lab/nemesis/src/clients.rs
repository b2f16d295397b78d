//! Clients like an application's: an ordinary account and a connection to the reported primary. Each searches for the primary again after
//! an error, or when another member is the primary, as a proxy ends sessions to a server it considers down. Most append or increment. One
//! uses foreign keys, one makes, alters and drops tables, and one manages XA transactions: it finishes what it prepared, at the current
//! primary.

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
    // Rarely: followers apply nothing in parallel to these. With a machine load of 20 to 32, one each in 1.5 s left a `rows` follower 10 to
    // Lagged 16 s after three minutes. Each commit's sync took most of that; a `native` follower shares syncs.
    (Work::Make, Duration::from_secs(5)),
    (Work::Xa, Duration::from_secs(3)),
    (Work::Lists, Duration::from_millis(60)),
    (Work::Lists, Duration::from_millis(60)),
];
/// A client that waits longer for an answer searches for the primary again; the outcome of its commit is unknown.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two transactions of a client, which leaves the machine's few processors to the ring.
const PACE: Duration = Duration::from_millis(25);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Time limit for clients to pause.
const REST_LIMIT: Duration = Duration::from_secs(30);
/// Errors after which a commit had no effect: read-only server, deadlock, lock wait timeout.
const REFUSALS: [u16; 3] = [
    server_code::OPTION_PREVENTS_STATEMENT,
    DEADLOCK,
    server_code::LOCK_WAIT_TIMEOUT,
];
const DEADLOCK: u16 = 1213;
/// Prefix of XA transaction names, before the number.
const XID: &str = "nemesis-";

/// See the module. Dropping this ends them.
#[derive(Debug)]
pub(crate) struct Clients {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The primary as it reports itself, and all that is recorded.
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
    /// Clients with a transaction in progress.
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

    /// Lets them continue.
    pub(crate) fn go_on(&self) {
        self.shared.rest.store(false, Ordering::SeqCst);
    }

    /// Fails when a client has ended by itself.
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
            // Its panic is printed.
            let _ = thread.join();
        }
    }
}

/// Runs tasks in a thread of their own until all have ended.
pub(crate) fn run_all<F>(tasks: Vec<F>) -> Result<JoinHandle<()>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime()?;
    Ok(thread::spawn(move || {
        runtime.block_on(async {
            let tasks: Vec<_> = tasks.into_iter().map(tokio::spawn).collect();
            for task in tasks {
                // Its panic is printed.
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
        // Counted before the check, so that a pause request sees it.
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

/// Waits until the primary is not the one at this place.
async fn moved(direction: &Direction, place: usize) {
    while direction.primary_index().is_none_or(|now| now == place) {
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// A connection to the primary, while it is the primary.
struct Session<'a> {
    connection: &'a mut Connection,
    at: usize,
    shared: &'a Shared,
}

impl Session<'_> {
    /// Runs a statement; an error is its outcome.
    async fn run(&mut self, statement: &str) -> Result<(), Outcome> {
        tokio::select! {
            answer = self.connection.execute(statement) => match answer {
                Ok(_) => Ok(()),
                Err(error) => Err(outcome_of(&error)),
            },
            () = moved(&self.shared.books.direction, self.at) => Err(Outcome::Unknown),
        }
    }

    /// A transaction over lists, which records its reads.
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
            // Before the commit request, a failure has no effect.
            if done.is_err() {
                return Outcome::Failed;
            }
        }
        self.run("COMMIT")
            .await
            .err()
            .unwrap_or(Outcome::Acknowledged)
    }

    /// The single value that a statement reads, if any.
    async fn read(&mut self, statement: &str) -> Result<Option<String>, Outcome> {
        tokio::select! {
            answer = self.connection.query(statement) => match answer {
                Ok(answer) => Ok(answer.first().and_then(|row| row.text_at(0)).map(str::to_owned)),
                Err(error) => Err(outcome_of(&error)),
            },
            () = moved(&self.shared.books.direction, self.at) => Err(Outcome::Unknown),
        }
    }

    /// Records an XA transaction's outcome; returns whether the connection remains usable.
    fn ends(&self, number: u64, outcome: Outcome, started: Instant) -> bool {
        let ledger = &self.shared.books.ledger;
        ledger.write(Work::Xa, number, outcome, started);
        outcome == Outcome::Acknowledged
    }

    /// One statement as a transaction, recorded; returns whether the connection remains usable.
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

/// One transaction; returns whether the connection remains usable.
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
        // Before the commit request, nothing is committed.
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

/// One transaction over lists; returns whether the connection remains usable.
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

/// The client of tables: those that it made and has not tried to drop, and its next step.
#[derive(Debug, Default)]
struct Tables {
    made: VecDeque<u64>,
    step: u64,
}

impl Tables {
    /// Number of tables kept for a while.
    const KEPT: usize = 3;

    /// Returns whether the connection remains usable.
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
            // Others write to this table; whether the column exists depends on the outcome of the last attempt.
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

/// The client of XA transactions: those with an answered PREPARE and no COMMIT request.
#[derive(Debug, Default)]
struct Prepared {
    promised: BTreeSet<u64>,
    /// True if it has finished the remaining ones over this connection.
    looked: bool,
}

impl Prepared {
    /// Returns whether the connection remains usable.
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
            // A later recovery commits it if it is prepared.
            return session.ends(number, Outcome::Unknown, started);
        }
        self.promised.insert(number);
        self.commit(session, number, started).await
    }

    async fn commit(&mut self, session: &mut Session<'_>, number: u64, started: Instant) -> bool {
        let done = session.run(&format!("XA COMMIT '{XID}{number}'")).await;
        let outcome = match done {
            Ok(()) => Outcome::Acknowledged,
            // A refused one is still prepared; a later attempt commits it.
            Err(Outcome::Failed) => return false,
            Err(_) => Outcome::Unknown,
        };
        self.promised.remove(&number);
        session.ends(number, outcome, started)
    }

    /// Commits all prepared transactions, and reports a missing one with an answered PREPARE. Returns whether all are done.
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

/// The outcome of a commit that was answered with an error.
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
