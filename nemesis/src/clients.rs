//! Clients as an application has them: an ordinary account, a connection to who says that it is the primary, and another look
//! for it after every error, and when another one is the primary, as behind a proxy that ends sessions to a server that it takes
//! for down. Half of them append, half of them increment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, server_code};

use crate::guide::Direction;
use crate::ledger::{Ledger, Outcome, Work};
use crate::stage::{CLIENT, CLIENT_PASSWORD, COUNTERS};

const CLIENTS: u64 = 4;
/// A client that waits longer for an answer looks for the primary again; what became of its commit it does not know.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);
/// Between two transactions of a client, so that the machine's few processors are left to the ring.
const PACE: Duration = Duration::from_millis(25);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// How long clients may take to come to a rest.
const REST_LIMIT: Duration = Duration::from_secs(30);
/// Answers to a commit that say that nothing was done: a read-only server, a deadlock, a lock that was waited for too long.
const REFUSALS: [u16; 3] = [
    server_code::OPTION_PREVENTS_STATEMENT,
    DEADLOCK,
    server_code::LOCK_WAIT_TIMEOUT,
];
const DEADLOCK: u16 = 1213;

/// See the module. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Clients {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    direction: Direction,
    ledger: Ledger,
    stop: AtomicBool,
    rest: AtomicBool,
    /// Clients with a transaction under way.
    busy: AtomicUsize,
}

impl Clients {
    pub(crate) fn start(direction: Direction, ledger: Ledger) -> Result<Self> {
        let shared = Arc::new(Shared {
            direction,
            ledger,
            stop: AtomicBool::new(false),
            rest: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let theirs = shared.clone();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|number| tokio::spawn(live(number, theirs.clone())))
                    .collect();
                for client in clients {
                    // One that panicked said so.
                    let _ = client.await;
                }
            });
        });
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Lets them begin nothing new, and waits until nothing is under way.
    pub(crate) fn rest(&self) -> Result<()> {
        self.shared.rest.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + REST_LIMIT;
        while self.shared.busy.load(Ordering::SeqCst) > 0 {
            ensure!(Instant::now() < deadline, "clients do not come to a rest");
            thread::sleep(LOOK_PAUSE);
        }
        Ok(())
    }

    /// Lets them go on.
    pub(crate) fn go_on(&self) {
        self.shared.rest.store(false, Ordering::SeqCst);
    }

    /// Fails when one of them has ended by itself.
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
            // One that panicked said so.
            let _ = thread.join();
        }
    }
}

async fn live(number: u64, shared: Arc<Shared>) {
    let mut connection: Option<(usize, Connection)> = None;
    let work = match number % 2 {
        0 => Work::Append,
        _ => Work::Increment,
    };
    while !shared.stop.load(Ordering::SeqCst) {
        // Counted before it looks, so that whoever asks for a rest sees it.
        shared.busy.fetch_add(1, Ordering::SeqCst);
        if !shared.rest.load(Ordering::SeqCst) {
            match &mut connection {
                Some((place, connected)) => {
                    if !transact(connected, *place, work, number, &shared).await {
                        connection = None;
                    }
                }
                None => connection = connect(&shared.direction).await,
            }
        }
        shared.busy.fetch_sub(1, Ordering::SeqCst);
        let pause = match connection {
            Some(_) => PACE,
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

/// Waits until another one is the primary than the one at this place.
async fn moved(direction: &Direction, place: usize) {
    while direction.primary_index().is_none_or(|now| now == place) {
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// One transaction; whether the connection is to be used again.
async fn transact(
    connection: &mut Connection,
    at: usize,
    work: Work,
    client: u64,
    shared: &Shared,
) -> bool {
    let ledger = &shared.ledger;
    let number = ledger.next();
    let started = Instant::now();
    let statements = match work {
        Work::Append => vec![format!(
            "INSERT INTO nemesis.appended VALUES ({number}, {client}, REPEAT('x', {}))",
            number % 60
        )],
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
    };
    let last = statements.len() - 1;
    for (place, statement) in statements.iter().enumerate() {
        let failed = tokio::select! {
            answer = connection.execute(statement) => match answer {
                Ok(_) => continue,
                Err(error) => outcome_of(&error),
            },
            () = moved(&shared.direction, at) => Outcome::Unknown,
        };
        // Before it was asked for, nothing is committed.
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

/// What an error in answer to a commit says.
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
        assert_eq!(
            outcome_of(&LinkError::GivenUp { endpoint }),
            Outcome::Unknown
        );
    }
}
