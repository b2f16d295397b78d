//! Publishes transactions that were committed as one: adds them to the target's `gtid_executed`. Each publication, after a commit,
//! adds all transactions that were committed since the previous one.
//!
//! The statement is `SET GLOBAL gtid_purged`: the GTIDs are then in the table `mysql.gtid_executed`, and the target's binlog need
//! not contain them. The server writes two lines into its error log for each publication, whatever its verbosity. A filter that is
//! shipped with the server suppresses these two lines while an applier is running. Without the filter, the applier publishes once a
//! second.

use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::{GtidSet, parse_gtid_owned};
use mysql_link::{ConnectOptions, Connection, LinkError, literal, server_code};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::backend::BackendError;
use crate::mysql::checkpoint::{Checkpoint, MAKE, TABLE};
use crate::mysql::options::MysqlOptions;
use crate::mysql::outcome::{backend_error, code};
use crate::mysql::shared::Shared;

/// Interval of publications if each one writes two lines into the error log.
const BETWEEN_LINES: Duration = Duration::from_secs(1);
/// If commits are not in `gtid_executed` after this time, a warning is logged.
pub(super) const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);
/// Pause between a failure and the next attempt.
const AGAIN: Duration = Duration::from_millis(200);

/// The two lines in the error log: `gtid_purged` was changed, and `gtid_executed` with it.
const DROPPED: [&str; 2] = ["MY-010916", "MY-010917"];
const FILTER: &str = "log_filter_dragnet";
const SERVICES: &str = "log_error_services";
const RULES: &str = "dragnet.log_error_filter_rules";

/// Publishes transactions that were committed as one, as long as it is polled.
async fn publish_all(options: &MysqlOptions, checkpoint: &Checkpoint, quiet: bool) {
    let mut connection = None;
    let mut refused = Refused::default();
    loop {
        let changed = checkpoint.changed.notified();
        let gtids = checkpoint.unpublished();
        if gtids.is_empty() {
            changed.await;
            continue;
        }
        let published = async {
            let open = match connection.take() {
                Some(open) => open,
                None => open(options).await?,
            };
            publish(connection.insert(open), &gtids).await
        };
        match published.await {
            Ok(()) => {
                refused = Refused::default();
                checkpoint.published(&gtids);
                if !quiet {
                    sleep(BETWEEN_LINES).await;
                }
            }
            Err(error) => {
                match &error {
                    LinkError::Server(_) if refused.is_news(Instant::now()) => tracing::warn!(
                        %error, %gtids,
                        "transactions are applied, and mysqld refuses to put them into gtid_executed: it is tried again until the cause is \
                         gone"
                    ),
                    _ => tracing::debug!(%error, "gtid_executed lags behind for now"),
                }
                connection = None;
                sleep(AGAIN).await;
            }
        }
    }
}

/// Since when mysqld has refused publications, and whether that was logged. Pure.
#[derive(Debug, Default)]
struct Refused {
    since: Option<Instant>,
    is_logged: bool,
}

impl Refused {
    /// Records a refusal; returns whether to log it. A lost session may own a GTID for a short time, so a refusal is logged only if
    /// it lasts, and only once.
    fn is_news(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_news = !self.is_logged && now.duration_since(since) >= PUBLISHED_WITHIN;
        self.is_logged |= is_news;
        is_news
    }
}

/// Adds these GTIDs to `gtid_executed`, except those that are already there or are not in the row. The row may lack them: after a
/// power failure the server may have lost acknowledged transactions. It then receives the transactions again, so their GTIDs must
/// not be executed yet.
async fn publish(connection: &mut Connection, gtids: &GtidSet) -> Result<(), LinkError> {
    // A separate statement, because a subquery of `SET` would wait for the row, which batches lock until they commit. It uses the
    // same connection, and so the same start of the server.
    let read = format!("SELECT gtids INTO @committed FROM {TABLE} WHERE id = 1");
    connection.execute(read).await?;
    let gtids = literal(&gtids.to_string());
    let statement = format!(
        "SET GLOBAL gtid_purged = CONCAT('+', GTID_SUBTRACT(GTID_SUBTRACT({gtids}, GTID_SUBTRACT({gtids}, @committed)), \
         @@GLOBAL.gtid_executed))"
    );
    connection.execute(statement).await.map(|_| ())
}

