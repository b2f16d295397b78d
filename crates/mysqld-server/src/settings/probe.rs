//! Observes a server, and runs plans on it. Each statement has the connection's time limit.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql_link::{Connection, LinkError, QueryResult, server_code};
use thiserror::Error;

use crate::channels::named;
use crate::closed_server::AdministratorsWrite;
use crate::sessions::end_statement_logging;
use crate::settings::finding::is_effectively_infinite;
use crate::settings::grants::Grants;
use crate::settings::observed::{
    DDL_SETTINGS, Depth, Observed, REDO_LOG, SemiSyncNames, SemiSyncReplica,
};
use crate::settings::persisted::{contradicting, reset_start};
use crate::settings::plan::{Plan, Statement};
use crate::settings::preflight::quoted_account;

const VARIABLES: &[&str] = &[
    "binlog_checksum",
    "binlog_encryption",
    "binlog_error_action",
    "binlog_format",
    "binlog_order_commits",
    "binlog_row_image",
    "enforce_gtid_consistency",
    "gtid_executed",
    "gtid_mode",
    "gtid_purged",
    "innodb_flush_log_at_trx_commit",
    "log_bin",
    "log_bin_index",
    "log_replica_updates",
    "max_binlog_cache_size",
    "max_binlog_stmt_cache_size",
    "offline_mode",
    "read_only",
    "replica_preserve_commit_order",
    "server_id",
    "server_uuid",
    "slave_preserve_commit_order",
    "super_read_only",
    "sync_binlog",
    "version",
    "version_comment",
];

/// The user variables that identify semi-sync dumps, in both generations.
const DUMPS: &str = "SELECT t.processlist_id AS id, MAX(IF(u.variable_name IN ('replica_uuid', 'slave_uuid'), \
     CAST(u.variable_value AS CHAR), NULL)) AS uuid FROM performance_schema.user_variables_by_thread u \
     JOIN performance_schema.threads t USING (thread_id) WHERE t.processlist_command LIKE 'Binlog Dump%' \
     GROUP BY t.processlist_id \
     HAVING SUM(u.variable_name IN ('rpl_semi_sync_replica', 'rpl_semi_sync_slave')) > 0";

/// How long killed sessions may take to end while clients wait for the primary.
const PATIENCE: Duration = Duration::from_secs(1);

const SEMI_SYNC: [SemiSyncNames; 2] = [SemiSyncNames::Source, SemiSyncNames::Master];

/// Observes a server.
///
/// # Errors
/// When the connection fails, or the server refuses a statement that any account may run.
pub async fn observe(connection: &mut Connection, depth: Depth) -> Result<Observed, LinkError> {
    let variables = variables(connection).await?;
    look(connection, depth, variables).await
}

/// Observes a server again, as [`observe`] with [`Depth::Watch`] does. `before` is the previous observation, if one exists. To show some
/// variables, mysqld lists all, which takes ten times as long as selecting the values of known variables.
///
/// # Errors
/// As [`observe`].
pub async fn observe_again(
    connection: &mut Connection,
    before: Option<&Observed>,
) -> Result<Observed, LinkError> {
    // A plugin that was loaded in between adds variables.
    let before = before.filter(|before| before.semi_sync().is_some());
    let values = match before {
        Some(before) => values(connection, &before.variables).await?,
        None => None,
    };
    let variables = match values {
        Some(values) => values,
        None => variables(connection).await?,
    };
    look(connection, Depth::Watch, variables).await
}

/// Returns those of [`VARIABLES`] that the server has.
async fn variables(connection: &mut Connection) -> Result<BTreeMap<String, String>, LinkError> {
    let of_semi_sync = SEMI_SYNC.iter().flat_map(|names| {
        [
            names.enabled(),
            names.timeout(),
            names.replica_count(),
            names.wait_no_replica(),
            names.wait_point(),
        ]
    });
    let names = VARIABLES.iter().chain(&DDL_SETTINGS);
    let names = names.map(|name| (*name).to_owned());
    let names = names.chain(of_semi_sync);
    Ok(pairs(
        &connection.query(&listing("VARIABLES", names)).await?,
    ))
}

