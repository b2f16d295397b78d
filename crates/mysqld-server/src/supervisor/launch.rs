//! Starting programs: the server, its initialisation, and the version query; and the error log's
//! lines when that fails.

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
    /// The operating system reports this.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A command cannot be run.
    #[error("`{0}`: {1}")]
    NotRun(String, io::Error),
    /// A command takes too long.
    #[error("`{0}` does not end within {1:?}")]
    TooLong(String, Duration),
    /// A command fails, with this standard error.
    #[error("`{0}` ends with {1}: {2}")]
    CommandFailed(String, ExitStatus, String),
    /// mysqld does not report its version in this output.
    #[error("`{0}` tells no version: {1}")]
    NoVersion(String, String),
    /// An initialisation was no longer wanted.
    #[error("it was no longer wanted, and was killed")]
    Unwanted,
    /// An initialisation took longer than this.
    #[error("it did not end within {0:?}, and was killed")]
    Killed(Duration),
    /// mysqld ended.
    #[error("mysqld ended ({0})")]
    Ended(ExitStatus),
    /// mysqld ended before it had a process id.
    #[error("it ended immediately")]
    EndedAtOnce,
    /// An external mysqld does not run after its start.
    #[error(
        "the start command succeeded, but no mysqld runs in the data directory; set mysql.pid_file if the member may not read the \
         working directory of mysqld"
    )]
    NotFound,
    /// The data directory cannot be read.
    #[error("the data directory {} cannot be read: {}", .0.display(), .1)]
    DataDir(PathBuf, io::Error),
    /// The files of persisted values cannot be read or replaced.
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

    /// The options that the server starts with, including those of its option files; later ones
    /// take effect.
    ///
    /// # Errors
    /// When it does not print the options of its option files.
    pub(crate) async fn options_in_force(&self) -> Result<Vec<String>, SupervisorError> {
        // It reads no option files.
        if self.first_args().all(|arg| arg == "--no-defaults") {
            return Ok(self.extra_args.clone());
        }
        let mut words = self.command.clone();
        words.extend(self.first_args().cloned());
        words.push("--print-defaults".to_owned());
        let text = output_of(&words, ANSWER_LIMIT).await?;
        // A line of explanation, then the options. Blanks within them do not matter here.
        let options = text.lines().skip(1).flat_map(str::split_whitespace);
        let mut options: Vec<String> = options.map(str::to_owned).collect();
        options.extend(self.extra_args.iter().cloned());
        Ok(options)
    }

    /// In a process group of its own, so that a Ctrl-C at the member's terminal does not reach it.
    pub(super) fn spawn(&self, words: &[String]) -> Result<Child, SupervisorError> {
        let (program, arguments) = words.split_first().ok_or(SupervisorError::NoCommand)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.error_log_file())?;
        let child = Command::new(program)
            .args(arguments)
            // The service manager waits for the member's notification.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn();
        Ok(child?)
    }

    /// Runs a program to its end; kills it when that takes too long or is no longer wanted.
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

    /// The last errors in the error log, for a message; its first `before` bytes are of earlier runs.
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

/// The lines of an error log that show why a server did not start: its first error, which is mostly the cause, then the last ones in
/// reverse order.
fn errors_in(log: &str) -> Vec<&str> {
    const SHOWN: usize = 3;
    let lines = || {
        let lines = log.lines().rev().map(str::trim);
        // The last line of every failed start, whatever the reason.
        lines.filter(|line| !line.is_empty() && !line.ends_with("Aborting"))
    };
    let errors: Vec<_> = lines().filter(|line| line.contains("[ERROR]")).collect();
    if let Some((first, later)) = errors.split_last() {
        let last = later.iter().take(SHOWN - 1);
        return std::iter::once(first).chain(last).copied().collect();
    }
    // Lines written before the log is opened, and by libraries, have another format.
    let told = lines().filter(|line| !line.contains("[Note]") && !line.contains("[System]"));
    told.take(SHOWN).collect()
}

/// Output of a program that ends by itself; an error when it fails, or does not end within `limit`.
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

/// The last 64 KiB of a file after its first `before` bytes; of a shorter (rotated) file, all of it.
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

    /// Regression: the message named errors of an earlier run, fixed long before.
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
        // After a kill while InnoDB's redo log was disabled, the first one is the cause.
        let errors = ["1", "2", "3", "4"].map(|which| format!("{error} {which}"));
        let shown = [&errors[0], &errors[3], &errors[2]];
        assert_eq!(errors_in(&log(&errors.join("\n"))), shown);
        assert!(errors_in(&log("")).is_empty());
    }
}