/// Opens a connection whose statements are not logged.
pub(super) async fn open(options: &MysqlOptions) -> Result<Connection, LinkError> {
    let mut connection = Connection::open_with_own_settings(&options.connect).await?;
    connection.execute("SET sql_log_bin = 0").await?;
    Ok(connection)
}

/// Takes over a target that an earlier applier may have used. After it returns, no commit of an earlier applier or of a lost session
/// succeeds, and all earlier commits are in `gtid_executed`. `number` must be unused.
///
/// If `log_has` is given, other transactions in the row were not written by an applier of this log: the row came with a dump of
/// another server. They are ignored, and removed from the row, so that a later caller without `log_has` does not rely on them.
///
/// # Errors
/// On failure, the target's `gtid_executed` may lack transactions that are in its tables.
pub(super) async fn take_over(
    connection: &mut Connection,
    number: u64,
    log_has: Option<&GtidSet>,
) -> Result<(), LinkError> {
    // An account without privileges on the table does not see it. The query avoids an error that a monitor of denied privileges
    // would report.
    let there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'witness_applier' AND table_name = 'checkpoint'";
    if connection.query(there).await?.value() == Some("0") {
        return Ok(());
    }
    // This waits for a commit in progress.
    let set = format!("UPDATE {TABLE} SET n = {number} WHERE id = 1");
    match connection.execute(set).await {
        Ok(_) => {}
        // If the account may not write the row, it has never written it.
        Err(error) if is_missing(&error) || is_denied(&error) => return Ok(()),
        // The server is read-only: no other applier can write either.
        Err(LinkError::Server(error)) if error.code == code::READ_ONLY => {}
        Err(error) => return Err(error),
    }
    let query =
        format!("SELECT GTID_SUBTRACT(gtids, @@GLOBAL.gtid_executed) FROM {TABLE} WHERE id = 1");
    let mut refused = None;
    loop {
        let answer = match connection.query(&query).await {
            // A server that is read-only refuses the UPDATE before it searches the table, so a missing table is found only here.
            Err(error) if is_missing(&error) || is_denied(&error) => return Ok(()),
            answer => answer?,
        };
        let lacks = answer.value().unwrap_or_default().replace('\n', "");
        let lacks = match log_has {
            Some(log_has) => of_the_log(connection, &lacks, log_has).await?,
            None => lacks,
        };
        if lacks.is_empty() {
            return Ok(());
        }
        let set = format!("SET GLOBAL gtid_purged = '+{lacks}'");
        match connection.execute(set).await {
            // Earlier commits were published in the meantime, so less is missing now. If the set is unchanged, the server refuses it
            // for another reason.
            Err(LinkError::Server(error))
                if error.code == code::ALREADY_EXECUTED && refused.as_ref() != Some(&lacks) =>
            {
                refused = Some(lacks);
            }
            done => {
                done?;
                tracing::info!(
                    gtids = lacks,
                    "applied before, and not in gtid_executed until now"
                );
                return Ok(());
            }
        }
    }
}

/// Returns those transactions of `lacks` that are in the log, and removes the others from the row.
async fn of_the_log(
    connection: &mut Connection,
    lacks: &str,
    log_has: &GtidSet,
) -> Result<String, LinkError> {
    // If the set is unreadable, the server refuses it with a message.
    let Ok(all) = lacks.parse::<GtidSet>() else {
        return Ok(lacks.to_owned());
    };
    let others = all.difference(log_has);
    if others.is_empty() {
        return Ok(lacks.to_owned());
    }
    tracing::warn!(
        gtids = %others,
        table = TABLE,
        "its row says that these were applied, which are not in the log: it has come from another server, in a dump perhaps. They \
         are left out"
    );
    let own = all.difference(&others).to_string();
    let set = format!("UPDATE {TABLE} SET gtids = '{own}' WHERE id = 1");
    match connection.execute(set).await {
        // The server is read-only, so no applier can begin here and read the row.
        Err(LinkError::Server(error)) if error.code == code::READ_ONLY => Ok(own),
        done => done.map(|_| own),
    }
}

/// How long to wait for lost sessions that may complete a requested commit.
const ENDING: Duration = Duration::from_secs(10);

