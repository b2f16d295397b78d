//! Applies a barrier: a transaction that is not just rows, with the session settings in its events. Statements of the log are sent
//! one at a time, because the result of each decides the next step. The applier's own statements are sent in one packet before and
//! one packet after each of them, because every awaited answer costs a round trip, and nothing else is applied during a barrier.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{
    IntVar, Query, Rand, SessionContext, StatementKind, UserVar, refusal_of_statement,
    shown_statement,
};
use binlog_format::gtid::Gtid;
use bytes::Bytes;
use mysql_link::{
    ConnectOptions, Connection, LinkError, QueryResult, Ran, ServerError, not_followed,
};

use crate::backend::{Session, WriteError};
use crate::locked;
use crate::mysql::blockers::log_holders;
use crate::mysql::checkpoint::{NOTE, TABLE, begun_before, half_written};
use crate::mysql::invoker::as_invoker;
use crate::mysql::options::{STATEMENT_LIMIT, again, for_barrier};
use crate::mysql::outcome::{code, link_error, lost, refused_by_us, write_error};
use crate::mysql::row_run::statement_runs;
use crate::mysql::session::{MysqlSession, append_begin};
use crate::mysql::statement_context::{
    append_user_variable, before_all, context_statement, int_var_statement, rand_statement,
    rows_statement, use_statement,
};
use crate::mysql::table_shape::rolls_back;
use crate::schema::TableName;
use crate::transaction::{Barrier, BarrierEnd, Statement, Step, Transaction};

impl MysqlSession {
    /// Applies a barrier, and restores the session. The caller has already written the note about the tables `for_good`.
    pub(super) async fn barrier(
        &mut self,
        transaction: &Transaction,
        barrier: &Barrier,
        for_good: &[TableName],
    ) -> Result<(), WriteError> {
        let done = match self.run_steps(transaction, barrier).await {
            Ok(()) => self.end(transaction, barrier).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(()) | Err(WriteError::Lost(_)) => done,
            Err(error) if self.revert(barrier).await? => {
                // The error is the same if the session cannot be restored.
                let _ = self.restore(barrier).await;
                Err(half_written(error, &barrier.tables()))
            }
            Err(error) => {
                if !for_good.is_empty() {
                    // The rollback removed all changes, so the note is removed, too.
                    self.note(None).await?;
                }
                self.restore(barrier).await?;
                Err(error)
            }
        }
    }

    async fn run_steps(
        &mut self,
        transaction: &Transaction,
        barrier: &Barrier,
    ) -> Result<(), WriteError> {
        // Run with autocommit, and with BEGIN where it is needed. Without autocommit, XA START would use up the GTID on a server
        // without a binlog.
        self.script.context = None;
        let has_statements = has_statements(barrier);
        let mut prepare = vec![for_barrier(has_statements, &self.shared.options).into_bytes()];
        prepare.extend(barrier.context.as_ref().map(rows_statement));
        if is_xa(barrier) && !self.shared.options.target_binlog {
            // A server with a binlog rolls back prepared transactions after a crash if its binlog does not contain them.
            prepare.push(b"SET sql_log_bin=1".to_vec());
        }
        prepare.extend(before_all(contexts(barrier)));
        // If a statement without BEGIN fails, it uses up the GTID that was set; so the GTID is set again.
        let named_alone = match barrier.end {
            BarrierEnd::ByItself => vec![RELEASE.to_vec(), begin(transaction)],
            BarrierEnd::Commit | BarrierEnd::Rollback | BarrierEnd::Xa(_) => Vec::new(),
        };
        // Done before `SET gtid_next`: a query after it would use up the GTID if no BEGIN follows.
        self.learn_collations(barrier, &mut prepare).await?;
        prepare.push(begin(transaction));
        if matches!(barrier.end, BarrierEnd::Commit | BarrierEnd::Rollback) {
            prepare.push(b"BEGIN".to_vec());
        }
        for step in &barrier.steps {
            match step {
                Step::Rows(events) => {
                    self.run(prepare.drain(..)).await?;
                    for run in statement_runs(events, self.events_bound) {
                        if let Some(error) = self.binlog(&run).await? {
                            return Err(write_error(&error));
                        }
                    }
                }
                Step::Statement(statement) => {
                    let before = std::mem::take(&mut prepare);
                    self.statement(before, statement, &named_alone).await?;
                }
            }
        }
        self.run(prepare).await?;
        match &barrier.end {
            BarrierEnd::Commit => self.run(["COMMIT"]).await,
            BarrierEnd::Rollback => self.run(["ROLLBACK"]).await,
            BarrierEnd::ByItself => Ok(()),
            BarrierEnd::Xa(end) => self.run([end]).await,
        }
    }