/// Returns the present values of the variables; `None` if the server no longer has one of them.
async fn values(
    connection: &mut Connection,
    before: &BTreeMap<String, String>,
) -> Result<Option<BTreeMap<String, String>>, LinkError> {
    let names = before.keys().map(|name| format!("@@GLOBAL.{name}"));
    let names: Vec<String> = names.collect();
    let select = format!("SELECT {}", names.join(", "));
    let answer = match connection.query(select).await {
        Err(LinkError::Server(error)) if error.code == server_code::UNKNOWN_SYSTEM_VARIABLE => {
            return Ok(None);
        }
        answer => answer?,
    };
    let Some(row) = answer.first() else {
        return Ok(None);
    };
    let now = |(place, (name, shown)): (usize, (&String, &String))| {
        let value = row.text_at(place).unwrap_or_default();
        (name.clone(), as_shown(shown, value).to_owned())
    };
    Ok(Some(before.iter().enumerate().map(now).collect()))
}

/// Converts a selected value to the format of `SHOW`: a selected switch is 1 or 0.
fn as_shown<'a>(shown_before: &str, selected: &'a str) -> &'a str {
    match (shown_before, selected) {
        ("ON" | "OFF", "1") => "ON",
        ("ON" | "OFF", "0") => "OFF",
        _ => selected,
    }
}

async fn look(
    connection: &mut Connection,
    depth: Depth,
    variables: BTreeMap<String, String>,
) -> Result<Observed, LinkError> {
    let status = ["uptime", REDO_LOG].map(str::to_owned).into_iter().chain(
        SEMI_SYNC
            .iter()
            .flat_map(|names| [names.status(), names.clients(), names.wait_sessions()]),
    );
    let status = pairs(&connection.query(&listing("STATUS", status)).await?);
    let mut observed = Observed {
        version: connection.version(),
        variables,
        status,
        ..Observed::default()
    };
    let clients = observed
        .semi_sync()
        .and_then(|names| observed.status(&names.clients()));
    observed.semi_sync_replicas = match clients {
        Some("0") => Some(Vec::new()),
        Some(_) => semi_sync_replicas(connection).await?,
        None => None,
    };
    if depth == Depth::Preflight {
        let own = grants(connection).await?;
        observed.may_shut_down =
            Some(may_shut_down(connection, &quoted_account(&own.account)).await?);
        observed.grants = Some(own);
        observed.account_expires = account_expires(connection).await?;
        observed.persisted = contradicting(connection).await?;
    }
    Ok(observed)
}

fn listing(what: &str, names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    format!(
        "SHOW GLOBAL {what} WHERE Variable_name IN ({})",
        names.join(", ")
    )
}

fn pairs(result: &QueryResult) -> BTreeMap<String, String> {
    let pair =
        |row: &mysql_link::Row| Some((row.text_at(0)?.to_lowercase(), row.text_at(1)?.to_owned()));
    result.rows.iter().filter_map(pair).collect()
}

async fn semi_sync_replicas(
    connection: &mut Connection,
) -> Result<Option<Vec<SemiSyncReplica>>, LinkError> {
    let Some(result) = unless_refused(connection.query(DUMPS).await)? else {
        return Ok(None);
    };
    let replica = |row: &mysql_link::Row| {
        Some(SemiSyncReplica {
            connection_id: row.text("id")?.parse().ok()?,
            uuid: row.text("uuid").and_then(|uuid| uuid.parse().ok()),
        })
    };
    let replicas: Vec<_> = result.rows.iter().filter_map(replica).collect();
    // If performance_schema is disabled, its tables are empty; then the replicas are unknown.
    Ok(Some(replicas).filter(|replicas| !replicas.is_empty()))
}

pub(super) async fn grants(connection: &mut Connection) -> Result<Grants, LinkError> {
    let account = connection.query("SELECT CURRENT_USER()").await?;
    let account = account.value().unwrap_or_default().to_owned();
    let lines = connection.query("SHOW GRANTS").await?;
    Ok(Grants::parse(&account, lines.values()))
}

