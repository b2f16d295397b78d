//! A mysqld that another program owns, such as systemd: commands start and stop it, and it is
//! identified by its working directory or its pid file. Its own configuration must boot it
//! `super_read_only`; that is checked after each start.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::supervisor::decision::{Found, ProcessId};
use crate::supervisor::launch::{SupervisorError, output_of};
use crate::supervisor::process::{self, Identity, Mark};

/// The owner of the server: it starts and stops it, and identifies its process.
pub trait ExternalServer: Send + Sync + fmt::Debug {
    /// Starts it, and returns once it is started.
    ///
    /// # Errors
    /// [`SupervisorError`].
    fn start(&self) -> BoxFuture<'_, Result<(), SupervisorError>>;

    /// Asks it to stop, for `limit` at most.
    ///
    /// # Errors
    /// [`SupervisorError`].
    fn stop(&self, limit: Duration) -> BoxFuture<'_, Result<(), SupervisorError>>;

    /// Kills it, so that none of its waiting commits is let through.
    ///
    /// # Errors
    /// [`SupervisorError`].
    fn kill(&self) -> BoxFuture<'_, Result<(), SupervisorError>>;

    /// How long a start may take, recovery included.
    fn start_limit(&self) -> Duration;

    /// The process that serves the data directory; among the system's processes, unless its owner has others.
    fn find(&self, mark: &Mark) -> Found {
        process::find(mark)
    }

    /// Distinguishes a process from a later one with the same number.
    fn identity(&self, id: ProcessId) -> Identity {
        Identity::of(id)
    }

    /// True if a process that served the data directory still does.
    fn serves(&self, id: ProcessId, mark: &Mark) -> bool {
        process::serves(id, mark)
    }

    /// Waits until a process has ended; indefinitely where that is not reported.
    fn ended(&self, id: ProcessId) -> BoxFuture<'_, ()> {
        Box::pin(process::ended(id))
    }
}

/// A server that commands start and stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalCommands {
    /// Program and arguments that start it, and return once it is started.
    pub start: Vec<String>,
    /// The same to ask it to stop.
    pub stop: Vec<String>,
    /// The same to kill it, so that none of its waiting commits is let through.
    pub kill: Vec<String>,
    /// How long the first and the last of them may take.
    pub limit: Duration,
}

impl ExternalServer for ExternalCommands {
    fn start(&self) -> BoxFuture<'_, Result<(), SupervisorError>> {
        Box::pin(async { output_of(&self.start, self.limit).await.map(drop) })
    }

    fn stop(&self, limit: Duration) -> BoxFuture<'_, Result<(), SupervisorError>> {
        Box::pin(async move { output_of(&self.stop, limit).await.map(drop) })
    }

    fn kill(&self) -> BoxFuture<'_, Result<(), SupervisorError>> {
        Box::pin(async { output_of(&self.kill, self.limit).await.map(drop) })
    }

    fn start_limit(&self) -> Duration {
        self.limit
    }
}

/// Why a server booted open for writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootedOpen {
    /// By its configuration, or by default.
    AsConfigured,
    /// By a persisted value, which overrides its configuration and its command line.
    AsPersisted,
}

impl BootedOpen {
    /// The message about it.
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

/// Waits until the server that was just started answers, and returns why it booted open for writes, if it did.
/// One that a statement has opened since does not count.
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

/// Whether the present start of a server booted open for writes, as long as no statement has changed that.
///
/// # Errors
/// The server does not answer.
pub async fn started_open(connection: &mut Connection) -> Result<Option<BootedOpen>, LinkError> {
    let source = "SELECT @@GLOBAL.super_read_only, variable_source \
         FROM performance_schema.variables_info WHERE variable_name = 'super_read_only'";
    let answer = connection.query(source).await?;
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