    /// Runs a statement of the log with its settings, after the applier's statements in `before`. If an optional one of these
    /// fails, those in `again` are repeated. A statement that failed on the source must fail here in the same way.
    async fn statement(
        &mut self,
        mut before: Vec<Vec<u8>>,
        statement: &Statement,
        again: &[Vec<u8>],
    ) -> Result<(), WriteError> {
        let event = EventRef::new(&statement.query).map_err(unreadable)?;
        let query = Query::decode(event).map_err(unreadable)?;
        let context = SessionContext::decode(&query.status_variables).map_err(unreadable)?;
        let shown = shown_statement(&query.statement, SHOWN);
        if let Some(unknown) = context.unknown {
            return Err(refused_by_us(format!(
                "the statement needs a session variable of a later MySQL version (code {unknown}): {shown}"
            )));
        }
        let text = as_invoker(&query.statement, &context).map_err(|why| {
            refused_by_us(format!(
                "the statement depends on the account that ran it on its source, and {why}: {shown}"
            ))
        })?;
        // The settings are in UTF-8, whatever character set the previous statement was in. (The character set is not reset after a
        // statement, because no statement may come between a CREATE TABLE … START TRANSACTION and its rows.)
        before.push(b"SET NAMES utf8mb4".to_vec());
        let use_schema = use_statement(event.header(), &query);
        let at_use = use_schema.is_some().then_some(before.len());
        before.extend(use_schema);
        for variable in &statement.variables {
            before.push(self.variable(variable)?);
        }
        before.push(context_statement(event.header(), &query, &context));
        let ran = self.run_as_far(&before).await?;
        if let Some(error) = ran.error {
            // The source's session may have had a default schema that no longer exists, and that its statement did not need.
            if at_use != Some(ran.done) || error.code != code::UNKNOWN_SCHEMA {
                return Err(write_error(&error));
            }
            let rest = before.get(ran.done + 1..).unwrap_or_default();
            self.run(again.iter().chain(rest)).await?;
        }

        let mut ended = self.ask(&text, &query).await;
        if let Err(LinkError::Server(error)) = &ended
            && error.code != query.error_code
            && [code::FUNCTION_NOT_SAFE, code::CREATOR_NOT_TRUSTED].contains(&error.code)
            && !again.is_empty()
        {
            ended = self.trusted(ended, &text, &query, again).await?;
        }
        match (ended, query.error_code) {
            (Ok(_), 0) => Ok(()),
            (Err(LinkError::Server(error)), expected) if error.code == expected => Ok(()),
            // A first attempt executed the XA ROLLBACK here before its session was lost.
            (Err(LinkError::Server(error)), _)
                if error.code == code::XA_UNKNOWN
                    && StatementKind::of(&query.statement) == StatementKind::XaRollback =>
            {
                Ok(())
            }
            (Ok(_), expected) => Err(refused_by_us(format!(
                "the statement failed on its source with error {expected} and did not here: {shown}"
            ))),
            (Err(LinkError::Server(error)), _) => Err(of_statement(&error, &query)),
            (Err(error), _) => Err(link_error(error)),
        }
    }

