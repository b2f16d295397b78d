//! Writes before their commit, with read-only modes, the global read lock, and row locks.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::answers::{Answer, SqlError, code};
use crate::commits::Commit;
use crate::lists::ListRow;
use crate::server::Server;
use crate::sessions::{
    Closing, ClosingStep, Content, OpenTransaction, Session, SessionId, SetWork, Work, Write,
};
use crate::statement::{Assignment, Scope, Value};
use crate::variables::REPLICA_COUNT;

impl Server {
    /// Begins a write. Every write locks its lists in numerical order, so that writes cannot deadlock.
    pub(crate) fn begin_write(&mut self, id: SessionId, mut write: Write) {
        let now = self.now();
        let Some(running) = &mut self.running else {
            return;
        };
        let applied = matches!(write.content, Content::Applied { .. });
        if let Some(option) = running.is_closed_to(running.rights(id))
            && !applied
        {
            return self.finish(id, Err(SqlError::read_only(option)));
        }
        if !write.locks.is_empty() && !self.engine.has_table() {
            self.roll_back(id);
            return self.finish(id, Err(SqlError::no_schema()));
        }
        let Some(running) = &mut self.running else {
            return;
        };
        let wait = running.variables.number("innodb_lock_wait_timeout");
        write.until = now + Duration::from_secs(wait);
        self.set_work(id, Work::Write(write));
        self.changed();
        self.advance_write(id);
    }

    pub(crate) fn advance_write(&mut self, id: SessionId) {
        let now = self.now();
        let Some(running) = &mut self.running else {
            return;
        };
        let closing = running.is_being_closed();
        let Some(session) = running.sessions.get_mut(&id) else {
            return;
        };
        let Work::Write(write) = &mut session.work else {
            return;
        };
        if !write.holds_global {
            if closing {
                return;
            }
            write.holds_global = true;
        }
        while let Some(list) = write.locks.front().copied() {
            let queue = running.row_locks.entry(list).or_default();
            if !queue.contains(&id) {
                queue.push_back(id);
            }
            if queue.front() != Some(&id) {
                break;
            }
            session.transaction.locks.insert(list);
            write.locks.pop_front();
        }
        if !write.locks.is_empty() {
            if now >= write.until {
                // A lock wait timeout rolls back the statement. If there is no explicit transaction, it rolls back the transaction as well.
                let explicit = session.transaction.explicit;
                self.leave_queues(id);
                if !explicit {
                    self.roll_back(id);
                }
                self.finish(id, Err(SqlError::lock_wait()));
            }
            return;
        }
        let write = std::mem::take(write);
        self.execute_write(id, write);
    }

    fn execute_write(&mut self, id: SessionId, write: Write) {
        if let Some(change) = &write.accounts {
            let changed = self.change_accounts(change);
            return self.finish(id, changed);
        }
        let Self {
            engine, running, ..
        } = self;
        let Some(session) = running
            .as_mut()
            .and_then(|running| running.sessions.get_mut(&id))
        else {
            return;
        };
        let reads = write.reads.iter();
        session.reads = reads.map(|list| (*list, engine.list(*list))).collect();
        let rows = &mut session.transaction.rows;
        for (list, value) in &write.appends {
            let own = rows.iter().filter(|row| row.list == *list).count() as u64;
            rows.push(ListRow {
                list: *list,
                position: engine.length(*list) + own + 1,
                value: *value,
            });
        }
        if let Content::Applied { payload, .. } = &write.content {
            match crate::lists::rows_of(payload) {
                Ok(applied) => match applied.iter().find(|row| engine.holds(row)) {
                    None => *rows = applied,
                    Some(row) => {
                        let message = format!(
                            "Duplicate entry '{}-{}' for key 'lists.PRIMARY'",
                            row.list, row.position
                        );
                        let error = SqlError::new(code::DUPLICATE_KEY, message);
                        self.roll_back(id);
                        return self.finish(id, Err(error));
                    }
                },
                Err(why) => {
                    self.roll_back(id);
                    return self.finish(id, Err(SqlError::new(1610, why)));
                }
            }
        }
        match write.commits {
            true => self.begin_commit(id, write.content),
            false => self.finish(id, Ok(Answer::Done(write.appends.len() as u64))),
        }
    }

    /// Commits the writes of a session. If a `SET GLOBAL read_only` waits for commits, the commit waits until that `SET` has ended.
    pub(crate) fn begin_commit(&mut self, id: SessionId, content: Content) {
        let Some(running) = &mut self.running else {
            return;
        };
        let rights = running.rights(id);
        let commits_blocked = running.blocks_commits();
        let refused = running.is_closed_to(rights);
        let Some(session) = running.sessions.get_mut(&id) else {
            return;
        };
        let applied = matches!(content, Content::Applied { .. });
        let nothing = matches!(content, Content::Rows) && session.transaction.rows.is_empty();
        if nothing {
            self.roll_back(id);
            return self.finish(id, Ok(Answer::Done(0)));
        }
        if commits_blocked {
            session.work = Work::Write(Write {
                content,
                commits: true,
                until: Duration::MAX,
                ..Write::default()
            });
            return;
        }
        if let Some(option) = refused
            && !applied
        {
            self.roll_back(id);
            return self.finish(id, Err(SqlError::read_only(option)));
        }
        let commit = Commit {
            session: id,
            rows: session.transaction.rows.clone(),
            content,
        };
        session.work = Work::Commit;
        running.commits.entering.push_back(commit);
        self.changed();
    }

