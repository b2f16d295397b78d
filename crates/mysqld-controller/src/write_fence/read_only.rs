//! The two statements that open and close a primary for writes. Closing needs a lock behind which it
//! waits while commits wait for their ACK, and new writes wait behind it: so its wait is bounded on
//! the server, and what is left of it is killed when the server does not keep to that.

use std::time::Duration;

use applier::events::NamedEvent;
use mysql_link::{ConnectOptions, Connection, LinkError, Step, server_code};
use thiserror::Error;

use crate::events::disable_what_is_over;

/// Why `super_read_only` could not be changed.
#[derive(Debug, Error)]
pub(crate) enum ReadOnlyError {
    #[error(
        "super_read_only cannot be set: commits wait for an ACK, or a long statement runs. No waiting commit is visible or \
         acknowledged; restore a quorum and it finishes"
    )]
    BehindCommits,
    #[error("the switchover for which it was to be closed is off")]
    CalledOff,
    #[error("super_read_only cannot be changed: {0}")]
    Link(#[from] LinkError),
}

impl ReadOnlyError {
    /// Whether mysqld let us in and then could not do it for what runs there. One that cannot be reached, breaks the connection
    /// or does not finish a login is down, starts or is busy, which says nothing of commits.
    pub(crate) const fn is_behind_commits(&self) -> bool {
        match self {
            Self::BehindCommits => true,
            Self::Link(LinkError::Timeout { step, .. }) => matches!(step, Step::Statement),
            Self::CalledOff | Self::Link(_) => false,
        }
    }
}

/// The events of a server that is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventsAtOpening {
    /// They are to run.
    pub(crate) wanted: bool,
    /// But for these, whose only time is over.
    pub(crate) over: Vec<NamedEvent>,
}

/// Lets clients write, and has the server run its events if they are wanted.
pub(crate) async fn open(
    options: &ConnectOptions,
    events: &EventsAtOpening,
) -> Result<(), ReadOnlyError> {
    let mut connection = Connection::open_with_own_settings(options).await?;
    if events.wanted && !events.over.is_empty() {
        // Ordinary accounts still cannot write.
        connection
            .execute("SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF")
            .await?;
        disable_what_is_over(&mut connection, &events.over).await?;
    }
    // It switches super_read_only off as well. Events begin behind that: before, they could do nothing but fail. All is checked
    // before anything is set.
    match connection
        .execute(if events.wanted {
            OPEN_WITH_EVENTS
        } else {
            OPEN
        })
        .await
    {
        // An option of the start has disabled the scheduler.
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
const OPEN_WITH_EVENTS: &str = "SET GLOBAL read_only = OFF, GLOBAL event_scheduler = ON";

/// Switches `super_read_only` on; waits at most `lock_wait` for statements that hold it up.
pub(crate) async fn close(
    options: &ConnectOptions,
    lock_wait: Duration,
) -> Result<(), ReadOnlyError> {
    let mut connection = Connection::open_with_own_settings(options).await?;
    close_by(&mut connection, options, lock_wait).await?;
    connection.close().await;
    Ok(())
}

/// The same by a session that is there, which was opened with these options and has its own settings: what is left of the statement
/// when its time is over would hold back new writes, and is killed with it.
pub(crate) async fn close_by(
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