    /// Runs a statement of the log. While it waits, the sessions that block it are logged.
    async fn ask(&mut self, text: &[u8], query: &Query<'_>) -> Result<QueryResult, LinkError> {
        let logging = log_holders(&self.shared.options, self.id(), &query.statement);
        tokio::select! {
            biased;
            ended = self.connection.query_within(text, STATEMENT_LIMIT) => ended,
            never = logging => match never {},
        }
    }

    /// Retries a statement that the target refused because `log_bin_trust_function_creators` is off, with the setting on.
    ///
    /// The setting was on at the source. It is server-wide, and restricts only the creation of functions and triggers, which no
    /// client may do at a follower. It was off before, since the target would not have refused the statement otherwise. If the
    /// process is killed while the setting is on, it stays on until the target is restarted or an operator resets it.
    async fn trusted(
        &mut self,
        refused: Result<QueryResult, LinkError>,
        text: &[u8],
        query: &Query<'_>,
        again: &[Vec<u8>],
    ) -> Result<Result<QueryResult, LinkError>, WriteError> {
        let trusting = Trusting(Some(self.shared.options.connect.clone()));
        let mut before = vec![RELEASE.to_vec(), TRUST.to_vec()];
        before.extend_from_slice(again);
        let ran = self.run_as_far(&before).await?;
        let ended = match ran.error {
            None => Ok(self.ask(text, query).await),
            // The account may not change the setting. The original refusal names the remedy.
            Some(_) if ran.done <= 1 => {
                trusting.ended();
                return Ok(refused);
            }
            Some(error) => Err(write_error(&error)),
        };
        if self.connection.execute(DISTRUST).await.is_ok() {
            trusting.ended();
        }
        ended
    }

    /// Returns the assignment for an event that sets a variable.
    fn variable(&self, event: &Bytes) -> Result<Vec<u8>, WriteError> {
        let event = EventRef::new(event).map_err(unreadable)?;
        Ok(match event.event_type() {
            EventType::IntVar => int_var_statement(&IntVar::decode(event).map_err(unreadable)?),
            EventType::Rand => rand_statement(&Rand::decode(event).map_err(unreadable)?),
            _ => {
                let variable = UserVar::decode(event).map_err(unreadable)?;
                let value = variable.value.as_ref();
                let known = value.and_then(|value| self.collations.get(&value.collation)?.as_ref());
                let names = known.map(|(set, name)| (set.as_str(), name.as_str()));
                let mut set = Vec::new();
                append_user_variable(&variable, names, &mut set).ok_or_else(|| {
                    let name = variable.name.escape_ascii();
                    refused_by_us(format!(
                        "the value of the user variable {name} cannot be read"
                    ))
                })?;
                set
            }
        })
    }

    /// Runs `prepare`, then queries the names of the collations and character sets of the barrier's user variables. They are
    /// constant while the server runs.
    async fn learn_collations(
        &mut self,
        barrier: &Barrier,
        prepare: &mut Vec<Vec<u8>>,
    ) -> Result<(), WriteError> {
        for event in statements(barrier).flat_map(|statement| &statement.variables) {
            let event = EventRef::new(event).map_err(unreadable)?;
            if event.event_type() != EventType::UserVar {
                continue;
            }
            let value = UserVar::decode(event).map_err(unreadable)?.value;
            let number = value.map(|value| value.collation);
            let Some(number) = number.filter(|number| !self.collations.contains_key(number)) else {
                continue;
            };
            let query = format!(
                "SELECT character_set_name, collation_name FROM information_schema.collations WHERE id = {number}"
            );
            self.run(prepare.drain(..)).await?;
            let answer = self.connection.query(query).await.map_err(link_error)?;
            let row = answer.first();
            let names = row.and_then(|row| Some((row.text_at(0)?.into(), row.text_at(1)?.into())));
            self.collations.insert(number, names);
        }
        Ok(())
    }

