//! Runs the statements of sessions. Each statement either completes immediately or leaves work in the session, which completes it later.

use std::time::Duration;

use crate::answers::{Answer, Rows, SqlError, code};
use crate::binlog::{file_name, file_number};
use crate::options::Rights;
use crate::server::Server;
use crate::sessions::{Content, SessionId, Work, Write};
use crate::statement::{Scope, Statement, Value};
use crate::writing::lock_order;

impl Server {
    /// Runs the statement in `text`. The session receives the answer, now or later.
    pub(crate) fn run(&mut self, id: SessionId, text: &str) {
        let now = self.now();
        if let Some(session) = self.session(id) {
            session.info = text.to_owned();
            session.since = now;
        }
        let statement = Statement::of(text);
        let code = match statement {
            Some(Statement::Commit) => code::HOOK_FAILED,
            _ => code::SHUTDOWN,
        };
        if self.dismisses(id, code) {
            return;
        }
        match statement {
            Some(statement) => self.execute(id, statement, text),
            None => self.refuse_unknown(id, text),
        }
    }

    fn refuse_unknown(&mut self, id: SessionId, text: &str) {
        self.unknown.push(text.to_owned());
        let message =
            "You have an error in your SQL syntax: the model does not know this statement";
        self.finish(id, Err(SqlError::new(code::PARSE, message)));
    }

    fn has_written(&mut self, id: SessionId) -> bool {
        self.session(id)
            .is_some_and(|session| !session.transaction.rows.is_empty())
    }

    fn execute(&mut self, id: SessionId, statement: Statement, text: &str) {
        let Some(session) = self.session(id) else {
            return;
        };
        let rights = session.rights;
        if self.waits_for_accounts(&statement, rights) {
            return self.set_work(id, Work::Later(statement));
        }
        if let Some(privilege) = lacking(&statement, rights) {
            return self.finish(id, Err(SqlError::lacks(privilege)));
        }
        match statement {
            Statement::Set(assignments) => self.begin_set(id, assignments),
            // A real server would commit the open transaction. No user of the model relies on that.
            Statement::Begin if self.has_written(id) => self.refuse_unknown(id, text),
            Statement::Begin => {
                self.roll_back(id);
                if let Some(session) = self.session(id) {
                    session.transaction.explicit = true;
                }
                self.finish(id, Ok(Answer::Done(0)));
            }
            Statement::Commit => self.begin_commit(id, Content::Rows),
            Statement::Rollback => {
                self.roll_back(id);
                self.finish(id, Ok(Answer::Done(0)));
            }
            Statement::Append { list, value } => {
                let session = self.session(id);
                let explicit = session.is_some_and(|session| session.transaction.explicit);
                let write = Write {
                    locks: lock_order([list]),
                    appends: vec![(list, value)],
                    commits: !explicit,
                    until: Duration::MAX,
                    ..Write::default()
                };
                self.begin_write(id, write);
            }
            Statement::Accounts(change) => {
                let logged = self.session(id).is_none_or(|session| session.logs);
                let write = Write {
                    content: match logged {
                        true => Content::Accounts(text.to_owned()),
                        false => Content::Rows,
                    },
                    accounts: (!logged).then_some(change),
                    commits: true,
                    until: Duration::MAX,
                    ..Write::default()
                };
                self.begin_write(id, write);
            }
            Statement::Copy(request) => self.begin_copy(id, request),
            Statement::FlushBinaryLogs => {
                if let Some(running) = &mut self.running {
                    running.commits.flushes.push_back(id);
                }
                self.set_work(id, Work::FlushLogs);
                self.changed();
            }
            Statement::ShowBinaryLogStatus => {
                self.set_work(id, Work::BinlogStatus);
                self.advance_binlog_status(id);
            }
            Statement::Kill { query, session } => self.kill(id, query, session),
            Statement::Shutdown => {
                self.finish(id, Ok(Answer::Done(0)));
                self.begin_stop();
            }
            Statement::StopReplica(receiver_only, channel) => {
                self.begin_stop_replica(id, receiver_only, channel.as_deref());
            }
            other => {
                let answer = self.at_once(id, other);
                self.finish(id, answer);
            }
        }
    }

    /// Returns whether a statement must wait for the account lock. An account statement holds this lock until its ACK.
    fn waits_for_accounts(&self, statement: &Statement, rights: Rights) -> bool {
        self.accounts_are_locked()
            && match statement {
                Statement::ShowGrants | Statement::ShowVariables(_) | Statement::Accounts(_) => {
                    true
                }
                Statement::Set(assignments) => {
                    let global = |scope| !matches!(scope, Scope::User | Scope::Session);
                    rights != Rights::All
                        && assignments
                            .iter()
                            .any(|assignment| global(assignment.scope))
                }
                Statement::ShowStatus(_) => rights != Rights::All,
                Statement::Look(look) => rights != Rights::All && look.is_of_performance_schema(),
                _ => false,
            }
    }

