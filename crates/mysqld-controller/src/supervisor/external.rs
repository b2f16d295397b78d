//! A mysqld that something else owns, such as systemd: it is started and stopped through commands, and
//! known by the directory that it works in, or by its pid file. It has to boot `super_read_only` by its
//! own configuration; whether it did is looked at after each start.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::supervisor::decision::{Found, ProcessId};
use crate::supervisor::launch::output_of;
use crate::supervisor::process;
use crate::supervisor::process::{Identity, Mark};

/// Whatever owns the server: it is started and stopped through this, and looked for among its processes.
pub trait ExternalServer: Send + Sync + fmt::Debug {
    /// Starts it, and ends once it is started.
    ///
    /// # Errors
    /// In words.
    fn start(&self) -> BoxFuture<'_, Result<(), String>>;

    /// Asks it to stop, for `limit` at most.
    ///
    /// # Errors
    /// In words.
    fn stop(&self, limit: Duration) -> BoxFuture<'_, Result<(), String>>;

    /// Kills it, so that nothing which waits in it is let through.
    ///
    /// # Errors
    /// In words.
    fn kill(&self) -> BoxFuture<'_, Result<(), String>>;

    /// How long a start may take, recovery included.
    fn start_limit(&self) -> Duration;

    /// What serves the data directory; among the system's processes, unless its owner has others.
    fn find(&self, mark: &Mark) -> Found {
        process::find(mark)
    }

    /// Distinguishes a process from a later one with its number.
    fn identity(&self, id: ProcessId) -> Identity {
        Identity::of(id)
    }

    /// Whether a process that served the data directory still does.
    fn serves(&self, id: ProcessId, mark: &Mark) -> bool {
        process::serves(id, mark)
    }
}

/// A server that is started and stopped by commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalCommands {
    /// Program and arguments that start it, and end once it is started.
    pub start: Vec<String>,
    /// Those that ask it to stop.
    pub stop: Vec<String>,
    /// Those that kill it, so that nothing which waits in it is let through.
    pub kill: Vec<String>,
    /// How long the first and the last of them may take.
    pub limit: Duration,
}

impl ExternalServer for ExternalCommands {
    fn start(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { output_of(&self.start, self.limit).await.map(drop) })
    }

    fn stop(&self, limit: Duration) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move { output_of(&self.stop, limit).await.map(drop) })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { output_of(&self.kill, self.limit).await.map(drop) })
    }

    fn start_limit(&self) -> Duration {
        self.limit
    }
}

/// What made a server boot open for writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BootedOpen {
    /// Its configuration, or nothing that says otherwise.
    AsConfigured,
    /// A persisted value, which wins over its configuration and its command line.
    AsPersisted,
}

impl BootedOpen {
    /// What is told of it.
    pub(super) fn words(self) -> String {
        let advice = match self {
            Self::AsConfigured => "add super_read_only = ON to its configuration",
            Self::AsPersisted => {
                "run RESET PERSIST super_read_only, because the persisted OFF wins over its configuration, which has to say super_read_only = ON"
            }
        };
        format!(
            "mysqld started open for writes, and clients may have written before the member closed it: {advice}"
        )
    }
}

/// Waits until the server that was just started answers, and tells whether it booted open for writes.
/// One that was opened since by a statement is not taken for such a one.
pub(super) async fn booted_open(account: &ConnectOptions) -> Option<BootedOpen> {
    loop {
        match look(account).await {
            Ok(open) => return open,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn look(account: &ConnectOptions) -> Result<Option<BootedOpen>, LinkError> {
    let mut connection = Connection::open_with_own_settings(account).await?;
    let open = started_open(&mut connection).await?;
    connection.close().await;
    Ok(open)
}

/// Whether the present start of a server began open for writes, as long as no statement has changed that.
///
/// # Errors
/// The server does not answer.
pub(crate) async fn started_open(
    connection: &mut Connection,
) -> Result<Option<BootedOpen>, LinkError> {
    let answer = connection
        .query(
            "SELECT @@GLOBAL.super_read_only, variable_source \
             FROM performance_schema.variables_info WHERE variable_name = 'super_read_only'",
        )
        .await?;
    let row = answer.first();
    Ok(
        match row.and_then(|row| row.text_at(0).zip(row.text_at(1))) {
            Some(("0", "DYNAMIC")) => None,
            Some(("0", "PERSISTED")) => Some(BootedOpen::AsPersisted),
            Some(("0", _)) => Some(BootedOpen::AsConfigured),
            _ => None,
        },
    )
}
