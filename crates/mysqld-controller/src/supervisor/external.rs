//! A mysqld that something else owns, such as systemd: it is started and stopped through commands, and
//! known by the directory that it works in, or by its pid file. It has to boot `super_read_only` by its
//! own configuration; whether it did is looked at after each start.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::supervisor::launch::output_of;

/// How such a mysqld is started and stopped.
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

impl ExternalCommands {
    pub(super) async fn start(&self) -> Result<(), String> {
        output_of(&self.start, self.limit).await.map(drop)
    }

    pub(super) async fn stop(&self, limit: Duration) -> Result<(), String> {
        output_of(&self.stop, limit).await.map(drop)
    }

    pub(super) async fn kill(&self) -> Result<(), String> {
        output_of(&self.kill, self.limit).await.map(drop)
    }
}

/// Waits until the server that was just started answers, and tells whether it booted open for writes.
/// One that was opened since by a statement is not taken for such a one.
pub(super) async fn booted_open(account: &ConnectOptions) -> bool {
    loop {
        match look(account).await {
            Ok(open) => return open,
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn look(account: &ConnectOptions) -> Result<bool, LinkError> {
    let mut connection = Connection::open(account).await?;
    let answer = connection
        .query(
            "SELECT @@GLOBAL.super_read_only = 0 AND variable_source <> 'DYNAMIC' \
             FROM performance_schema.variables_info WHERE variable_name = 'super_read_only'",
        )
        .await?;
    connection.close().await;
    Ok(answer.first().and_then(|row| row.text_at(0)) == Some("1"))
}
