//! A mysqld that another program owns, for example systemd. Commands start and stop it, and its working directory or its pid file
//! identifies it. Its own configuration must boot it `super_read_only`, which is checked after each start.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::supervisor::decision::{Found, ProcessId};
use crate::supervisor::launch::{SupervisorError, output_of};
use crate::supervisor::process::{self, Identity, Mark};

/// The owner of mysqld: starts and stops mysqld, and identifies its process.
pub trait ExternalServer: Send + Sync + fmt::Debug {
    /// Starts mysqld. Returns when the start is complete.
    ///
    /// # Errors
    /// [`SupervisorError`].
    fn start(&self) -> BoxFuture<'_, Result<(), SupervisorError>>;

    /// Requests a clean stop, and waits for at most `limit`.
    ///
    /// # Errors
    /// [`SupervisorError`].
    fn stop(&self, limit: Duration) -> BoxFuture<'_, Result<(), SupervisorError>>;

    /// Kills mysqld, so that its waiting commits do not complete without an ACK.
    ///
    /// # Errors
    /// [`SupervisorError`].
    fn kill(&self) -> BoxFuture<'_, Result<(), SupervisorError>>;

    /// How long a start may take, recovery included.
    fn start_limit(&self) -> Duration;

    /// Finds the process that uses the data directory. The default searches the system's processes.
    fn find(&self, mark: &Mark) -> Found {
        process::find(mark)
    }

    /// Distinguishes a process from a later one with the same number.
    fn identity(&self, id: ProcessId) -> Identity {
        Identity::of(id)
    }

    /// True if a process that used the data directory still does.
    fn serves(&self, id: ProcessId, mark: &Mark) -> bool {
        process::serves(id, mark)
    }

    /// Waits until a process has ended; indefinitely if the end is not reported.
    fn ended(&self, id: ProcessId) -> BoxFuture<'_, ()> {
        Box::pin(process::ended(id))
    }
}

/// A mysqld that is started and stopped by commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalCommands {
    /// Program and arguments that start mysqld and return when the start is complete.
    pub start: Vec<String>,
    /// Program and arguments that request a clean stop.
    pub stop: Vec<String>,
    /// Program and arguments that kill mysqld, so that its waiting commits do not complete without an ACK.
    pub kill: Vec<String>,
    /// How long the start and the kill command may take.
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
    /// Because of its configuration, or by default.
    AsConfigured,
    /// Because of a persisted value, which overrides configuration and command line.
    AsPersisted,
}

impl BootedOpen {
    /// The message for the operator.
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

/// Waits until the server that was just started answers. Returns why it booted open for writes, or `None` if it did not. A server that a
/// statement has opened since then does not count.
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

/// Returns why the present start of the server booted open for writes. `None` if it booted closed, or a statement has changed the setting
/// since.
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