    /// Ensures that the transaction's GTID is executed, and restores the session. After a statement that committed nothing, the
    /// session still owns the GTID. `XA ROLLBACK` and `ROLLBACK` release it unused.
    async fn end(
        &mut self,
        transaction: &Transaction,
        barrier: &Barrier,
    ) -> Result<(), WriteError> {
        // An empty transaction with this GTID. The server skips it if the GTID is executed already.
        let mut all = vec![RELEASE.to_vec(), begin(transaction)];
        all.extend([b"COMMIT".to_vec(), RELEASE.to_vec()]);
        let taken = all.len();
        all.extend(self.as_before(barrier).into_iter().map(String::into_bytes));
        let mut ran = self.run_as_far(&all).await?;
        if ran.done == 0 && ran.error.is_some() {
            self.run([b"COMMIT"]).await?;
            ran = self.run_as_far(&all).await?;
        }
        match ran.error {
            None => Ok(()),
            // The transaction is applied, but the session is unusable.
            Some(error) if ran.done >= taken => Err(lost(error.into())),
            Some(error) => Err(write_error(&error)),
        }
    }

    /// Reverts a failed barrier as far as possible. Returns whether changes remain.
    async fn revert(&mut self, barrier: &Barrier) -> Result<bool, WriteError> {
        match self.connection.execute("ROLLBACK").await {
            Err(LinkError::Server(error)) if error.code == code::XA_WRONG_STATE => {}
            Ok(_) => {
                let warnings = self.connection.query("SHOW WARNINGS").await;
                // If the query fails, it is unknown whether changes remain, as for a lost session.
                let warnings = warnings.map_err(lost)?;
                let mut codes = warnings.rows.iter().filter_map(|row| row.text("Code"));
                return Ok(codes.any(|code| code == NOT_ROLLED_BACK));
            }
            Err(error) => return Err(lost(error)),
        }
        let started = statements(barrier).find_map(|statement| {
            let id = query_of(statement)?.statement;
            Some(String::from_utf8_lossy(id.strip_prefix(b"XA START ")?).into_owned())
        });
        let id = started.unwrap_or_default();
        // XA END fails if the XA transaction has already ended.
        match self.connection.execute(format!("XA END {id}")).await {
            Err(error) if error.server_code().is_none() => return Err(lost(error)),
            _ => {}
        }
        let back = self.connection.execute(format!("XA ROLLBACK {id}")).await;
        back.map(|_| false).map_err(lost)
    }

    async fn restore(&mut self, barrier: &Barrier) -> Result<(), WriteError> {
        let restored = self.run(self.as_before(barrier)).await;
        restored.map_err(|error| WriteError::Lost(error.to_string()))
    }

    /// Returns the statements that restore the session's state from before the barrier.
    fn as_before(&self, barrier: &Barrier) -> Vec<String> {
        let mut all = vec!["SET gtid_next='AUTOMATIC'".to_owned()];
        if is_xa(barrier) && !self.shared.options.target_binlog {
            all.push("SET sql_log_bin=0".to_owned());
        }
        let (version, id) = (self.connection.version(), self.connection.id());
        all.extend(again(version, id, &self.shared.options));
        all
    }

    /// Runs the applier's own statements; fails if one of them fails.
    async fn run<S: AsRef<[u8]>>(
        &mut self,
        statements: impl IntoIterator<Item = S>,
    ) -> Result<(), WriteError> {
        let error = self.run_as_far(statements).await?.error;
        error.map_or(Ok(()), |error| Err(write_error(&error)))
    }

    /// Runs the applier's own statements in one packet, up to the first that fails.
    pub(super) async fn run_as_far<S: AsRef<[u8]>>(
        &mut self,
        statements: impl IntoIterator<Item = S>,
    ) -> Result<Ran, WriteError> {
        self.script.clear();
        for sql in statements {
            self.script.statements.push(sql);
        }
        self.run_script().await
    }

