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

/// How long closing the sessions may take: a stop does without it.
const CLOSING_LIMIT: Duration = Duration::from_secs(2);

/// Closes the sessions of all clients, administrators too, on a server that is closed for writes and is about to stop. Dumps stay:
/// what they have not sent is sent while the server stops.
pub(super) async fn close_sessions(account: &ConnectOptions) {
    let closed = async {
        let mut connection = Connection::open(account).await?;
        let sessions = connection.query("SHOW PROCESSLIST").await?;
        for row in &sessions.rows {
            let text = |column: &str| row.text(column).unwrap_or_default();
            let own = text("Id") == connection.id().to_string();
            if own || !is_a_clients(text("User"), text("Command")) {
                continue;
            }
            match connection.execute(&format!("KILL {}", text("Id"))).await {
                // It is gone already.
                Ok(_) | Err(LinkError::Server(_)) => {}
                Err(error) => return Err(error),
            }
        }
        connection.close().await;
        Ok::<(), LinkError>(())
    };
    match tokio::time::timeout(CLOSING_LIMIT, closed).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "clients' sessions are not closed before mysqld stops")
        }
        Err(_) => tracing::debug!("clients' sessions are not closed in time before mysqld stops"),
    }
}

fn is_a_clients(user: &str, command: &str) -> bool {
    !["system user", "event_scheduler"].contains(&user)
        && command != "Daemon"
        && !command.starts_with("Binlog Dump")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_server_and_dumps_are_no_clients() {
        let table = [
            ("app", "Sleep", true),
            ("root", "Query", true),
            ("witness", "Binlog Dump GTID", false),
            ("replica", "Binlog Dump", false),
            ("event_scheduler", "Daemon", false),
            ("system user", "Query", false),
        ];
        for (user, command, expected) in table {
            assert_eq!(is_a_clients(user, command), expected, "{user} {command}");
        }
    }
}
