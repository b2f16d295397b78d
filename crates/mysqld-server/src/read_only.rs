//! The two statements that open and close a primary for writes. Closing needs a lock that is not available while commits wait for their
//! ACK, and new writes queue after the closing statement. So the server limits its wait, and the statement is killed if the server exceeds
//! that limit.

use std::time::Duration;

use applier::events::{NamedEvent, disable_what_is_over};
use mysql_link::{ConnectOptions, Connection, LinkError, Step, server_code};
use thiserror::Error;

/// Why `super_read_only` could not be changed.
#[derive(Debug, Error)]
pub enum ReadOnlyError {
    /// The statement waits for commits or for a long statement.
    #[error(
        "super_read_only cannot be set: commits wait for an ACK, or a long statement runs. No waiting commit is visible or \
         acknowledged; restore a quorum and it finishes"
    )]
    BehindCommits,
    /// The switchover that needed the close was cancelled.
    #[error("the switchover for which it was to be closed is off")]
    CalledOff,
    /// The server cannot be reached, or refuses.
    #[error("super_read_only cannot be changed: {0}")]
    Link(#[from] LinkError),
}

impl ReadOnlyError {
    /// True if mysqld accepted the login and running sessions then blocked the statement. A mysqld that is unreachable, breaks the
    /// connection or does not complete a login is down, starting or busy. That is no evidence about commits.
    pub const fn is_behind_commits(&self) -> bool {
        match self {
            Self::BehindCommits => true,
            Self::Link(LinkError::Timeout { step, .. }) => matches!(step, Step::Statement),
            Self::CalledOff | Self::Link(_) => false,
        }
    }
}

/// The event settings of a server that opens.
#[derive(Debug, Clone, Default)]
pub struct EventsAtOpening {
    /// True if events should run.
    pub wanted: bool,
    /// One-time events in the past, which must not run again.
    pub over: Vec<NamedEvent>,
}

/// Lets clients write, and switches the event scheduler on if `events.wanted`.
pub async fn open(options: &ConnectOptions, events: &EventsAtOpening) -> Result<(), ReadOnlyError> {
    let mut connection = Connection::open_with_own_settings(options).await?;
    if events.wanted && !events.over.is_empty() {
        // Ordinary accounts still cannot write.
        connection
            .execute("SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF")
            .await?;
        // An event that cannot be disabled is logged.
        let why = "an event that was to run once, at a time that is over, does not run at the new primary: the server that was the primary \
                   then ran it, if there was one";
        disable_what_is_over(&mut connection, &events.over, why).await?;
    }
    // This statement also switches super_read_only off. The scheduler is switched on after read_only, because events could only fail
    // before. mysqld checks all values before it sets any.
    let open = match events.wanted {
        true => "SET GLOBAL read_only = OFF, GLOBAL event_scheduler = ON",
        false => OPEN,
    };
    match connection.execute(open).await {
        // A start option has disabled the scheduler.
        Err(LinkError::Server(error))
            if events.wanted && error.code == server_code::OPTION_PREVENTS_STATEMENT =>
        {
            connection.execute(OPEN).await?;
        }
        opened => drop(opened?),
    }
    connection.close().await;
    Ok(())
}

const OPEN: &str = "SET GLOBAL read_only = OFF";

/// Switches `super_read_only` on; waits at most `lock_wait` for blocking statements.
pub async fn close(options: &ConnectOptions, lock_wait: Duration) -> Result<(), ReadOnlyError> {
    let mut connection = Connection::open_with_own_settings(options).await?;
    close_by(&mut connection, options, lock_wait).await?;
    connection.close().await;
    Ok(())
}

/// Switches `super_read_only` on as [`close`] does, on an existing session that was opened with these options and its own settings. A
/// statement that exceeds its time limit would block new writes, so it is killed with the session.
pub async fn close_by(
    connection: &mut Connection,
    options: &ConnectOptions,
    lock_wait: Duration,
) -> Result<(), ReadOnlyError> {
    let seconds = lock_wait.as_secs().max(1);
    let statement =
        format!("SET SESSION lock_wait_timeout = {seconds}, GLOBAL super_read_only = ON");
    let limit = Duration::from_secs(seconds) + options.timeouts.statement;
    match connection.query_within(statement, limit).await {
        Ok(_) => Ok(()),
        Err(LinkError::Server(error)) if error.code == server_code::LOCK_WAIT_TIMEOUT => {
            Err(ReadOnlyError::BehindCommits)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use mysql_link::Endpoint;

    use super::*;

    #[test]
    fn only_a_server_that_let_us_in_can_hold_the_closing_up() {
        let endpoint = || Endpoint::unix("/nowhere.sock");
        let source = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let timeout = |step| LinkError::Timeout {
            endpoint: endpoint(),
            step,
            limit: Duration::from_secs(2),
        };
        let closed = |step| LinkError::Closed {
            endpoint: endpoint(),
            step,
            source: source(),
        };
        let unreachable = LinkError::Unreachable {
            endpoint: endpoint(),
            source: source(),
        };
        let table = [
            (ReadOnlyError::BehindCommits, true),
            (ReadOnlyError::CalledOff, false),
            (timeout(Step::Statement).into(), true),
            (timeout(Step::Connect).into(), false),
            (timeout(Step::Greeting).into(), false),
            (timeout(Step::Authentication).into(), false),
            (closed(Step::Statement).into(), false),
            (unreachable.into(), false),
        ];
        for (error, expected) in table {
            assert_eq!(error.is_behind_commits(), expected, "{error}");
        }
    }
}
