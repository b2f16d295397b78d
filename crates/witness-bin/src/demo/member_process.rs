//! A member as a process of this program: `witness run`.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::terminal::Failure;

/// A member with a mysqld stops mysqld first.
const STOP_LIMIT: Duration = Duration::from_secs(60);
const STOP_POLL: Duration = Duration::from_millis(20);
const SHOWN_LINES: usize = 15;

pub(crate) struct MemberProcess {
    name: &'static str,
    config: PathBuf,
    log: PathBuf,
    child: Option<Child>,
}

impl MemberProcess {
    /// Writes the configuration to `NAME.toml` in `directory`; the log will be `NAME.log`. No process runs
    /// yet.
    pub(crate) fn new(directory: &Path, name: &'static str, toml: &str) -> Result<Self, Failure> {
        let [config, log] = ["toml", "log"].map(|kind| directory.join(format!("{name}.{kind}")));
        fs::write(&config, toml)?;
        Ok(Self {
            name,
            config,
            log,
            child: None,
        })
    }

    pub(crate) fn start(&mut self, bootstrap: bool) -> Result<(), Failure> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").arg("--config").arg(&self.config);
        command.args(bootstrap.then_some("--bootstrap"));
        // The operator's variables are for members of the operator.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("WITNESS_") {
                command.env_remove(variable);
            }
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?);
        command.stderr(log);
        // Outside the terminal's foreground group: Ctrl-C ends the demonstration, which ends its members.
        command.process_group(0);
        self.child = Some(command.spawn()?);
        Ok(())
    }

    /// Kills it (SIGKILL).
    pub(crate) fn crash(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops it (SIGTERM).
    ///
    /// # Errors
    /// When it does not end in time, or not with success.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        kill_process(Pid::from_child(child), Signal::TERM).map_err(Failure::error)?;
        let begun = Instant::now();
        let how = loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => break format!("ended with {status}"),
                None if begun.elapsed() < STOP_LIMIT => tokio::time::sleep(STOP_POLL).await,
                None => break format!("still runs {} s after SIGTERM", STOP_LIMIT.as_secs()),
            }
        };
        let (name, lines) = (self.name, self.last_lines());
        Err(Failure::error(format!("member `{name}` {how}\n{lines}")))
    }

    /// How it has ended by itself, if it has.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(format!("member `{}` ended ({status})", self.name))
    }

    /// The end of its log.
    pub(crate) fn last_lines(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n  ");
        format!("--- {} ---\n  {shown}\n", self.name)
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        // It fails only when the process has ended.
        let _ = self.crash();
    }
}
