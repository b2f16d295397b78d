//! A follower whose mysqld applies the log with its own replica threads, from the member's own binlog server. Each start creates the
//! channel again, because relay logs left by a crash may be incomplete. `super_read_only` stays on.

use std::time::Duration;

use binlog_format::events::without_secrets;
use binlog_format::gtid::Gtid;
use mysql_link::{ConnectOptions, Connection, LinkError, QueryResult};
use mysqld_server::ReplicationSource;
use mysqld_server::channels::{OWN_CHANNEL as CHANNEL, drop_channel, filters_of_channel, lenience};
use mysqld_server::sessions::spare_connection;
use mysqld_server::settings::{FORCE_REDO_LOG, stop_waiting_for_acks};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::apply::arrivals::Arrivals;
use crate::apply::error::{RoleError, ThreadsEnded};

/// Interval between two checks of the threads.
const LOOK: Duration = Duration::from_secs(1);
/// How long mysqld may be unreachable around a start.
const AWAY: Duration = Duration::from_secs(60);

/// Makes the server follow until this call is cancelled, then removes the channel. Sends how many milliseconds the server is behind the
/// ring's commits; `None` while the threads do not run.
///
/// # Errors
/// The reason for which the threads ended.
pub(super) async fn replicate(
    connect: &ConnectOptions,
    source: &ReplicationSource,
    cancel: &CancellationToken,
    arrivals: &Arrivals,
    lag: &watch::Sender<Option<u64>>,
) -> Result<(), RoleError> {
    let runs = async {
        begin(connect, source).await?;
        Err(watch_threads(connect, arrivals, lag).await)
    };
    let ended = tokio::select! {
        () = cancel.cancelled() => Ok(()),
        ended = runs => ended,
    };
    lag.send_replace(None);
    // The next step needs a server without other writers.
    match (ended, end(connect).await) {
        (Ok(()), Err(error)) => Err(RoleError::ThreadsRun(error)),
        (ended, _) => ended,
    }
}

async fn begin(connect: &ConnectOptions, source: &ReplicationSource) -> Result<(), RoleError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    stop_waiting_for_acks(&mut connection).await?;
    drop_channel(&mut connection).await?;
    let lenience = lenience(&mut connection).await?;
    if let Some((name, errors)) = lenience.skips {
        return Err(RoleError::SkipsErrors { name, errors });
    }
    for name in lenience.unordered {
        let set = format!("SET GLOBAL {name} = ON");
        if let Err(error) = connection.execute(&set).await {
            return Err(RoleError::OutOfOrder(name, error));
        }
        tracing::warn!(
            "{name} was OFF, so that readers could see later transactions without earlier ones: it is set to ON"
        );
    }
    let strict = lenience
        .mode
        .map(|(name, _)| format!("SET GLOBAL {name} = 'STRICT'"));
    // Replica threads can write although `super_read_only` is on. The binlog has their rows, and `sync_binlog` stays on.
    let statements = [
        FORCE_REDO_LOG.to_owned(),
        "SET GLOBAL read_only = ON, GLOBAL super_read_only = ON, GLOBAL sync_binlog = 1".to_owned(),
        source.change(&format!(" FOR CHANNEL '{CHANNEL}'")),
    ];
    for statement in strict.into_iter().chain(statements) {
        connection.execute(statement).await?;
    }
    // A new channel copies the server's filters.
    let channels = connection.query("SHOW REPLICA STATUS").await?;
    let rows = channels.rows.iter();
    let own = rows.filter(|row| row.text("Channel_Name") == Some(CHANNEL));
    let filters: Vec<String> = own.flat_map(filters_of_channel).collect();
    if !filters.is_empty() {
        return Err(ThreadsEnded::Filtered(filters.join(", ")).into());
    }
    let start = format!("START REPLICA FOR CHANNEL '{CHANNEL}'");
    connection.execute(start).await?;
    connection.close().await;
    Ok(())
}

async fn end(connect: &ConnectOptions) -> Result<(), LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    drop_channel(&mut connection).await?;
    connection.close().await;
    Ok(())
}

/// Watches the threads until they end, and returns the reason.
async fn watch_threads(
    connect: &ConnectOptions,
    arrivals: &Arrivals,
    lag: &watch::Sender<Option<u64>>,
) -> RoleError {
    let mut away_since = None;
    let mut kept = KeptSessions::default();
    loop {
        let lag_ms = match kept.look(connect, arrivals).await {
            Ok(Ok(lag_ms)) => {
                away_since = None;
                lag_ms
            }
            Ok(Err(cause)) => return cause.into(),
            Err(error) => {
                let since = *away_since.get_or_insert_with(tokio::time::Instant::now);
                if since.elapsed() > AWAY {
                    return RoleError::ThreadsUnknown(error);
                }
                None
            }
        };
        lag.send_if_modified(|now| std::mem::replace(now, lag_ms) != lag_ms);
        tokio::time::sleep(LOOK).await;
    }
}

