//! Starts programs: the server, its initialisation, and the version query. Collects the error log's lines after a failed start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use mysql_link::ServerVersion;
use thiserror::Error;
use tokio::process::{Child, Command};

use crate::settings::WHY;
use crate::supervisor::command_line::ServerCommand;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Why mysqld could not be started, asked to stop or killed.
#[derive(Debug, Error)]
pub enum SupervisorError {
    /// A command line is empty.
    #[error("no command is configured")]
    NoCommand,
    /// The operating system reports this error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A command cannot be run.
    #[error("`{0}`: {1}")]
    NotRun(String, io::Error),
    /// A command does not end within its limit.
    #[error("`{0}` does not end within {1:?}")]
    TooLong(String, Duration),
    /// A command fails; the last field is its standard error.
    #[error("`{0}` ends with {1}: {2}")]
    CommandFailed(String, ExitStatus, String),
    /// The output of mysqld has no version.
    #[error("`{0}` tells no version: {1}")]
    NoVersion(String, String),
    /// The initialisation is no longer wanted, and was killed.
    #[error("it was no longer wanted, and was killed")]
    Unwanted,
    /// The initialisation took longer than this limit, and was killed.
    #[error("it did not end within {0:?}, and was killed")]
    Killed(Duration),
    /// mysqld ended.
    #[error("mysqld ended ({0})")]
    Ended(ExitStatus),
    /// mysqld ended before its process id could be read.
    #[error("it ended immediately")]
    EndedAtOnce,
    /// After the start command, no external mysqld runs.
    #[error(
        "the start command succeeded, but no mysqld runs in the data directory; set mysql.pid_file if the member may not read the \
         working directory of mysqld"
    )]
    NotFound,
    /// The data directory cannot be read.
    #[error("the data directory {} cannot be read: {}", .0.display(), .1)]
    DataDir(PathBuf, io::Error),
    /// The files with persisted values cannot be read or replaced.
    #[error("what is persisted in its data directory cannot be made ready for a start: {0}")]
    PersistedFile(io::Error),
    /// Persisted values contradict the member's command line.
    #[error(
        "{} is persisted in mysqld-auto.cnf; {}; set mysql.manage_settings = true for the member to take it out, or \
         start mysqld once with --persisted-globals-load=OFF --super-read-only=ON and RESET PERSIST it",
        .0,
        WHY
    )]
    Persisted(String),
    /// A start failed, for this reason.
    #[error("{0}")]
    NotStarted(String),
    /// The supervisor has ended.
    #[error("the member stops managing its mysqld")]
    SupervisorEnded,
}

impl ServerCommand {
    pub(super) async fn ask_version(&self) -> Result<ServerVersion, SupervisorError> {
        let mut words = self.command.clone();
        words.extend(["--no-defaults", "--version"].map(str::to_owned));
        let text = output_of(&words, ANSWER_LIMIT).await?;
        let version = text.split("Ver ").nth(1).and_then(|rest| rest.parse().ok());
        version.ok_or_else(|| SupervisorError::NoVersion(words.join(" "), text))
    }

    /// Returns the options that the server starts with, including those of its option files. Later options override earlier ones.
    ///
    /// # Errors
    /// When mysqld does not print the options of its option files.
    pub(crate) async fn options_in_force(&self) -> Result<Vec<String>, SupervisorError> {
        // With this option, mysqld reads no option files.
        if self.first_args().all(|arg| arg == "--no-defaults") {
            return Ok(self.extra_args.clone());
        }
        let mut words = self.command.clone();
        words.extend(self.first_args().cloned());
        words.push("--print-defaults".to_owned());
        let text = output_of(&words, ANSWER_LIMIT).await?;
        // The first line is an explanation, and the options follow. Whitespace within options does not matter here.
        let options = text.lines().skip(1).flat_map(str::split_whitespace);
        let mut options: Vec<String> = options.map(str::to_owned).collect();
        options.extend(self.extra_args.iter().cloned());
        Ok(options)
    }