/// Returns after how many days the password of the member's account expires. Passwords of plugins other than these do not expire.
async fn account_expires(connection: &mut Connection) -> Result<Option<u64>, LinkError> {
    let lifetime = "SELECT IFNULL(password_lifetime, @@GLOBAL.default_password_lifetime) FROM mysql.user \
         WHERE CONCAT(user, '@', host) = CURRENT_USER() \
         AND plugin IN ('caching_sha2_password', 'mysql_native_password', 'sha256_password')";
    let Some(answer) = unless_refused(connection.query(lifetime).await)? else {
        return Ok(None);
    };
    let days = answer.value().and_then(|value| value.parse().ok());
    Ok(days.filter(|days| *days > 0))
}

/// Returns accounts and roles with the privilege SHUTDOWN, except the member's own and mysqld's reserved accounts, which allow no login.
async fn may_shut_down(connection: &mut Connection, own: &str) -> Result<Vec<String>, LinkError> {
    let grantees = "SELECT grantee FROM information_schema.user_privileges WHERE privilege_type = 'SHUTDOWN' \
         AND grantee NOT LIKE '''mysql.%' ORDER BY grantee";
    let grantees = connection.query(grantees).await?;
    let others = grantees.values().filter(|name| *name != own);
    Ok(others.map(str::to_owned).collect())
}