/// MySQL's error number for a refused login.
const ACCESS_DENIED: &str = "1045";

/// How many milliseconds the threads are behind (`None` while the source is unreachable), or why a thread has ended.
type Threads = Result<Option<u64>, ThreadsEnded>;

/// Sessions that are kept open while the threads apply. mysqld accepts one administrator session beyond `max_connections`. A promoted
/// member needs more: for its two dumps, to inspect its new primary, and to open it. If clients have taken all other connections, closing
/// these sessions frees some.
#[derive(Debug, Default)]
struct KeptSessions([Option<Connection>; 3]);

impl KeptSessions {
    async fn look(
        &mut self,
        connect: &ConnectOptions,
        arrivals: &Arrivals,
    ) -> Result<Threads, LinkError> {
        for kept in &mut self.0 {
            let is_there = match kept {
                Some(session) => session.ping().await.is_ok(),
                None => false,
            };
            if !is_there {
                // The check does not need this session, and reports itself whether mysqld accepts logins.
                *kept = spare_connection(connect).await.unwrap_or(None);
            }
        }
        match &mut self.0[0] {
            Some(session) => look(session, arrivals).await,
            None => {
                let mut session = Connection::open_with_own_settings(connect).await?;
                let threads = look(&mut session, arrivals).await?;
                session.close().await;
                Ok(threads)
            }
        }
    }
}

async fn look(connection: &mut Connection, arrivals: &Arrivals) -> Result<Threads, LinkError> {
    let threads = connection
        .query(format!(
            "SELECT 'receiver', service_state, last_error_number, last_error_message, \
               IF(last_queued_transaction = 'ANONYMOUS' OR GTID_SUBSET(last_queued_transaction, @@GLOBAL.gtid_executed), \
                  '', last_queued_transaction), \
               GREATEST(0, TIMESTAMPDIFF(MICROSECOND, last_queued_transaction_immediate_commit_timestamp, NOW(6)) DIV 1000) \
             FROM performance_schema.replication_connection_status WHERE channel_name = '{CHANNEL}' \
             UNION ALL SELECT 'applier', service_state, last_error_number, last_error_message, '', NULL \
             FROM performance_schema.replication_applier_status_by_coordinator WHERE channel_name = '{CHANNEL}' \
             UNION ALL SELECT 'worker', service_state, last_error_number, last_error_message, applying_transaction, \
               GREATEST(0, TIMESTAMPDIFF(MICROSECOND, applying_transaction_immediate_commit_timestamp, NOW(6)) DIV 1000) \
             FROM performance_schema.replication_applier_status_by_worker WHERE channel_name = '{CHANNEL}' \
             UNION ALL SELECT 'delay', '', 0, desired_delay, '', NULL \
             FROM performance_schema.replication_applier_configuration WHERE channel_name = '{CHANNEL}' AND desired_delay > 0 \
             UNION ALL SELECT 'order', '', 0, '', '', NULL FROM DUAL WHERE @@GLOBAL.binlog_order_commits = 0 \
             UNION ALL SELECT 'filter', '', 0, CONCAT(filter_name, '=', filter_rule), '', NULL \
             FROM performance_schema.replication_applier_filters WHERE channel_name = '{CHANNEL}' AND filter_rule <> ''"
        ))
        .await?;
    Ok(judge(&rows(&threads, arrivals)))
}

/// The state of one thread, as the server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread {
    what: String,
    state: String,
    code: String,
    message: String,
    /// The age in milliseconds of the thread's current transaction in the ring's log.
    in_hand_ms: Option<u64>,
}

fn rows(answer: &QueryResult, arrivals: &Arrivals) -> Vec<Thread> {
    let text = |row: &mysql_link::Row, place| row.text_at(place).unwrap_or_default().to_owned();
    let thread = |row: &mysql_link::Row| Thread {
        what: text(row, 0),
        state: text(row, 1),
        code: text(row, 2),
        // mysqld quotes the failed statement in the message.
        message: without_secrets(&text(row, 3)).into_owned(),
        in_hand_ms: in_hand_ms(row, arrivals),
    };
    answer.rows.iter().map(thread).collect()
}