/// Waits until the sessions that own GTIDs now no longer own them, at most `ENDING`. A lost session may still be committing: its
/// rows become visible and its locks are released before its GTID is in `gtid_executed`. A check in between would treat the
/// transaction as missing, and its rows would be written again in a batch.
///
/// # Errors
/// If the target cannot be queried, or its answer cannot be read.
pub(super) async fn owners_end(connection: &mut Connection) -> Result<(), BackendError> {
    let mut left = owned(connection).await?;
    let deadline = Instant::now() + ENDING;
    while !left.is_empty() {
        if Instant::now() >= deadline {
            tracing::warn!(
                gtids = %left,
                "sessions of the target still own GTIDs that they have not committed; SHOW PROCESSLIST there tells what they wait for"
            );
            break;
        }
        sleep(Duration::from_millis(2)).await;
        left = left.intersection(&owned(connection).await?);
    }
    Ok(())
}

/// Returns the GTIDs that sessions own.
async fn owned(connection: &mut Connection) -> Result<GtidSet, BackendError> {
    let answer = connection.query("SELECT @@GLOBAL.gtid_owned").await;
    let answer = answer.map_err(backend_error)?;
    parse_gtid_owned(answer.value().unwrap_or_default()).map_err(|error| {
        BackendError::Refused(format!("the target's gtid_owned cannot be read: {error}"))
    })
}

/// Adds transactions to the target's `gtid_executed` that an applier committed as one and did not publish before it ended. Every run
/// of an applier begins with this. Call it also before another kind of applier is used there, or GTIDs are compared. It changes
/// nothing if there are no such transactions. `log_has`: as [`MysqlOptions::log_has`].
///
/// # Errors
/// On failure, `gtid_executed` may lack transactions that are in the tables.
pub async fn complete_gtid_executed(
    connect: &ConnectOptions,
    log_has: Option<&GtidSet>,
) -> Result<(), LinkError> {
    let mut connection = open(&MysqlOptions::new(connect.clone())).await?;
    take_over(&mut connection, Checkpoint::new().begin(), log_has).await?;
    connection.close().await;
    Ok(())
}

/// Creates the table if it is missing, and tests whether its row can be written and read.
///
/// # Errors
/// If the table cannot be created, or the row cannot be written and read.
pub(super) async fn prepare(options: &MysqlOptions, number: u64) -> Result<(), LinkError> {
    let mut connection = open(options).await?;
    let update = format!("UPDATE {TABLE} SET n = {number} WHERE id = 1");
    let mut tried = connection.execute(&update).await;
    if tried.as_ref().map_or_else(is_missing, |rows| *rows == 0) {
        for statement in MAKE {
            connection.execute(statement).await?;
        }
        tried = connection.execute(&update).await;
    }
    tried?;
    let read = format!("SELECT n, gtids FROM {TABLE} WHERE id = 1");
    connection.query(read).await?;
    connection.close().await;
    Ok(())
}

pub(super) fn is_denied(error: &LinkError) -> bool {
    let denied = [server_code::TABLE_ACCESS_DENIED, code::SCHEMA_ACCESS_DENIED];
    matches!(error, LinkError::Server(error) if denied.contains(&error.code))
}

/// True if the error means that the table does not exist.
pub(super) fn is_missing(error: &LinkError) -> bool {
    let missing = [code::UNKNOWN_SCHEMA, code::UNKNOWN_TABLE];
    matches!(error, LinkError::Server(error) if missing.contains(&error.code))
}