/// Returns `binlog-do-db` and `binlog-ignore-db` of the server; `None` where the account lacks the privilege. The query takes the lock of
/// the binlog. While mysqld wants to begin a new file and commits wait for their ACK, that lock blocks everything. So the code path that
/// acknowledges commits never runs this query.
///
/// # Errors
/// When the connection fails, or the lock is not acquired within the time limit.
pub async fn binlog_filters(connection: &mut Connection) -> Result<Option<Vec<String>>, LinkError> {
    // 8.2 renamed the statement, 8.4 dropped the old name.
    for statement in ["SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"] {
        match connection.query(statement).await {
            Ok(result) => {
                let columns = ["Binlog_Do_DB", "Binlog_Ignore_DB"].into_iter();
                let filters =
                    columns.filter_map(|column| named(column, result.first()?.text(column)?));
                return Ok(Some(filters.collect()));
            }
            Err(LinkError::Server(error)) if error.code == server_code::SPECIFIC_ACCESS_DENIED => {
                return Ok(None);
            }
            Err(LinkError::Server(error)) if error.sqlstate == "42000" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns how long the server's clock has been running, in microseconds. The clock starts with the server, before it accepts connections.
/// `None` where the account lacks the privilege, or performance_schema is disabled. The clock counts picoseconds in 64 bits, and is wrong
/// after 213 days.
///
/// # Errors
/// When the connection fails.
pub async fn server_clock(connection: &mut Connection) -> Result<Option<Duration>, LinkError> {
    let clock = "SELECT timer_start FROM performance_schema.events_statements_current \
         WHERE thread_id = PS_CURRENT_THREAD_ID()";
    match connection.query(clock).await {
        Ok(answer) => {
            let picoseconds = answer.value().and_then(|value| value.parse().ok());
            Ok(picoseconds.map(|picoseconds: u64| Duration::from_micros(picoseconds / 1_000_000)))
        }
        Err(LinkError::Server(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// How many semi-sync replicas are attached.
///
/// # Errors
/// When the connection fails.
pub async fn semi_sync_clients(connection: &mut Connection) -> Result<u64, LinkError> {
    let names = SEMI_SYNC.map(SemiSyncNames::clients);
    let counts = connection
        .query(&listing("STATUS", names.into_iter()))
        .await?;
    let count = |row: &mysql_link::Row| row.text_at(1)?.parse::<u64>().ok();
    Ok(counts.rows.iter().filter_map(count).sum())
}

/// Sessions in commit, the longest running first. With a stalled disk all sessions are in commit, so 20 are enough. A statement may commit
/// many times (table statistics, a procedure that writes without the binlog), so the commits of each session are counted.
const COMMITTING: &str = "SELECT t.processlist_id AS id, t.processlist_time AS seconds, \
     (SELECT s.variable_value FROM performance_schema.status_by_thread AS s \
     WHERE s.thread_id = t.thread_id AND s.variable_name = 'Handler_commit') AS ended FROM performance_schema.threads AS t \
     WHERE processlist_state = 'waiting for handler commit' ORDER BY processlist_time DESC LIMIT 20";

/// Takes no lock that a commit holds while it writes, so it also answers when no commit ends (tested with a frozen disk).
const COMMITTED: &str = "SELECT @@GLOBAL.gtid_executed AS executed, (SELECT SUM(sum_number_of_bytes_write) \
     FROM performance_schema.file_summary_by_event_name WHERE event_name IN \
     ('wait/io/file/sql/binlog', 'wait/io/file/sql/binlog_cache', 'wait/io/file/sql/binlog_index')) AS bytes";

/// Statements that failed for lack of space, by error: a full disk (1021), a failed write (1026), a system error in an engine (1030), a
/// full table file (1114).
const REFUSED: &str = "SELECT SUM(sum_error_raised) AS refused FROM performance_schema.events_errors_summary_global_by_error \
     WHERE error_number IN (1021, 1026, 1030, 1114)";

/// A session in commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committing {
    /// The session's connection id.
    pub session: u64,
    /// How long the session's statement has run.
    pub ran: Duration,
    /// How many commits of this session have ended; `None` if the server does not report it.
    pub ended: Option<u64>,
}

/// Commit progress from one observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitLook {
    /// Identifies the start of mysqld.
    pub start: u64,
    /// `@@global.gtid_executed` as text.
    pub executed: String,
    /// Bytes written to binlog files since the start.
    pub binlog_bytes: u64,
    /// The sessions in commit.
    pub committing: Vec<Committing>,
    /// How many statements failed for lack of space since that start; queried only if the data directory has no room.
    pub refused: Option<u64>,
}

impl CommitLook {
    /// True if nothing was written between the two observations.
    pub fn is_like(&self, later: &Self) -> bool {
        self.start == later.start
            && self.executed == later.executed
            && self.binlog_bytes == later.binlog_bytes
    }
}

/// Queries the commit progress of the server; `None` where the account lacks the privilege. Without `performance_schema`, no session in
/// commit and no failed statement is visible. Failed statements are queried only on a server without room.
pub async fn commits(
    connection: &mut Connection,
    start: u64,
    no_room: bool,
) -> Result<Option<CommitLook>, LinkError> {
    let Some(sessions) = unless_refused(connection.query(COMMITTING).await)? else {
        return Ok(None);
    };
    let session = |row: &mysql_link::Row| {
        Some(Committing {
            session: row.text("id")?.parse().ok()?,
            ran: Duration::from_secs(row.text("seconds")?.parse().ok()?),
            ended: row.text("ended").and_then(|ended| ended.parse().ok()),
        })
    };
    let committing: Vec<_> = sessions.rows.iter().filter_map(session).collect();
    let mut look = CommitLook {
        start,
        executed: String::new(),
        binlog_bytes: 0,
        committing,
        refused: None,
    };
    if no_room && let Some(refused) = unless_refused(connection.query(REFUSED).await)? {
        let count = refused.value().and_then(|count| count.parse().ok());
        look.refused = Some(count.unwrap_or(0));
    }
    if look.committing.is_empty() && look.refused.is_none() {
        return Ok(Some(look));
    }
    let Some(committed) = unless_refused(connection.query(COMMITTED).await)? else {
        return Ok(None);
    };
    if let Some(row) = committed.first() {
        look.executed = row.text("executed").unwrap_or_default().to_owned();
        let bytes = row.text("bytes").and_then(|bytes| bytes.parse().ok());
        look.binlog_bytes = bytes.unwrap_or(0);
    }
    Ok(Some(look))
}

/// Converts a missing privilege to `None`.
pub(crate) fn unless_refused(
    result: Result<QueryResult, LinkError>,
) -> Result<Option<QueryResult>, LinkError> {
    match result {
        Ok(result) => Ok(Some(result)),
        Err(LinkError::Server(error))
            if matches!(
                error.code,
                server_code::TABLE_ACCESS_DENIED | server_code::SPECIFIC_ACCESS_DENIED
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Why a plan failed.
#[derive(Debug, Error)]
#[error("`{statement}` failed: {source}")]
pub struct ApplyError {
    /// The statement that failed.
    pub statement: String,
    /// The error of the statement or connection.
    pub source: LinkError,
}

/// Runs a plan. Statements before the one that fails stay in effect.
///
/// # Errors
/// At the first statement that fails.
pub async fn apply(connection: &mut Connection, plan: &Plan) -> Result<(), ApplyError> {
    for statement in &plan.statements {
        match statement {
            Statement::Set(sql) => run(connection, sql).await?,
            // If these sessions cannot be closed, a primary with them is still better for the ring than no primary.
            Statement::EndStatementLogging => {
                if let Err(why) = end_statement_logging(connection, PATIENCE).await {
                    tracing::warn!("servers may come to differ: {why}");
                }
            }
            Statement::InstallPlugin(sql) => {
                let open = AdministratorsWrite::begin(connection).await;
                let open = open.map_err(|error| failed(sql, error))?;
                let installed = run(connection, sql).await;
                let closed = open.end(connection).await;
                closed.map_err(|error| failed(sql, error))?;
                installed?;
            }
        }
    }
    Ok(())
}

fn failed(sql: &str, source: LinkError) -> ApplyError {
    let statement = sql.to_owned();
    ApplyError { statement, source }
}

async fn run(connection: &mut Connection, sql: &str) -> Result<(), ApplyError> {
    match connection.execute(sql).await {
        // Another session installed the plugin in between.
        Err(LinkError::Server(error)) if error.code == server_code::PLUGIN_EXISTS => Ok(()),
        outcome => outcome.map(drop).map_err(|error| failed(sql, error)),
    }
}

// Settings of a server that is not the primary: commits do not wait for ACKs.

/// Why commits may still wait.
#[derive(Debug, Error)]
pub enum StopWaitingError {
    /// Commits wait at the moment, and would complete without an ACK. Nothing was changed.
    #[error(
        "{0} commits wait for an ACK, and would be let through. Where no member leads, bring a quorum of the ring back, and try again; where another member leads, kill mysqld (kill -9) and start it again, if the member does not: it recovers what the ring has"
    )]
    CommitsWait(u64),
    /// The server cannot be queried or set.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Stops commits from waiting for ACKs, unless one waits at the moment.
///
/// # Errors
/// [`StopWaitingError`].
pub async fn stop_waiting_for_acks(connection: &mut Connection) -> Result<(), StopWaitingError> {
    let observed = observe(connection, Depth::Watch).await?;
    match observed.waiting_sessions() {
        0 => Ok(switch_off(connection, &observed).await?),
        waiting => Err(StopWaitingError::CommitsWait(waiting)),
    }
}

/// Stops commits from waiting for ACKs. While a commit waits, this statement also waits for the ACK (9.7.4).
///
/// # Errors
/// When the variable cannot be set, or not in time.
pub(crate) async fn switch_off(
    connection: &mut Connection,
    observed: &Observed,
) -> Result<(), LinkError> {
    if let Some(names) = observed.semi_sync() {
        let off = format!("SET GLOBAL {} = OFF", names.enabled());
        connection.execute(&off).await?;
    }
    Ok(())
}

/// Makes each commit wait for this number of ACKs, including commits that wait already. The member sets this even with
/// `manage_settings = false`, because the number changes with each attachment.
///
/// # Errors
/// When the variable cannot be set, or not in time.
pub async fn await_acks(
    connection: &mut Connection,
    names: SemiSyncNames,
    acks: u32,
) -> Result<(), LinkError> {
    let set = format!("SET GLOBAL {} = {acks}", names.replica_count());
    connection.execute(&set).await.map(drop)
}

/// The default semi-sync timeout.
const TIMEOUT_MS: u64 = 10_000;

/// Restores the default semi-sync timeout if a ring has left an infinite one. Otherwise, if an operator later enables semi-sync and the
/// plain replica is away, commits would wait indefinitely. Call this while no commit waits.
///
/// # Errors
/// When the timeout cannot be queried or set.
pub(crate) async fn wait_as_a_plain_source(connection: &mut Connection) -> Result<(), LinkError> {
    let observed = observe(connection, Depth::Watch).await?;
    let Some(names) = observed.semi_sync() else {
        return Ok(());
    };
    let timeout = observed.number(&names.timeout());
    if timeout.is_some_and(is_effectively_infinite) {
        let back = format!("SET GLOBAL {} = {TIMEOUT_MS}", names.timeout());
        connection.execute(&back).await?;
        await_acks(connection, names, 1).await?;
    }
    reset_start(connection, names).await
}
