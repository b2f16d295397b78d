//! The statements of a conversion, one function for each step. Each step may be repeated: it leaves completed parts unchanged.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, QueryResult, literal};
use thiserror::Error;

use crate::channels::ReplicationSource;
use crate::conversion::server_probe::acknowledging;
use crate::follower_binlog::leave_following;
use crate::read_only::{self, EventsAtOpening};
use crate::sessions::{end_statement_logging, let_commits_through};
use crate::settings::{
    Depth, Phase, Plan, Requirements, StopWaitingError, apply, observe, stop_waiting_for_acks,
    wait_as_a_plain_source,
};

/// How long killed sessions may take to end.
const END_OF_SESSIONS: Duration = Duration::from_secs(10);
/// How long the server's replica threads may take to stop or to start.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Why a step was not done.
#[derive(Debug, Error)]
pub enum ConversionError {
    /// A step failed.
    #[error("{doing} failed: {source}")]
    Step {
        /// Purpose of the step.
        doing: &'static str,
        /// The error of the step.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Semi-sync was not switched off.
    #[error("switching semi-sync off failed: {0}")]
    StopWaiting(#[from] StopWaitingError),
    /// The server replicates through this number of channels; only one is supported.
    #[error(
        "giving it a source failed: it replicates through {0} channels; nothing was changed there"
    )]
    SeveralChannels(usize),
}

fn doing<E>(doing: &'static str) -> impl FnOnce(E) -> ConversionError
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |source| ConversionError::Step {
        doing,
        source: source.into(),
    }
}

async fn channels(connection: &mut Connection) -> Result<QueryResult, ConversionError> {
    let channels = connection.query("SHOW REPLICA STATUS").await;
    channels.map_err(doing("reading its own replication"))
}

async fn open(connect: &ConnectOptions) -> Result<Connection, ConversionError> {
    Connection::open_with_own_settings(connect)
        .await
        .map_err(doing("connecting"))
}

/// Applies the ring's settings to a future primary, except semi-sync waiting. This shortens the time in which clients cannot write.
///
/// # Errors
/// When a setting cannot be changed.
pub async fn prepare(
    connect: &ConnectOptions,
    requirements: &Requirements,
) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    let observed = observe(&mut connection, Depth::Watch).await;
    let observed = observed.map_err(doing("reading its settings"))?;
    let plan = Plan::make(&observed, requirements, Phase::BeforeAttach);
    let applied = apply(&mut connection, &plan).await;
    applied.map_err(doing("setting it up"))?;
    // Sessions that began before the change to ROW keep their format.
    let ended = end_statement_logging(&mut connection, END_OF_SESSIONS).await;
    ended.map_err(doing("closing sessions from before binlog_format was ROW"))?;
    connection.close().await;
    Ok(())
}

/// Stops commits on the server from waiting for ACKs, before a ring manages the server. Its replicas stop acknowledging in the next step,
/// and commits would then wait indefinitely. Acknowledges commits that wait now, as a replica would.
///
/// # Errors
/// When the variable cannot be set.
pub async fn stop_waiting(
    connect: &ConnectOptions,
    requirements: &Requirements,
) -> Result<(), ConversionError> {
    let let_through = let_commits_through(connect, requirements).await;
    let_through.map_err(doing("switching semi-sync off"))
}

/// Stops commits on a future replica from waiting for ACKs, which the source's transactions would do there.
///
/// # Errors
/// [`StopWaitingError::CommitsWait`] while a commit waits; when the variable cannot be set.
pub async fn wait_for_nobody(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    stop_waiting_for_acks(&mut connection).await?;
    connection.close().await;
    Ok(())
}

/// Stops the server's ACKs to its source; the server continues to replicate.
///
/// # Errors
/// When the variable cannot be set, or the receiver does not restart.
pub async fn stop_acknowledging(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    let names = acknowledging(&mut connection).await;
    let names = names.map_err(doing("reading the state of semi-sync"))?;
    let channels = channels(&mut connection).await?;
    let off = names.iter().map(|name| format!("SET GLOBAL {name} = OFF"));
    let mut statements: Vec<String> = off.collect();
    // The receiver requests ACKs when it connects, so it must reconnect. A server that has left its source has no receiver.
    if !names.is_empty() && channels.first().is_some() {
        let again = ["STOP REPLICA IO_THREAD", "START REPLICA IO_THREAD"];
        statements.extend(again.map(str::to_owned));
    }
    for statement in statements {
        let run = connection.execute(&statement).await;
        run.map_err(doing("switching semi-sync off at the replica"))?;
    }
    connection.close().await;
    Ok(())
}

