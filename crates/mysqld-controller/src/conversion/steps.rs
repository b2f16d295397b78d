//! The statements that change hands, one function for each step. Each may be run again: what is done already is left as it is.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, literal};
use thiserror::Error;

use crate::apply::leave_following;
use crate::conversion::let_through::let_commits_through;
use crate::replication_source::ReplicationSource;
use crate::settings::{
    Depth, Phase, Plan, Requirements, StopWaitingError, apply, end_statement_logging, observe,
    stop_waiting_for_acks, wait_as_a_plain_source,
};
use crate::write_fence::read_only::{self, EventsAtOpening};

/// How long sessions may take to end that were killed.
const END_OF_SESSIONS: Duration = Duration::from_secs(10);

/// Why a step was not done.
#[derive(Debug, Error)]
pub enum ConversionError {
    /// A statement failed, or the connection to the server.
    #[error("{doing} failed: {source}")]
    Link {
        /// What the statement was for.
        doing: &'static str,
        /// The error of the statement or connection.
        source: LinkError,
    },
    /// Semi-sync was not switched off.
    #[error("switching semi-sync off failed: {0}")]
    StopWaiting(#[from] StopWaitingError),
    /// Another error, which has only a text.
    #[error("{doing} failed: {cause}")]
    Other {
        /// What the step was to do.
        doing: &'static str,
        /// The text of the error.
        cause: String,
    },
}

fn doing(doing: &'static str) -> impl FnOnce(LinkError) -> ConversionError {
    move |source| ConversionError::Link { doing, source }
}

async fn open(connect: &ConnectOptions) -> Result<Connection, ConversionError> {
    Connection::open_with_own_settings(connect)
        .await
        .map_err(doing("connecting"))
}

/// Sets a server that is going to be the primary to what the ring needs, but for the waiting itself, so that less is left for
/// the time in which clients cannot write.
///
/// # Errors
/// When a setting cannot be made.
pub async fn prepare(
    connect: &ConnectOptions,
    requirements: &Requirements,
) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    let observed = observe(&mut connection, Depth::Watch).await;
    let observed = observed.map_err(doing("looking at its settings"))?;
    let plan = Plan::make(&observed, requirements, Phase::BeforeAttach);
    let applied = apply(&mut connection, &plan).await;
    applied.map_err(|error| ConversionError::Other {
        doing: "setting it up",
        cause: error.to_string(),
    })?;
    // Whoever has set it to ROW, sessions from before go on with what was.
    let ended = end_statement_logging(&mut connection, END_OF_SESSIONS).await;
    ended.map_err(|cause| ConversionError::Other {
        doing: "closing sessions from before binlog_format was ROW",
        cause,
    })?;
    connection.close().await;
    Ok(())
}

/// Commits on the server wait for nobody any more. Before a ring has it: its replicas stop to acknowledge next, and commits
/// would wait for them. Those that wait are let through, as the replicas' ACK would.
///
/// # Errors
/// When it cannot be set.
pub async fn stop_waiting(
    connect: &ConnectOptions,
    requirements: &Requirements,
) -> Result<(), ConversionError> {
    let let_through = let_commits_through(connect, requirements).await;
    let_through.map_err(doing("switching semi-sync off"))
}

/// Commits on a server that is going to be a replica wait for nobody: what it gets from its source would wait for an ACK.
///
/// # Errors
/// [`StopWaitingError::CommitsWait`] while one does; when it cannot be set.
pub async fn wait_for_nobody(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    stop_waiting_for_acks(&mut connection).await?;
    connection.close().await;
    Ok(())
}

/// The server stops to acknowledge what it receives; it goes on replicating.
///
/// # Errors
/// When it cannot be set, or its receiver does not start again.
pub async fn stop_acknowledging(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    let enabled = connection
        .query("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_replica_enabled', 'rpl_semi_sync_slave_enabled')")
        .await
        .map_err(doing("looking at semi-sync"))?;
    let names = enabled
        .rows
        .iter()
        .filter(|row| row.text_at(1) == Some("ON"));
    let names: Vec<&str> = names.filter_map(|row| row.text_at(0)).collect();
    let channels = connection.query("SHOW REPLICA STATUS").await;
    let channels = channels.map_err(doing("looking at its own replication"))?;
    // The receiver asks for ACKs when it connects, so that it has to connect again. One that has left its source has none.
    let connect_again: &[&str] = match (names.first(), channels.first()) {
        (Some(_), Some(_)) => &["STOP REPLICA IO_THREAD", "START REPLICA IO_THREAD"],
        _ => &[],
    };
    let off = names.iter().map(|name| format!("SET GLOBAL {name} = OFF"));
    let again = connect_again.iter().map(|&statement| statement.to_owned());
    let statements: Vec<String> = off.chain(again).collect();
    for statement in statements {
        let run = connection.execute(&statement).await;
        run.map_err(doing("switching semi-sync off at the replica"))?;
    }
    connection.close().await;
    Ok(())
}

