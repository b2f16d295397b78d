//! A client that calls the server directly, without a network connection and outside of any runtime.

use std::collections::BTreeMap;

use crate::answers::{Answer, SqlError, code};
use crate::connection::Seat;
use crate::options::Rights;
use crate::process::Mysqld;
use crate::server::Server;
use crate::sessions::{Content, SessionId, Write};
use crate::writing::lock_order;

/// The contents of lists, as a transaction read them.
pub type Reads = BTreeMap<u64, Vec<u64>>;

/// A transaction of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The values to append, each with its list.
    pub appends: Vec<(u64, u64)>,
    /// The lists to read before the appends. If the transaction appends, it locks these lists.
    pub reads: Vec<u64>,
}

/// A session of a client. Dropping it disconnects the client; a waiting commit continues.
#[derive(Debug)]
pub struct ClientSession {
    seat: Seat,
    state: State,
}

/// The state of a client.
#[derive(Debug)]
enum State {
    Idle,
    /// The client has sent a transaction. The server is paused, and has not received it yet.
    Sent(Transaction),
    /// The server has received the transaction.
    UnderWay,
}

impl Server {
    /// Checks whether a user with a correct password may connect. Returns the user's rights.
    pub(crate) fn admit(&self, user: &str) -> Result<Rights, SqlError> {
        let Some(account) = self.account(user) else {
            return Err(denied(user));
        };
        let Some(running) = &self.running else {
            return Err(SqlError::lost());
        };
        let rights = account.rights;
        if !rights.administers() && running.variables.is_on("offline_mode") {
            let message = "The server is currently in offline mode";
            return Err(SqlError::new(3032, message));
        }
        if !rights.administers() && self.is_crowded() {
            return Err(too_many());
        }
        Ok(rights)
    }

    fn begin_transaction(&mut self, id: SessionId, transaction: Transaction) {
        let now = self.now();
        let Some(session) = self.session(id).filter(|session| !session.gone) else {
            return;
        };
        session.answer = None;
        session.info = "a transaction".to_owned();
        session.since = now;
        if self.dismisses(id, code::SHUTDOWN) {
            return;
        }
        if !self.engine.has_table() {
            return self.finish(id, Err(SqlError::no_schema()));
        }
        if transaction.appends.is_empty() {
            let lists = transaction.reads.iter();
            let read: Reads = lists.map(|list| (*list, self.engine.list(*list))).collect();
            if let Some(session) = self.session(id) {
                session.reads = read;
            }
            return self.finish(id, Ok(Answer::Done(0)));
        }
        let appended = transaction.appends.iter().map(|(list, _)| *list);
        let write = Write {
            locks: lock_order(appended.chain(transaction.reads.iter().copied())),
            reads: transaction.reads,
            appends: transaction.appends,
            content: Content::Rows,
            commits: true,
            ..Write::default()
        };
        self.begin_write(id, write);
    }

    /// Returns the answer for a session that belongs to start number `start`. `None`: there is no answer yet. Error: the session has ended.
    pub(crate) fn outcome(
        &mut self,
        id: SessionId,
        start: u64,
    ) -> Option<Result<(Answer, Reads), SqlError>> {
        if self.starts != start {
            return Some(Err(SqlError::lost()));
        }
        if self.paused {
            return None;
        }
        let session = match &mut self.running {
            Some(running) => running.sessions.get_mut(&id),
            None => self.parting.get_mut(&id),
        };
        let Some(session) = session.filter(|session| !session.gone) else {
            return Some(Err(SqlError::lost()));
        };
        match session.answer.take() {
            Some(answer) => {
                let told = answer.map(|answer| (answer, std::mem::take(&mut session.reads)));
                if session.is_dismissed {
                    session.gone = true;
                    self.changed();
                }
                Some(told)
            }
            None if self.running.is_none() => Some(Err(SqlError::lost())),
            None => None,
        }
    }

    /// Returns whether the number of sessions exceeds `max_connections`.
    pub(crate) fn is_crowded(&self) -> bool {
        let Some(running) = &self.running else {
            return false;
        };
        let sessions = running.sessions.values();
        let connected = sessions.filter(|session| !session.is_replica_thread());
        connected.count() as u64 > running.variables.number("max_connections")
    }
}

pub(crate) fn too_many() -> SqlError {
    SqlError::new(code::TOO_MANY_CONNECTIONS, "Too many connections")
}

pub(crate) fn denied(user: &str) -> SqlError {
    let message = format!("Access denied for user '{user}'@'localhost' (using password: YES)");
    SqlError::new(code::ACCESS_DENIED, message)
}

impl Mysqld {
    /// Logs in directly, without a connection and without a password.
    ///
    /// # Errors
    /// The server's refusal. The code is 2002 if no server listens. It is 2013 if the login would hang, because a real client would time
    /// out.
    pub fn log_in(&self, user: &str) -> Result<ClientSession, SqlError> {
        self.act(|server| {
            if !server.listens() {
                let message = "Can't connect to local MySQL server through socket";
                return Err(SqlError::new(code::CANNOT_CONNECT, message));
            }
            if server.paused || server.accounts_are_locked() {
                let message =
                    "Lost connection to MySQL server at 'reading initial communication packet'";
                return Err(SqlError::new(code::LOST, message));
            }
            let id = server
                .open_session(user, Rights::Client)
                .ok_or_else(SqlError::lost)?;
            let rights = server.admit(user).inspect_err(|_| server.leave(id))?;
            if let Some(session) = server.session(id) {
                session.rights = rights;
            }
            let seat = Seat {
                server: self.clone(),
                id,
                start: server.starts,
            };
            let state = State::Idle;
            Ok(ClientSession { seat, state })
        })
    }
}

impl ClientSession {
    /// Runs a statement that does not wait. Drops its answer.
    pub fn run(&mut self, text: &str) {
        let (id, start) = (self.seat.id, self.seat.start);
        self.seat.server.act(|server| {
            if server.starts == start {
                server.run(id, text);
            }
        });
    }

    /// Begins a transaction; [`Self::poll`] returns its outcome. The previous transaction must have ended.
    pub fn begin(&mut self, transaction: Transaction) {
        self.state = State::Sent(transaction);
        self.send();
    }

    /// Passes a sent transaction to the server, unless the server is paused.
    fn send(&mut self) {
        let State::Sent(transaction) = &mut self.state else {
            return;
        };
        let (id, start) = (self.seat.id, self.seat.start);
        let taken = self.seat.server.act(|server| {
            if server.paused {
                return false;
            }
            if server.starts == start {
                server.begin_transaction(id, std::mem::take(transaction));
            }
            true
        });
        if taken {
            self.state = State::UnderWay;
        }
    }

    /// Returns the transaction's outcome once. `None`: the transaction is still running, or there is none. Never blocks.
    pub fn poll(&mut self) -> Option<Result<Reads, SqlError>> {
        self.send();
        if !matches!(self.state, State::UnderWay) {
            return None;
        }
        let (id, start) = (self.seat.id, self.seat.start);
        let outcome = self.seat.server.act(|server| server.outcome(id, start))?;
        self.state = State::Idle;
        Some(outcome.map(|(_, reads)| reads))
    }

    /// The session id at the server.
    pub fn id(&self) -> u32 {
        self.seat.id
    }
}