    /// Starts the server in a separate process group, so that a Ctrl-C at the member's terminal does not reach it.
    pub(super) fn spawn(&self, words: &[String]) -> Result<Child, SupervisorError> {
        let (program, arguments) = words.split_first().ok_or(SupervisorError::NoCommand)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.error_log_file())?;
        let child = Command::new(program)
            .args(arguments)
            // The service manager expects this notification from the member, not from mysqld.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn();
        Ok(child?)
    }

    /// Runs a program to its end. Kills the program if it takes too long or is no longer wanted.
    pub(super) async fn run_bounded(
        &self,
        words: &[String],
        limit: Duration,
        unwanted: impl Future<Output = ()>,
    ) -> Result<ExitStatus, SupervisorError> {
        let mut child = self.spawn(words)?;
        let why = tokio::select! {
            ended = child.wait() => return Ok(ended?),
            () = unwanted => SupervisorError::Unwanted,
            () = tokio::time::sleep(limit) => SupervisorError::Killed(limit),
        };
        child.kill().await?;
        Err(why)
    }

    /// Size of the error log in bytes.
    pub(super) fn error_log_len(&self) -> u64 {
        fs::metadata(self.error_log_file()).map_or(0, |log| log.len())
    }

    /// Returns the last errors in the error log, for a message. The first `before` bytes belong to earlier runs.
    pub(super) fn last_errors(&self, before: u64) -> String {
        let file = self.error_log_file();
        let log = end_of(&file, before).unwrap_or_default();
        let errors = errors_in(&String::from_utf8_lossy(&log)).join(" / ");
        match errors.is_empty() {
            true => format!("; see {}", file.display()),
            false => format!("; {} says: {errors}", file.display()),
        }
    }
}

/// Returns the lines of an error log that show why a server did not start: the first error, which is usually the cause, then the last
/// errors in reverse order.
fn errors_in(log: &str) -> Vec<&str> {
    const SHOWN: usize = 3;
    let lines = || {
        let lines = log.lines().rev().map(str::trim);
        // The last line of every failed start, whatever the cause.
        lines.filter(|line| !line.is_empty() && !line.ends_with("Aborting"))
    };
    let errors: Vec<_> = lines().filter(|line| line.contains("[ERROR]")).collect();
    if let Some((first, later)) = errors.split_last() {
        let last = later.iter().take(SHOWN - 1);
        return std::iter::once(first).chain(last).copied().collect();
    }
    // Lines from before the log is opened, and from libraries, have another format.
    let told = lines().filter(|line| !line.contains("[Note]") && !line.contains("[System]"));
    told.take(SHOWN).collect()
}

/// Returns the output of a program. An error if the program fails, or does not end within `limit`.
pub(super) async fn output_of(
    words: &[String],
    limit: Duration,
) -> Result<String, SupervisorError> {
    let (program, arguments) = words.split_first().ok_or(SupervisorError::NoCommand)?;
    let command = words.join(" ");
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(limit, output).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(SupervisorError::NotRun(command, error)),
        Err(_) => return Err(SupervisorError::TooLong(command, limit)),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(SupervisorError::CommandFailed(
        command,
        output.status,
        errors,
    ))
}

/// Returns the last 64 KiB of a file after its first `before` bytes. If the file is shorter than that (rotated), reads it from the
/// beginning.
fn end_of(path: &Path, before: u64) -> io::Result<Vec<u8>> {
    const SHOWN: u64 = 64 << 10;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let before = if before <= length { before } else { 0 };
    file.seek(SeekFrom::Start(length.saturating_sub(SHOWN).max(before)))?;
    let mut end = Vec::new();
    file.take(SHOWN).read_to_end(&mut end)?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the message named errors of an earlier run, which had been fixed.
    #[test]
    fn what_an_earlier_run_said_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("mysqld.err");
        let said = |before| String::from_utf8(end_of(&log, before).unwrap()).unwrap();
        fs::write(&log, "first\nsecond\n").unwrap();
        assert_eq!(said(6), "second\n");
        assert_eq!(said(0), "first\nsecond\n");
        assert_eq!(said(100), "first\nsecond\n", "it was rotated");
    }

    #[test]
    fn an_error_log_says_why_a_server_did_not_start() {
        let before =
            "2026-11-28T16:17:29.4Z 0 [System] [MY-015015] [Server] MySQL Server - start.\n";
        let after = "2026-11-28T16:17:29.6Z 0 [ERROR] [MY-010119] [Server] Aborting\n\
                     2026-11-28T16:17:29.7Z 0 [System] [MY-015016] [Server] MySQL Server - end.\n\n";
        let error =
            "2026-11-28T16:17:29.5Z 0 [ERROR] [MY-010095] [Server] Failed to access directory.";
        let plain = "mysqld: Can't read dir of '/etc/mysql/conf.d/'";
        let log = |lines: &str| format!("{before}{lines}\n{after}");
        assert_eq!(errors_in(&log(error)), [error]);
        assert_eq!(errors_in(&log(&format!("{plain}\n{error}"))), [error]);
        assert_eq!(errors_in(&log(plain)), [plain]);
        // After a kill while InnoDB's redo log was disabled, the first error is the cause.
        let errors = ["1", "2", "3", "4"].map(|which| format!("{error} {which}"));
        let shown = [&errors[0], &errors[3], &errors[2]];
        assert_eq!(errors_in(&log(&errors.join("\n"))), shown);
        assert!(errors_in(&log("")).is_empty());
    }
}