    pub(crate) fn advance_later(&mut self, id: SessionId) {
        if self.accounts_are_locked() {
            return;
        }
        let Some(session) = self.session(id) else {
            return;
        };
        if let Work::Later(statement) = std::mem::replace(&mut session.work, Work::Idle) {
            let text = session.info.clone();
            self.execute(id, statement, &text);
        }
    }

    fn kill(&mut self, own: SessionId, query: bool, id: SessionId) {
        let Some(session) = self.session(id) else {
            let message = format!("Unknown thread id: {id}");
            return self.finish(own, Err(SqlError::new(code::NO_SUCH_THREAD, message)));
        };
        let commits = session.commits();
        let idle = session.is_idle();
        self.interrupt_closing(id);
        if !query {
            self.kill_session(id);
        } else if !commits && !idle {
            self.roll_back(id);
            let message = "Query execution was interrupted";
            self.finish(id, Err(SqlError::new(code::QUERY_INTERRUPTED, message)));
        }
        self.finish(own, Ok(Answer::Done(0)));
    }

    pub(crate) fn advance_binlog_status(&mut self, id: SessionId) {
        let Some(running) = &self.running else {
            return;
        };
        if running.commits.log_is_locked() {
            return;
        }
        let end = running.binlog.end;
        let executed = running.executed.to_string();
        let columns = "File Position Binlog_Do_DB Binlog_Ignore_DB Executed_Gtid_Set";
        let (file, offset) = (file_name(end.file), end.offset.to_string());
        let empty = String::new;
        let rows = Rows::named(columns).row([file, offset, empty(), empty(), executed]);
        self.finish(id, Ok(Answer::Rows(rows)));
    }

    /// Runs a statement that does not wait.
    fn at_once(&mut self, id: SessionId, statement: Statement) -> Result<Answer, SqlError> {
        match statement {
            Statement::Select(values) => self.select(id, &values),
            Statement::ReadList(_) if !self.engine.has_table() => Err(SqlError::no_schema()),
            Statement::ReadList(list) => Ok(Answer::Rows(self.read_list(id, list))),
            Statement::CountAccounts(user) => Ok(Answer::Rows(self.accounts_named(&user))),
            Statement::AccountsLike(pattern) => Ok(Answer::Rows(self.accounts_like(&pattern))),
            Statement::ShowVariables(filter) => Ok(Answer::Rows(self.variables_shown(&filter))),
            Statement::ShowStatus(filter) => Ok(Answer::Rows(self.status_shown(&filter))),
            Statement::ShowGrants => Ok(Answer::Rows(self.grants(id))),
            Statement::ShowProcesslist => Ok(Answer::Rows(self.processes())),
            Statement::ShowBinaryLogs => Ok(Answer::Rows(self.binary_logs())),
            Statement::ShowReplicaStatus => Ok(Answer::Rows(self.replica_status())),
            Statement::PurgeTo(name) => self.purge_to(&name),
            Statement::InstallPlugin(name) => self.install_plugin(&name),
            Statement::ResetPersist(name) => {
                self.persisted.remove(&name);
                Ok(Answer::Done(0))
            }
            Statement::ChangeSource(change) => self.change_source(change),
            Statement::StartReplica(receiver_only, channel) => {
                self.start_replica(receiver_only, channel.as_deref())
            }
            Statement::ResetReplica(all, channel) => self.reset_replica(channel.as_deref(), all),
            Statement::GetLock(name) => Ok(Answer::Rows(self.get_lock(id, name))),
            Statement::Look(look) => self.look(id, look),
            // All other statements leave work in the session.
            _ => Ok(Answer::Done(0)),
        }
    }

    fn select(&mut self, id: SessionId, values: &[Value]) -> Result<Answer, SqlError> {
        let names: Vec<String> = values.iter().map(shown).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let row = values.iter().map(|value| self.value(id, value));
        let row = row.collect::<Result<Vec<_>, _>>()?;
        Ok(Answer::Rows(Rows::of(&names).row(row)))
    }