/// The variables of the error log's filters, with their values before and after the change.
type Quiet = [(&'static str, (String, String)); 2];

/// Suppresses the two lines in the error log. Returns `None` if they are already suppressed.
///
/// # Errors
/// If the filter does not exist, or the account may not set it.
pub(super) async fn keep_quiet(connection: &mut Connection) -> Result<Option<Quiet>, LinkError> {
    let services = change(connection, SERVICES, services_with_filter).await?;
    let rules = change(connection, RULES, rules_with_ours).await;
    if rules.is_err() && services.0 != services.1 {
        set(connection, SERVICES, &services.0).await?;
    }
    let rules = rules?;
    Ok((rules.0 != rules.1).then_some([(RULES, rules), (SERVICES, services)]))
}

/// Changes a variable if needed. Returns the old and the new value.
async fn change(
    connection: &mut Connection,
    name: &str,
    changed: fn(&str) -> String,
) -> Result<(String, String), LinkError> {
    let before = variable(connection, name).await?;
    let after = changed(&before);
    if after != before {
        set(connection, name, &after).await?;
    }
    Ok((before, after))
}

/// Restores the error log's filters, unless another session has changed them.
pub(super) async fn restore_filters(
    connection: &mut Connection,
    quiet: &Quiet,
) -> Result<(), LinkError> {
    for (name, (before, ours)) in quiet {
        if before != ours && variable(connection, name).await? == *ours {
            set(connection, name, before).await?;
        }
    }
    Ok(())
}

async fn variable(connection: &mut Connection, name: &str) -> Result<String, LinkError> {
    let answer = connection.query(format!("SELECT @@GLOBAL.{name}")).await?;
    Ok(answer.value().unwrap_or_default().to_owned())
}

async fn set(connection: &mut Connection, name: &str, value: &str) -> Result<(), LinkError> {
    let statement = format!("SET GLOBAL {name} = {}", literal(value));
    connection.execute(statement).await.map(|_| ())
}

/// Adds the filter before the components that write the log.
fn services_with_filter(services: &str) -> String {
    if services.contains(FILTER) {
        return services.to_owned();
    }
    let mut all: Vec<&str> = services.split([';', ',']).map(str::trim).collect();
    all.retain(|one| !one.is_empty());
    let sink = all.iter().position(|one| one.starts_with("log_sink"));
    all.insert(sink.unwrap_or(all.len()), FILTER);
    all.join("; ")
}

fn rules_with_ours(rules: &str) -> String {
    let mut all = vec![rules.trim().to_owned()];
    all.retain(|one| !one.is_empty());
    let missing = DROPPED.iter().filter(|code| !rules.contains(*code));
    all.extend(missing.map(|code| format!("IF err_code=={code} THEN drop.")));
    all.join(" ")
}

/// The background task that publishes, during a run that commits batches as one.
#[derive(Debug)]
pub(super) struct Publisher {
    pub(super) checkpoint: Arc<Checkpoint>,
    /// Changes of the filter settings, to be reverted after the run.
    pub(super) quiet: Option<Quiet>,
    /// The task ends when this is dropped.
    _task: JoinSet<()>,
}

impl Publisher {
    /// Starts publishing. `quiet` is the result of [`keep_quiet`].
    pub(super) fn start(
        shared: &Arc<Shared>,
        checkpoint: &Arc<Checkpoint>,
        quiet: Result<Option<Quiet>, LinkError>,
    ) -> Self {
        if let Err(error) = &quiet {
            tracing::warn!(
                %error,
                "mysqld's error log gets two lines for each change of gtid_purged, which is done once a second for this reason \
                 while transactions come in: gtid_executed lags behind for as long. SYSTEM_VARIABLES_ADMIN and the component \
                 log_filter_dragnet keep them out"
            );
        }
        let is_quiet = quiet.is_ok();
        let (shared, of_task) = (Arc::clone(shared), Arc::clone(checkpoint));
        let task = async move { publish_all(&shared.options, &of_task, is_quiet).await };
        Self {
            checkpoint: Arc::clone(checkpoint),
            _task: JoinSet::from_iter([task]),
            quiet: quiet.ok().flatten(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_refusal_to_publish_is_logged_once() {
        let began = Instant::now();
        let mut refused = Refused::default();
        let seconds = [0, 1, 4, 5, 6, 60];
        let news = seconds.map(|at| refused.is_news(began + Duration::from_secs(at)));
        assert_eq!(news, [false, false, false, true, false, false]);
    }

    #[test]
    fn the_filter_precedes_the_sinks_and_is_added_once() {
        let set = services_with_filter("log_filter_internal; log_sink_internal");
        assert_eq!(
            set,
            "log_filter_internal; log_filter_dragnet; log_sink_internal"
        );
        assert_eq!(services_with_filter(&set), set);
        assert_eq!(
            services_with_filter("log_sink_json"),
            "log_filter_dragnet; log_sink_json"
        );
        let rules = rules_with_ours("IF prio>=INFORMATION THEN drop.");
        assert_eq!(
            rules,
            "IF prio>=INFORMATION THEN drop. IF err_code==MY-010916 THEN drop. IF err_code==MY-010917 THEN drop."
        );
        assert_eq!(rules_with_ours(&rules), rules);
    }
}
