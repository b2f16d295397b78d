//! Before mysqld is asked to stop: close it for writes, and let what waits for its ACK get it.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::read_only::{self, ReadOnlyError};
use crate::settings::{Depth, observe};

/// What one attempt has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Drained {
    /// No commit waits, and none can begin to.
    Yes,
    /// Not yet, or it cannot be known; with the cause.
    No(String),
}

/// Closes the server, and looks whether a commit waits.
pub(super) async fn drain(account: &ConnectOptions) -> Drained {
    match attempt(account).await {
        Ok(drained) => drained,
        // Nobody can be connected to a server that does not listen.
        Err(LinkError::Unreachable { .. }) => Drained::Yes,
        Err(error) => Drained::No(error.to_string()),
    }
}

async fn attempt(account: &ConnectOptions) -> Result<Drained, LinkError> {
    // Also where it reads ON already: it does so from the moment in which somebody sets it, and is not
    // in force before that has succeeded.
    if let Err(error) = read_only::close(account, Duration::from_secs(1)).await {
        return match error {
            ReadOnlyError::Link(error @ LinkError::Unreachable { .. }) => Err(error),
            other => Ok(Drained::No(other.to_string())),
        };
    }
    let mut connection = Connection::open(account).await?;
    let observed = observe(&mut connection, Depth::Watch).await?;
    connection.close().await;
    let waiting = observed.waiting_sessions();
    Ok(match (observed.is_super_read_only(), waiting) {
        (true, 0) => Drained::Yes,
        (true, _) => Drained::No(format!("{waiting} sessions wait for an ACK")),
        (false, _) => Drained::No("somebody opens it for writes".to_owned()),
    })
}