    // Irreversible transactions.

    /// Returns the tables that a barrier changes irreversibly, or may change irreversibly.
    pub(super) async fn written_for_good<'a>(
        &mut self,
        barrier: &'a Barrier,
    ) -> Result<Cow<'a, [TableName]>, WriteError> {
        // Statements that commit implicitly change tables, not rows. If such a statement is retried, it finds the tables changed.
        let by_statements = barrier.end != BarrierEnd::ByItself && has_statements(barrier);
        if !by_statements || !barrier.without_transactions.is_empty() {
            return Ok(Cow::Borrowed(&barrier.without_transactions));
        }
        let known = locked(&self.shared.for_good.tables).clone();
        if let Some((_, tables)) = known.filter(|(asked, _)| asked.elapsed() < KNOWN_FOR) {
            return Ok(Cow::Owned(tables));
        }
        let answer = self
            .asked(
                "SELECT table_schema, table_name, engine FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
                 AND engine <> 'InnoDB' AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')",
            )
            .await?;
        let rows = answer.rows.iter();
        let tables = rows.filter(|row| row.text_at(2).is_some_and(|engine| !rolls_back(engine)));
        let tables =
            tables.filter_map(|row| Some(TableName::new(row.text_at(0)?, row.text_at(1)?)));
        let tables: Vec<TableName> = tables.take(NAMED).collect();
        *locked(&self.shared.for_good.tables) = Some((Instant::now(), tables.clone()));
        Ok(Cow::Owned(tables))
    }

    /// Runs a query outside of any transaction. Resets `gtid_next` first, because a query would use up a GTID that is still set.
    pub(super) async fn asked(&mut self, question: &str) -> Result<QueryResult, WriteError> {
        let named = self.connection.execute("SET gtid_next='AUTOMATIC'").await;
        named.map_err(link_error)?;
        let answer = self.connection.query(question).await.map_err(link_error)?;
        self.rolled_back().await?;
        Ok(answer)
    }

    /// Writes the note about a barrier that changes tables irreversibly, or may do so; to be called before it begins. Fails if the
    /// note shows that the barrier has already begun before.
    pub(super) async fn begin_for_good(
        &mut self,
        gtid: Gtid,
        barrier: &Barrier,
        tables: &[TableName],
    ) -> Result<(), WriteError> {
        let has_row = self.usable_checkpoint().is_some();
        let begun = match has_row {
            true => {
                let query = format!("SELECT gtids FROM {TABLE} WHERE id = {NOTE}");
                self.asked(&query).await?.value() == Some(&*gtid.to_string())
            }
            false => *locked(&self.shared.for_good.last) == Some(gtid),
        };
        if begun {
            let writes = match barrier.without_transactions.is_empty() {
                true => "may write to",
                false => "writes to",
            };
            return Err(refused_by_us(begun_before(writes, tables, has_row)));
        }
        self.note(Some(gtid)).await
    }

    async fn note(&mut self, gtid: Option<Gtid>) -> Result<(), WriteError> {
        // Also kept in memory, in case the row cannot be written.
        *locked(&self.shared.for_good.last) = gtid;
        if self.usable_checkpoint().is_none() {
            return Ok(());
        }
        let text = gtid.map(|gtid| gtid.to_string()).unwrap_or_default();
        let write = format!(
            "INSERT INTO {TABLE} VALUES ({NOTE}, 0, '{text}') ON DUPLICATE KEY UPDATE gtids = '{text}'"
        );
        let statements = ["SET gtid_next='AUTOMATIC'", &write, "COMMIT"];
        if let Some(error) = self.run_as_far(statements).await?.error {
            self.rolled_back().await?;
            return Err(write_error(&error));
        }
        Ok(())
    }
}

/// `Some non-transactional changed tables couldn't be rolled back`: the warning of a ROLLBACK after which changes remain.
const NOT_ROLLED_BACK: &str = "1196";