    fn value(&mut self, id: SessionId, value: &Value) -> Result<Option<String>, SqlError> {
        Ok(match value {
            Value::Number(number) => Some(number.to_string()),
            Value::Text(text) => Some(text.clone()),
            Value::Global(name) | Value::Session(name) => Some(self.variable(id, name)?),
            Value::User(name) => {
                let session = self.session(id);
                session.and_then(|session| session.variables.get(name).cloned())
            }
            Value::Version => Some(self.options.version.clone()),
            Value::CurrentUser => {
                let session = self.session(id);
                session.map(|session| format!("{}@%", session.user))
            }
            Value::ConnectionId => Some(id.to_string()),
            Value::Word(word) => {
                let message = format!("Unknown column '{word}' in 'field list'");
                return Err(SqlError::new(1054, message));
            }
        })
    }

    fn read_list(&mut self, id: SessionId, list: u64) -> Rows {
        let mut values = self.engine.list(list);
        if let Some(session) = self.session(id) {
            let own = session.transaction.rows.iter();
            let own = own.filter(|row| row.list == list);
            values.extend(own.map(|row| row.value));
        }
        Rows::of(&["value"]).rows(values.into_iter().map(|value| [value]))
    }

    fn purge_to(&mut self, name: &str) -> Result<Answer, SqlError> {
        let unknown = || SqlError::new(code::UNKNOWN_FILE, "Target log not found in binlog index");
        let number = file_number(name).ok_or_else(unknown)?;
        let Some(running) = &mut self.running else {
            return Err(SqlError::lost());
        };
        match running.binlog.purge_to(number) {
            Ok(true) => Ok(Answer::Done(0)),
            Ok(false) => Err(unknown()),
            Err(error) => Err(SqlError::new(1026, error.to_string())),
        }
    }

    fn install_plugin(&mut self, name: &str) -> Result<Answer, SqlError> {
        let Some(running) = &mut self.running else {
            return Err(SqlError::lost());
        };
        if running.super_read_only {
            return Err(SqlError::read_only("--super-read-only"));
        }
        let loaded = match &name.to_ascii_lowercase()[..] {
            "clone" => &mut running.variables.clone,
            "rpl_semi_sync_replica" => &mut running.variables.semi_sync_replica,
            _ => &mut running.variables.semi_sync_source,
        };
        if std::mem::replace(loaded, true) {
            let message = format!("Function '{name}' already exists");
            return Err(SqlError::new(code::PLUGIN_EXISTS, message));
        }
        self.clone_plugin |= running.variables.clone;
        Ok(Answer::Done(0))
    }

    fn get_lock(&mut self, id: SessionId, name: String) -> Rows {
        let column = format!("GET_LOCK('{name}', 0)");
        let is_anothers = self.running.as_ref().is_some_and(|running| {
            let mut sessions = running.sessions.iter();
            sessions.any(|(other, session)| *other != id && session.user_locks.contains(&name))
        });
        if !is_anothers && let Some(session) = self.session(id) {
            session.user_locks.insert(name);
        }
        Rows::of(&[&column]).row([u64::from(!is_anothers)])
    }
}

/// Returns the privilege that an ordinary client lacks for a statement.
fn lacking(statement: &Statement, rights: Rights) -> Option<&'static str> {
    let needed = match statement {
        Statement::FlushBinaryLogs => "RELOAD",
        Statement::PurgeTo(_) => "SUPER or BINLOG_ADMIN",
        Statement::ShowBinaryLogStatus
        | Statement::ShowBinaryLogs
        | Statement::ShowReplicaStatus => "SUPER, REPLICATION CLIENT",
        Statement::Kill { .. } => "SUPER or CONNECTION_ADMIN",
        Statement::InstallPlugin(_) => "INSERT",
        Statement::ChangeSource(_)
        | Statement::StartReplica(..)
        | Statement::StopReplica(..)
        | Statement::ResetReplica(..) => "SUPER or REPLICATION_SLAVE_ADMIN",
        Statement::Accounts(_) => "CREATE USER",
        Statement::Copy(_) => "CLONE_ADMIN",
        Statement::CountAccounts(_) | Statement::AccountsLike(_) => "SELECT",
        Statement::Shutdown if rights == Rights::Member => return Some("SHUTDOWN"),
        Statement::Shutdown => "SHUTDOWN",
        Statement::Look(_) => "SELECT",
        _ => return None,
    };
    (!rights.administers()).then_some(needed)
}

/// Returns the name of a result column.
fn shown(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) | Value::Word(text) => text.clone(),
        Value::Global(name) => format!("@@GLOBAL.{name}"),
        Value::Session(name) => format!("@@{name}"),
        Value::User(name) => format!("@{name}"),
        Value::Version => "VERSION()".to_owned(),
        Value::CurrentUser => "CURRENT_USER()".to_owned(),
        Value::ConnectionId => "CONNECTION_ID()".to_owned(),
    }
}
