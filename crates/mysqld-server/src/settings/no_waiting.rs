//! Settings of a server that is not the primary: commits do not wait for ACKs.

use mysql_link::{Connection, LinkError};
use thiserror::Error;

use super::{Depth, Observed, SemiSyncNames, is_effectively_infinite, observe, reset_start};

/// Why commits may still wait.
#[derive(Debug, Error)]
pub enum StopWaitingError {
    /// Some do at the moment, and would be let through without an ACK. Nothing was changed.
    #[error(
        "{0} commits wait for an ACK, and would be let through. Where nobody leads, bring a quorum of the ring back, and try again; where another member leads, kill mysqld (kill -9) and start it again, if the member does not: it recovers what the ring has"
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
        0 => {}
        waiting => return Err(StopWaitingError::CommitsWait(waiting)),
    }
    Ok(switch_off(connection, &observed).await?)
}

/// Stops commits from waiting for ACKs. While one waits, the statement waits for its ACK as well (9.7.4).
///
/// # Errors
/// When it cannot be set, or not in time.
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

/// Makes each commit wait for so many ACKs, already waiting ones included. Operators do not set this, not even with
/// `manage_settings = false`: it changes with each attachment.
///
/// # Errors
/// When it cannot be set, or not in time.
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

/// Restores a semi-sync timeout where a ring has left one without end: otherwise, if an operator enables semi-sync later with a
/// plain replica that is away, commits would wait indefinitely. Nothing waits at the moment.
///
/// # Errors
/// When it cannot be queried or set.
pub(crate) async fn wait_as_a_plain_source(connection: &mut Connection) -> Result<(), LinkError> {
    let observed = observe(connection, Depth::Watch).await?;
    let Some(names) = observed.semi_sync() else {
        return Ok(());
    };
    let timeout = observed.variable(&names.timeout());
    let endless = timeout.and_then(|timeout| timeout.parse().ok());
    if endless.is_some_and(is_effectively_infinite) {
        let back = format!("SET GLOBAL {} = {TIMEOUT_MS}", names.timeout());
        connection.execute(&back).await?;
        await_acks(connection, names, 1).await?;
    }
    reset_start(connection, names).await
}