/// How long the list of the server's tables without transactions is valid, since a client may create such a table. A barrier that
/// changes tables invalidates the list immediately.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// The most tables in the list. Only messages name them, and one is enough.
const NAMED: usize = 10;

const TRUST: &[u8] = b"SET GLOBAL log_bin_trust_function_creators = 1";
const DISTRUST: &str = "SET GLOBAL log_bin_trust_function_creators = 0";

/// Guard while the setting is on at the target. Dropping it switches the setting off, even if the session is lost or its call is
/// dropped.
struct Trusting(Option<ConnectOptions>);

impl Trusting {
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Trusting {
    fn drop(&mut self) {
        let Some(connect) = self.0.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move {
            let back = async {
                let mut another = Connection::open_with_own_settings(&connect).await?;
                another.execute(DISTRUST).await
            };
            if let Err(error) = back.await {
                tracing::warn!(%error, "log_bin_trust_function_creators of the target stays ON; it was OFF");
            }
        });
    }
}

/// Resets `gtid_next`, so that no GTID is set.
const RELEASE: &[u8] = b"SET gtid_next='AUTOMATIC'";

fn begin(transaction: &Transaction) -> Vec<u8> {
    let mut begin = Vec::new();
    // The original commit time and server version affect a statement whether or not it is logged here.
    append_begin(transaction, true, &mut begin);
    begin
}

fn statements(barrier: &Barrier) -> impl Iterator<Item = &Statement> {
    barrier.steps.iter().filter_map(|step| match step {
        Step::Statement(statement) => Some(statement),
        Step::Rows(_) => None,
    })
}

/// Returns the session contexts of the barrier's statements. A statement with an unreadable context is skipped here, and refused
/// when it is run.
fn contexts(barrier: &Barrier) -> impl Iterator<Item = SessionContext<'_>> {
    statements(barrier).filter_map(|statement| match query_of(statement)?.status_variables {
        Cow::Borrowed(variables) => SessionContext::decode(variables).ok(),
        Cow::Owned(_) => None,
    })
}

/// True if a barrier is a phase of an XA transaction.
fn is_xa(barrier: &Barrier) -> bool {
    statements(barrier).any(is_phase)
}

/// True if a barrier contains statements with changes of their own: other than rows, savepoints and the phases of XA transactions.
fn has_statements(barrier: &Barrier) -> bool {
    let is_savepoint =
        |query: Query<'_>| StatementKind::of(&query.statement) == StatementKind::Savepoint;
    statements(barrier)
        .any(|statement| !is_phase(statement) && !query_of(statement).is_some_and(is_savepoint))
}

/// True if a statement is XA START, XA END or another phase of an XA transaction.
fn is_phase(statement: &Statement) -> bool {
    query_of(statement).is_some_and(|query| {
        let word = query.statement.get(..3);
        word.is_some_and(|word| word.eq_ignore_ascii_case(b"XA "))
    })
}

fn query_of(statement: &Statement) -> Option<Query<'_>> {
    Query::decode(EventRef::new(&statement.query).ok()?).ok()
}

/// The most characters of a statement that an error shows.
const SHOWN: usize = 500;

fn unreadable(error: binlog_format::DecodeError) -> WriteError {
    refused_by_us(format!(
        "an event of the transaction cannot be read: {error}"
    ))
}

/// The refusal of a statement that fails here but succeeded on its source; the message has the statement's text.
fn of_statement(error: &ServerError, query: &Query<'_>) -> WriteError {
    let mut refused = write_error(error);
    if let WriteError::Refused(refusal) = &mut refused {
        let sentence = not_followed(error.code).map(|sentence| format!(". {sentence}"));
        refusal.message = format!(
            "{}; the statement: {}{}",
            refusal_of_statement(&refusal.message, &query.statement),
            shown_statement(&query.statement, SHOWN),
            sentence.unwrap_or_default()
        );
    }
    refused
}