/// The server stops to replicate by itself, and forgets from whom it did. It is closed for writes first: nothing but its member
/// writes to it from now on.
///
/// # Errors
/// When it cannot be closed, or does not stop.
pub async fn leave_source(connect: &ConnectOptions) -> Result<(), ConversionError> {
    close(connect).await?;
    let mut connection = open(connect).await?;
    let channels = connection.query("SHOW REPLICA STATUS").await;
    let channels = channels.map_err(doing("looking at its own replication"))?;
    let statements: &[&str] = match channels.first() {
        Some(_) => &["STOP REPLICA", "RESET REPLICA ALL"],
        None => &[],
    };
    for statement in statements {
        let run = connection
            .query_within(statement, Duration::from_secs(60))
            .await;
        run.map_err(doing("ending its own replication"))?;
    }
    connection.close().await;
    Ok(())
}

async fn close(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let closed = read_only::close(connect, Duration::from_secs(1)).await;
    closed.map_err(|error| ConversionError::Other {
        doing: "closing it for writes",
        cause: error.to_string(),
    })
}

/// The primary, which no member manages any more and which is closed, becomes a plain one: commits wait for nobody, and clients
/// may write.
///
/// # Errors
/// [`StopWaitingError::CommitsWait`] while one does; when it cannot be set.
pub async fn release_primary(connect: &ConnectOptions) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    stop_waiting_for_acks(&mut connection).await?;
    let plain = wait_as_a_plain_source(&mut connection).await;
    plain.map_err(doing("giving semi-sync its own timeout back"))?;
    connection.close().await;
    let opened = read_only::open(connect, &EventsAtOpening::default()).await;
    opened.map_err(|error| ConversionError::Other {
        doing: "opening it for writes",
        cause: error.to_string(),
    })
}

/// A server that followed the ring becomes one that a source can be given to: closed for writes, its commits wait for nobody, its
/// binlog is forced again, and the files that name transactions and do not hold them are gone. (Its commits wait for an ACK where it
/// was started and does not follow yet.)
///
/// # Errors
/// [`StopWaitingError::CommitsWait`] while one does; when it cannot be closed or set.
pub async fn release_follower(connect: &ConnectOptions) -> Result<(), ConversionError> {
    close(connect).await?;
    let mut connection = open(connect).await?;
    stop_waiting_for_acks(&mut connection).await?;
    let plain = wait_as_a_plain_source(&mut connection).await;
    plain.map_err(doing("giving semi-sync its own timeout back"))?;
    let left = leave_following(&mut connection, connect).await;
    left.map_err(|cause| ConversionError::Other {
        doing: "dropping the binlog of its time as a follower",
        cause,
    })?;
    connection.close().await;
    Ok(())
}

/// Lets the server replicate from this source, through the channel that it has, and stay closed for writes.
///
/// # Errors
/// When it has several channels, or a statement fails.
pub async fn follow_source(
    connect: &ConnectOptions,
    source: &ReplicationSource,
) -> Result<(), ConversionError> {
    let mut connection = open(connect).await?;
    let channels = connection.query("SHOW REPLICA STATUS").await;
    let channels = channels.map_err(doing("looking at its own replication"))?;
    let names = channels.rows.iter();
    let names: Vec<&str> = names.filter_map(|row| row.text("Channel_Name")).collect();
    // Where it would be given a second one, a channel without a name is refused (3079).
    let of_channel = match names[..] {
        [] | [""] => String::new(),
        [name] => format!(" FOR CHANNEL {}", literal(name)),
        _ => {
            return Err(ConversionError::Other {
                doing: "giving it a source",
                cause: format!(
                    "it replicates through {} channels; nothing was changed there",
                    names.len()
                ),
            });
        }
    };
    close(connect).await?;
    let change = source.change(&of_channel);
    for (statement, what) in [
        (
            format!("STOP REPLICA{of_channel}"),
            "stopping its replication",
        ),
        (change, "giving it a source"),
        (
            format!("START REPLICA{of_channel}"),
            "starting its replication",
        ),
    ] {
        let run = connection
            .query_within(statement, Duration::from_secs(60))
            .await;
        run.map_err(doing(what))?;
    }
    connection.close().await;
    Ok(())
}
