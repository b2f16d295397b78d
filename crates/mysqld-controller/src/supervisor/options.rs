//! How mysqld is run, and the bounds of everything that it may take time for.

use std::fs;
use std::time::Duration;

use mysql_link::ConnectOptions;

use crate::supervisor::command_line::ServerCommand;
use crate::supervisor::decision::Found;
use crate::supervisor::external::ExternalCommands;
use crate::supervisor::process::{self, Mark};

/// How to run mysqld.
#[derive(Debug, Clone)]
pub struct SupervisorOptions {
    /// The command line.
    pub server: ServerCommand,
    /// How it is started and stopped when something else owns it: then of the command line only the places
    /// of its data, its binlog and its pid file matter.
    pub external: Option<ExternalCommands>,
    /// The member's account. It is created when the data directory is initialised.
    pub account: ConnectOptions,
    /// Whether an empty data directory is initialised.
    pub may_initialise: bool,
    /// How long commits may take to drain before a stop.
    pub drain_limit: Duration,
    /// How long mysqld may take to stop once asked.
    pub stop_limit: Duration,
    /// How long an initialisation may take.
    pub initialise_limit: Duration,
    /// The first and the longest wait before mysqld is started again after it died.
    pub retry: (Duration, Duration),
}

impl SupervisorOptions {
    /// The defaults: ten seconds to drain, two minutes to stop.
    pub fn new(server: ServerCommand, mut account: ConnectOptions) -> Self {
        account.program_name = "witness-supervisor".to_owned();
        account.timeouts.connect = account.timeouts.connect.min(Duration::from_secs(2));
        account.timeouts.statement = account.timeouts.statement.min(Duration::from_secs(2));
        Self {
            server,
            external: None,
            account,
            may_initialise: false,
            drain_limit: Duration::from_secs(10),
            stop_limit: Duration::from_secs(120),
            initialise_limit: Duration::from_secs(300),
            retry: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }

    /// By what the server is known among the system's processes.
    pub(super) fn mark(&self) -> Mark {
        let works_in = || fs::canonicalize(&self.server.data_dir).ok();
        Mark {
            argument: self.server.data_dir_argument(),
            works_in: self.external.as_ref().and_then(|_| works_in()),
            pid_file: self.server.pid_file.clone(),
        }
    }

    /// Kills the server, if there is one.
    ///
    /// # Errors
    /// In words.
    pub async fn kill(&self) -> Result<(), String> {
        if let Some(external) = &self.external {
            return external.kill().await;
        }
        match process::find(&self.mark()) {
            Found::Unknown(id) => process::kill(id).map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }
}