    /// Rolls back the writes of a session, and releases its locks.
    pub(crate) fn roll_back(&mut self, id: SessionId) {
        if let Some(session) = self.session(id) {
            session.transaction = OpenTransaction::default();
        }
        let Some(running) = &mut self.running else {
            return;
        };
        for queue in running.row_locks.values_mut() {
            queue.retain(|waiting| *waiting != id);
        }
        running.row_locks.retain(|_, queue| !queue.is_empty());
        self.changed();
    }

    /// Removes a session from the queues of locks that it waits for.
    fn leave_queues(&mut self, id: SessionId) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Some(session) = running.sessions.get(&id) else {
            return;
        };
        let held = &session.transaction.locks;
        for (list, queue) in &mut running.row_locks {
            if !held.contains(list) {
                queue.retain(|waiting| *waiting != id);
            }
        }
    }

    // SET.

    pub(crate) fn begin_set(&mut self, id: SessionId, assignments: Vec<Assignment>) {
        let now = self.now();
        let Some(running) = &self.running else {
            return;
        };
        for Assignment { scope, name, value } in &assignments {
            let global = matches!(scope, Scope::Global | Scope::Persist | Scope::PersistOnly);
            if global && !running.rights(id).administers() {
                let lacks = SqlError::lacks("SUPER or SYSTEM_VARIABLES_ADMIN");
                return self.finish(id, Err(lacks));
            }
            let checked = match scope {
                Scope::User => Ok(String::new()),
                Scope::Session if is_of_session(name) => Ok(String::new()),
                _ => running.variables.checked(name, value),
            };
            if let Err(error) = checked {
                return self.finish(id, Err(error));
            }
        }
        let Some(session) = self.session(id) else {
            return;
        };
        let until = now + Duration::from_secs(session.lock_wait);
        session.work = Work::Set(SetWork {
            left: assignments.into(),
            closing: None,
            until,
        });
        self.changed();
        self.advance_set(id);
    }

    pub(crate) fn advance_set(&mut self, id: SessionId) {
        loop {
            let now = self.now();
            let Some(session) = self.session(id) else {
                return;
            };
            let Work::Set(set) = &session.work else {
                return;
            };
            if let Some(closing) = set.closing {
                let until = set.until;
                match self.advance_closing(id, closing) {
                    true => continue,
                    false if now >= until => return self.give_up_closing(id, closing),
                    false => return,
                }
            }
            let Some(next) = set.left.front().cloned() else {
                return self.finish(id, Ok(Answer::Done(0)));
            };
            if !self.assign(id, &next) {
                return;
            }
            if let Some(session) = self.session(id)
                && let Work::Set(set) = &mut session.work
                && set.closing.is_none()
            {
                set.left.pop_front();
            }
        }
    }

    /// Executes one assignment. Returns false if it has to wait. [`Self::advance_closing`] continues the wait for a read-only mode.
    fn assign(&mut self, id: SessionId, assignment: &Assignment) -> bool {
        let now = self.now();
        let Assignment { scope, name, value } = assignment;
        let Some(running) = &mut self.running else {
            return false;
        };
        let Some(session) = running.sessions.get_mut(&id) else {
            return false;
        };
        let text = match (scope, value) {
            (Scope::User, Value::Global(other) | Value::Session(other)) => {
                running.variables.selected(other).unwrap_or_default()
            }
            (Scope::User | Scope::Session, Value::Number(number)) => number.to_string(),
            (Scope::User | Scope::Session, Value::Text(text) | Value::Word(text)) => text.clone(),
            _ => running.variables.checked(name, value).unwrap_or_default(),
        };
        match scope {
            Scope::User => {
                session.variables.insert(name.clone(), text);
                return true;
            }
            Scope::Session => {
                if name == "sql_log_bin" {
                    session.logs = !matches!(&text[..], "0" | "OFF" | "off");
                }
                if name == "lock_wait_timeout" {
                    session.lock_wait = text.parse().unwrap_or(session.lock_wait);
                    if let Work::Set(set) = &mut session.work {
                        set.until = now + Duration::from_secs(session.lock_wait);
                    }
                }
                return true;
            }
            Scope::PersistOnly => {
                self.persisted.insert(name.clone(), text);
                return true;
            }
            Scope::Persist => {
                self.persisted.insert(name.clone(), text.clone());
            }
            Scope::Global => {}
        }
        let user = session.user.clone();
        let on = text == "ON" || text == "1";
        let step = match &name[..] {
            "read_only" if on && !running.read_only => Some(ClosingStep::ReadOnly),
            "super_read_only" if on && !running.read_only => Some(ClosingStep::ReadOnlyForSuper),
            "super_read_only" if on && !running.super_read_only => Some(ClosingStep::Super),
            _ => None,
        };
        if let Some(step) = step {
            if step == ClosingStep::ReadOnlyForSuper {
                running.variables.put("super_read_only", "ON", Some(&user));
            }
            if let Work::Set(set) = &mut session.work {
                set.closing = Some(Closing::begin(step));
            }
            return true;
        }
        if name == "rpl_semi_sync_source_enabled" {
            if !on && !running.commits.is_empty() && running.waits_for_acks() {
                return false;
            }
            if on && !running.variables.is_on(name) {
                running.commits.forget_acks();
            }
        }
        running.variables.put(name, &text, Some(&user));
        match &name[..] {
            "read_only" if !on => {
                running.read_only = false;
                running.super_read_only = false;
                running.variables.put("super_read_only", "OFF", Some(&user));
            }
            "super_read_only" if !on => running.super_read_only = false,
            REPLICA_COUNT => {
                let needed = running.variables.number(REPLICA_COUNT);
                running.commits.count_acks(needed);
            }
            "offline_mode" if on => self.close_ordinary_sessions(),
            _ => {}
        }
        self.changed();
        true
    }

    /// Disconnects the sessions without CONNECTION_ADMIN, when `offline_mode` is set.
    fn close_ordinary_sessions(&mut self) {
        let Some(running) = &self.running else {
            return;
        };
        let sessions = running.sessions.iter();
        let ordinary = sessions.filter(|(_, session)| !session.rights.administers());
        let ordinary: Vec<SessionId> = ordinary.map(|(id, _)| *id).collect();
        for id in ordinary {
            self.kill_session(id);
        }
    }

    /// Continues a `SET` of a read-only mode. Returns whether a step was completed.
    fn advance_closing(&mut self, id: SessionId, closing: Closing) -> bool {
        let Some(running) = &mut self.running else {
            return false;
        };
        let mut sessions = running.sessions.iter();
        let writes = sessions.any(|(other, session)| *other != id && session.holds_global());
        if !closing.statements_over && writes {
            return false;
        }
        let over = running.commits.is_empty();
        if over {
            match closing.step {
                ClosingStep::ReadOnly | ClosingStep::ReadOnlyForSuper => running.read_only = true,
                ClosingStep::Super => running.super_read_only = true,
            }
        }
        // Until the second wait has ended, `super_read_only` shows its old value.
        let (next, values): (_, &[(&str, &str)]) = match (over, closing.step) {
            (false, step) => (
                Some(Closing {
                    step,
                    statements_over: true,
                }),
                &[],
            ),
            (true, ClosingStep::ReadOnlyForSuper) => (
                Some(Closing::begin(ClosingStep::Super)),
                &[("read_only", "ON"), ("super_read_only", "OFF")],
            ),
            (true, ClosingStep::ReadOnly) => (None, &[("read_only", "ON")]),
            (true, ClosingStep::Super) => (None, &[("super_read_only", "ON")]),
        };
        if let Some(session) = running.sessions.get_mut(&id) {
            for (name, value) in values {
                running.variables.put(name, value, Some(&session.user));
            }
            if let Work::Set(set) = &mut session.work {
                set.closing = next;
                if next.is_none() {
                    set.left.pop_front();
                }
            }
        }
        if over || next != Some(closing) {
            self.changed();
        }
        over
    }

    fn give_up_closing(&mut self, id: SessionId, closing: Closing) {
        if let Some(running) = &mut self.running
            && closing.step == ClosingStep::ReadOnlyForSuper
        {
            running.variables.put("super_read_only", "OFF", None);
        }
        self.finish(id, Err(SqlError::lock_wait()));
    }

    /// Ends a session's wait for a read-only mode with an error, because the session is killed.
    pub(crate) fn interrupt_closing(&mut self, id: SessionId) {
        let session = self.session(id);
        if let Some(closing) = session.and_then(|session| session.closing()) {
            self.give_up_closing(id, closing);
        }
    }
}

impl crate::server::Running {
    fn closings(&self) -> impl Iterator<Item = Closing> + '_ {
        self.sessions.values().filter_map(Session::closing)
    }

    fn is_being_closed(&self) -> bool {
        self.closings().next().is_some()
    }

    fn blocks_commits(&self) -> bool {
        self.closings().any(|closing| closing.statements_over)
    }
}

/// Returns whether this is a supported session variable. Only `lock_wait_timeout` and `sql_log_bin` have an effect.
fn is_of_session(name: &str) -> bool {
    let names = "lock_wait_timeout sql_log_bin autocommit innodb_lock_wait_timeout sql_mode completion_type \
                 transaction_isolation transaction_read_only max_execution_time sql_select_limit sql_big_selects sql_safe_updates";
    names.split(' ').any(|own| own == name)
}

/// Returns the lists to lock: each once, in numerical order.
pub(crate) fn lock_order(lists: impl IntoIterator<Item = u64>) -> VecDeque<u64> {
    let lists: BTreeSet<u64> = lists.into_iter().collect();
    lists.into_iter().collect()
}