/// Returns the age in milliseconds of the row's transaction, if the row has one.
fn in_hand_ms(row: &mysql_link::Row, arrivals: &Arrivals) -> Option<u64> {
    let gtid: Gtid = row.text_at(4)?.parse().ok()?;
    let by_timestamp = row.text_at(5).and_then(|ms| ms.parse().ok());
    let age = arrivals.age(&gtid, by_timestamp.map(Duration::from_millis))?;
    Some(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// Evaluates the threads' rows. Pure. A worker's error is the cause; a coordinator reports only that some worker failed.
fn judge(threads: &[Thread]) -> Threads {
    let of = |what: &'static str| threads.iter().filter(move |thread| thread.what == what);
    // A filter was set after the threads started.
    if let Some(filter) = of("filter").next() {
        return Err(ThreadsEnded::Filtered(filter.message.clone()));
    }
    if let Some(delay) = of("delay").next() {
        return Err(ThreadsEnded::Delayed(delay.message.clone()));
    }
    if of("order").next().is_some() {
        return Err(ThreadsEnded::OutOfOrder);
    }
    let mut ordered = ["worker", "applier", "receiver"].into_iter().flat_map(of);
    let cause = ordered.find(|thread| thread.state == "OFF" && thread.code != "0");
    if let Some(Thread { code, message, .. }) = cause.cloned() {
        return Err(ThreadsEnded::Failed { code, message });
    }
    let off = |what| of(what).all(|thread| thread.state == "OFF");
    // The receiver would retry indefinitely with its old password, although the password may have changed.
    let denied = of("receiver").find(|thread| thread.code == ACCESS_DENIED);
    if let Some(thread) = denied {
        return Err(ThreadsEnded::Denied(thread.message.clone()));
    }
    if off("receiver") || off("worker") {
        return Err(ThreadsEnded::Stopped);
    }
    let connected = of("receiver").any(|thread| thread.state == "ON");
    let oldest = threads.iter().filter_map(|thread| thread.in_hand_ms).max();
    Ok(connected.then(|| oldest.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(what: &str, state: &str, code: &str, in_hand_ms: Option<u64>) -> Thread {
        Thread {
            what: what.to_owned(),
            state: state.to_owned(),
            code: code.to_owned(),
            message: format!("{what} {code}"),
            in_hand_ms,
        }
    }

    #[test]
    fn what_the_threads_do() {
        let on = |what| thread(what, "ON", "0", None);
        let idle = [on("receiver"), on("applier"), on("worker")];
        assert_eq!(judge(&idle), Ok(Some(0)));
        let busy = [
            on("receiver"),
            thread("worker", "ON", "0", Some(7)),
            thread("worker", "ON", "0", Some(30)),
        ];
        assert_eq!(judge(&busy), Ok(Some(30)));
        // The member's binlog server will return: it runs in the process that makes this check.
        let away = [thread("receiver", "CONNECTING", "2003", None), on("worker")];
        assert_eq!(judge(&away), Ok(None));
        let denied = [thread("receiver", "CONNECTING", "1045", None), on("worker")];
        let ended = |threads: &[Thread]| judge(threads).err();
        let failed = |code: &str, message: &str| {
            Some(ThreadsEnded::Failed {
                code: code.to_owned(),
                message: message.to_owned(),
            })
        };
        let with = |other| ended(&[on("receiver"), on("worker"), other]);
        let is_denied = ThreadsEnded::Denied("receiver 1045".to_owned());
        assert_eq!(ended(&denied), Some(is_denied));
        let broken = [
            on("receiver"),
            thread("applier", "OFF", "1399", None),
            thread("worker", "OFF", "1032", None),
        ];
        assert_eq!(ended(&broken), failed("1032", "worker 1032"));
        let refused = [thread("receiver", "OFF", "13114", None), on("worker")];
        assert_eq!(ended(&refused), failed("13114", "receiver 13114"));
        let filtered = ThreadsEnded::Filtered("filter 0".to_owned());
        assert_eq!(with(thread("filter", "", "0", None)), Some(filtered));
        let delayed = ThreadsEnded::Delayed("delay 0".to_owned());
        assert_eq!(with(thread("delay", "", "0", None)), Some(delayed));
        let out_of_order = with(thread("order", "", "0", None));
        assert_eq!(out_of_order, Some(ThreadsEnded::OutOfOrder));
        let stopped = [
            thread("receiver", "OFF", "0", None),
            thread("worker", "OFF", "0", None),
        ];
        for stopped in [&stopped[..], &[]] {
            assert_eq!(ended(stopped), Some(ThreadsEnded::Stopped));
        }
    }
}