// A server stops its replication before it is closed for writes. Closing waits for all running transactions and holds up new commits, also
// those of workers that commit in order. On a busy machine that exceeded the statement's time limit.

/// Stops the server's own replication, closes the server for writes, and removes its source. From now on, only its member writes to it.
///
/// # Errors
/// When the server cannot be closed, or its threads do not stop.
pub async fn leave_source(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    let what = "ending its own replication";
    // Both statements succeed without a source.
    run(&mut connection, "STOP REPLICA", what).await?;
    close(connect).await?;
    run(&mut connection, "RESET REPLICA ALL", what).await?;
    connection.close().await;
    Ok(())
}

async fn run(
    connection: &mut Connection,
    statement: &str,
    what: &'static str,
) -> Result<(), ConversionError> {
    let done = connection.query_within(statement, STOP_LIMIT).await;
    done.map(drop).map_err(doing(what))
}

async fn close(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let closed = read_only::close(connect, Duration::from_secs(1)).await;
    closed.map_err(doing("closing it for writes"))
}

/// Stops commits from waiting for ACKs, as on a server of plain replication.
async fn plain(connect: &ConnectOptions) -> Result<Connection, ConversionError> {
    let mut connection = open(connect).await?;
    stop_waiting_for_acks(&mut connection).await?;
    let waits = wait_as_a_plain_source(&mut connection).await;
    waits.map_err(doing("giving semi-sync its own timeout back"))?;
    Ok(connection)
}

/// Turns the closed, unmanaged primary into a plain one: commits wait for no ACK, and clients may write.
///
/// # Errors
/// [`StopWaitingError::CommitsWait`] while a commit waits; when a variable cannot be set.
pub async fn release_primary(connect: &ConnectOptions) -> Result<(), ConversionError> {
    plain(connect).await?.close().await;
    let opened = read_only::open(connect, &EventsAtOpening::default()).await;
    opened.map_err(doing("opening it for writes"))
}

/// Prepares a former follower for a source: closes it for writes, stops commits from waiting for ACKs, and sets `sync_binlog` again. Also
/// drops the binlog files that name transactions without their content. (Commits wait for ACKs on a server that was started and has not
/// begun to follow.)
///
/// # Errors
/// [`StopWaitingError::CommitsWait`] while a commit waits; when the server cannot be closed or set.
pub async fn release_follower(connect: &ConnectOptions) -> Result<(), ConversionError> {
    close(connect).await?;
    let mut connection = plain(connect).await?;
    let left = leave_following(&mut connection, connect).await;
    left.map_err(doing("dropping the binlog of its time as a follower"))?;
    connection.close().await;
    Ok(())
}

/// Makes the server replicate from this source through its present channel. The server stays closed for writes.
///
/// # Errors
/// When the server has several channels, or a statement fails.
pub async fn follow_source(
    connect: &ConnectOptions,
    source: &ReplicationSource,
) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    let channels = channels(&mut connection).await?;
    let names = channels.rows.iter();
    let names: Vec<&str> = names.filter_map(|row| row.text("Channel_Name")).collect();
    // If a named channel exists, mysqld refuses a second channel without a name (error 3079).
    let of_channel = match names[..] {
        [] | [""] => String::new(),
        [name] => format!(" FOR CHANNEL {}", literal(name)),
        _ => return Err(ConversionError::SeveralChannels(names.len())),
    };
    let stop = format!("STOP REPLICA{of_channel}");
    run(&mut connection, &stop, "stopping its replication").await?;
    close(connect).await?;
    let change = source.change(&of_channel);
    run(&mut connection, &change, "giving it a source").await?;
    let start = format!("START REPLICA{of_channel}");
    run(&mut connection, &start, "starting its replication").await?;
    connection.close().await;
    Ok(())
}
